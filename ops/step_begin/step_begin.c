/* SPDX-License-Identifier: Apache-2.0 */
#include "step_begin.h"

#include "step_begin.h"

#include "graph/op.h"
#include "plan/tiler.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)g, (void)op, (void)err;
    out[0].kind = TENSOR_STEP;
    out[0].dtype = DTYPE_I32;
    out[0].rank = 1;
    out[0].dim[0] = (int64_t)(sizeof(kp_step) / sizeof(kp_u32));
    return KEEL_OK;
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    tiler_task(t, 0, 0, 1, 0);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    if (k->lo != 0 || k->hi != 1 || k->aux != 0) tiler_refuse(t, "the step record is written by one task, lo 0, hi 1");
    tiler_write(t, op->out[0], 0, graph_elements(graph_tensor_at(g, op->out[0])));
    tiler_state(t, false);
    tiler_state(t, true);
    tiler_cost(t, 0, sizeof(kp_step) + sizeof(kp_state), 0);
}

/* In the storer: the task's event, which every other task waits for, follows it. */
static void store(kp_ctx *c) {
    const kp_launch *l = c->worker->launch;
    if (c->lane != 0) return;
    step_begin(l->request, l->state, l->step, c->iteration);
}

const op_desc keel_op_step_begin = {
    .name = "step_begin",
    .summary = "the rows of this pass: the next chunk of the prompt, or the last token",
    .n_out = 1,
    .phases = {{.name = "", .needs = KP_ROLE_BIT(KP_STORER), .cpu = {[KP_STORER] = store}}},
    .infer = infer,
    .tile = tile,
    .task = task,
    .min_cosine = 1,
    .max_rel_error = 0,
};
