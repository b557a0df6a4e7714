/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/columns.h"

#include "core/vec.h"

_Static_assert((int)KP_F8E4M3 == (int)DTYPE_F8E4M3 && (int)KP_F8_BLOCK == (int)FP8_BLOCK, "device/columns.h");

void columns_tile(tiler *t, uint32_t n, uint32_t grain, uint32_t most) {
    if (!grain) grain = tiler_env(t)->arch->tile_rows;
    if (most < grain) grain = most ? most : 1;
    uint32_t tiles = tiler_tiles(t, n, grain, most);
    for (uint32_t i = 0; i < tiles; i++) {
        uint32_t lo, hi;
        tiler_bounds(n, grain, tiles, i, &lo, &hi);
        tiler_task(t, 0, lo, hi, 0);
    }
}

void columns_check(tiler *t, const op_task *k) {
    if (k->aux != 0) tiler_refuse(t, "aux must be 0");
}

uint32_t columns_most(const tiler *t, uint64_t fixed_bytes, uint64_t column_bytes, uint32_t regions) {
    uint64_t page = tiler_env(t)->arch->page_bytes, pages = tiler_env(t)->n_pages / 2;
    uint64_t fixed = (fixed_bytes + page - 1) / page;
    return fixed < pages ? (uint32_t)((pages - fixed) / regions * page / column_bytes) : 0;
}

keel_status columns_weight_dtype(const tiler *t, const graph *g, const graph_op *op, int i, kp_u32 *type,
                                 keel_error *err) {
    dtype d = op->weight[i] ? tiler_dtype(t, op->weight[i]) : DTYPE_F32;
    *type = (kp_u32)d;
    if (vec_reads(d) || (d == DTYPE_F8E4M3 && op->desc->scale[i])) return KEEL_OK;
    return error_set(err, KEEL_UNSUPPORTED, "%s: %s is of type %s; F32, BF16 and F16 are read", op->name,
                     graph_tensor_at(g, op->weight[i])->name, dtype_name(d));
}

keel_status columns_scale(const tiler *t, const graph *g, const graph_op *op, int i, kp_u32 *buffer, kp_u32 *type,
                          keel_error *err) {
    int at = op->desc->scale[i];
    bool scaled = at && op->weight[at];
    *buffer = scaled ? (kp_u32)(op->desc->max_in + at) : KP_NONE;
    *type = DTYPE_F32;
    return scaled ? columns_weight_dtype(t, g, op, at, type, err) : KEEL_OK;
}

uint64_t columns_scale_bytes(uint64_t lo, uint64_t width, uint64_t k, dtype type) {
    if (!width) return 0;
    uint64_t bands = (lo + width - 1) / FP8_BLOCK - lo / FP8_BLOCK + 1;
    return bands * (uint64_t)fp8_blocks((int64_t)k) * dtype_bytes(type);
}

keel_status columns_pair_params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    const graph_tensor *out = graph_tensor_at(g, op->out[0]);
    kp_pair *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->n = (kp_u32)out->dim[1];
    p->logit_rows = out->dim[0] == GRAPH_M_LOGIT;
    return KEEL_OK;
}

static uint64_t pair_column_bytes(const tiler *t, const graph_op *op) {
    return tiler_env(t)->m_max * dtype_bytes(tiler_dtype(t, op->out[0]));
}

void columns_pair_tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g;
    const kp_pair *p = tiler_params_of(t);
    columns_tile(t, p->n, 0, columns_most(t, 0, pair_column_bytes(t, op), 2));
}

void columns_pair_task(tiler *t, const graph *g, const graph_op *op, const op_task *k, uint64_t flops) {
    (void)g;
    uint64_t width = columns_width(k), column = pair_column_bytes(t, op);
    columns_check(t, k);
    tiler_read(t, op->in[0], k->lo, k->hi);
    tiler_read(t, op->in[1], k->lo, k->hi);
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_region(t, KP_PAIR_OUT, width * column, KP_STORER);
    tiler_region(t, KP_PAIR_B, width * column, KP_CONSUMER);
    tiler_cost(t, 0, 3 * width * dtype_bytes(tiler_dtype(t, op->out[0])), flops * width);
}

static uint64_t matmul_x_bytes(const tiler *t, const graph_op *op, const kp_matmul *p) {
    return kp_matmul_x_bytes(p, (kp_u32)dtype_bytes(tiler_dtype(t, op->in[0])));
}

/* Where weights stream, the launcher brings the residual too, so that the storer need not wait for it. */
static uint64_t residual_column_bytes(const tiler *t, uint64_t act_bytes, int residual) {
    return residual && tiler_env(t)->arch->stage_bytes ? tiler_env(t)->m_max * act_bytes : 0;
}

/* Rows of x that fit beside an output tile. Where weights stream, x must not wait for room: pages for the smallest tile
 * are left. */
