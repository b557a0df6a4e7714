/* SPDX-License-Identifier: Apache-2.0 */
#include "support/rank_cases.h"

#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void begin(build *b, rank_world w, keel_error *err) {
    assert_int_equal(build_begin(b, "test", "test", DTYPE_F32, err), KEEL_OK);
    b->g->tp = w.tp;
    b->g->ep = w.ep;
    b->g->rank = w.rank;
}

int64_t rank_columns(op_spec spec, rank_world w, const char *words) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    begin(&b, w, &err);
    for (int i = 0; i < 2; i++) {
        if (spec.in[i]) spec.in[i] = build_input(&b, i ? "y" : "x", spec.in[i]);
    }
    spec.name = "it";
    int out = build_op(&b, spec);
    if (build_finish(&b, &g) != KEEL_OK) {
        if (!words || !strstr(err.detail, words) || !strstr(err.detail, "it")) fail_msg("%s", err.detail);
        return 0;
    }
    const graph_tensor *t = graph_tensor_at(g, out);
    assert_true(t->kind == TENSOR_ACTIVATION && t->rank == 2 && t->dim[0] == GRAPH_M);
    int64_t cols = t->dim[1];
    graph_close(g);
    return cols;
}

static const plan_instance *instance_of(const plan *p, const char *name) {
    for (uint32_t i = 0; i < p->n_instances; i++) {
        if (strcmp(p->instances[i].name, name) == 0) return &p->instances[i];
    }
    fail_msg("no instance %s", name);
    return NULL;
}

static void check_tasks(const plan *p, int64_t cols) {
    const plan_instance *it = instance_of(p, "it");
    int64_t end = 0;
    for (uint32_t q = 0; q < p->n_phases; q++) {
        if (&p->instances[p->phases[q].instance] != it) continue;
        for (uint32_t i = 0; i < p->phases[q].n_tasks; i++) {
            const kp_task *k = &p->tasks[p->phases[q].first_task + i];
            assert_true((int64_t)k->lo == end && k->hi > k->lo);
            end = k->hi;
        }
    }
    assert_int_equal(end, cols);
    bool symmetric = false;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (strcmp(p->buffers[i].name, "x") == 0) symmetric = p->buffers[i].kind == BUFFER_SYMMETRIC;
    }
    assert_true(symmetric);
}

void rank_tiles(op_spec spec, rank_world w) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    begin(&b, w, &err);
    for (int i = 0; i < 2; i++) {
        op_spec made = {.kind = "tensor_init", .name = i ? "y" : "x", .attr = {{"cols", spec.in[i]}}};
        if (spec.in[i]) spec.in[i] = build_op(&b, made);
    }
    spec.name = "it";
    int out = build_op(&b, spec);
    build_op(&b, (op_spec){.kind = "add", .name = "reader", .in = {out, out}}); /* finds all of it written */
    if (build_finish(&b, &g) != KEEL_OK) fail_msg("%s", err.detail);
    plan *p = NULL, *again = NULL;
    graph *back = NULL;
    plan_options o = {.workers = w.workers, .allow_absent = true};
    if (plan_build(g, &o, &p, &err) != KEEL_OK) fail_msg("%s", err.detail);
    check_tasks(p, graph_tensor_at(g, out)->dim[1]);
    buf file = {0};
    if (plan_write(p, &file, &err) != KEEL_OK) fail_msg("%s", err.detail);
    if (plan_read("it", file.data, file.len, &again, &err) != KEEL_OK) fail_msg("%s", err.detail);
    check_tasks(again, graph_tensor_at(g, out)->dim[1]);
    if (plan_graph(again, &back, &err) != KEEL_OK) fail_msg("%s", err.detail);
    graph_close(back);
    buf_free(&file);
    plan_close(again);
    plan_close(p);
    graph_close(g);
}
