/* SPDX-License-Identifier: Apache-2.0 */
#include "support/columns_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* ---- two inputs, element by element -------------------------------------------------------------- */

typedef struct pair_run {
    harness *h;
    int a, b;
    int64_t n;
    double (*f)(float a, float b);
} pair_run;

static void pair_reference(const void *user, double *want) {
    const pair_run *t = user;
    const float *a = harness_tensor(t->h, t->a), *b = harness_tensor(t->h, t->b);
    for (int64_t i = 0; i < CASE_ROWS * t->n; i++) want[i] = t->f(a[i], b[i]);
}

static void pair_case(const char *op, double (*f)(float a, float b), int64_t n, input_of input, uint32_t workers,
                      uint32_t lanes) {
    pair_run t = {.n = n, .f = f};
    t.h = harness_new((harness_config){.seed = (unsigned)n, .workers = workers, .lanes = lanes});
    t.a = input(t.h, "a", n), t.b = input(t.h, "b", n);
    int out = build_op(harness_build(t.h), (op_spec){.kind = op, .name = "it", .in = {t.a, t.b}});
    harness_ready(t.h);
    for (int64_t i = 0; i < CASE_ROWS * n; i++) harness_tensor(t.h, t.a)[i] *= 30;
    op_case_check(&(op_case){.h = t.h,
                             .op = op,
                             .out = out,
                             .cols = (uint32_t)n,
                             .logit_rows = input == logit_input,
                             .reference = pair_reference,
                             .user = &t});
    harness_close(t.h);
}

void pair_check(const char *op, double (*f)(float a, float b)) {
    static const input_of input[] = {harness_input, logit_input, computed_input};
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        for (int i = 0; i < 3; i++) {
            pair_case(op, f, 1, input[i], 2, lanes);
            pair_case(op, f, 77, input[i], 1, lanes);
            pair_case(op, f, 200, input[i], 3, lanes);
            pair_case(op, f, 1001, input[i], 7, lanes);
        }
        pair_case(op, f, 20000, harness_input, 1, lanes); /* more than one region holds */
    }
    op_case_waits((op_spec){.kind = op, .in = {300, 300}});
}

void pair_refuses(const char *op) {
    op_refuses((op_spec){.kind = op, .in = {8}}, KEEL_FORMAT, "2 inputs");
    op_refuses((op_spec){.kind = op, .in = {8, 9}}, KEEL_FORMAT,
               "it: expected two activations of one shape; x has rank 2 and 8 columns, y rank 2 and 9");
}

/* ---- x Wᵀ ---------------------------------------------------------------------------------------- */

static void matmul_reference(const void *user, double *want) {
    const matmul_run *t = user;
    const float *x = harness_tensor(t->h, t->x), *w = harness_weight(t->h, "w");
    const float *bias = t->s.bias ? harness_weight(t->h, "b") : NULL;
    const float *scale = t->scaled ? harness_weight(t->h, "s") : NULL;
    size_t n = t->s.n, k = t->s.k, across = (k + 127) / 128;
    for (size_t r = 0; r < CASE_ROWS; r++) {
        for (size_t j = 0; j < n; j++) {
            double sum = bias ? (double)bias[j] : 0;
            if (t->residual) sum += (double)harness_tensor(t->h, t->residual)[r * n + j];
            for (size_t i = 0; i < k; i++) {
                double factor = scale ? (double)scale[j / 128 * across + i / 128] : 1;
                sum += factor * (double)w[j * k + i] * (double)x[r * k + i];
            }
            want[r * n + j] = sum;
        }
    }
}

/* Makes weight 0 F8E4M3, with scales in slot 2. */
static void scaled_weight(op_spec *spec, dtype scales) {
    const int64_t *dim = spec->weight[0].dim;
    if (!spec->weight[1].key) spec->weight[1].key = "";
    spec->weight[2] = (weight_spec){.key = "s", .dim = {(dim[0] + 127) / 128, (dim[1] + 127) / 128}};
    spec->typed = true;
    spec->weight_dtype[0] = DTYPE_F8E4M3;
    spec->weight_dtype[1] = DTYPE_BF16;
    spec->weight_dtype[2] = scales;
}

matmul_run matmul_open(const char *op, bool residual, dtype type, matmul_shape s) {
    matmul_run t = {.op = op, .s = s, .scaled = type == DTYPE_F8E4M3};
    t.h = harness_new(
        (harness_config){.seed = s.n * 1000 + s.k, .workers = s.workers, .lanes = s.lanes, .weight_dtype = type});
    input_of input = s.input ? s.input : harness_input;
    t.x = input(t.h, "x", s.k);
    if (residual) t.residual = input(t.h, "residual", s.n);
    op_spec spec = {.kind = op, .name = "proj", .in = {t.x, t.residual}, .weight = {{.key = "w", .dim = {s.n, s.k}}}};
    if (s.bias) spec.weight[1] = (weight_spec){.key = "b", .dim = {s.n}};
    if (t.scaled) scaled_weight(&spec, s.scales);
    t.out = build_op(harness_build(t.h), spec);
    harness_ready(t.h);
    return t;
}

