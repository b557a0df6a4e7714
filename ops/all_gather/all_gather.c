/* SPDX-License-Identifier: Apache-2.0 */
#include "all_gather.h"

#include "graph/place.h"
#include "graph/shape.h"

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
    .place = place_gather,
    .collective = "AG",
    .min_cosine = 1,
    .max_rel_error = 0,
};
