/* SPDX-License-Identifier: Apache-2.0 */
#include "all_gather.h"

#include "graph/place.h"
#include "graph/shape.h"
#include "plan/columns.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[0]);
    if (!op->in[0] || x->kind != TENSOR_ACTIVATION || x->rank != 2) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 (x) must be an activation [M, n]", op->name);
    }
    double cols = graph_attr_of(op, "cols"), n = (double)x->dim[1], most = n * g->tp;
    if (cols == 0) cols = most;
    /* n columns a rank are no more than cols need: n = ceil(cols / W) */
    if (cols > most || cols <= most - g->tp || cols != (double)(int64_t)cols) {
        return error_set(err, KEEL_FORMAT,
                         "%s: cols %g must be a whole number above %g and up to %g, as %u ranks hold %g", op->name,
                         cols, most - g->tp, most, g->tp, n);
    }
    shape_rows(&out[0], x->dim[0], (int64_t)cols);
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    const graph_tensor *out = graph_tensor_at(g, op->out[0]);
    all_gather_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->n = (kp_u32)graph_tensor_at(g, op->in[0])->dim[1];
    p->cols = (kp_u32)out->dim[1];
    p->logit_rows = out->dim[0] == GRAPH_M_LOGIT;
    return KEEL_OK;
}

static uint64_t column_bytes(const tiler *t, const graph_op *op) {
    return tiler_env(t)->m_max * dtype_bytes(tiler_dtype(t, op->out[0]));
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g;
    const all_gather_params *p = tiler_params_of(t);
    columns_tile(t, p->cols, 0, columns_most(t, 0, column_bytes(t, op), 1));
}

/* Columns of each rank's x that are output columns [lo, hi) of one rank; all where the task reaches over ranks. */
static void read_ranks(tiler *t, int x, uint32_t n, const op_task *k) {
    bool one = k->lo < k->hi && k->lo / n == (k->hi - 1) / n;
    tiler_read_ranks(t, x, one ? k->lo % n : 0, one ? (k->hi - 1) % n + 1 : n);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const all_gather_params *p = tiler_params_of(t);
    uint64_t width = columns_width(k);
    columns_check(t, k);
    read_ranks(t, op->in[0], p->n, k);
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_region(t, ALL_GATHER_REGION_ROWS, width * column_bytes(t, op), KP_STORER);
    tiler_cost(t, 0, 2 * width * dtype_bytes(tiler_dtype(t, op->out[0])), 0);
}

const op_desc keel_op_all_gather = {
    .name = "all_gather",
    .summary = "out = the columns of all ranks, without padding",
    .attrs = {{"cols", false, 0, "columns of the output; 0: those of all ranks, none is padding"}},
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .in_name = {"x"},
    .phases = {{.name = "", .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_STORER)}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .place = place_gather,
    .collective = "AG",
    .min_cosine = 1,
    .max_rel_error = 0,
};
