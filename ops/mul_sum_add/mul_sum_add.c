/* SPDX-License-Identifier: Apache-2.0 */
#include "mul_sum_add.h"

#include "core/vec.h"
#include "plan/tiler.h"

#include <math.h>
#include <string.h>

enum { REGION_Y, REGION_W, REGION_OUT };    /* [rows][experts][hi − lo]; [rows][experts]; [rows][hi − lo] */
enum { GRAIN = 64, EXPERTS_MAX = 1 << 16 }; /* columns a tile takes at least */

static bool is_rows(const graph_tensor *t, int64_t rows) {
    return t->kind == TENSOR_ACTIVATION && t->rank == 2 && t->dim[0] == rows;
}

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *y = graph_tensor_at(g, op->in[0]), *w = graph_tensor_at(g, op->in[1]);
    const graph_tensor *residual = graph_tensor_at(g, op->in[2]);
    double experts = graph_attr_of(op, "experts");
    if (!(experts >= 1) || experts > EXPERTS_MAX || experts != floor(experts)) {
        return error_set(err, KEEL_RANGE, "%s: experts %g must be a whole number from 1 to %d", op->name, experts,
                         EXPERTS_MAX);
    }
    int64_t e = (int64_t)experts, n = y->rank == 2 ? y->dim[1] / e : 0;
    if (!is_rows(y, y->dim[0]) || y->dim[1] % e != 0) {
        return error_set(err, KEEL_FORMAT,
                         "%s: input %s must be [M, %lld × n]: as many columns for each expert; it has %lld", op->name,
                         y->name, (long long)e, (long long)y->dim[1]);
    }
    if (!is_rows(w, y->dim[0]) || w->dim[1] != e) {
        return error_set(err, KEEL_FORMAT,
                         "%s: the weights %s must have the rows of input %s and %lld columns, not %lld", op->name,
                         w->name, y->name, (long long)e, (long long)w->dim[1]);
    }
    if (op->in[2] && (!is_rows(residual, y->dim[0]) || residual->dim[1] != n)) {
        return error_set(err, KEEL_FORMAT,
                         "%s: the residual %s must have the rows of input %s and %lld columns, not %lld", op->name,
                         residual->name, y->name, (long long)n, (long long)residual->dim[1]);
    }
    out[0].kind = TENSOR_ACTIVATION;
    out[0].dtype = DTYPE_ACT;
    out[0].rank = 2;
    out[0].dim[0] = y->dim[0];
    out[0].dim[1] = n;
    return KEEL_OK;
}

static void declare_tile(tiler *t, const graph_op *op, const mul_sum_add_params *p, uint32_t lo, uint32_t hi) {
    uint64_t act = dtype_bytes(tiler_dtype(t, op->out[0])), m = tiler_env(t)->m_max, width = hi - lo;
    tiler_task(t, 0, lo, hi, 0);
    for (int64_t e = 0; e < p->experts; e++) tiler_read(t, op->in[0], e * p->n + lo, e * p->n + hi);
    tiler_read(t, op->in[1], 0, p->experts);
    tiler_read(t, op->in[2], lo, hi);
    tiler_write(t, op->out[0], lo, hi);
    tiler_region(t, REGION_Y, m * p->experts * width * act, KP_CONSUMER);
    tiler_region(t, REGION_W, m * p->experts * act, KP_CONSUMER);
    tiler_region(t, REGION_OUT, m * width * sizeof(float), KP_STORER);
    tiler_cost(t, 0, ((p->experts + 2) * width + p->experts) * act, (2 * p->experts + 1) * width);
}

