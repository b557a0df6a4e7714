/* SPDX-License-Identifier: Apache-2.0 */
#include "mul_sum_add.h"

#include "core/vec.h"
#include "device/rows.h"
#include "graph/shape.h"
#include "plan/columns.h"

#include <math.h>

enum { EXPERTS_MAX = 1 << 16 };

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *y = graph_tensor_at(g, op->in[0]), *w = graph_tensor_at(g, op->in[1]);
    const graph_tensor *residual = graph_tensor_at(g, op->in[2]);
    double experts = graph_attr_of(op, "experts");
    if (!(experts >= 1) || experts > EXPERTS_MAX || experts != floor(experts)) {
        return error_set(err, KEEL_RANGE, "%s: experts %g must be a whole number from 1 to %d", op->name, experts,
                         EXPERTS_MAX);
    }
    int64_t e = (int64_t)experts, n = y->rank == 2 ? y->dim[1] / e : 0;
    if (!shape_is_rows(y, y->dim[0], 0) || y->dim[1] % e != 0) {
        return error_set(err, KEEL_FORMAT,
                         "%s: input %s must be [M, %lld × n]: as many columns for each expert; it has %lld", op->name,
                         y->name, (long long)e, (long long)y->dim[1]);
    }
    if (!shape_is_rows(w, y->dim[0], e)) {
        return error_set(err, KEEL_FORMAT,
                         "%s: the weights %s must have the rows of input %s and %lld columns, not %lld", op->name,
                         w->name, y->name, (long long)e, (long long)w->dim[1]);
    }
    if (op->in[2] && !shape_is_rows(residual, y->dim[0], n)) {
        return error_set(err, KEEL_FORMAT,
                         "%s: the residual %s must have the rows of input %s and %lld columns, not %lld", op->name,
                         residual->name, y->name, (long long)n, (long long)residual->dim[1]);
    }
    shape_rows(&out[0], y->dim[0], n);
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    const graph_tensor *out = graph_tensor_at(g, op->out[0]);
    mul_sum_add_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->n = (kp_u32)out->dim[1];
    p->experts = (kp_u32)graph_attr_of(op, "experts");
    p->logit_rows = out->dim[0] == GRAPH_M_LOGIT;
    return KEEL_OK;
}

/* Bytes of a column of all experts in SMEM. */
static uint64_t terms_bytes(const tiler *t, const graph_op *op, const mul_sum_add_params *p) {
    return (uint64_t)tiler_env(t)->m_max * p->experts * dtype_bytes(tiler_dtype(t, op->out[0]));
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g;
    const mul_sum_add_params *p = tiler_params_of(t);
    uint64_t terms = terms_bytes(t, op, p);
    columns_tile(t, p->n, 0, columns_most(t, terms, terms, 2));
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const mul_sum_add_params *p = tiler_params_of(t);
    uint64_t width = columns_width(k), terms = terms_bytes(t, op, p), act = dtype_bytes(tiler_dtype(t, op->out[0]));
    int64_t n = p->n;
    columns_check(t, k);
    for (int64_t e = 0; e < p->experts; e++) tiler_read(t, op->in[0], e * n + k->lo, e * n + k->hi);
    tiler_read(t, op->in[1], 0, p->experts);
    tiler_read(t, op->in[2], k->lo, k->hi);
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_region(t, MUL_SUM_ADD_REGION_Y, width * terms, KP_CONSUMER);
    tiler_region(t, MUL_SUM_ADD_REGION_W, terms, KP_CONSUMER);
    tiler_region(t, MUL_SUM_ADD_REGION_OUT, tiler_env(t)->m_max * width * sizeof(float), KP_STORER);
    tiler_cost(t, 0, ((p->experts + 2) * width + p->experts) * act, (2 * p->experts + 1) * width);
}

static void fetch(kp_ctx *c) {
    const mul_sum_add_params *p = kb_params(c);
    kb_rows rows = kb_rows_of(c, p->logit_rows);
    const float *y = kb_buffer(c, MUL_SUM_ADD_Y);
    float *to = kb_region(c, MUL_SUM_ADD_REGION_Y);
    size_t width = c->task->hi - c->task->lo, experts = p->experts;
    kb_fetch_rows(c, MUL_SUM_ADD_REGION_W, MUL_SUM_ADD_W, p->experts, 0, p->experts, p->logit_rows);
    for (size_t i = rows.from * experts; i < rows.to * experts; i++) { /* expert i mod experts of row i / experts */
        kb_bulk(c, to + (i - rows.first * experts) * width, y + i * p->n + c->task->lo,
                (kp_u32)(width * sizeof(float)));
    }
}

/* Lanes share the columns: one row is the usual case. */
static void compute(kp_ctx *c) {
    const mul_sum_add_params *p = kb_params(c);
    const float *y = kb_region(c, MUL_SUM_ADD_REGION_Y), *w = kb_region(c, MUL_SUM_ADD_REGION_W);
    float *rows = kb_region(c, MUL_SUM_ADD_REGION_OUT);
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
    const mul_sum_add_params *p = kb_params(c);
    const float *residual = kb_buffer(c, MUL_SUM_ADD_RESIDUAL);
    if (!residual) {
        kb_store_rows(c, MUL_SUM_ADD_REGION_OUT, MUL_SUM_ADD_OUT, p->n, c->task->lo, c->task->hi, p->logit_rows);
        return;
    }
    kb_rows rows = kb_rows_of(c, p->logit_rows);
    const float *sum = kb_region(c, MUL_SUM_ADD_REGION_OUT);
    float *out = kb_buffer(c, MUL_SUM_ADD_OUT);
    size_t width = c->task->hi - c->task->lo;
    for (kp_u32 r = rows.from; r < rows.to; r++) {
        size_t at = (size_t)r * p->n + c->task->lo;
        vec_add(sum + (r - rows.first) * width, residual + at, out + at, width);
    }
}

const op_desc keel_op_mul_sum_add = {
    .name = "mul_sum_add",
    .summary = "out = Σ_e w_e × y_e (+ residual)",
    .attrs = {{"experts", true, 0, "how many terms the sum has"}},
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .in_name = {"y", "w", "residual"},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 0.999999,
    .max_rel_error = 1e-5,
};
