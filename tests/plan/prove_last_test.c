/* SPDX-License-Identifier: Apache-2.0 */
/* Several tasks of which the last to come writes: planner and proof. */
#include "graph/op.h"

/* toy.h's registry under another name: this test has one op more. */
#define op_registry toy_registry
#define op_registry_count toy_registry_count
#include "plan/toy.h"
#undef op_registry
#undef op_registry_count

#include "plan/prove.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { CROWD = 3 };

/* "crowd": three tasks. Attribute "fault": 1: none of them counts; 2: one writes anyway; 3: one writes less. */
static keel_status crowd_params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    KEEL_TRY(toy_start(t, g, op, toy_cols(g, op->out[0]), err));
    tiler_scratch_monotonic(t, "arrived", 64, 1);
    return KEEL_OK;
}

static void crowd_tile(tiler *t, const graph *g, const graph_op *op) {
    for (uint32_t i = 0; i < CROWD; i++) tiler_task(t, 0, 0, (uint32_t)toy_cols(g, op->out[0]), i);
}

static void crowd_task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    int fault = (int)graph_attr_of(op, "fault");
    tiler_read(t, op->in[0], 0, toy_cols(g, op->in[0]));
    if (fault != 1) tiler_count(t, tiler_scratch_of(t, 0), 0, 1);
    if (fault == 2 && k->aux == 2)
        tiler_write(t, op->out[0], 0, k->hi);
    else
        tiler_write_last(t, op->out[0], 0, fault == 3 && k->aux == 2 ? k->hi - 1 : k->hi);
    tiler_region(t, 0, 64, KP_CONSUMER);
}

static const op_desc toy_crowd = {
    .name = "crowd",
    .attrs = {{"fault", false, 0, "which"}, {"tiles", false, 1, "tasks"}, {"cols", false, 0, "columns"}},
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .phases = {{.name = "", TOY_BODIES}},
    .infer = toy_infer_rows,
    .params = crowd_params,
    .tile = crowd_tile,
    .task = crowd_task};

const op_desc *const op_registry[] = {&toy_step,  &toy_embed,  &toy_map,   &toy_fork,
                                      &toy_split, &toy_argmax, &toy_crowd, NULL};
const unsigned op_registry_count = 7;

static plan *crowd_plan(double fault, keel_error *err) {
    build b;
    graph *g = NULL;
    plan *p = NULL;
    (void)build_begin(&b, NULL, "Crowd", DTYPE_F32, err);
    int x = toy_op(&b, "embed", "x", 0, 0, 12, 3, 0);
    int y = build_op(&b, (op_spec){.kind = "crowd", .name = "it", .in = {x}, .attr = {{"fault", fault}}});
    (void)toy_op(&b, "map", "end", y, 0, 0, 3, 0);
    assert_int_equal(build_finish(&b, &g), KEEL_OK);
    (void)plan_build(g, &(plan_options){.workers = 4, .max_seq = 64}, &p, err);
    graph_close(g);
    return p;
}

static uint32_t first_of(const plan *p, const char *name) {
    uint32_t i = 0;
    while (strcmp(p->instances[p->tasks[i].instance].name, name) != 0) i++;
    return i;
}

static void refused(const plan *p, const char *words) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(plan_prove(&p, 1, NULL, &err), KEEL_REFUSED);
    if (!strstr(err.detail, words)) fail_msg("not \"%s\" in: %s", words, err.detail);
}

static void a_reader_waits_for_all_of_them(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    plan *p = crowd_plan(0, &err);
    if (!p) fail_msg("%s", err.detail);
    uint32_t it = first_of(p, "it"), end = first_of(p, "end"), event = p->tasks[it].trigger;
    assert_int_equal(p->events[event].triggers, CROWD);
    for (uint32_t i = 0; i < 3; i++) { /* readers of a third each */
        assert_int_equal(p->tasks[end + i].n_waits, 1);
        assert_int_equal(p->waits[p->tasks[end + i].wait_first], event);
    }
    const plan *one = p;
    if (plan_prove(&one, 1, NULL, &err) != KEEL_OK) fail_msg("%s", err.detail);
    for (uint32_t i = 0; i < CROWD; i++) { /* any of them may be the one that writes */
        p->tasks[it + i].trigger = KP_NONE;
        p->events[event].triggers = CROWD - 1;
        refused(p, "and nothing orders them");
        p->tasks[it + i].trigger = event;
        p->events[event].triggers = CROWD;
    }
    plan_close(p);
}

static void what_tells_the_last_is_counted(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    plan *p = crowd_plan(1, &err);
    if (!p) fail_msg("%s", err.detail);
    refused(p, "counts nowhere which of them is the last");
    plan_close(p);
}

static void ranges_are_the_same_or_disjoint(void **state) {
    (void)state;
    for (int fault = 2; fault <= 3; fault++) {
        keel_error err = KEEL_ERROR_INITIALIZER;
        assert_null(crowd_plan(fault, &err));
        assert_non_null(strstr(err.detail, "tiles must be disjoint and ascending"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_waits_for_all_of_them),
        cmocka_unit_test(what_tells_the_last_is_counted),
        cmocka_unit_test(ranges_are_the_same_or_disjoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
