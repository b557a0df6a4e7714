/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor_init.h"

#include "support/op_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 16 };

static void check(uint32_t cols, const graph_attr *value, double worth, uint32_t workers, uint32_t lanes) {
    harness *h = harness_new((harness_config){.seed = cols, .workers = workers, .lanes = lanes});
    op_spec spec = {.kind = "tensor_init", .name = "init", .attr = {{"cols", cols}}};
    if (value) spec.attr[1] = *value;
    int out = build_op(harness_build(h), spec);
    harness_ready(h);
    double *want = calloc((size_t)ROWS * cols, sizeof *want);
    assert_non_null(want);
    for (size_t i = 0; i < (size_t)ROWS * cols; i++) want[i] = worth;
    static const uint32_t rows[] = {1, 2, 3, 15, 16};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        harness_run(h, rows[i], 0, NULL, i & 1);
        harness_compare(&keel_op_tensor_init, "tensor_init", harness_tensor(h, out), want, rows[i], cols, cols, cols);
        if (rows[i] < ROWS) assert_true(isnan(harness_tensor(h, out)[rows[i] * cols])); /* and no other row */
    }
    free(want);
    harness_close(h);
}

static void one_value(void **state) {
    (void)state;
    graph_attr value = {"value", -0.375};
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        check(1, NULL, 0, 2, lanes);
        check(77, &value, -0.375, 1, lanes);
        check(1001, &value, -0.375, 7, lanes);
        check(200, NULL, 0, 3, lanes);
    }
}

/* Runs the shape rule alone; the text must name the op and what is wrong. */
static void refuses(int64_t x_cols, op_spec spec, keel_status status, const char *what) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    int x = build_input(&b, "x", x_cols);
    for (int i = 0; i < GRAPH_IN; i++) spec.in[i] = spec.in[i] == 1 ? x : spec.in[i];
    spec.name = "l7.it";
    build_op(&b, spec);
    assert_int_equal(build_finish(&b, &g), status);
    if (!strstr(err.detail, what) || !strstr(err.detail, "l7.it")) fail_msg("%s", err.detail);
}

static void bad_shapes(void **state) {
    (void)state;
    refuses(8, (op_spec){.kind = "tensor_init", .attr = {{"cols", 0}}}, KEEL_RANGE, "cols 0");
    refuses(8, (op_spec){.kind = "tensor_init", .attr = {{"cols", 2.5}}}, KEEL_RANGE, "cols 2.5");
    refuses(8, (op_spec){.kind = "tensor_init"}, KEEL_FORMAT, "cols");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_value), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
