/* SPDX-License-Identifier: Apache-2.0 */
#include "ep_dispatch.h"

#include "support/op_cases.h"
#include "support/rank_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int64_t columns_of(int n, int experts, uint32_t tp, uint32_t ep) {
    op_spec spec = {.kind = "ep_dispatch", .in = {n, experts}};
    return rank_columns(spec, (rank_world){.tp = tp, .ep = ep}, "input 1 (w) must be [M, experts]");
}

static void shapes(void **state) {
    (void)state;
    assert_int_equal(columns_of(10, 6, 1, 1), 10);
    assert_int_equal(columns_of(10, 6, 8, 2), 80);
    assert_int_equal(columns_of(10, 6, 8, 4), 0);
}

static void bad_shapes(void **state) {
    (void)state;
    op_refuses((op_spec){.kind = "ep_dispatch", .in = {4}}, KEEL_FORMAT, "takes 2 to 2 inputs");
}

static void tasks(void **state) {
    (void)state;
    static const int n[] = {1, 17, 1001, 20000};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        op_spec spec = {.kind = "ep_dispatch", .in = {n[i], 64}};
        rank_tiles(spec, (rank_world){.tp = 8, .ep = 2, .rank = 5, .workers = 3});
        rank_tiles(spec, (rank_world){.tp = 8, .ep = 8, .rank = 7, .workers = 1});
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(bad_shapes), cmocka_unit_test(tasks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
