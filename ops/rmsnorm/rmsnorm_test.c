/* SPDX-License-Identifier: Apache-2.0 */
#include "rmsnorm.h"

#include "support/op_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct run {
    harness *h;
    int x, out;
    int64_t n;
    double eps;
} run;

static void reference(const void *user, double *want) {
    const run *t = user;
    const float *in = harness_tensor(t->h, t->x), *w = harness_weight(t->h, "w");
    for (int64_t r = 0; r < CASE_ROWS; r++, in += t->n, want += t->n) {
        double squares = 0;
        for (int64_t j = 0; j < t->n; j++) squares += (double)in[j] * (double)in[j];
        double scale = 1 / sqrt(squares / (double)t->n + t->eps);
        for (int64_t j = 0; j < t->n; j++) want[j] = (double)w[j] * (double)in[j] * scale;
    }
}

static run open_run(harness_config config, int64_t n, double eps, input_of input, bool logit_rows) {
    run t = {.h = harness_new(config), .n = n, .eps = eps};
    t.x = input(t.h, "x", n);
    op_spec spec = {.kind = "rmsnorm",
                    .name = "norm",
                    .in = {t.x},
                    .weight = {{.key = "w", .dim = {n}}},
                    .attr = {{"eps", eps}, {"logit_rows", logit_rows}}};
    t.out = build_op(harness_build(t.h), spec);
    harness_ready(t.h);
    return t;
}

static void check(dtype type, int64_t n, double eps, input_of input, bool logit_rows, uint32_t workers,
                  uint32_t lanes) {
    harness_config config = {.seed = (unsigned)n, .workers = workers, .lanes = lanes, .weight_dtype = type};
    run t = open_run(config, n, eps, input, logit_rows);
    op_case_check(&(op_case){.h = t.h,
                             .op = "rmsnorm",
                             .out = t.out,
                             .cols = (uint32_t)n,
                             .logit_rows = logit_rows || input == logit_input,
                             .reference = reference,
                             .user = &t});
    harness_close(t.h);
}

static void against_double(void **state) {
    (void)state;
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int t = 0; t < 3; t++) {
        for (int logit_rows = 0; logit_rows < 2; logit_rows++) {
            check(types[t], 1, 1e-6, harness_input, logit_rows, 1, 2);
            check(types[t], 7, 1e-5, harness_input, logit_rows, 2, 1);
            check(types[t], 64, 0, harness_input, logit_rows, 3, 2);
            check(types[t], 1001, 0.5, harness_input, logit_rows, 7, 1);
        }
    }
}

/* Logit rows in, logit rows out, without the attribute. */
static void logit_rows_stay(void **state) {
    (void)state;
    check(DTYPE_F32, 24, 1e-6, logit_input, false, 2, 2);
}

static void waits_for_input(void **state) {
    (void)state;
    check(DTYPE_F32, 700, 1e-6, computed_input, false, 3, 2);
}

static void rows_do_not_meet(void **state) {
    (void)state;
    enum { N = 333 };
    float all[CASE_ROWS * N];
    run t = open_run((harness_config){.seed = 11}, N, 1e-6, harness_input, false);
    op_case_rows_alone(t.h, t.out, N, (case_input[]){{t.x, N}, {0, 0}}, all);
    harness_close(t.h);
}

static void bad_shapes(void **state) {
    (void)state;
    op_spec good = {.kind = "rmsnorm", .in = {8}, .weight = {{.key = "w", .dim = {8}}}, .attr = {{"eps", 1e-6}}},
            bad = good;
    bad.weight[0].dim[0] = 9;
    op_refuses(bad, KEEL_FORMAT, "9 elements");
    bad.weight[0].dim[1] = 8;
    op_refuses(bad, KEEL_FORMAT, "rank 2");
    bad = good;
    bad.attr[0].value = -1;
    op_refuses(bad, KEEL_RANGE, "eps -1");
    bad = good;
    bad.attr[1] = (graph_attr){"logit_rows", 2};
    op_refuses(bad, KEEL_RANGE, "logit_rows 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_double), cmocka_unit_test(logit_rows_stay),
                                       cmocka_unit_test(waits_for_input), cmocka_unit_test(rows_do_not_meet),
                                       cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
