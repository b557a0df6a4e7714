/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/columns.h"

#include "core/vec.h"
#include "device/columns.h"

columns columns_cut(tiler *t, uint32_t n, uint32_t grain, uint32_t most) {
    if (!grain) grain = tiler_env(t)->arch->tile_rows;
    if (most < grain) grain = most ? most : 1;
    return (columns){.t = t, .n = n, .grain = grain, .tiles = tiler_tiles(t, n, grain, most)};
}

bool columns_next(columns *c) {
    if (c->i == c->tiles) return false;
    tiler_bounds(c->n, c->grain, c->tiles, c->i++, &c->lo, &c->hi);
    c->width = c->hi - c->lo;
    tiler_task(c->t, 0, c->lo, c->hi, 0);
    return true;
}

uint32_t columns_most(const tiler *t, uint64_t fixed_bytes, uint64_t column_bytes, uint32_t regions) {
    uint64_t page = tiler_env(t)->arch->page_bytes, pages = tiler_env(t)->arch->n_pages / 2;
    uint64_t fixed = (fixed_bytes + page - 1) / page;
    return fixed < pages ? (uint32_t)((pages - fixed) / regions * page / column_bytes) : 0;
}

keel_status columns_weight_dtype(const tiler *t, const graph *g, const graph_op *op, int i, kp_u32 *type,
                                 keel_error *err) {
    dtype d = op->weight[i] ? tiler_dtype(t, op->weight[i]) : DTYPE_F32;
    *type = (kp_u32)d;
    if (vec_reads(d)) return KEEL_OK;
    return error_set(err, KEEL_UNSUPPORTED, "%s: %s is of type %s; F32, BF16 and F16 are read", op->name,
                     graph_tensor_at(g, op->weight[i])->name, dtype_name(d));
}

keel_status columns_pair(tiler *t, const graph *g, const graph_op *op, uint64_t flops, keel_error *err) {
    const graph_tensor *out = graph_tensor_at(g, op->out[0]);
    kp_pair *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->n = (kp_u32)out->dim[1];
    p->logit_rows = out->dim[0] == GRAPH_M_LOGIT;
    uint64_t act = dtype_bytes(tiler_dtype(t, op->out[0])), column = tiler_env(t)->m_max * act;
    for (columns c = columns_cut(t, p->n, 0, columns_most(t, 0, column, 2)); columns_next(&c);) {
        tiler_read(t, op->in[0], c.lo, c.hi);
        tiler_read(t, op->in[1], c.lo, c.hi);
        tiler_write(t, op->out[0], c.lo, c.hi);
        tiler_region(t, KP_PAIR_OUT, c.width * column, KP_STORER);
        tiler_region(t, KP_PAIR_B, c.width * column, KP_CONSUMER);
        tiler_cost(t, 0, 3 * c.width * act, flops * c.width);
    }
    return KEEL_OK;
}

keel_status columns_matmul(tiler *t, const graph *g, const graph_op *op, int residual, keel_error *err) {
    kp_matmul *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    const graph_tensor *w = graph_tensor_at(g, op->weight[0]);
    const tile_env *env = tiler_env(t);
    p->n = (kp_u32)w->dim[0];
    p->k = (kp_u32)w->dim[1];
    p->logit_rows = graph_tensor_at(g, op->in[0])->dim[0] == GRAPH_M_LOGIT;
    KEEL_TRY(columns_weight_dtype(t, g, op, 0, &p->weight_dtype, err));
    KEEL_TRY(columns_weight_dtype(t, g, op, 1, &p->bias_dtype, err));
    uint64_t act = dtype_bytes(tiler_dtype(t, op->in[0])), wide = dtype_bytes((dtype)p->weight_dtype);
    uint64_t x_bytes = kp_matmul_x_bytes(p, env->m_max, (kp_u32)act), y_bytes = kp_matmul_y_bytes(env->m_max);
    p->x_staged = x_bytes <= (uint64_t)env->arch->page_bytes * (env->arch->n_pages / 2 - 1);
    uint32_t most = columns_most(t, p->x_staged ? x_bytes : 0, y_bytes, 1);
    for (columns c = columns_cut(t, p->n, 0, most); columns_next(&c);) {
        uint64_t bias = op->weight[1] ? c.width * dtype_bytes((dtype)p->bias_dtype) : 0;
        tiler_read(t, op->in[0], 0, p->k);
        tiler_read(t, residual, c.lo, c.hi);
        tiler_write(t, op->out[0], c.lo, c.hi);
        if (p->x_staged) tiler_region(t, KP_MATMUL_X, x_bytes, KP_CONSUMER);
        tiler_region(t, KP_MATMUL_Y, c.width * y_bytes, KP_STORER);
        tiler_cost(t, c.width * p->k * wide + bias, (p->k + (residual ? 2 : 1) * c.width) * act, 2 * c.width * p->k);
    }
    return KEEL_OK;
}
