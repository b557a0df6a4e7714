/* SPDX-License-Identifier: Apache-2.0 */
#include "linear_residual.h"

#include "body/columns.h"
#include "graph/place.h"
#include "graph/shape.h"
#include "plan/columns.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    KEEL_TRY(shape_matmul(g, op, &out[0], err));
    const graph_tensor *x = graph_tensor_at(g, op->in[0]), *w = graph_tensor_at(g, op->weight[0]);
    const graph_tensor *residual = graph_tensor_at(g, op->in[1]);
    if (!shape_is_rows(residual, x->dim[0], w->dim[0])) {
        return error_set(err, KEEL_FORMAT,
                         "%s: the residual %s must have the rows of input %s and the %lld columns of weight %s",
                         op->name, residual->name, x->name, (long long)w->dim[0], w->name);
    }
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    return columns_matmul_params(t, g, op, err);
}

static void tile(tiler *t, const graph *g, const graph_op *op) { columns_matmul_tile(t, g, op); }

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    columns_matmul_task(t, g, op, k, op->in[1]);
}

static void fetch(kp_ctx *c) { body_matmul_fetch(c, LINEAR_RESIDUAL_X); }

static void compute(kp_ctx *c) { body_matmul(c, LINEAR_RESIDUAL_X, LINEAR_RESIDUAL_W); }

static void store(kp_ctx *c) {
    body_matmul_store(c, LINEAR_RESIDUAL_BIAS, LINEAR_RESIDUAL_RESIDUAL, LINEAR_RESIDUAL_OUT);
}

const op_desc keel_op_linear_residual = {
    .name = "linear_residual",
    .summary = "y = x Wᵀ (+ bias) + residual",
    .min_in = 2,
    .max_in = 2,
    .min_weights = 1,
    .max_weights = 3,
    .n_out = 1,
    .in_name = {"x", "residual"},
    .weight_name = {"w", "bias", "scale"},
    .scale = {2},
    .phases = {{.name = "",
                .by_bands = true,
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .streamed = 1,
    .tagged_in = 3,
    .tagged_out = 1,
    .tags = columns_matmul_tags,
    .infer = infer,
    .place = place_matmul,
    .partial_kind = "linear",
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 0.9999,
    .max_rel_error = 1e-4,
};
