/* SPDX-License-Identifier: Apache-2.0 */
#include "all_gather.h"

#include "support/op_cases.h"
#include "support/rank_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Columns of the output when each of `tp` ranks has n and the whole `cols`; 0 when refused. */
static int64_t columns_of(int64_t n, uint32_t tp, double cols) {
    op_spec spec = {.kind = "all_gather", .in = {(int)n}, .attr = {{"cols", cols}}};
    return rank_columns(spec, (rank_world){.tp = tp, .ep = 1}, "it: cols");
}

static void padding_is_less_than_a_column_a_rank(void **state) {
    (void)state;
    assert_int_equal(columns_of(7, 1, 0), 7);
    assert_int_equal(columns_of(7, 4, 0), 28);
    for (int64_t cols = 1; cols <= 40; cols++) {
        for (uint32_t tp = 1; tp <= 8; tp++) {
            int64_t need = cols / tp + (cols % tp != 0);
            assert_int_equal(columns_of(need, tp, (double)cols), cols);
            assert_int_equal(columns_of(need + 1, tp, (double)cols), 0);
            if (need > 1) assert_int_equal(columns_of(need - 1, tp, (double)cols), 0);
        }
    }
    assert_int_equal(columns_of(7, 4, 26.5), 0);
    assert_int_equal(columns_of(7, 4, -1), 0);
    assert_int_equal(columns_of(7, 4, 1e300), 0);
}

static void bad_shapes(void **state) {
    (void)state;
    op_refuses((op_spec){.kind = "all_gather"}, KEEL_FORMAT, "takes 1 to 1 inputs");
    op_refuses((op_spec){.kind = "all_gather", .in = {4, 4}}, KEEL_FORMAT, "takes 1 to 1 inputs");
    op_refuses((op_spec){.kind = "all_gather", .in = {4}, .attr = {{"cols", 3}}}, KEEL_FORMAT, "cols 3");
}

static void tasks(void **state) {
    (void)state;
    static const int n[] = {1, 17, 1001, 40000};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        for (int padding = 0; padding <= 3; padding += 3) {
            op_spec spec = {.kind = "all_gather", .in = {n[i]}, .attr = {{"cols", 4 * n[i] - padding}}};
            rank_tiles(spec, (rank_world){.tp = 4, .ep = 1, .rank = 2, .workers = 3});
            rank_tiles(spec, (rank_world){.tp = 4, .ep = 1, .rank = 0, .workers = 1});
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(padding_is_less_than_a_column_a_rank),
                                       cmocka_unit_test(bad_shapes), cmocka_unit_test(tasks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
