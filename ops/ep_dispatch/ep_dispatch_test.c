/* SPDX-License-Identifier: Apache-2.0 */
#include "ep_dispatch.h"

#include "support/op_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Columns of the output; 0 when refused. */
static int64_t columns_of(int64_t n, int64_t experts, uint32_t tp, uint32_t ep) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    b.g->tp = tp;
    b.g->ep = ep;
    op_spec spec = {.kind = "ep_dispatch", .name = "it"};
    spec.in[0] = build_input(&b, "x", n);
    spec.in[1] = build_input(&b, "w", experts);
    int out = build_op(&b, spec);
    if (build_finish(&b, &g) != KEEL_OK) {
        assert_non_null(strstr(err.detail, "input 1 (w) must be [M, experts]"));
        return 0;
    }
    int64_t width = graph_tensor_at(g, out)->dim[1];
    graph_close(g);
    return width;
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
