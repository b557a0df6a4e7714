/* SPDX-License-Identifier: Apache-2.0 */
#include "linear.h"

#include "core/vec.h"
#include "plan/tiler.h"

#include <string.h>

enum { REGION_X, REGION_Y };                 /* [rows][k] of activations; [rows][hi − lo] of f32 */
enum { BIAS_BLOCK = 64, DIM_MAX = 1 << 30 }; /* bias values converted at a time */

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[0]), *w = graph_tensor_at(g, op->weight[0]);
    if (x->kind != TENSOR_ACTIVATION || x->rank != 2 || w->rank != 2) {
        return error_set(
            err, KEEL_FORMAT,
            "%s: expected an activation [M, k] and a weight [n, k]; input %s has rank %d, weight %s rank %d", op->name,
            x->name, x->rank, w->name, w->rank);
    }
    if (x->dim[1] != w->dim[1]) {
        return error_set(err, KEEL_FORMAT,
                         "%s: input %s is [M, %lld] but weight %s is [%lld, %lld]: the last dimensions must be equal",
                         op->name, x->name, (long long)x->dim[1], w->name, (long long)w->dim[0], (long long)w->dim[1]);
    }
    if (w->dim[0] > DIM_MAX || w->dim[1] > DIM_MAX) {
        return error_set(err, KEEL_RANGE, "%s: weight %s is [%lld, %lld]; dimensions up to %d can be planned", op->name,
                         w->name, (long long)w->dim[0], (long long)w->dim[1], DIM_MAX);
    }
    const graph_tensor *bias = graph_tensor_at(g, op->weight[1]);
    if (op->weight[1] && (bias->rank != 1 || bias->dim[0] != w->dim[0])) {
        return error_set(err, KEEL_FORMAT, "%s: bias %s must be [%lld], as weight %s is [%lld, %lld]", op->name,
                         bias->name, (long long)w->dim[0], w->name, (long long)w->dim[0], (long long)w->dim[1]);
    }
    out[0].kind = TENSOR_ACTIVATION;
    out[0].dtype = DTYPE_ACT;
    out[0].rank = 2;
    out[0].dim[0] = x->dim[0];
    out[0].dim[1] = w->dim[0];
    return KEEL_OK;
}

/* Output columns a task may take: REGION_Y beside REGION_X in half of SMEM, so that the next task's pages are free
 * while this one computes, and contiguous wherever the ring stands. */
static uint32_t max_columns(const tile_env *env, uint64_t x_bytes, uint64_t row_bytes) {
    uint64_t pages = env->arch->n_pages / 2, x_pages = (x_bytes + env->arch->page_bytes - 1) / env->arch->page_bytes;
    return (uint32_t)((pages - x_pages) * env->arch->page_bytes / row_bytes);
}

static keel_status set_params(linear_params *p, const tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    const tile_env *env = tiler_env(t);
    const graph_tensor *x = graph_tensor_at(g, op->in[0]), *w = graph_tensor_at(g, op->weight[0]);
    p->n = (kp_u32)w->dim[0];
    p->k = (kp_u32)w->dim[1];
    p->logit_rows = x->dim[0] == GRAPH_M_LOGIT;
    uint64_t half = (uint64_t)env->arch->page_bytes * (env->arch->n_pages / 2 - 1);
    p->x_staged = (uint64_t)env->m_max * p->k * dtype_bytes(tiler_dtype(t, op->in[0])) <= half;
    kp_u32 *type[2] = {&p->weight_dtype, &p->bias_dtype};
    for (int i = 0; i < 2; i++) {
        dtype d = op->weight[i] ? tiler_dtype(t, op->weight[i]) : DTYPE_F32;
        if (!vec_reads(d)) {
            return error_set(err, KEEL_UNSUPPORTED, "%s: %s is of type %s; F32, BF16 and F16 are read", op->name,
                             graph_tensor_at(g, op->weight[i])->name, dtype_name(d));
        }
        *type[i] = (kp_u32)d;
    }
    return KEEL_OK;
}

