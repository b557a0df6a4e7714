/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor_init.h"

#include "plan/tiler.h"

#include <math.h>

enum { GRAIN = 64, COLS_MAX = 1 << 30 }; /* columns a tile takes at least */

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)g;
    double cols = graph_attr_of(op, "cols");
    if (!(cols >= 1) || cols > COLS_MAX || cols != floor(cols)) {
        return error_set(err, KEEL_RANGE, "%s: cols %g must be a whole number from 1 to %d", op->name, cols, COLS_MAX);
    }
    out[0].kind = TENSOR_ACTIVATION;
    out[0].dtype = DTYPE_ACT;
    out[0].rank = 2;
    out[0].dim[0] = GRAPH_M;
    out[0].dim[1] = (int64_t)cols;
    return KEEL_OK;
}

static keel_status tile(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    tensor_init_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->cols = (kp_u32)graph_tensor_at(g, op->out[0])->dim[1];
    p->value = (float)graph_attr_of(op, "value");
    uint32_t tiles = tiler_tiles(t, p->cols, GRAIN, UINT32_MAX);
    for (uint32_t i = 0; i < tiles; i++) {
        uint32_t lo, hi;
        tiler_bounds(p->cols, GRAIN, tiles, i, &lo, &hi);
        tiler_task(t, 0, lo, hi, 0);
        tiler_write(t, op->out[0], lo, hi);
        tiler_cost(t, 0, (uint64_t)(hi - lo) * dtype_bytes(tiler_dtype(t, op->out[0])), 0);
    }
    return KEEL_OK;
}

static void store(kp_ctx *c) {
    const tensor_init_params *p = kb_params(c);
    float *out = kb_buffer(c, TENSOR_INIT_OUT);
    kp_u32 from, to;
    kb_share(c, 0, kb_rows_live(c), 1, &from, &to);
    for (kp_u32 r = from; r < to; r++) {
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
    .tile = tile,
    .min_cosine = 1,
    .max_rel_error = 0,
};
