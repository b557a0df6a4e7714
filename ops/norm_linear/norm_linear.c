/* SPDX-License-Identifier: Apache-2.0 */
#include "norm_linear.h"

#include "body/norm_columns.h"
#include "graph/place.h"
#include "graph/shape.h"
#include "plan/norm_columns.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    return shape_norm_matmul(g, op, 1, out, err);
}

static bool fits(const tile_env *env, const graph *g, const graph_op *op) {
    return norm_columns_fit(env, g, op, false);
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    return norm_columns_params(t, g, op, false, err);
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    norm_columns_tile(t);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) { norm_columns_task(t, g, op, k); }

static void fetch(kp_ctx *c) { body_norm_fetch(c, NORM_LINEAR_X, NORM_LINEAR_SCALE); }

static void compute(kp_ctx *c) { body_norm_matmul(c, NORM_LINEAR_W); }

static void store(kp_ctx *c) { body_norm_store(c, NORM_LINEAR_BIAS, NORM_LINEAR_OUT); }

const op_desc keel_op_norm_linear = {
    .name = "norm_linear",
    .summary = "out = rmsnorm(x) Wᵀ (+ bias)",
    .attrs = {{"eps", true, 0, "added to the mean of squares"},
              {"logit_rows", false, 0, "1: only the rows whose logits are wanted"}},
    .min_in = 1,
    .max_in = 1,
    .min_weights = 2,
    .max_weights = 4,
    .n_out = 1,
    .in_name = {"x"},
    .weight_name = {"scale", "w", "bias", "w_scale"},
    .scale = {0, 3},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .streamed = 1u << 1,
    .tagged_in = 1,
    .infer = infer,
    .place = place_norm_matmul,
    .params = params,
    .tile = tile,
    .task = task,
    .chain =
        {.head = "rmsnorm", .member = "linear", .members = 1, .takes_bias = true, .suffix = "linear", .fits = fits},
    .min_cosine = 0.9999,
    .max_rel_error = 1e-4,
};
