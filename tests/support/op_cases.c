/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_cases.h"

#include "plan/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

int logit_input(harness *h, const char *name, int64_t cols) {
    int id = harness_input(h, name, cols);
    harness_build(h)->g->tensors[id].dim[0] = GRAPH_M_LOGIT;
    return id;
}

int computed_input(harness *h, const char *name, int64_t cols) {
    build *b = harness_build(h);
    int a = harness_input(h, build_text(b, "%s.a", name), cols),
        c = harness_input(h, build_text(b, "%s.b", name), cols);
    return build_op(b, (op_spec){.kind = "add", .name = name, .in = {a, c}});
}

void op_case_check(const op_case *c) {
    static const uint32_t rows[] = {1, 2, 3, 15, 16};
    size_t cols = c->cols;
    double *want = calloc(CASE_ROWS * cols, sizeof *want);
    assert_non_null(want);
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        bool last = !(i & 1); /* first: SMEM does not hold the row yet from a pass of all */
        uint32_t n = rows[i / 2], first = c->logit_rows && last ? n - 1 : 0;
        harness_run(c->h, n, c->start, c->tokens, last);
        c->reference(c->user, want);
        const float *got = harness_tensor(c->h, c->out);
        harness_compare(op_find(c->op), c->op, got + first * cols, want + first * cols, n - first, c->cols, c->cols,
                        c->cols);
        for (uint32_t r = 0; r < CASE_ROWS; r++) { /* rows that are not wanted stay as they are */
            if (r < first || r >= n) assert_true(isnan(got[r * cols]) && isnan(got[r * cols + cols - 1]));
        }
    }
    free(want);
}

void op_case_rows_alone(harness *h, int out, uint32_t cols, const case_input *in, float *all) {
    size_t row = cols * sizeof *all;
    harness_run(h, CASE_ROWS, 0, NULL, true);
    memcpy(all, harness_tensor(h, out), CASE_ROWS * row);
    for (uint32_t r = 0; r < CASE_ROWS; r++) {
        for (const case_input *i = in; i->id; i++) {
            float *x = harness_tensor(h, i->id);
            memmove(x, x + (size_t)r * i->cols, i->cols * sizeof *x);
        }
        harness_run(h, 1, 0, NULL, true);
        assert_memory_equal(harness_tensor(h, out), all + (size_t)r * cols, row);
    }
}

static bool waits_for(const plan *p, const kp_task *task, uint32_t instance) {
    for (uint32_t i = 0; i < task->n_waits; i++) {
        for (uint32_t k = 0; k < p->n_tasks; k++) {
            if (p->tasks[k].instance == instance && p->tasks[k].trigger == p->waits[task->wait_first + i]) return true;
        }
    }
    return false;
}

void op_case_waits(op_spec spec) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g;
    uint32_t n_in = 0, seen = 0;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    for (; spec.in[n_in]; n_in++) {
        op_spec init = {.kind = "tensor_init", .attr = {{"cols", spec.in[n_in]}}};
        init.name = build_text(&b, "init%u", n_in);
        spec.in[n_in] = build_op(&b, init);
    }
    spec.name = "it";
    build_op(&b, spec);
    assert_int_equal(build_finish(&b, &g), KEEL_OK);
    plan *p;
    if (plan_build(g, &(plan_options){.arch = "cpu", .workers = 3}, &p, &err) != KEEL_OK) fail_msg("%s", err.detail);
    uint32_t it = (uint32_t)g->n_ops - 1;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        if (p->tasks[i].instance != it) continue;
        for (uint32_t in = 0; in < n_in; in++) assert_true(waits_for(p, &p->tasks[i], it - n_in + in));
        seen++;
    }
    assert_true(seen > 0);
    plan_close(p);
    graph_close(g);
}

void op_refuses(op_spec spec, keel_status status, const char *what) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    for (int i = 0; i < 3; i++) {
        if (spec.in[i]) spec.in[i] = build_input(&b, (const char *[]){"x", "y", "z"}[i], spec.in[i]);
    }
    spec.name = "l7.it";
    build_op(&b, spec);
    assert_int_equal(build_finish(&b, &g), status);
    if (!strstr(err.detail, what) || !strstr(err.detail, "l7.it")) fail_msg("%s", err.detail);
}
