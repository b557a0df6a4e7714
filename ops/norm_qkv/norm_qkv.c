/* SPDX-License-Identifier: Apache-2.0 */
#include "norm_qkv.h"

#include "body/norm_columns.h"
#include "graph/place.h"
#include "graph/shape.h"
#include "plan/norm_columns.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    return shape_norm_matmul(g, op, KP_NORM_MATRICES, out, err);
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

static void fetch(kp_ctx *c) { body_norm_fetch(c, NORM_QKV_X, NORM_QKV_SCALE); }

static void compute(kp_ctx *c) { body_norm_matmul(c, NORM_QKV_W_Q); }

static void store(kp_ctx *c) { body_norm_store(c, NORM_QKV_BIAS_Q, NORM_QKV_Q); }

const op_desc keel_op_norm_qkv = {
    .name = "norm_qkv",
    .summary = "q, k, v = rmsnorm(x) Wᵀ (+ bias) of three W",
    .attrs = {{"eps", true, 0, "added to the mean of squares"},
              {"logit_rows", false, 0, "1: only the rows whose logits are wanted"}},
    .min_in = 1,
    .max_in = 1,
    .min_weights = 4,
    .max_weights = 10,
    .n_out = 3,
    .in_name = {"x"},
    .weight_name = {"scale", "w_q", "w_k", "w_v", "bias_q", "bias_k", "bias_v", "w_q_scale", "w_k_scale", "w_v_scale"},
    .scale = {0, 7, 8, 9},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .streamed = 7u << 1,
    .tagged_in = 1,
    .tagged_out = 7,
    .infer = infer,
    .place = place_norm_matmul,
    .params = params,
    .tile = tile,
    .task = task,
    .chain = {.head = "rmsnorm",
              .member = "linear",
              .tail = "attention",
              .members = KP_NORM_MATRICES,
              .takes_bias = true,
              .suffix = "qkv",
              .fits = fits},
    .min_cosine = 0.9999,
    .max_rel_error = 1e-4,
};
