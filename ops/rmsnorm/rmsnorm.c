/* SPDX-License-Identifier: Apache-2.0 */
#include "rmsnorm.h"

#include "core/vec.h"
#include "plan/tiler.h"

#include <string.h>

enum { REGION_ROWS }; /* [rows][hidden] */

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[0]), *w = graph_tensor_at(g, op->weight[0]);
    if (x->kind != TENSOR_ACTIVATION || x->rank != 2 || w->rank != 1 || w->dim[0] != x->dim[1]) {
        return error_set(
            err, KEEL_FORMAT,
            "%s: expected an activation [M, n] and a weight [n]; input %s has rank %d and %lld columns, weight %s "
            "rank %d and %lld elements",
            op->name, x->name, x->rank, (long long)x->dim[1], w->name, w->rank, (long long)w->dim[0]);
    }
    double eps = graph_attr_of(op, "eps"), logit_rows = graph_attr_of(op, "logit_rows");
    if (!(eps >= 0)) return error_set(err, KEEL_RANGE, "%s: eps %g must not be negative", op->name, eps);
    if (logit_rows != 0 && logit_rows != 1) {
        return error_set(err, KEEL_RANGE, "%s: logit_rows %g must be 0 or 1", op->name, logit_rows);
    }
    out[0].kind = TENSOR_ACTIVATION;
    out[0].dtype = DTYPE_ACT;
    out[0].rank = 2;
    out[0].dim[0] = logit_rows != 0 ? GRAPH_M_LOGIT : x->dim[0];
    out[0].dim[1] = x->dim[1];
    return KEEL_OK;
}

static keel_status tile(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    const graph_tensor *w = graph_tensor_at(g, op->weight[0]);
    dtype wt = tiler_dtype(t, op->weight[0]);
    if (!vec_reads(wt)) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: %s is of type %s; F32, BF16 and F16 are read", op->name, w->name,
                         dtype_name(wt));
    }
    rmsnorm_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->hidden = (kp_u32)w->dim[0];
    p->weight_dtype = (kp_u32)wt;
    p->logit_rows = graph_tensor_at(g, op->out[0])->dim[0] == GRAPH_M_LOGIT;
    p->eps = (float)graph_attr_of(op, "eps");
    uint64_t row_bytes = p->hidden * (uint64_t)dtype_bytes(tiler_dtype(t, op->in[0]));
    tiler_task(t, 0, 0, p->hidden, 0);
    tiler_read(t, op->in[0], 0, p->hidden);
    tiler_write(t, op->out[0], 0, p->hidden);
    tiler_region(t, REGION_ROWS, tiler_env(t)->m_max * row_bytes, KP_STORER);
    tiler_cost(t, p->hidden * (uint64_t)dtype_bytes(wt), 2 * row_bytes, 4 * (uint64_t)p->hidden);
    return KEEL_OK;
}

/* This lane's rows [*from, *to); row r stands at r − *first in the region. */
static const rmsnorm_params *rows_of(const kp_ctx *c, kp_u32 *first, kp_u32 *from, kp_u32 *to) {
    const rmsnorm_params *p = kb_params(c);
    *first = kb_rows_from(c, p->logit_rows);
    kb_share(c, *first, kb_rows_live(c), 1, from, to);
    return p;
}

static void fetch(kp_ctx *c) {
    kp_u32 first, from, to;
    const rmsnorm_params *p = rows_of(c, &first, &from, &to);
    const float *x = kb_buffer(c, RMSNORM_X);
    float *rows = kb_region(c, REGION_ROWS);
    if (from == to) return;
    kb_bulk(c, rows + (size_t)(from - first) * p->hidden, x + (size_t)from * p->hidden,
            (kp_u32)((to - from) * p->hidden * sizeof *x));
}

static void compute(kp_ctx *c) {
    kp_u32 first, from, to;
    const rmsnorm_params *p = rows_of(c, &first, &from, &to);
    float *rows = kb_region(c, REGION_ROWS);
    for (kp_u32 r = from; r < to; r++) {
        float *x = rows + (size_t)(r - first) * p->hidden;
        vec_rmsnorm(x, (dtype)p->weight_dtype, kb_buffer(c, RMSNORM_W), p->eps, x, p->hidden);
    }
}

static void store(kp_ctx *c) {
    kp_u32 first, from, to;
    const rmsnorm_params *p = rows_of(c, &first, &from, &to);
    const float *rows = kb_region(c, REGION_ROWS);
    float *out = kb_buffer(c, RMSNORM_OUT);
    if (from == to) return;
    memcpy(out + (size_t)from * p->hidden, rows + (size_t)(from - first) * p->hidden,
           (size_t)(to - from) * p->hidden * sizeof *out);
}

const op_desc keel_op_rmsnorm = {
    .name = "rmsnorm",
    .summary = "y = w × x / √(mean(x²) + eps)",
    .attrs = {{"eps", true, 0, "added to the mean of squares"},
              {"logit_rows", false, 0, "1: only the rows whose logits are wanted"}},
    .min_in = 1,
    .max_in = 1,
    .min_weights = 1,
    .max_weights = 1,
    .n_out = 1,
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .tile = tile,
    .min_cosine = 0.99999,
    .max_rel_error = 1e-5,
};
