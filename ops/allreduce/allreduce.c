/* SPDX-License-Identifier: Apache-2.0 */
#include "allreduce.h"

#include "body/columns.h"
#include "core/vec.h"
#include "device/rows.h"
#include "graph/place.h"
#include "graph/shape.h"
#include "plan/columns.h"

#include <string.h>

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[ALLREDUCE_PARTIAL]);
    const graph_tensor *residual = graph_tensor_at(g, op->in[ALLREDUCE_RESIDUAL]);
    const graph_tensor *bias = graph_tensor_at(g, op->weight[0]);
    if (!op->in[ALLREDUCE_PARTIAL] || x->kind != TENSOR_ACTIVATION || x->rank != 2) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 (partial) must be an activation [M, n]", op->name);
    }
    if (op->in[ALLREDUCE_RESIDUAL] && !shape_is_rows(residual, x->dim[0], x->dim[1])) {
        return error_set(err, KEEL_FORMAT, "%s: the residual %s must have the rows and the %lld columns of input %s",
                         op->name, residual->name, (long long)x->dim[1], x->name);
    }
    if (op->weight[0] && (bias->rank != 1 || bias->dim[0] != x->dim[1])) {
        return error_set(err, KEEL_FORMAT, "%s: bias %s must be [%lld], as input %s has these columns", op->name,
                         bias->name, (long long)x->dim[1], x->name);
    }
    shape_rows(&out[0], x->dim[0], x->dim[1]);
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    const graph_tensor *out = graph_tensor_at(g, op->out[0]);
    allreduce_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->n = (kp_u32)out->dim[1];
    p->world = tiler_env(t)->world;
    p->m_max = tiler_env(t)->m_max;
    p->logit_rows = out->dim[0] == GRAPH_M_LOGIT;
    return columns_weight_dtype(t, g, op, 0, &p->bias_dtype, err);
}

/* Bytes of a column of one term in SMEM. */
static uint64_t term_bytes(const tiler *t, const graph_op *op, const allreduce_params *p) {
    return (uint64_t)p->m_max * dtype_bytes(tiler_dtype(t, op->in[0]));
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g;
    const allreduce_params *p = tiler_params_of(t);
    columns_tile(t, p->n, 0, columns_most(t, 0, p->world * term_bytes(t, op, p), 2));
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const allreduce_params *p = tiler_params_of(t);
    uint64_t width = columns_width(k), act = dtype_bytes(tiler_dtype(t, op->out[0]));
    uint64_t bias = op->weight[0] ? width * dtype_bytes((dtype)p->bias_dtype) : 0;
    columns_check(t, k);
    tiler_read_ranks(t, op->in[ALLREDUCE_PARTIAL], k->lo, k->hi);
    tiler_read(t, op->in[ALLREDUCE_RESIDUAL], k->lo, k->hi);
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_region(t, ALLREDUCE_REGION_TERMS, p->world * width * term_bytes(t, op, p), KP_CONSUMER);
    tiler_region(t, ALLREDUCE_REGION_SUM, width * p->m_max * sizeof(float), KP_STORER);
    tiler_cost(t, bias, (p->world + (op->in[ALLREDUCE_RESIDUAL] ? 2 : 1)) * width * act, p->world * width);
}

static void fetch(kp_ctx *c) {
    const allreduce_params *p = kb_params(c);
    kp_u64 term = (kp_u64)p->m_max * (c->task->hi - c->task->lo) * KB_ACT_BYTES;
    for (kp_u32 r = 0; r < p->world; r++) {
        kp_u8 *to = (kp_u8 *)kb_region(c, ALLREDUCE_REGION_TERMS) + r * term;
        kb_fetch_from(c, to, kb_buffer_of(c, ALLREDUCE_PARTIAL, r), p->n, c->task->lo, c->task->hi, p->logit_rows);
    }
}

/* Lanes share the columns: one row is the usual case. */
static void compute(kp_ctx *c) {
    const allreduce_params *p = kb_params(c);
    const float *terms = kb_region(c, ALLREDUCE_REGION_TERMS);
    float *sum = kb_region(c, ALLREDUCE_REGION_SUM);
    kp_u32 rows = kb_rows_live(c) - kb_rows_from(c, p->logit_rows), lo, hi;
    size_t width = c->task->hi - c->task->lo, term = p->m_max * width;
    kb_share(c, 0, (kp_u32)width, 16, &lo, &hi);
    for (kp_u32 r = 0; r < rows; r++) {
        size_t at = r * width + lo, n = hi - lo;
        memcpy(sum + at, terms + at, n * sizeof *sum);
        for (kp_u32 rank = 1; rank < p->world; rank++) vec_add(sum + at, terms + rank * term + at, sum + at, n);
    }
}

static void store(kp_ctx *c) {
    const allreduce_params *p = kb_params(c);
    body_sum s = {.region = ALLREDUCE_REGION_SUM, .cols = p->n, .logit_rows = p->logit_rows};
    s.bias_dtype = p->bias_dtype;
    s.bias = ALLREDUCE_BIAS, s.residual = ALLREDUCE_RESIDUAL, s.out = ALLREDUCE_OUT;
    body_store_sum(c, &s);
}

const op_desc keel_op_allreduce = {
    .name = "allreduce",
    .summary = "out = Σ over ranks of partial (+ bias) (+ residual)",
    .min_in = 1,
    .max_in = 2,
    .max_weights = 1,
    .n_out = 1,
    .in_name = {"partial", "residual"},
    .weight_name = {"bias"},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .place = place_reduce,
    .collective = "AR",
    .min_cosine = 0.999999,
    .max_rel_error = 1e-6,
};
