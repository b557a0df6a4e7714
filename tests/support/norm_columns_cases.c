/* SPDX-License-Identifier: Apache-2.0 */
#include "support/norm_columns_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MATRICES = 3 };

typedef struct shape {
    int64_t n[MATRICES]; /* columns of each matrix; paired: all as the first */
    int64_t k;
    bool bias[MATRICES], logit_rows;
    input_of input; /* NULL: harness_input */
    uint32_t workers, lanes;
} shape;

typedef struct run {
    harness *h;
    shape s;
    int matrices, x, out, which; /* which: the output that the reference is of */
    bool paired;
} run;

static const double eps = 1e-5;

static void name_weights(int matrices, const shape *s, bool paired, op_spec *spec) {
    static const char *const w[] = {"w.0", "w.1", "w.2"}, *const b[] = {"b.0", "b.1", "b.2"};
    spec->weight[0] = (weight_spec){.key = "scale", .dim = {s->k}};
    for (int i = 0; i < matrices; i++) {
        int64_t n = s->n[paired ? 0 : i];
        spec->weight[1 + i] = (weight_spec){.key = w[i], .dim = {n, s->k}};
        spec->weight[1 + matrices + i] = (weight_spec){.key = s->bias[i] ? b[i] : ""};
        if (s->bias[i]) spec->weight[1 + matrices + i].dim[0] = n;
    }
}

static run open_run(const char *op, int matrices, bool paired, dtype type, shape s) {
    run t = {.s = s, .matrices = matrices, .paired = paired};
    t.h = harness_new((harness_config){
        .seed = (unsigned)(s.n[0] * 1000 + s.k), .workers = s.workers, .lanes = s.lanes, .weight_dtype = type});
    t.x = (s.input ? s.input : harness_input)(t.h, "x", s.k);
    op_spec spec = {.kind = op, .name = "it", .in = {t.x}, .attr = {{"eps", eps}, {"logit_rows", s.logit_rows}}};
    name_weights(matrices, &s, paired, &spec);
    t.out = build_op(harness_build(t.h), spec);
    harness_ready(t.h);
    return t;
}

/* (x / √(mean(x²) + eps) × scale) · row j of matrix i, and its bias. */
static double product(const run *t, const float *x, int i, int64_t j) {
    char w[] = "w.0", b[] = "b.0";
    w[2] = b[2] = (char)('0' + i);
    const float *scale = harness_weight(t->h, "scale"), *row = harness_weight(t->h, w) + j * t->s.k;
    double squares = 0, sum = 0;
    for (int64_t c = 0; c < t->s.k; c++) squares += (double)x[c] * (double)x[c];
    for (int64_t c = 0; c < t->s.k; c++) sum += (double)x[c] * (double)scale[c] * (double)row[c];
    return sum / sqrt(squares / (double)t->s.k + eps) + (t->s.bias[i] ? (double)harness_weight(t->h, b)[j] : 0);
}

static void reference(const void *user, double *want) {
    const run *t = user;
    int64_t n = t->s.n[t->which];
    for (int64_t r = 0; r < CASE_ROWS; r++) {
        const float *x = harness_tensor(t->h, t->x) + r * t->s.k;
        for (int64_t j = 0; j < n; j++) {
            double a = product(t, x, t->which, j);
            want[r * n + j] = t->paired ? a / (1 + exp(-a)) * product(t, x, 1, j) : a;
        }
    }
}

static void check(const char *op, int matrices, bool paired, dtype type, shape s) {
    run t = open_run(op, matrices, paired, type, s);
    for (t.which = 0; t.which < (paired ? 1 : matrices); t.which++) {
        op_case_check(&(op_case){.h = t.h,
                                 .op = op,
                                 .out = t.out + t.which,
                                 .cols = (uint32_t)s.n[t.which],
                                 .logit_rows = s.logit_rows || s.input == logit_input,
                                 .reference = reference,
                                 .user = &t});
    }
    harness_close(t.h);
}

void norm_matmul_check(const char *op, int matrices, bool paired) {
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const shape shapes[] = {
        {.n = {1, 1, 1}, .k = 1, .workers = 1},
        {.n = {5, 40, 3}, .k = 7, .bias = {true, true, true}, .workers = 3},
        {.n = {64, 16, 32}, .k = 96, .workers = 2},
        {.n = {83, 17, 31}, .k = 129, .bias = {false, true, true}, .workers = 7},
        {.n = {200, 15, 1}, .k = 33, .logit_rows = true, .workers = 2},
        {.n = {20, 70, 33}, .k = 64, .input = logit_input, .workers = 2},
        {.n = {120, 24, 24}, .k = 300, .bias = {true, false, true}, .input = computed_input, .workers = 3},
    };
    for (int t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            shape s = shapes[i];
            for (s.lanes = 1; s.lanes <= 2; s.lanes++) check(op, matrices, paired, types[t], s);
        }
    }
    /* more columns than one region holds */
    check(op, matrices, paired, DTYPE_BF16, (shape){.n = {33000, 8, 8}, .k = 8, .workers = 1, .lanes = 2});
    shape s = {.n = {90, 50, 50}, .k = 40};
    op_spec spec = {.kind = op, .in = {40}, .attr = {{"eps", eps}}};
    name_weights(matrices, &s, paired, &spec);
    op_case_waits(spec);
}

void norm_matmul_rows_alone(const char *op, int matrices, bool paired) {
    enum { N = 45, K = 203 };
    float first[CASE_ROWS * N], all[CASE_ROWS * N];
    for (uint32_t workers = 1; workers <= 3; workers++) {
        shape s = {.n = {N, 20, 30}, .k = K, .bias = {true}, .workers = workers, .lanes = 1 + workers % 2};
        run t = open_run(op, matrices, paired, DTYPE_BF16, s);
        op_case_rows_alone(t.h, t.out, N, (case_input[]){{t.x, K}, {0, 0}}, all);
        if (workers == 1) memcpy(first, all, sizeof all);
        assert_memory_equal(all, first, sizeof all);
        harness_close(t.h);
    }
}

void norm_matmul_refuses(const char *op, int matrices, bool paired) {
    shape s = {.n = {8, 8, 8}, .k = 8, .bias = {true, true, true}};
    op_spec good = {.kind = op, .in = {8}, .attr = {{"eps", eps}}}, bad;
    name_weights(matrices, &s, paired, &good);
    bad = good;
    bad.weight[0].dim[0] = 9;
    op_refuses(bad, KEEL_FORMAT, "9 elements");
    bad = good;
    bad.weight[matrices].dim[1] = 9;
    op_refuses(bad, KEEL_FORMAT, "x is [M, 8] but weight w.");
    bad = good;
    bad.weight[2 * matrices].dim[0] = 7;
    op_refuses(bad, KEEL_FORMAT, "must be [8]");
    bad = good;
    bad.attr[0].value = -1;
    op_refuses(bad, KEEL_RANGE, "eps -1");
    if (!paired) return;
    bad = good;
    bad.weight[2].dim[0] = bad.weight[4].dim[0] = 24;
    op_refuses(bad, KEEL_FORMAT, "gate makes 8 columns, up 24");
}
