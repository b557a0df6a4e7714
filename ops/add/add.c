/* SPDX-License-Identifier: Apache-2.0 */
#include "add.h"

#include "core/vec.h"
#include "plan/tiler.h"

#include <string.h>

enum { REGION_OUT, REGION_B }; /* [rows][hi − lo] each; REGION_OUT holds a until it holds the result */
enum { GRAIN = 64 };           /* columns a tile takes at least */

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *a = graph_tensor_at(g, op->in[0]), *b = graph_tensor_at(g, op->in[1]);
    if (a->kind != TENSOR_ACTIVATION || a->rank != 2 || b->kind != TENSOR_ACTIVATION || b->rank != 2 ||
        a->dim[0] != b->dim[0] || a->dim[1] != b->dim[1]) {
        return error_set(
            err, KEEL_FORMAT,
            "%s: expected two activations of one shape; %s has rank %d and %lld columns, %s rank %d and %lld "
            "columns%s",
            op->name, a->name, a->rank, (long long)a->dim[1], b->name, b->rank, (long long)b->dim[1],
            a->dim[0] != b->dim[0] ? ", and their rows differ" : "");
    }
    out[0].kind = TENSOR_ACTIVATION;
    out[0].dtype = DTYPE_ACT;
    out[0].rank = 2;
    out[0].dim[0] = a->dim[0];
    out[0].dim[1] = a->dim[1];
    return KEEL_OK;
}

static keel_status tile(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    const graph_tensor *out = graph_tensor_at(g, op->out[0]);
    add_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->n = (kp_u32)out->dim[1];
    p->logit_rows = out->dim[0] == GRAPH_M_LOGIT;
    const tile_env *env = tiler_env(t);
    uint64_t act = dtype_bytes(tiler_dtype(t, op->out[0])), column = env->m_max * act;
    uint64_t most = (uint64_t)env->arch->page_bytes * (env->arch->n_pages / 4) / column;
    uint32_t tiles = tiler_tiles(t, p->n, GRAIN, (uint32_t)most);
    for (uint32_t i = 0; i < tiles; i++) {
        uint32_t lo, hi;
        tiler_bounds(p->n, GRAIN, tiles, i, &lo, &hi);
        uint64_t width = hi - lo;
        tiler_task(t, 0, lo, hi, 0);
        tiler_read(t, op->in[0], lo, hi);
        tiler_read(t, op->in[1], lo, hi);
        tiler_write(t, op->out[0], lo, hi);
        tiler_region(t, REGION_OUT, width * column, KP_STORER);
        tiler_region(t, REGION_B, width * column, KP_CONSUMER);
        tiler_cost(t, 0, 3 * width * act, width);
    }
    return KEEL_OK;
}

/* This lane's rows [*from, *to); row r stands at r − *first in the regions. */
static const add_params *rows_of(const kp_ctx *c, kp_u32 *first, kp_u32 *from, kp_u32 *to) {
    const add_params *p = kb_params(c);
    *first = kb_rows_from(c, p->logit_rows);
    kb_share(c, *first, kb_rows_live(c), 1, from, to);
    return p;
}

static void fetch(kp_ctx *c) {
    kp_u32 first, from, to;
    const add_params *p = rows_of(c, &first, &from, &to);
    const float *a = kb_buffer(c, ADD_A), *b = kb_buffer(c, ADD_B);
    float *to_a = kb_region(c, REGION_OUT), *to_b = kb_region(c, REGION_B);
    size_t width = c->task->hi - c->task->lo;
    for (kp_u32 r = from; r < to; r++) {
        size_t at = (size_t)r * p->n + c->task->lo, staged = (r - first) * width;
        kb_bulk(c, to_a + staged, a + at, (kp_u32)(width * sizeof(float)));
        kb_bulk(c, to_b + staged, b + at, (kp_u32)(width * sizeof(float)));
    }
}

/* Lanes share the columns: one row is the usual case. */
static void compute(kp_ctx *c) {
    const add_params *p = kb_params(c);
    float *out = kb_region(c, REGION_OUT);
    const float *b = kb_region(c, REGION_B);
    kp_u32 rows = kb_rows_live(c) - kb_rows_from(c, p->logit_rows), lo, hi;
    size_t width = c->task->hi - c->task->lo;
    kb_share(c, 0, (kp_u32)width, 16, &lo, &hi);
    for (kp_u32 r = 0; r < rows; r++) {
        float *x = out + r * width + lo;
        vec_add(x, b + r * width + lo, x, hi - lo);
    }
}

static void store(kp_ctx *c) {
    kp_u32 first, from, to;
    const add_params *p = rows_of(c, &first, &from, &to);
    const float *rows = kb_region(c, REGION_OUT);
    float *out = kb_buffer(c, ADD_OUT);
    size_t width = c->task->hi - c->task->lo;
    for (kp_u32 r = from; r < to; r++) {
        memcpy(out + (size_t)r * p->n + c->task->lo, rows + (r - first) * width, width * sizeof *out);
    }
}

const op_desc keel_op_add = {
    .name = "add",
    .summary = "out = a + b",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .tile = tile,
    .min_cosine = 1,
    .max_rel_error = 0,
};
