/* SPDX-License-Identifier: Apache-2.0 */
#include "norm_swiglu.h"

#include "body/norm_columns.h"
#include "core/vec.h"
#include "graph/place.h"
#include "graph/shape.h"
#include "plan/norm_columns.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    graph_tensor pair[2] = {{0}};
    KEEL_TRY(shape_norm_matmul(g, op, 2, pair, err));
    if (pair[0].dim[1] != pair[1].dim[1])
        return error_set(err, KEEL_FORMAT, "%s: expected two weights of one shape; gate makes %lld columns, up %lld",
                         op->name, (long long)pair[0].dim[1], (long long)pair[1].dim[1]);
    out[0] = pair[0];
    return KEEL_OK;
}

static bool fits(const tile_env *env, const graph *g, const graph_op *op) { return norm_columns_fit(env, g, op, true); }

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    return norm_columns_params(t, g, op, true, err);
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    norm_columns_tile(t);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) { norm_columns_task(t, g, op, k); }

static void fetch(kp_ctx *c) { body_norm_fetch(c, NORM_SWIGLU_X, NORM_SWIGLU_SCALE); }

static void compute(kp_ctx *c) { body_norm_matmul(c, NORM_SWIGLU_W_GATE); }

static void store(kp_ctx *c) { body_norm_store_pair(c, NORM_SWIGLU_BIAS_GATE, NORM_SWIGLU_OUT, vec_silu_mul); }

const op_desc keel_op_norm_swiglu = {
    .name = "norm_swiglu",
    .summary = "out = silu(n W_gateᵀ) × (n W_upᵀ), n = rmsnorm(x)",
    .attrs = {{"eps", true, 0, "added to the mean of squares"},
              {"logit_rows", false, 0, "1: only the rows whose logits are wanted"}},
    .min_in = 1,
    .max_in = 1,
    .min_weights = 3,
    .max_weights = 7,
    .n_out = 1,
    .in_name = {"x"},
    .weight_name = {"scale", "w_gate", "w_up", "bias_gate", "bias_up", "w_gate_scale", "w_up_scale"},
    .scale = {0, 5, 6},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .streamed = 3u << 1,
    .tagged_in = 1,
    .tagged_out = 1,
    .infer = infer,
    .place = place_norm_matmul,
    .params = params,
    .tile = tile,
    .task = task,
    .chain = {.head = "rmsnorm",
              .member = "linear",
              .tail = "silu_mul",
              .members = 2,
              .takes_tail = true,
              .takes_bias = true,
              .suffix = "swiglu",
              .fits = fits},
    .min_cosine = 0.9999,
    .max_rel_error = 1e-4,
};
