/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor_init.h"

#include "device/rows.h"
#include "graph/shape.h"
#include "plan/columns.h"

#include <math.h>

enum { COLS_MAX = 1 << 30 };

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)g;
    double cols = graph_attr_of(op, "cols");
    if (!(cols >= 1) || cols > COLS_MAX || cols != floor(cols)) {
        return error_set(err, KEEL_RANGE, "%s: cols %g must be a whole number from 1 to %d", op->name, cols, COLS_MAX);
    }
    shape_rows(&out[0], GRAPH_M, (int64_t)cols);
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    tensor_init_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->cols = (kp_u32)graph_tensor_at(g, op->out[0])->dim[1];
    p->value = (float)graph_attr_of(op, "value");
    return KEEL_OK;
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    const tensor_init_params *p = tiler_params_of(t);
    columns_tile(t, p->cols, 0, UINT32_MAX);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    columns_check(t, k);
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_cost(t, 0, columns_width(k) * dtype_bytes(tiler_dtype(t, op->out[0])), 0);
}

static void store(kp_ctx *c) {
    const tensor_init_params *p = kb_params(c);
    float *out = kb_buffer(c, TENSOR_INIT_OUT);
    kb_rows rows = kb_rows_of(c, 0);
    for (kp_u32 r = rows.from; r < rows.to; r++) {
        for (kp_u32 j = c->task->lo; j < c->task->hi; j++) out[(size_t)r * p->cols + j] = p->value;
    }
}

const op_desc keel_op_tensor_init = {
    .name = "tensor_init",
    .summary = "out = value",
    .attrs = {{"cols", true, 0, "columns of the tensor"}, {"value", false, 0, "what every element is"}},
    .n_out = 1,
    .phases = {{.name = "", .needs = KP_ROLE_BIT(KP_STORER), .cpu = {[KP_STORER] = store}}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 1,
    .max_rel_error = 0,
};
