/* SPDX-License-Identifier: Apache-2.0 */
#include "mul_sum_add.h"

#include "plan/plan.h"
#include "support/op_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 16 };

typedef struct run {
    harness *h;
    int y, w, residual, out; /* residual 0: none */
    uint32_t n, experts;
} run;

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

static void reference(const run *t, double *want) {
    const float *y = harness_tensor(t->h, t->y), *w = harness_tensor(t->h, t->w);
    const size_t n = t->n, experts = t->experts;
    for (size_t r = 0; r < ROWS; r++) {
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
    double *want = calloc((size_t)ROWS * n, sizeof *want);
    assert_non_null(want);
    static const uint32_t rows[] = {1, 2, 3, 15, 16};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool last = i & 1;
        harness_run(t.h, rows[i], 0, NULL, last);
        reference(&t, want);
        const float *got = harness_tensor(t.h, t.out);
        uint32_t first = input == logit_input && last ? rows[i] - 1 : 0;
        harness_compare(&keel_op_mul_sum_add, "mul_sum_add", got + first * n, want + first * n, rows[i] - first, n, n,
                        n);
        for (uint32_t r = 0; r < ROWS; r++) { /* rows that are not wanted stay as they are */
            if (r < first || r >= rows[i]) assert_true(isnan(got[r * n]) && isnan(got[r * n + n - 1]));
        }
    }
    free(want);
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

static bool waits_for(const plan *p, const kp_task *task, uint32_t instance) {
    for (uint32_t i = 0; i < task->n_waits; i++) {
        for (uint32_t k = 0; k < p->n_tasks; k++) {
            if (p->tasks[k].instance == instance && p->tasks[k].trigger == p->waits[task->wait_first + i]) return true;
        }
    }
    return false;
}

/* A race over so little work would seldom show: what each task waits for is read off the plan. */
static void waits_for_all_inputs(void **state) {
    (void)state;
    enum { N = 300, E = 2 };
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    static const int cols[] = {N * E, E, N};
    op_spec spec = {.kind = "mul_sum_add", .name = "combine", .attr = {{"experts", E}}};
    for (int i = 0; i < 3; i++) {
        op_spec init = {.kind = "tensor_init", .attr = {{"cols", cols[i]}}};
        init.name = build_text(&b, "init%d", i);
        spec.in[i] = build_op(&b, init);
    }
    build_op(&b, spec);
    assert_int_equal(build_finish(&b, &g), KEEL_OK);
    plan *p;
    if (plan_build(g, &(plan_options){.arch = "cpu", .workers = 3}, &p, &err) != KEEL_OK) fail_msg("%s", err.detail);
    uint32_t seen = 0, combine = (uint32_t)g->n_ops - 1;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        if (p->tasks[i].instance != combine) continue;
        for (uint32_t in = 0; in < 3; in++) assert_true(waits_for(p, &p->tasks[i], combine - 3 + in));
        seen++;
    }
    assert_int_equal(seen, 3);
    plan_close(p);
    graph_close(g);
}

/* A row gives the same bits alone and among sixteen. */
static void rows_do_not_meet(void **state) {
    (void)state;
    enum { N = 150, E = 6 };
    run t = open_run(N, E, true, harness_input, 2, 2);
    harness_run(t.h, ROWS, 0, NULL, true);
    float all[ROWS * N];
    memcpy(all, harness_tensor(t.h, t.out), sizeof all);
    for (uint32_t r = 0; r < ROWS; r++) {
        memmove(harness_tensor(t.h, t.y), harness_tensor(t.h, t.y) + r * N * E, N * E * sizeof(float));
        memmove(harness_tensor(t.h, t.w), harness_tensor(t.h, t.w) + r * E, E * sizeof(float));
        memmove(harness_tensor(t.h, t.residual), harness_tensor(t.h, t.residual) + r * N, N * sizeof(float));
        harness_run(t.h, 1, 0, NULL, true);
        assert_memory_equal(harness_tensor(t.h, t.out), all + r * N, N * sizeof(float));
    }
    harness_close(t.h);
}

static void bad_case(int64_t y_cols, int64_t w_cols, int64_t residual_cols, double experts, keel_status status,
                     const char *what) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    int y = build_input(&b, "y", y_cols), w = build_input(&b, "w", w_cols), r = build_input(&b, "r", residual_cols);
    build_op(&b, (op_spec){.kind = "mul_sum_add", .name = "it", .in = {y, w, r}, .attr = {{"experts", experts}}});
    assert_int_equal(build_finish(&b, &g), status);
    if (!strstr(err.detail, what)) fail_msg("%s", err.detail);
}

static void bad_shapes(void **state) {
    (void)state;
    bad_case(12, 4, 3, 0, KEEL_RANGE, "it: experts 0");
    bad_case(12, 4, 3, 1.5, KEEL_RANGE, "it: experts 1.5");
    bad_case(13, 4, 3, 4, KEEL_FORMAT, "it: input y must be [M, 4 × n]");
    bad_case(12, 5, 3, 4, KEEL_FORMAT, "it: the weights w must have the rows of input y and 4 columns, not 5");
    bad_case(12, 4, 4, 4, KEEL_FORMAT, "it: the residual r must have the rows of input y and 3 columns, not 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_double), cmocka_unit_test(waits_for_all_inputs),
                                       cmocka_unit_test(rows_do_not_meet), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
