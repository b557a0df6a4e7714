/* SPDX-License-Identifier: Apache-2.0 */
#include "allreduce.h"

#include "graph/place.h"
#include "graph/shape.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[ALLREDUCE_PARTIAL]);
    const graph_tensor *residual = graph_tensor_at(g, op->in[ALLREDUCE_RESIDUAL]);
    const graph_tensor *bias = graph_tensor_at(g, op->weight[0]);
    if (!op->in[ALLREDUCE_PARTIAL] || x->kind != TENSOR_ACTIVATION || x->rank != 2) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 (partial) must be an activation [M, n]", op->name);
    }
    if (op->in[ALLREDUCE_RESIDUAL] && !shape_is_rows(residual, x->dim[0], x->dim[1])) {
        return error_set(err, KEEL_FORMAT, "%s: the residual %s must have the rows and the %lld columns of input %s",
                         op->name, residual->name, (long long)x->dim[1], x->name);
    }
    if (op->weight[0] && (bias->rank != 1 || bias->dim[0] != x->dim[1])) {
        return error_set(err, KEEL_FORMAT, "%s: bias %s must be [%lld], as input %s has these columns", op->name,
                         bias->name, (long long)x->dim[1], x->name);
    }
    shape_rows(&out[0], x->dim[0], x->dim[1]);
    return KEEL_OK;
}

const op_desc keel_op_allreduce = {
    .name = "allreduce",
    .summary = "out = Σ over ranks of partial (+ bias) (+ residual)",
    .min_in = 1,
    .max_in = 2,
    .max_weights = 1,
    .n_out = 1,
    .in_name = {"partial", "residual"},
    .weight_name = {"bias"},
    .phases = {{.name = "", .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER)}},
    .infer = infer,
    .place = place_reduce,
    .collective = "AR",
    .min_cosine = 0.999999,
    .max_rel_error = 1e-6,
};
