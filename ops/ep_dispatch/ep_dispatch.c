/* SPDX-License-Identifier: Apache-2.0 */
#include "ep_dispatch.h"

#include "graph/place.h"
#include "graph/shape.h"
#include "plan/columns.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[EP_DISPATCH_X]), *w = graph_tensor_at(g, op->in[EP_DISPATCH_W]);
    if (!op->in[EP_DISPATCH_X] || x->kind != TENSOR_ACTIVATION || x->rank != 2) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 (x) must be an activation [M, n]", op->name);
    }
    if (!op->in[EP_DISPATCH_W] || !shape_is_rows(w, x->dim[0], 0) || w->dim[1] % g->ep != 0) {
        return error_set(
            err, KEEL_FORMAT,
            "%s: input 1 (w) must be [M, experts] with the rows of input %s; experts must divide by E = %u", op->name,
            x->name, g->ep);
    }
    shape_rows(&out[0], x->dim[0], x->dim[1] * g->tp);
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    ep_dispatch_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->n = (kp_u32)graph_tensor_at(g, op->in[EP_DISPATCH_X])->dim[1];
    p->world = g->tp;
    p->experts = (kp_u32)graph_tensor_at(g, op->in[EP_DISPATCH_W])->dim[1];
    p->own = p->experts / g->ep;
    p->first = g->rank / (g->tp / g->ep) * p->own;
    p->logit_rows = graph_tensor_at(g, op->out[0])->dim[0] == GRAPH_M_LOGIT;
    return KEEL_OK;
}

static uint64_t column_bytes(const tiler *t, const graph_op *op) {
    return tiler_env(t)->m_max * dtype_bytes(tiler_dtype(t, op->out[0]));
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g;
    const ep_dispatch_params *p = tiler_params_of(t);
    uint64_t column = column_bytes(t, op);
    columns_tile(t, p->world * p->n, 0, columns_most(t, p->experts * column, column, 1));
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const ep_dispatch_params *p = tiler_params_of(t);
    uint64_t width = columns_width(k), column = column_bytes(t, op);
    columns_check(t, k);
    tiler_read_ranks(t, op->in[EP_DISPATCH_X], 0, p->n);
    tiler_read(t, op->in[EP_DISPATCH_W], 0, p->experts);
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_region(t, EP_DISPATCH_REGION_ROWS, width * column, KP_STORER);
    tiler_region(t, EP_DISPATCH_REGION_W, p->experts * column, KP_CONSUMER);
    tiler_cost(t, 0, (2 * width + p->experts) * dtype_bytes(tiler_dtype(t, op->out[0])), p->own);
}

static const char *place(const graph_op *op, op_places *places) {
    const char *wrong = place_gather(op, places);
    places->out[0] = PLACE_SHARD;
    return wrong;
}

const op_desc keel_op_ep_dispatch = {
    .name = "ep_dispatch",
    .summary = "out = the rows that this rank's experts take, whole; other rows 0",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .in_name = {"x", "w"},
    .phases = {{.name = "", .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER)}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .place = place,
    .collective = "EP",
    .min_cosine = 1,
    .max_rel_error = 0,
};
