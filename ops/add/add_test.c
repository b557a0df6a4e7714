/* SPDX-License-Identifier: Apache-2.0 */
#include "add.h"

#include "support/op_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 16 };

static void reference(harness *h, int a, int b, int64_t n, double *want) {
    const float *x = harness_tensor(h, a), *y = harness_tensor(h, b);
    for (int64_t i = 0; i < ROWS * n; i++) want[i] = (double)(x[i] + y[i]);
}

/* An input that has only the rows whose logits are wanted. All its rows hold numbers, so that a body that computes too
 * many rows leaves a number where none belongs. */
static int logit_input(harness *h, const char *name, int64_t cols) {
    int id = harness_input(h, name, cols);
    harness_build(h)->g->tensors[id].dim[0] = GRAPH_M_LOGIT;
    return id;
}

/* An input that another op computes, and that must be waited for. */
static int computed_input(harness *h, const char *name, int64_t cols) {
    build *b = harness_build(h);
    int a = harness_input(h, build_text(b, "%s.a", name), cols),
        c = harness_input(h, build_text(b, "%s.b", name), cols);
    return build_op(b, (op_spec){.kind = "add", .name = name, .in = {a, c}});
}

typedef int (*input_of)(harness *h, const char *name, int64_t cols);

static void check(int64_t n, input_of input, uint32_t workers, uint32_t lanes) {
    harness *h = harness_new((harness_config){.seed = (unsigned)n, .workers = workers, .lanes = lanes});
    int a = input(h, "a", n), b = input(h, "b", n);
    int out = build_op(harness_build(h), (op_spec){.kind = "add", .name = "it", .in = {a, b}});
    harness_ready(h);
    for (int64_t i = 0; i < ROWS * n; i++) harness_tensor(h, a)[i] *= 30;
    double *want = calloc((size_t)(ROWS * n), sizeof *want);
    assert_non_null(want);
    static const uint32_t rows[] = {1, 2, 3, 15, 16};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool last = i & 1;
        harness_run(h, rows[i], 0, NULL, last);
        reference(h, a, b, n, want);
        const float *got = harness_tensor(h, out);
        uint32_t first = input == logit_input && last ? rows[i] - 1 : 0;
        harness_compare(&keel_op_add, "add", got + first * n, want + first * n, rows[i] - first, (uint32_t)n,
                        (uint32_t)n, (uint32_t)n);
        for (uint32_t r = 0; r < ROWS; r++) { /* rows that are not wanted stay as they are */
            if (r < first || r >= rows[i]) assert_true(isnan(got[r * n]) && isnan(got[r * n + n - 1]));
        }
    }
    free(want);
    harness_close(h);
}

static void exact(void **state) {
    (void)state;
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        for (int i = 0; i < 3; i++) {
            static const input_of input[] = {harness_input, logit_input, computed_input};
            check(1, input[i], 2, lanes);
            check(77, input[i], 1, lanes);
            check(200, input[i], 3, lanes);
            check(1001, input[i], 7, lanes);
        }
        check(20000, harness_input, 1, lanes); /* more than one region holds */
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
    refuses(8, (op_spec){.kind = "add", .in = {1}}, KEEL_FORMAT, "2 inputs");
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    int x = build_input(&b, "x", 8), y = build_input(&b, "y", 9);
    build_op(&b, (op_spec){.kind = "add", .name = "it", .in = {x, y}});
    assert_int_equal(build_finish(&b, &g), KEEL_FORMAT);
    assert_non_null(
        strstr(err.detail, "it: expected two activations of one shape; x has rank 2 and 8 columns, y rank 2 and 9"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(exact), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
