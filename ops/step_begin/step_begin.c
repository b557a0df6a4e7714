/* SPDX-License-Identifier: Apache-2.0 */
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

/* The next rows of the prompt. Only the pass that ends it predicts, and only its last row does. */
static void prefill(const kp_request *q, kp_state *s, kp_step *step) {
    kp_u32 left = q->n_prompt - s->cursor, n = left < q->chunk ? left : q->chunk;
    step->n_rows = n;
    step->logit_from = q->all_logits ? 0 : n < left ? n : n - 1;
    for (kp_u32 r = 0; r < n; r++) {
        step->token[r] = q->prompt[s->cursor + r];
        step->position[r] = s->position + r;
        step->seq[r] = 0;
    }
    s->cursor += n;
    s->position += n;
    if (s->cursor == q->n_prompt && q->max_new == 0) s->finished = 1;
}

static void decode(kp_state *s, kp_step *step) {
    step->n_rows = 1;
    step->logit_from = 0;
    step->token[0] = s->last_token;
    step->position[0] = s->position;
    step->seq[0] = 0;
    s->position++;
}

/* In the storer: the task's event, which every other task waits for, follows it. */
static void store(kp_ctx *c) {
    const kp_launch *l = c->worker->launch;
    if (c->lane != 0) return;
    l->step->iteration = c->iteration;
    if (l->state->cursor < l->request->n_prompt) {
        prefill(l->request, l->state, l->step);
    } else {
        decode(l->state, l->step);
    }
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