static keel_status tile(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    linear_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    KEEL_TRY(set_params(p, t, g, op, err));
    const tile_env *env = tiler_env(t);
    uint64_t act = dtype_bytes(tiler_dtype(t, op->in[0])), wide = dtype_bytes((dtype)p->weight_dtype);
    uint64_t x_bytes = p->x_staged ? env->m_max * act * p->k : 0, y_row = env->m_max * sizeof(float);
    uint32_t grain = env->arch->tile_rows, tiles = tiler_tiles(t, p->n, grain, max_columns(env, x_bytes, y_row));
    for (uint32_t i = 0; i < tiles; i++) {
        uint32_t lo, hi;
        tiler_bounds(p->n, grain, tiles, i, &lo, &hi);
        uint64_t width = hi - lo, bias = op->weight[1] ? width * dtype_bytes((dtype)p->bias_dtype) : 0;
        tiler_task(t, 0, lo, hi, 0);
        tiler_read(t, op->in[0], 0, p->k);
        tiler_write(t, op->out[0], lo, hi);
        if (x_bytes) tiler_region(t, REGION_X, x_bytes, KP_CONSUMER);
        tiler_region(t, REGION_Y, width * y_row, KP_STORER);
        tiler_cost(t, width * p->k * wide + bias, (p->k + width) * act, 2 * width * p->k);
    }
    return KEEL_OK;
}

static void fetch(kp_ctx *c) {
    const linear_params *p = kb_params(c);
    if (!p->x_staged) return;
    const float *x = kb_buffer(c, LINEAR_X);
    float *staged = kb_region(c, REGION_X);
    kp_u32 first = kb_rows_from(c, p->logit_rows), from, to;
    kb_share(c, first, kb_rows_live(c), 1, &from, &to);
    if (from == to) return;
    kb_bulk(c, staged + (size_t)(from - first) * p->k, x + (size_t)from * p->k,
            (kp_u32)((to - from) * p->k * sizeof *x));
}

static void compute(kp_ctx *c) {
    const linear_params *p = kb_params(c);
    const kp_task *task = c->task;
    const unsigned char *w = kb_buffer(c, LINEAR_W);
    kp_u32 first = kb_rows_from(c, p->logit_rows), lo, hi;
    const float *x = (const float *)kb_buffer(c, LINEAR_X) + (size_t)first * p->k;
    if (p->x_staged) x = kb_region(c, REGION_X);
    float *y = kb_region(c, REGION_Y);
    kb_share(c, task->lo, task->hi, 8, &lo, &hi);
    dtype wt = (dtype)p->weight_dtype;
    vec_matmul(wt, w + (size_t)lo * p->k * dtype_bytes(wt), hi - lo, p->k, x, p->k, kb_rows_live(c) - first,
               y + (lo - task->lo), task->hi - task->lo);
}

static void store(kp_ctx *c) {
    const linear_params *p = kb_params(c);
    const kp_task *task = c->task;
    const unsigned char *bias = kb_buffer(c, LINEAR_BIAS);
    const float *y = kb_region(c, REGION_Y);
    float *out = kb_buffer(c, LINEAR_OUT), values[BIAS_BLOCK];
    kp_u32 first = kb_rows_from(c, p->logit_rows), live = kb_rows_live(c), lo, hi;
    size_t width = task->hi - task->lo, block = bias ? BIAS_BLOCK : width;
    kb_share(c, task->lo, task->hi, 16, &lo, &hi);
    for (size_t j = lo; j < hi; j += block) {
        size_t n = hi - j < block ? hi - j : block;
        dtype bt = (dtype)p->bias_dtype;
        if (bias) vec_convert_to_f32(bt, bias + j * dtype_bytes(bt), values, n);
        for (kp_u32 r = first; r < live; r++) {
            const float *from = y + (r - first) * width + (j - task->lo);
            float *to = out + (size_t)r * p->n + j;
            if (bias) {
                vec_add(from, values, to, n);
            } else {
                memcpy(to, from, n * sizeof *to);
            }
        }
    }
}

const op_desc keel_op_linear = {
    .name = "linear",
    .summary = "y = x Wᵀ (+ bias)",
    .min_in = 1,
    .max_in = 1,
    .min_weights = 1,
    .max_weights = 2,
    .n_out = 1,
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .tile = tile,
    .min_cosine = 0.9999,
    .max_rel_error = 1e-4,
};
