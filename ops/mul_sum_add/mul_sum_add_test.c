/* SPDX-License-Identifier: Apache-2.0 */
#include "mul_sum_add.h"

#include "support/op_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct run {
    harness *h;
    int y, w, residual, out; /* residual 0: none */
    uint32_t n, experts;
} run;

static run open_run(uint32_t n, uint32_t experts, bool residual, input_of input, uint32_t workers, uint32_t lanes) {
    run t = {.n = n, .experts = experts};
    t.h = harness_new((harness_config){.seed = n * 100 + experts, .workers = workers, .lanes = lanes});
    t.y = input(t.h, "y", (int64_t)n * experts);
    t.w = input(t.h, "w", experts);
    if (residual) t.residual = input(t.h, "residual", n);
    t.out = build_op(harness_build(t.h), (op_spec){.kind = "mul_sum_add",
                                                   .name = "combine",
                                                   .in = {t.y, t.w, t.residual},
                                                   .attr = {{"experts", experts}}});
    harness_ready(t.h);
    return t;
}

static void reference(const void *user, double *want) {
    const run *t = user;
    const float *y = harness_tensor(t->h, t->y), *w = harness_tensor(t->h, t->w);
    const size_t n = t->n, experts = t->experts;
    for (size_t r = 0; r < CASE_ROWS; r++) {
        for (size_t j = 0; j < n; j++) {
            double sum = t->residual ? (double)harness_tensor(t->h, t->residual)[r * n + j] : 0;
            for (size_t e = 0; e < experts; e++)
                sum += (double)w[r * experts + e] * (double)y[(r * experts + e) * n + j];
            want[r * n + j] = sum;
        }
    }
}

static void check(uint32_t n, uint32_t experts, bool residual, input_of input, uint32_t workers, uint32_t lanes) {
    run t = open_run(n, experts, residual, input, workers, lanes);
    op_case_check(&(op_case){.h = t.h,
                             .op = "mul_sum_add",
                             .out = t.out,
                             .cols = n,
                             .logit_rows = input == logit_input,
                             .reference = reference,
                             .user = &t});
    harness_close(t.h);
}

static void against_double(void **state) {
    (void)state;
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        for (int residual = 0; residual < 2; residual++) {
            check(1, 1, residual, harness_input, 1, lanes);
            check(77, 2, residual, logit_input, 3, lanes);
            check(200, 8, residual, computed_input, 2, lanes);
            check(513, 9, residual, logit_input, 7, lanes);
        }
    }
    check(70, 1100, true, harness_input, 2, 2); /* SMEM for fewer columns than a tile usually takes */
}

static void waits_for_all_inputs(void **state) {
    (void)state;
    op_case_waits((op_spec){.kind = "mul_sum_add", .in = {600, 2, 300}, .attr = {{"experts", 2}}});
}

/* A row gives the same bits alone and among sixteen. */
static void rows_do_not_meet(void **state) {
    (void)state;
    enum { N = 150, E = 6 };
    run t = open_run(N, E, true, harness_input, 2, 2);
    float all[CASE_ROWS * N];
    op_case_rows_alone(t.h, t.out, N, (case_input[]){{t.y, N * E}, {t.w, E}, {t.residual, N}, {0, 0}}, all);
    harness_close(t.h);
}

static void bad_case(int y_cols, int w_cols, int residual_cols, double experts, keel_status status, const char *what) {
    op_refuses((op_spec){.kind = "mul_sum_add", .in = {y_cols, w_cols, residual_cols}, .attr = {{"experts", experts}}},
               status, what);
}

static void bad_shapes(void **state) {
    (void)state;
    bad_case(12, 4, 3, 0, KEEL_RANGE, "it: experts 0");
    bad_case(12, 4, 3, 1.5, KEEL_RANGE, "it: experts 1.5");
    bad_case(13, 4, 3, 4, KEEL_FORMAT, "it: input x must be [M, 4 × n]");
    bad_case(12, 5, 3, 4, KEEL_FORMAT, "it: the weights y must have the rows of input x and 4 columns, not 5");
    bad_case(12, 4, 4, 4, KEEL_FORMAT, "it: the residual z must have the rows of input x and 3 columns, not 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_double), cmocka_unit_test(waits_for_all_inputs),
                                       cmocka_unit_test(rows_do_not_meet), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
