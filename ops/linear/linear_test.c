/* SPDX-License-Identifier: Apache-2.0 */
#include "linear.h"

#include "support/op_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 16 };

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

typedef struct shape {
    uint32_t n, k;
    bool bias;
    input_of input; /* NULL: harness_input */
    uint32_t workers, lanes;
} shape;

typedef struct run {
    harness *h;
    shape s;
    int x, out;
    double *want; /* [ROWS][n] */
} run;

static void reference(run *t) {
    const float *x = harness_tensor(t->h, t->x), *w = harness_weight(t->h, "w");
    const float *bias = t->s.bias ? harness_weight(t->h, "b") : NULL;
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t j = 0; j < t->s.n; j++) {
            double sum = bias ? (double)bias[j] : 0;
            for (uint32_t i = 0; i < t->s.k; i++)
                sum += (double)w[(size_t)j * t->s.k + i] * (double)x[(size_t)r * t->s.k + i];
            t->want[(size_t)r * t->s.n + j] = sum;
        }
    }
}

static run open_run(dtype type, shape s) {
    run t = {.s = s, .want = calloc((size_t)ROWS * s.n, sizeof(double))};
    assert_non_null(t.want);
    t.h = harness_new(
        (harness_config){.seed = s.n * 1000 + s.k, .workers = s.workers, .lanes = s.lanes, .weight_dtype = type});
    build *b = harness_build(t.h);
    input_of input = s.input ? s.input : harness_input;
    t.x = input(t.h, "x", s.k);
    op_spec op = {.kind = "linear", .name = "proj", .in = {t.x}, .weight = {{.key = "w", .dim = {s.n, s.k}}}};
    if (s.bias) op.weight[1] = (weight_spec){.key = "b", .dim = {s.n}};
    t.out = build_op(b, op);
    harness_ready(t.h);
    return t;
}

static void close_run(run *t) {
    free(t->want);
    harness_close(t->h);
}

/* rows 1 … 16, and those not wanted stay as they are. */
static void check(dtype type, shape s) {
    run t = open_run(type, s);
    static const uint32_t rows[] = {1, 2, 3, 15, 16};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool last = i & 1;
        harness_run(t.h, rows[i], 0, NULL, last);
        reference(&t);
        const float *got = harness_tensor(t.h, t.out);
        uint32_t first = s.input == logit_input && last ? rows[i] - 1 : 0;
        harness_compare(&keel_op_linear, "linear", got + (size_t)first * s.n, t.want + (size_t)first * s.n,
                        rows[i] - first, s.n, s.n, s.n);
        for (uint32_t r = 0; r < ROWS; r++) {
            const float *row = got + (size_t)r * s.n;
            if (r < first || r >= rows[i]) assert_true(isnan(row[0]) && isnan(row[s.n - 1]));
        }
    }
    close_run(&t);
}

static void against_double(void **state) {
    (void)state;
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int t = 0; t < 3; t++) {
        for (uint32_t lanes = 1; lanes <= 2; lanes++) {
            check(types[t], (shape){.n = 1, .k = 1, .workers = 1, .lanes = lanes});
            check(types[t], (shape){.n = 5, .k = 7, .bias = true, .workers = 3, .lanes = lanes});
            check(types[t], (shape){.n = 64, .k = 96, .workers = 2, .lanes = lanes});
            check(types[t], (shape){.n = 83, .k = 129, .bias = true, .workers = 7, .lanes = lanes});
            check(types[t], (shape){.n = 200, .k = 333, .workers = 3, .lanes = lanes});
            check(types[t],
                  (shape){.n = 200, .k = 64, .bias = true, .input = logit_input, .workers = 2, .lanes = lanes});
            check(types[t], (shape){.n = 120, .k = 500, .input = computed_input, .workers = 1 + lanes, .lanes = lanes});
            check(types[t], (shape){.n = 35, .k = 20, .input = logit_input, .workers = 7, .lanes = lanes});
        }
    }
}

/* More columns than one region holds, so several rounds over the workers; and rows too long to be staged. */
static void limits_of_smem(void **state) {
    (void)state;
    check(DTYPE_BF16, (shape){.n = 70001, .k = 8, .bias = true, .workers = 1, .lanes = 2});
    check(DTYPE_F32, (shape){.n = 9, .k = 33000, .workers = 2, .lanes = 2});
}

/* A row gives the same bits alone and among sixteen, whatever the workers and lanes. */
static void rows_do_not_meet(void **state) {
    (void)state;
    enum { N = 45, K = 203 };
    float all[ROWS * N];
    for (uint32_t workers = 1; workers <= 3; workers++) {
        run t =
            open_run(DTYPE_BF16, (shape){.n = N, .k = K, .bias = true, .workers = workers, .lanes = 1 + workers % 2});
        harness_run(t.h, ROWS, 0, NULL, true);
        const float *out = harness_tensor(t.h, t.out);
        if (workers == 1) memcpy(all, out, sizeof all);
        assert_memory_equal(out, all, sizeof all);
        for (uint32_t r = 0; r < ROWS; r++) {
            memmove(harness_tensor(t.h, t.x), harness_tensor(t.h, t.x) + (size_t)r * K, K * sizeof(float));
            harness_run(t.h, 1, 0, NULL, true);
            assert_memory_equal(out, all + (size_t)r * N, N * sizeof(float));
        }
        close_run(&t);
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
    op_spec good = {.kind = "linear", .in = {1}, .weight = {{.key = "w", .dim = {4, 8}}}}, bad = good;
    bad.weight[0].dim[1] = 9;
    refuses(8, bad, KEEL_FORMAT, "x is [M, 8] but weight w is [4, 9]");
    bad.weight[0].dim[1] = 0;
    refuses(8, bad, KEEL_FORMAT, "weight w rank 1");
    bad = good;
    bad.weight[1] = (weight_spec){.key = "b", .dim = {7}};
    refuses(8, bad, KEEL_FORMAT, "bias b must be [4]");
    bad = good;
    bad.weight[0].dim[0] = 1ll << 31;
    refuses(8, bad, KEEL_RANGE, "2147483648");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_double), cmocka_unit_test(limits_of_smem),
                                       cmocka_unit_test(rows_do_not_meet), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
