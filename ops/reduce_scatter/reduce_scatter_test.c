/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce_scatter.h"

#include "support/op_cases.h"
#include "support/rank_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int64_t columns_of(int cols, uint32_t tp, const char *words) {
    op_spec spec = {.kind = "reduce_scatter", .in = {cols}};
    return rank_columns(spec, (rank_world){.tp = tp, .ep = 1}, words);
}

static void shapes(void **state) {
    (void)state;
    assert_int_equal(columns_of(40, 1, NULL), 40);
    assert_int_equal(columns_of(40, 2, NULL), 20);
    assert_int_equal(columns_of(40, 8, NULL), 5);
    assert_int_equal(columns_of(40, 3, "40 columns of input x do not divide by W = 3"), 0);
}

static void bad_shapes(void **state) {
    (void)state;
    op_refuses((op_spec){.kind = "reduce_scatter"}, KEEL_FORMAT, "takes 1 to 1 inputs");
    op_refuses((op_spec){.kind = "reduce_scatter", .in = {4, 4}}, KEEL_FORMAT, "takes 1 to 1 inputs");
}

static void tasks(void **state) {
    (void)state;
    static const int cols[] = {8, 40, 8 * 1001, 8 * 40000};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        op_spec spec = {.kind = "reduce_scatter", .in = {cols[i]}};
        for (uint32_t rank = 0; rank < 8; rank += 7) {
            rank_tiles(spec, (rank_world){.tp = 8, .ep = 1, .rank = rank, .workers = 3});
        }
        rank_tiles(spec, (rank_world){.tp = 2, .ep = 1, .rank = 1, .workers = 1});
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(bad_shapes), cmocka_unit_test(tasks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
