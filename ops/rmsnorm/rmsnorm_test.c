/* SPDX-License-Identifier: Apache-2.0 */
#include "rmsnorm.h"

#include "support/op_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 16 };

static void reference(harness *h, int x, int64_t n, double eps, uint32_t rows, double *want) {
    const float *in = harness_tensor(h, x), *w = harness_weight(h, "w");
    for (uint32_t r = 0; r < rows; r++) {
        double squares = 0;
        for (int64_t j = 0; j < n; j++) squares += (double)in[r * n + j] * (double)in[r * n + j];
        double scale = 1 / sqrt(squares / (double)n + eps);
        for (int64_t j = 0; j < n; j++) want[r * n + j] = (double)w[j] * (double)in[r * n + j] * scale;
    }
}

static void check(dtype type, int64_t n, double eps, bool logit_rows, uint32_t workers, uint32_t lanes) {
    harness *h =
        harness_new((harness_config){.seed = (unsigned)n, .workers = workers, .lanes = lanes, .weight_dtype = type});
    int x = harness_input(h, "x", n);
    op_spec spec = {.kind = "rmsnorm",
                    .name = "norm",
                    .in = {x},
                    .weight = {{.key = "w", .dim = {n}}},
                    .attr = {{"eps", eps}, {"logit_rows", logit_rows}}};
    int out = build_op(harness_build(h), spec);
    harness_ready(h);
    double *want = calloc((size_t)(ROWS * n), sizeof *want);
    assert_non_null(want);
    reference(h, x, n, eps, ROWS, want);
    static const uint32_t rows[] = {1, 2, 3, 15, 16};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int last = 0; last < 2; last++) {
            harness_run(h, rows[i], 0, NULL, last);
            const float *got = harness_tensor(h, out);
            uint32_t first = logit_rows && last ? rows[i] - 1 : 0;
            harness_compare(&keel_op_rmsnorm, "rmsnorm", got + first * n, want + first * n, rows[i] - first,
                            (uint32_t)n, (uint32_t)n, (uint32_t)n);
            for (uint32_t r = 0; r < ROWS; r++) { /* rows that are not wanted stay as they are */
                if (r < first || r >= rows[i]) assert_true(isnan(got[r * n]) && isnan(got[r * n + n - 1]));
            }
        }
    }
    free(want);
    harness_close(h);
}

static void against_double(void **state) {
    (void)state;
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int t = 0; t < 3; t++) {
        for (int logit_rows = 0; logit_rows < 2; logit_rows++) {
            check(types[t], 1, 1e-6, logit_rows, 1, 2);
            check(types[t], 7, 1e-5, logit_rows, 2, 1);
            check(types[t], 64, 0, logit_rows, 3, 2);
            check(types[t], 1001, 0.5, logit_rows, 7, 1);
        }
    }
}

/* An input that has only the rows whose logits are wanted. All its rows hold numbers, so that a body that computes too
 * many rows leaves a number where none belongs. */
static int logit_input(harness *h, const char *name, int64_t cols) {
    int id = harness_input(h, name, cols);
    harness_build(h)->g->tensors[id].dim[0] = GRAPH_M_LOGIT;
    return id;
}

/* Logit rows in, logit rows out, without the attribute. */
static void logit_rows_stay(void **state) {
    (void)state;
    enum { N = 24 };
    harness *h = harness_new((harness_config){.seed = 5});
    int x = logit_input(h, "x", N);
    op_spec spec = {
        .kind = "rmsnorm", .name = "norm", .in = {x}, .weight = {{.key = "w", .dim = {N}}}, .attr = {{"eps", 1e-6}}};
    int out = build_op(harness_build(h), spec);
    harness_ready(h);
    harness_run(h, 9, 0, NULL, true);
    double want[ROWS * N];
    reference(h, x, N, 1e-6, ROWS, want);
    const float *got = harness_tensor(h, out);
    harness_compare(&keel_op_rmsnorm, "rmsnorm of logit rows", got + 8 * N, want + 8 * N, 1, N, N, N);
    assert_true(isnan(got[7 * N]) && isnan(got[9 * N]));
    harness_close(h);
}

/* An input that another op computes must be waited for. */
static void waits_for_input(void **state) {
    (void)state;
    enum { N = 700 };
    harness *h = harness_new((harness_config){.seed = 6, .workers = 3});
    int a = harness_input(h, "a", N), b = harness_input(h, "b", N);
    int x = build_op(harness_build(h), (op_spec){.kind = "add", .name = "x", .in = {a, b}});
    op_spec spec = {
        .kind = "rmsnorm", .name = "norm", .in = {x}, .weight = {{.key = "w", .dim = {N}}}, .attr = {{"eps", 1e-6}}};
    int out = build_op(harness_build(h), spec);
    harness_ready(h);
    double want[ROWS * N];
    for (int i = 0; i < 5; i++) {
        harness_run(h, ROWS, 0, NULL, true);
        reference(h, x, N, 1e-6, ROWS, want);
        harness_compare(&keel_op_rmsnorm, "rmsnorm of a sum", harness_tensor(h, out), want, ROWS, N, N, N);
    }
    harness_close(h);
}

/* A row gives the same bits alone and among sixteen. */
static void rows_do_not_meet(void **state) {
    (void)state;
    enum { N = 333 };
    harness *h = harness_new((harness_config){.seed = 11});
    int x = harness_input(h, "x", N);
    op_spec spec = {
        .kind = "rmsnorm", .name = "norm", .in = {x}, .weight = {{.key = "w", .dim = {N}}}, .attr = {{"eps", 1e-6}}};
    int out = build_op(harness_build(h), spec);
    harness_ready(h);
    harness_run(h, ROWS, 0, NULL, true);
    float all[ROWS * N];
    memcpy(all, harness_tensor(h, out), sizeof all);
    for (uint32_t r = 0; r < ROWS; r++) {
        memmove(harness_tensor(h, x), harness_tensor(h, x) + r * N, N * sizeof(float));
        harness_run(h, 1, 0, NULL, true);
        assert_memory_equal(harness_tensor(h, out), all + r * N, N * sizeof(float));
    }
    harness_close(h);
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
    op_spec good = {.kind = "rmsnorm", .in = {1}, .weight = {{.key = "w", .dim = {8}}}, .attr = {{"eps", 1e-6}}},
            bad = good;
    bad.weight[0].dim[0] = 9;
    refuses(8, bad, KEEL_FORMAT, "9 elements");
    bad.weight[0].dim[1] = 8;
    refuses(8, bad, KEEL_FORMAT, "rank 2");
    bad = good;
    bad.attr[0].value = -1;
    refuses(8, bad, KEEL_RANGE, "eps -1");
    bad = good;
    bad.attr[1] = (graph_attr){"logit_rows", 2};
    refuses(8, bad, KEEL_RANGE, "logit_rows 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_double), cmocka_unit_test(logit_rows_stay),
                                       cmocka_unit_test(waits_for_input), cmocka_unit_test(rows_do_not_meet),
                                       cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