static keel_status tile(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    const graph_tensor *out = graph_tensor_at(g, op->out[0]);
    mul_sum_add_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->n = (kp_u32)out->dim[1];
    p->experts = (kp_u32)graph_attr_of(op, "experts");
    p->logit_rows = out->dim[0] == GRAPH_M_LOGIT;
    const tile_env *env = tiler_env(t);
    uint64_t column = (uint64_t)env->m_max * p->experts * dtype_bytes(tiler_dtype(t, op->out[0]));
    uint64_t most = (uint64_t)env->arch->page_bytes * (env->arch->n_pages / 4) / column;
    uint32_t grain = most >= GRAIN ? GRAIN : most ? (uint32_t)most : 1;
    uint32_t tiles = tiler_tiles(t, p->n, grain, (uint32_t)most);
    for (uint32_t i = 0; i < tiles; i++) {
        uint32_t lo, hi;
        tiler_bounds(p->n, grain, tiles, i, &lo, &hi);
        declare_tile(t, op, p, lo, hi);
    }
    return KEEL_OK;
}

/* This lane's rows [*from, *to); row r stands at r − *first in the regions. */
static const mul_sum_add_params *rows_of(const kp_ctx *c, kp_u32 *first, kp_u32 *from, kp_u32 *to) {
    const mul_sum_add_params *p = kb_params(c);
    *first = kb_rows_from(c, p->logit_rows);
    kb_share(c, *first, kb_rows_live(c), 1, from, to);
    return p;
}

static void fetch(kp_ctx *c) {
    kp_u32 first, from, to;
    const mul_sum_add_params *p = rows_of(c, &first, &from, &to);
    const float *y = kb_buffer(c, MUL_SUM_ADD_Y), *w = kb_buffer(c, MUL_SUM_ADD_W);
    float *to_y = kb_region(c, REGION_Y), *to_w = kb_region(c, REGION_W);
    size_t width = c->task->hi - c->task->lo, experts = p->experts;
    for (kp_u32 r = from; r < to; r++) {
        size_t row = r * experts, staged = (r - first) * experts;
        kb_bulk(c, to_w + staged, w + row, (kp_u32)(experts * sizeof(float)));
        for (size_t e = 0; e < experts; e++) {
            kb_bulk(c, to_y + (staged + e) * width, y + (row + e) * p->n + c->task->lo,
                    (kp_u32)(width * sizeof(float)));
        }
    }
}

/* Lanes share the columns: one row is the usual case. */
static void compute(kp_ctx *c) {
    const mul_sum_add_params *p = kb_params(c);
    const float *y = kb_region(c, REGION_Y), *w = kb_region(c, REGION_W);
    float *rows = kb_region(c, REGION_OUT);
    kp_u32 n_rows = kb_rows_live(c) - kb_rows_from(c, p->logit_rows), lo, hi;
    size_t width = c->task->hi - c->task->lo, experts = p->experts;
    kb_share(c, 0, (kp_u32)width, 16, &lo, &hi);
    for (size_t r = 0; r < n_rows; r++) {
        float *out = rows + r * width + lo;
        vec_scale(w[r * experts], y + r * experts * width + lo, out, hi - lo);
        for (size_t e = 1; e < experts; e++) {
            vec_axpy(w[r * experts + e], y + (r * experts + e) * width + lo, out, hi - lo);
        }
    }
}

static void store(kp_ctx *c) {
    kp_u32 first, from, to;
    const mul_sum_add_params *p = rows_of(c, &first, &from, &to);
    const float *rows = kb_region(c, REGION_OUT), *residual = kb_buffer(c, MUL_SUM_ADD_RESIDUAL);
    float *out = kb_buffer(c, MUL_SUM_ADD_OUT);
    size_t width = c->task->hi - c->task->lo;
    for (kp_u32 r = from; r < to; r++) {
        const float *sum = rows + (r - first) * width;
        size_t at = (size_t)r * p->n + c->task->lo;
        if (residual) {
            vec_add(sum, residual + at, out + at, width);
        } else {
            memcpy(out + at, sum, width * sizeof *out);
        }
    }
}

const op_desc keel_op_mul_sum_add = {
    .name = "mul_sum_add",
    .summary = "out = Σ_e w_e × y_e (+ residual)",
    .attrs = {{"experts", true, 0, "how many terms the sum has"}},
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .tile = tile,
    .min_cosine = 0.999999,
    .max_rel_error = 1e-5,
};
