/* SPDX-License-Identifier: Apache-2.0 */
#include "all_gather.h"

#include "support/op_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Columns of the output when each of `tp` ranks has n and the whole `cols`; 0 when refused. */
static int64_t columns_of(int64_t n, uint32_t tp, double cols) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    b.g->tp = tp;
    op_spec spec = {.kind = "all_gather", .name = "it", .in = {build_input(&b, "x", n)}, .attr = {{"cols", cols}}};
    int out = build_op(&b, spec);
    if (build_finish(&b, &g) != KEEL_OK) {
        assert_non_null(strstr(err.detail, "it: cols"));
        return 0;
    }
    const graph_tensor *t = graph_tensor_at(g, out);
    assert_true(t->rank == 2 && t->dim[0] == GRAPH_M);
    int64_t width = t->dim[1];
    graph_close(g);
    return width;
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(padding_is_less_than_a_column_a_rank),
                                       cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
