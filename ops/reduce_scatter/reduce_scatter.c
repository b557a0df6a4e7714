/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce_scatter.h"

#include "graph/place.h"
#include "graph/shape.h"
#include "plan/columns.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[0]);
    if (!op->in[0] || x->kind != TENSOR_ACTIVATION || x->rank != 2) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 (partial) must be an activation [M, n]", op->name);
    }
    if (x->dim[1] % g->tp != 0) {
        return error_set(err, KEEL_FORMAT, "%s: the %lld columns of input %s do not divide by W = %u", op->name,
                         (long long)x->dim[1], x->name, g->tp);
    }
    shape_rows(&out[0], x->dim[0], x->dim[1] / g->tp);
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    const graph_tensor *out = graph_tensor_at(g, op->out[0]);
    reduce_scatter_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->n = (kp_u32)out->dim[1];
    p->world = tiler_env(t)->world;
    p->first = tiler_env(t)->rank * p->n;
    p->m_max = tiler_env(t)->m_max;
    p->logit_rows = out->dim[0] == GRAPH_M_LOGIT;
    return KEEL_OK;
}

/* Of a column, in SMEM. */
static uint64_t terms_bytes(const tiler *t, const graph_op *op, const reduce_scatter_params *p) {
    return (uint64_t)p->world * p->m_max * dtype_bytes(tiler_dtype(t, op->in[0]));
}

static uint64_t sum_bytes(const reduce_scatter_params *p) { return p->m_max * sizeof(float); }

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g;
    const reduce_scatter_params *p = tiler_params_of(t);
    uint64_t terms = terms_bytes(t, op, p), sum = sum_bytes(p);
    columns_tile(t, p->n, 0, columns_most(t, 0, terms > sum ? terms : sum, 2));
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const reduce_scatter_params *p = tiler_params_of(t);
    uint64_t width = columns_width(k), act = dtype_bytes(tiler_dtype(t, op->out[0]));
    columns_check(t, k);
    tiler_read_ranks(t, op->in[0], (int64_t)p->first + k->lo, (int64_t)p->first + k->hi);
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_region(t, REDUCE_SCATTER_REGION_TERMS, width * terms_bytes(t, op, p), KP_CONSUMER);
    tiler_region(t, REDUCE_SCATTER_REGION_SUM, width * sum_bytes(p), KP_STORER);
    tiler_cost(t, 0, (p->world + 1) * width * act, p->world * width);
}

const op_desc keel_op_reduce_scatter = {
    .name = "reduce_scatter",
    .summary = "out = this rank's columns of Σ over ranks of partial",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .in_name = {"partial"},
    .phases = {{.name = "", .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER)}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .place = place_reduce_scatter,
    .collective = "RS",
    .min_cosine = 0.999999,
    .max_rel_error = 1e-6,
};
