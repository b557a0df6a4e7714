/* SPDX-License-Identifier: Apache-2.0 */
#include "allreduce.h"

#include "support/op_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The output has the partial's rows and columns, whatever else is bound. */
static void shapes(void **state) {
    (void)state;
    for (int with = 0; with < 4; with++) {
        keel_error err = KEEL_ERROR_INITIALIZER;
        build b;
        graph *g = NULL;
        assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
        b.g->tp = 4;
        op_spec spec = {.kind = "allreduce", .name = "it", .in = {build_input(&b, "x", 40)}};
        if (with & 1) spec.in[1] = build_input(&b, "y", 40);
        if (with & 2) spec.weight[0] = (weight_spec){.key = "b", .dim = {40}};
        int out = build_op(&b, spec);
        if (build_finish(&b, &g) != KEEL_OK) fail_msg("%s", err.detail);
        const graph_tensor *t = graph_tensor_at(g, out);
        assert_int_equal(t->rank, 2);
        assert_int_equal(t->dim[0], GRAPH_M);
        assert_int_equal(t->dim[1], 40);
        graph_close(g);
    }
}

static void bad_shapes(void **state) {
    (void)state;
    op_refuses((op_spec){.kind = "allreduce", .in = {40, 41}}, KEEL_FORMAT, "residual y");
    op_refuses((op_spec){.kind = "allreduce", .in = {40}, .weight = {{.key = "b", .dim = {41}}}}, KEEL_FORMAT,
               "bias b");
    op_refuses((op_spec){.kind = "allreduce", .in = {40}, .weight = {{.key = "b", .dim = {40, 1}}}}, KEEL_FORMAT,
               "bias b");
    op_refuses((op_spec){.kind = "allreduce"}, KEEL_FORMAT, "takes 1 to 2 inputs");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