static kp_u32 staged_rows(const tiler *t, uint64_t row_bytes, uint64_t column_bytes) {
    const tile_env *env = tiler_env(t);
    uint64_t tile = (env->arch->tile_rows * column_bytes + env->arch->page_bytes - 1) / env->arch->page_bytes;
    uint64_t pages = env->arch->stage_bytes ? env->n_pages - tile : env->n_pages / 2 - 1;
    uint64_t rows = pages * env->arch->page_bytes / row_bytes;
    return (kp_u32)(rows < env->m_max ? rows : env->m_max);
}

uint32_t columns_x_pitch(const tile_env *env, uint64_t k) {
    if (!env->arch->stage_bytes) return (uint32_t)k;
    return (uint32_t)((k + 15) / 16 * 16 + (env->m_max > 1 ? 8 : 0)); /* rows apart lie in other banks */
}

keel_status columns_matmul_params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    kp_matmul *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    return columns_matmul_fill(t, g, op, 0, 1, p, err);
}

keel_status columns_matmul_fill(const tiler *t, const graph *g, const graph_op *op, int matrix, int bias, kp_matmul *p,
                                keel_error *err) {
    const graph_tensor *w = graph_tensor_at(g, op->weight[matrix]);
    const arch_desc *arch = tiler_env(t)->arch;
    p->n = (kp_u32)w->dim[0];
    p->k = (kp_u32)w->dim[1];
    p->logit_rows = graph_tensor_at(g, op->in[0])->dim[0] == GRAPH_M_LOGIT;
    KEEL_TRY(columns_weight_dtype(t, g, op, matrix, &p->weight_dtype, err));
    KEEL_TRY(columns_weight_dtype(t, g, op, bias, &p->bias_dtype, err));
    KEEL_TRY(columns_scale(t, g, op, matrix, &p->scale, &p->scale_dtype, err));
    p->parts = arch->stage_bytes ? arch->lanes[KP_CONSUMER] : 1;
    p->x_pitch = columns_x_pitch(tiler_env(t), p->k);
    uint64_t act = dtype_bytes(tiler_dtype(t, op->in[0]));
    uint64_t column = kp_matmul_y_bytes(p, tiler_env(t)->m_max) + residual_column_bytes(t, act, op->in[1]);
    p->x_rows = staged_rows(t, p->x_pitch * act, column);
    if (!arch->stage_bytes && p->x_rows < tiler_env(t)->m_max) p->x_rows = 0;
    return KEEL_OK;
}

bool columns_matmul_tags(const void *params) { return ((const kp_matmul *)params)->x_rows > 0; }

void columns_matmul_tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g;
    const kp_matmul *p = tiler_params_of(t);
    const tile_env *env = tiler_env(t);
    uint64_t page = env->arch->page_bytes, x_pages = (matmul_x_bytes(t, op, p) + page - 1) / page;
    uint64_t column =
        kp_matmul_y_bytes(p, env->m_max) + residual_column_bytes(t, dtype_bytes(tiler_dtype(t, op->in[0])), op->in[1]);
    uint32_t most = columns_most(t, matmul_x_bytes(t, op, p), column, 1);
    if (env->arch->stage_bytes) /* weights run ahead in the ring, so that a task may take all pages */
        most = (uint32_t)((env->n_pages - x_pages) * page / column);
    columns_tile(t, p->n, 0, most);
}

void columns_matmul_task(tiler *t, const graph *g, const graph_op *op, const op_task *k, int residual) {
    (void)g;
    const kp_matmul *p = tiler_params_of(t);
    uint64_t width = columns_width(k), act = dtype_bytes(tiler_dtype(t, op->in[0]));
    uint64_t bias = op->weight[1] ? width * dtype_bytes((dtype)p->bias_dtype) : 0;
    uint64_t weight = width * p->k * dtype_bytes((dtype)p->weight_dtype);
    if (p->scale != KP_NONE) weight += columns_scale_bytes(k->lo, width, p->k, (dtype)p->scale_dtype);
    columns_check(t, k);
    tiler_read(t, op->in[0], 0, p->k);
    tiler_read(t, residual, k->lo, k->hi);
    tiler_write(t, op->out[0], k->lo, k->hi);
    if (p->x_rows) tiler_region(t, KP_MATMUL_X, matmul_x_bytes(t, op, p), KP_CONSUMER);
    tiler_region(t, KP_MATMUL_Y, (width + 15) / 16 * 16 * kp_matmul_y_bytes(p, tiler_env(t)->m_max), KP_STORER);
    uint64_t residual_bytes = width * residual_column_bytes(t, act, residual);
    if (residual_bytes) tiler_region(t, KP_MATMUL_R, residual_bytes, KP_STORER);
    tiler_cost(t, weight + bias, (p->k + (residual ? 2 : 1) * width) * act, 2 * width * p->k);
}
