/* SPDX-License-Identifier: Apache-2.0 */
#include "argmax.h"

#include "device/emit.h"
#include "graph/op.h"
#include "plan/tiler.h"

#include <math.h>
#include <string.h>

enum { PARTIAL, REDUCE };
enum { GRAIN = 16, TILE_MIN = 1024 };

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)out;
    const graph_tensor *x = graph_tensor_at(g, op->in[0]);
    if (!op->in[0] || x->kind != TENSOR_ACTIVATION || x->rank != 2 || x->dim[1] > UINT32_MAX) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 must be logits [M_LOGIT, vocab]", op->name);
    }
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    argmax_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    int64_t vocab = graph_tensor_at(g, op->in[0])->dim[1];
    uint32_t most = (uint32_t)((vocab + TILE_MIN - 1) / TILE_MIN), workers = tiler_env(t)->workers;
    p->vocab = (kp_u32)vocab;
    p->tiles = most < workers ? most : workers;
    tiler_scratch(t, "best", p->tiles * sizeof(argmax_best), p->tiles);
    return KEEL_OK;
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    const argmax_params *p = tiler_params_of(t);
    for (uint32_t i = 0; i < p->tiles; i++) {
        uint32_t lo, hi;
        tiler_bounds(p->vocab, GRAIN, p->tiles, i, &lo, &hi);
        tiler_task(t, PARTIAL, lo, hi, i);
    }
    tiler_task(t, REDUCE, 0, p->vocab, 0);
}

static void partial_task(tiler *t, const graph_op *op, const op_task *k) {
    const argmax_params *p = tiler_params_of(t);
    uint64_t width = k->hi - (uint64_t)k->lo;
    uint32_t lo, hi;
    tiler_bounds(p->vocab, GRAIN, p->tiles, k->aux, &lo, &hi);
    if (k->aux >= p->tiles || k->lo != lo || k->hi != hi) tiler_refuse(t, "a tile other than number aux of the logits");
    tiler_read(t, op->in[0], k->lo, k->hi);
    tiler_write(t, tiler_scratch_of(t, 0), k->aux, (int64_t)k->aux + 1);
    tiler_state(t, false); /* is a token wanted? */
    tiler_region(t, ARGMAX_REGION_LANES, ARGMAX_LANES_MAX * sizeof(argmax_best), KP_STORER);
    tiler_cost(t, 0, width * dtype_bytes(tiler_dtype(t, op->in[0])), width);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const argmax_params *p = tiler_params_of(t);
    if (k->phase == PARTIAL) {
        partial_task(t, op, k);
        return;
    }
    if (k->lo != 0 || k->hi != p->vocab || k->aux != 0) tiler_refuse(t, "the choice is one task over all logits");
    tiler_read(t, op->in[0], 0, p->vocab);
    tiler_read(t, tiler_scratch_of(t, 0), 0, p->tiles);
    tiler_state(t, false);
    tiler_state(t, true);
    tiler_cost(t, 0, p->tiles * sizeof(argmax_best), p->tiles);
}

static const float *last_logits(const kp_ctx *c, const argmax_params *p) {
    return (const float *)kb_buffer(c, ARGMAX_LOGITS) + (size_t)(kb_rows_live(c) - 1) * p->vocab;
}

/* `a` comes before `b` in the vocabulary, so a tie is a's. NaN compares false and so never wins. */
static argmax_best better(argmax_best a, argmax_best b) { return b.value > a.value ? b : a; }

static void partial_compute(kp_ctx *c) {
    const argmax_params *p = kb_params(c);
    if (!kp_emit_wanted(c->worker->launch)) return;
    const float *x = last_logits(c, p);
    kp_u32 from, to;
    kb_share(c, c->task->lo, c->task->hi, GRAIN, &from, &to);
    argmax_best best = {-INFINITY, c->task->lo};
    for (kp_u32 i = from; i < to; i++) {
        if (x[i] > best.value) best = (argmax_best){x[i], i};
    }
    ((argmax_best *)kb_region(c, ARGMAX_REGION_LANES))[c->lane] = best;
}

static void partial_store(kp_ctx *c) {
    if (c->lane != 0 || !kp_emit_wanted(c->worker->launch)) return;
    const argmax_best *lane = kb_region(c, ARGMAX_REGION_LANES);
    argmax_best best = lane[0];
    for (kp_u32 l = 1; l < c->worker->lanes[KP_CONSUMER]; l++) best = better(best, lane[l]);
    ((argmax_best *)kb_buffer(c, ARGMAX_BEST))[c->task->aux] = best;
}

/* The copy stands in the consumer, so that all of it is done before the storer publishes the token. */
static void reduce_copy(kp_ctx *c) {
    const kp_launch *l = c->worker->launch;
    const argmax_params *p = kb_params(c);
    if (!l->request->logits || !kp_emit_wanted(l)) return;
    kp_u32 from, to;
    kb_share(c, 0, p->vocab, GRAIN, &from, &to);
    memcpy(l->request->logits + (size_t)l->state->n_out * p->vocab + from, last_logits(c, p) + from,
           (to - from) * sizeof(float));
}

static void reduce_store(kp_ctx *c) {
    const kp_launch *l = c->worker->launch;
    const argmax_params *p = kb_params(c);
    if (c->lane != 0 || !kp_emit_wanted(l)) return;
    const argmax_best *partial = kb_buffer(c, ARGMAX_BEST);
    argmax_best best = partial[0];
    for (kp_u32 i = 1; i < p->tiles; i++) best = better(best, partial[i]);
    kp_emit_token(l, best.index);
}

const op_desc keel_op_argmax = {
    .name = "argmax",
    .summary = "token = argmax(logits[last row]), the lowest index on a tie",
    .min_in = 1,
    .max_in = 1,
    .in_name = {"logits"},
    .phases = {{.name = "partial",
                .needs = KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_CONSUMER] = partial_compute, [KP_STORER] = partial_store}},
               {.name = "reduce",
                .needs = KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_CONSUMER] = reduce_copy, [KP_STORER] = reduce_store}}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 1,
    .max_rel_error = 0,
};
