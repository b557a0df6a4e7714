/* SPDX-License-Identifier: Apache-2.0 */
#include "rope_table.h"

#include "device/rows.h"
#include "graph/shape.h"
#include "plan/tiler.h"

#include <math.h>

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *inv_freq = graph_tensor_at(g, op->in[0]);
    if (!op->in[0] || inv_freq->kind != TENSOR_CONST || inv_freq->rank != 1 || inv_freq->dim[0] < 1) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 must be a constant [rotary_dim / 2]: the inverse frequencies",
                         op->name);
    }
    shape_rows(&out[0], GRAPH_M, 2 * inv_freq->dim[0]);
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    rope_table_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->half = (kp_u32)(graph_row_elements(graph_tensor_at(g, op->out[0])) / 2);
    p->attention_factor = (float)graph_attr_of(op, "attention_factor");
    return KEEL_OK;
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    const rope_table_params *p = tiler_params_of(t);
    tiler_task(t, 0, 0, 2 * p->half, 0);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const rope_table_params *p = tiler_params_of(t);
    uint64_t cols = 2 * (uint64_t)p->half, row_bytes = cols * dtype_bytes(tiler_dtype(t, op->out[0]));
    if (k->lo != 0 || k->hi != cols || k->aux != 0) tiler_refuse(t, "the table is one task over all columns");
    tiler_write(t, op->out[0], 0, (int64_t)cols);
    tiler_region(t, ROPE_TABLE_REGION_ROWS, tiler_env(t)->m_max * row_bytes, KP_STORER);
    tiler_cost(t, 0, row_bytes, cols * 20);
}

static void compute(kp_ctx *c) {
    const rope_table_params *p = kb_params(c);
    const float *inv_freq = kb_buffer(c, ROPE_TABLE_INV_FREQ);
    float *rows = kb_region(c, ROPE_TABLE_REGION_ROWS);
    kp_u32 from, to, half = p->half;
    kb_share(c, 0, kb_rows_live(c), 1, &from, &to);
    for (kp_u32 r = from; r < to; r++) {
        float position = (float)kb_step(c)->position[r];
        float *cosine = rows + (size_t)r * 2 * half, *sine = cosine + half;
        for (kp_u32 i = 0; i < half; i++) {
            float angle = position * inv_freq[i];
            cosine[i] = (float)cos(angle) * p->attention_factor;
            sine[i] = (float)sin(angle) * p->attention_factor;
        }
    }
}

static void store(kp_ctx *c) {
    const rope_table_params *p = kb_params(c);
    kb_store_rows(c, ROPE_TABLE_REGION_ROWS, ROPE_TABLE_OUT, 2 * p->half, 0, 2 * p->half, 0);
}

const op_desc keel_op_rope_table = {
    .name = "rope_table",
    .summary = "out[r] = [cos(position × inv_freq), sin(position × inv_freq)] × attention_factor",
    .attrs = {{"attention_factor", false, 1, "multiplies cosines and sines (yarn)"}},
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .in_name = {"inv_freq"},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 0.999999,
    .max_rel_error = 1e-6,
};
