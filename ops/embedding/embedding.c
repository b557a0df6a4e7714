/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding.h"

#include "core/vec.h"
#include "device/rows.h"
#include "graph/shape.h"
#include "plan/columns.h"

enum { GRAIN = 64 }; /* columns a tile takes at least */

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *w = graph_tensor_at(g, op->weight[0]);
    if (w->rank != 2) {
        return error_set(err, KEEL_FORMAT, "%s: weight %s must be [vocab, hidden], has rank %d", op->name, w->name,
                         w->rank);
    }
    KEEL_TRY(shape_plannable(op, w, err));
    shape_rows(&out[0], GRAPH_M, w->dim[1]);
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    embedding_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->hidden = (kp_u32)graph_tensor_at(g, op->weight[0])->dim[1];
    return columns_weight_dtype(t, g, op, 0, &p->weight_dtype, err);
}

/* Bytes of a column of the output in SMEM. */
static uint64_t column_bytes(const tiler *t, const graph_op *op) {
    return tiler_env(t)->m_max * dtype_bytes(tiler_dtype(t, op->out[0]));
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g;
    const embedding_params *p = tiler_params_of(t);
    columns_tile(t, p->hidden, GRAIN, columns_most(t, 0, column_bytes(t, op), 1));
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const embedding_params *p = tiler_params_of(t);
    uint64_t width = columns_width(k);
    columns_check(t, k);
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_region(t, EMBEDDING_REGION_ROWS, width * column_bytes(t, op), KP_STORER);
    tiler_cost(t, width * dtype_bytes((dtype)p->weight_dtype), width * dtype_bytes(tiler_dtype(t, op->out[0])), 0);
}

static void gather(kp_ctx *c) {
    const embedding_params *p = kb_params(c);
    const kp_task *task = c->task;
    const unsigned char *w = kb_buffer(c, EMBEDDING_W);
    float *rows = kb_region(c, EMBEDDING_REGION_ROWS);
    size_t width = task->hi - task->lo;
    dtype wt = (dtype)p->weight_dtype;
    kp_u32 from, to;
    kb_share(c, 0, kb_rows_live(c), 1, &from, &to);
    for (kp_u32 r = from; r < to; r++) {
        size_t first = (size_t)kb_step(c)->token[r] * p->hidden + task->lo;
        vec_convert_to_f32(wt, w + first * dtype_bytes(wt), rows + r * width, width);
    }
}

static void store(kp_ctx *c) {
    const embedding_params *p = kb_params(c);
    kb_store_rows(c, EMBEDDING_REGION_ROWS, EMBEDDING_OUT, p->hidden, c->task->lo, c->task->hi, 0);
}

const op_desc keel_op_embedding = {
    .name = "embedding",
    .summary = "out[r] = W[token[r]]",
    .min_in = 0,
    .max_in = 0,
    .min_weights = 1,
    .max_weights = 1,
    .n_out = 1,
    .tagged_out = 1,
    .weight_name = {"table"},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_CONSUMER] = gather, [KP_STORER] = store}}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 1,
    .max_rel_error = 0,
};