static void matmul_case(const char *op, bool residual, dtype type, matmul_shape s) {
    matmul_run t = matmul_open(op, residual, type, s);
    op_case_check(&(op_case){.h = t.h,
                             .op = op,
                             .out = t.out,
                             .cols = s.n,
                             .logit_rows = s.input == logit_input,
                             .reference = matmul_reference,
                             .user = &t});
    harness_close(t.h);
}

void matmul_check(const char *op, bool residual) {
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const matmul_shape shapes[] = {
        {.n = 1, .k = 1, .workers = 1},
        {.n = 5, .k = 7, .bias = true, .workers = 3},
        {.n = 64, .k = 96, .workers = 2},
        {.n = 83, .k = 129, .bias = true, .workers = 7},
        {.n = 200, .k = 333, .workers = 3},
        {.n = 200, .k = 64, .bias = true, .input = logit_input, .workers = 2},
        {.n = 120, .k = 500, .input = computed_input, .workers = 3},
        {.n = 35, .k = 20, .input = logit_input, .workers = 7},
    };
    for (int t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            matmul_shape s = shapes[i];
            for (s.lanes = 1; s.lanes <= 2; s.lanes++) matmul_case(op, residual, types[t], s);
        }
    }
    op_case_waits((op_spec){.kind = op, .in = {40, residual ? 300 : 0}, .weight = {{.key = "w", .dim = {300, 40}}}});
}

void matmul_scaled(const char *op, bool residual) {
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const matmul_shape shapes[] = {
        {.n = 1, .k = 1, .workers = 1},
        {.n = 5, .k = 7, .bias = true, .workers = 3},
        {.n = 129, .k = 128, .workers = 2},
        {.n = 300, .k = 520, .bias = true, .workers = 7},
        {.n = 200, .k = 333, .input = logit_input, .workers = 3},
        {.n = 256, .k = 129, .input = computed_input, .workers = 3},
    };
    for (int t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            matmul_shape s = shapes[i];
            s.scales = types[t];
            for (s.lanes = 1; s.lanes <= 2; s.lanes++) matmul_case(op, residual, DTYPE_F8E4M3, s);
        }
    }
}

static void scales_refused(const char *op, bool residual) {
    op_spec good = {.kind = op, .in = {200, residual ? 130 : 0}, .weight = {{.key = "w", .dim = {130, 200}}}}, bad;
    scaled_weight(&good, DTYPE_F32);
    bad = good;
    bad.weight[2] = (weight_spec){0};
    op_refuses(bad, KEEL_FORMAT, "weight w is F8_E4M3 and needs scales: [2, 2] of F32 in the weight slot scale");
    bad = good;
    bad.weight[2].dim[1] = 1;
    op_refuses(bad, KEEL_FORMAT, "scale s must be [2, 2] of F32, BF16 or F16, one for each block of 128 × 128 of");
    bad = good;
    bad.weight_dtype[2] = DTYPE_I32;
    op_refuses(bad, KEEL_FORMAT, "scale s must be [2, 2] of F32, BF16 or F16");
    bad = good;
    bad.weight_dtype[0] = DTYPE_BF16;
    op_refuses(bad, KEEL_FORMAT, "scale s belongs to weight w, which is BF16; only F8_E4M3 has scales");
}

void matmul_limits_of_smem(const char *op, bool residual) {
    matmul_case(op, residual, DTYPE_BF16, (matmul_shape){.n = 70001, .k = 8, .bias = true, .workers = 1, .lanes = 2});
    matmul_case(op, residual, DTYPE_F32, (matmul_shape){.n = 9, .k = 33000, .workers = 2, .lanes = 2});
    matmul_case(op, residual, DTYPE_F32,
                (matmul_shape){.n = 9, .k = 33000, .input = logit_input, .workers = 1, .lanes = 1});
}

void matmul_rows_alone(const char *op, bool residual) {
    enum { N = 45, K = 203 };
    float first[CASE_ROWS * N], all[CASE_ROWS * N];
    for (uint32_t workers = 1; workers <= 3; workers++) {
        matmul_shape s = {.n = N, .k = K, .bias = true, .workers = workers, .lanes = 1 + workers % 2};
        matmul_run t = matmul_open(op, residual, DTYPE_BF16, s);
        op_case_rows_alone(t.h, t.out, N, (case_input[]){{t.x, K}, {t.residual, N}, {0, 0}}, all);
        if (workers == 1) memcpy(first, all, sizeof all);
        assert_memory_equal(all, first, sizeof all);
        harness_close(t.h);
    }
}

void matmul_refuses(const char *op, bool residual) {
    op_spec good = {.kind = op, .in = {8, residual ? 8 : 0}, .weight = {{.key = "w", .dim = {8, 8}}}}, bad = good;
    bad.weight[0].dim[1] = 9;
    op_refuses(bad, KEEL_FORMAT, "x is [M, 8] but weight w is [8, 9]");
    bad.weight[0].dim[1] = 0;
    op_refuses(bad, KEEL_FORMAT, "weight w rank 1");
    bad = good;
    bad.weight[1] = (weight_spec){.key = "b", .dim = {7}};
    op_refuses(bad, KEEL_FORMAT, "bias b must be [8]");
    bad = good;
    bad.weight[0].dim[0] = 1ll << 31;
    op_refuses(bad, KEEL_RANGE, "2147483648");
    scales_refused(op, residual);
}
