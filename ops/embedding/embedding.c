/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding.h"

#include "core/vec.h"
#include "plan/tiler.h"

#include <string.h>

enum { REGION_ROWS };                   /* [rows][hi − lo] */
enum { GRAIN = 64, DIM_MAX = 1 << 30 }; /* columns a tile takes at least */

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *w = graph_tensor_at(g, op->weight[0]);
    if (w->rank != 2) {
        return error_set(err, KEEL_FORMAT, "%s: weight %s must be [vocab, hidden], has rank %d", op->name, w->name,
                         w->rank);
    }
    if (w->dim[0] > DIM_MAX || w->dim[1] > DIM_MAX) {
        return error_set(err, KEEL_RANGE, "%s: weight %s is [%lld, %lld]; dimensions up to %d can be planned", op->name,
                         w->name, (long long)w->dim[0], (long long)w->dim[1], DIM_MAX);
    }
    out[0].kind = TENSOR_ACTIVATION;
    out[0].dtype = DTYPE_ACT;
    out[0].rank = 2;
    out[0].dim[0] = GRAPH_M;
    out[0].dim[1] = w->dim[1];
    return KEEL_OK;
}

static keel_status tile(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    const graph_tensor *w = graph_tensor_at(g, op->weight[0]);
    dtype wt = tiler_dtype(t, op->weight[0]);
    if (!vec_reads(wt)) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: %s is of type %s; F32, BF16 and F16 are read", op->name, w->name,
                         dtype_name(wt));
    }
    embedding_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->hidden = (kp_u32)w->dim[1];
    p->weight_dtype = (kp_u32)wt;
    const tile_env *env = tiler_env(t);
    uint64_t act = dtype_bytes(tiler_dtype(t, op->out[0])), column = env->m_max * act;
    uint64_t most = (uint64_t)env->arch->page_bytes * (env->arch->n_pages / 2) / column;
    uint32_t tiles = tiler_tiles(t, p->hidden, GRAIN, (uint32_t)most);
    for (uint32_t i = 0; i < tiles; i++) {
        uint32_t lo, hi;
        tiler_bounds(p->hidden, GRAIN, tiles, i, &lo, &hi);
        uint64_t width = hi - lo;
        tiler_task(t, 0, lo, hi, 0);
        tiler_write(t, op->out[0], lo, hi);
        tiler_region(t, REGION_ROWS, width * column, KP_STORER);
        tiler_cost(t, width * dtype_bytes(wt), width * act, 0);
    }
    return KEEL_OK;
}

static void gather(kp_ctx *c) {
    const embedding_params *p = kb_params(c);
    const kp_task *task = c->task;
    const unsigned char *w = kb_buffer(c, EMBEDDING_W);
    float *rows = kb_region(c, REGION_ROWS);
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
    const kp_task *task = c->task;
    const float *rows = kb_region(c, REGION_ROWS);
    float *out = kb_buffer(c, EMBEDDING_OUT);
    size_t width = task->hi - task->lo;
    kp_u32 from, to;
    kb_share(c, 0, kb_rows_live(c), 1, &from, &to);
    for (kp_u32 r = from; r < to; r++) {
        memcpy(out + (size_t)r * p->hidden + task->lo, rows + r * width, width * sizeof *out);
    }
}

const op_desc keel_op_embedding = {
    .name = "embedding",
    .summary = "out[r] = W[token[r]]",
    .min_in = 0,
    .max_in = 0,
    .min_weights = 1,
    .max_weights = 1,
    .n_out = 1,
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_CONSUMER] = gather, [KP_STORER] = store}}},
    .infer = infer,
    .tile = tile,
    .min_cosine = 1,
    .max_rel_error = 0,
};
