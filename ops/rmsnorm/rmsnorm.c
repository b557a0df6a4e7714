/* SPDX-License-Identifier: Apache-2.0 */
#include "rmsnorm.h"

#include "core/vec.h"
#include "device/rows.h"
#include "graph/shape.h"
#include "plan/columns.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    return shape_norm(g, op, &out[0], err);
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    rmsnorm_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->hidden = (kp_u32)graph_tensor_at(g, op->weight[0])->dim[0];
    KEEL_TRY(columns_weight_dtype(t, g, op, 0, &p->weight_dtype, err));
    p->logit_rows = graph_tensor_at(g, op->out[0])->dim[0] == GRAPH_M_LOGIT;
    p->eps = (float)graph_attr_of(op, "eps");
    const tile_env *env = tiler_env(t);
    uint64_t row_bytes = p->hidden * (uint64_t)dtype_bytes(tiler_dtype(t, op->in[0])), page = env->arch->page_bytes;
    uint64_t w_bytes = p->hidden * (uint64_t)dtype_bytes((dtype)p->weight_dtype),
             fit = (env->n_pages * page - 256) / row_bytes;
    uint64_t row_pages = (env->m_max * row_bytes + page - 1) / page, w_pages = (w_bytes + page - 1) / page;
    p->staged_rows = env->m_max;
    if (env->arch->stage_bytes && fit < env->m_max) p->staged_rows = (kp_u32)fit;
    p->w_staged = !env->arch->stage_bytes && row_pages + w_pages <= env->n_pages;
    p->w_bytes = (kp_u32)w_bytes;
    return KEEL_OK;
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    const rmsnorm_params *p = tiler_params_of(t);
    tiler_task(t, 0, 0, p->hidden, 0);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const rmsnorm_params *p = tiler_params_of(t);
    uint64_t row_bytes = p->hidden * (uint64_t)dtype_bytes(tiler_dtype(t, op->in[0]));
    const arch_desc *arch = tiler_env(t)->arch;
    if (k->lo != 0 || k->hi != p->hidden || k->aux != 0) tiler_refuse(t, "a norm is one task over the whole row");
    tiler_read(t, op->in[0], 0, p->hidden);
    tiler_write(t, op->out[0], 0, p->hidden);
    if (p->staged_rows) tiler_region(t, RMSNORM_REGION_ROWS, p->staged_rows * row_bytes, KP_STORER);
    if (arch->stage_bytes) tiler_region(t, RMSNORM_REGION_SUMS, arch->lanes[KP_CONSUMER] * sizeof(float), KP_STORER);
    if (p->w_staged) tiler_region(t, RMSNORM_REGION_W, p->w_bytes, KP_CONSUMER);
    tiler_cost(t, p->w_bytes, 2 * row_bytes, 4 * (uint64_t)p->hidden);
}

/* No task writes weights, so they need not wait for the events. */
static void load(kp_ctx *c) {
    const rmsnorm_params *p = kb_params(c);
    kp_u32 from, to;
    if (!p->w_staged) return;
    kb_share(c, 0, p->w_bytes, 64, &from, &to);
    if (from < to)
        kb_bulk(c, (kp_u8 *)kb_region(c, RMSNORM_REGION_W) + from, (const kp_u8 *)kb_buffer(c, RMSNORM_W) + from,
                to - from);
}

static void fetch(kp_ctx *c) {
    const rmsnorm_params *p = kb_params(c);
    kb_fetch_rows(c, RMSNORM_REGION_ROWS, RMSNORM_X, p->hidden, 0, p->hidden, p->logit_rows);
}

static void compute(kp_ctx *c) {
    const rmsnorm_params *p = kb_params(c);
    kb_rows rows = kb_rows_of(c, p->logit_rows);
    const void *w = p->w_staged ? kb_region(c, RMSNORM_REGION_W) : kb_buffer(c, RMSNORM_W);
    for (kp_u32 r = rows.from; r < rows.to; r++) {
        float *x = (float *)kb_region(c, RMSNORM_REGION_ROWS) + (size_t)(r - rows.first) * p->hidden;
        vec_rmsnorm(x, (dtype)p->weight_dtype, w, p->eps, x, p->hidden);
    }
}

static void store(kp_ctx *c) {
    const rmsnorm_params *p = kb_params(c);
    kb_store_rows(c, RMSNORM_REGION_ROWS, RMSNORM_OUT, p->hidden, 0, p->hidden, p->logit_rows);
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
    .in_name = {"x"},
    .weight_name = {"scale"},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LOADER) | KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) |
                         KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LOADER] = load, [KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 0.99999,
    .max_rel_error = 1e-5,
};
