/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce_scatter.h"

#include "graph/place.h"
#include "graph/shape.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[0]);
    if (!op->in[0] || x->kind != TENSOR_ACTIVATION || x->rank != 2) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 (partial) must be an activation [M, n]", op->name);
    }
    if (x->dim[1] % g->tp != 0) {
        return error_set(err, KEEL_FORMAT, "%s: the %lld columns of input %s do not divide by W = %u", op->name,
                         (long long)x->dim[1], x->name, g->tp);
    }
    shape_rows(&out[0], x->dim[0], x->dim[1] / g->tp);
    return KEEL_OK;
}

const op_desc keel_op_reduce_scatter = {
    .name = "reduce_scatter",
    .summary = "out = this rank's columns of Σ over ranks of partial",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .in_name = {"partial"},
    .phases = {{.name = "", .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER)}},
    .infer = infer,
    .place = place_reduce_scatter,
    .collective = "RS",
    .min_cosine = 0.999999,
    .max_rel_error = 1e-6,
};
