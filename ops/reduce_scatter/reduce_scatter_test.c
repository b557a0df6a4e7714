/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce_scatter.h"

#include "support/op_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Columns of the output over `tp` ranks, 0 when refused with these words. */
static int64_t columns_of(int64_t cols, uint32_t tp, const char *words) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    b.g->tp = tp;
    op_spec spec = {.kind = "reduce_scatter", .name = "it", .in = {build_input(&b, "x", cols)}};
    int out = build_op(&b, spec);
    if (build_finish(&b, &g) != KEEL_OK) {
        if (!words || !strstr(err.detail, words)) fail_msg("%s", err.detail);
        return 0;
    }
    const graph_tensor *t = graph_tensor_at(g, out);
    assert_true(t->rank == 2 && t->dim[0] == GRAPH_M);
    int64_t n = t->dim[1];
    graph_close(g);
    return n;
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
