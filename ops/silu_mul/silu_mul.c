/* SPDX-License-Identifier: Apache-2.0 */
#include "silu_mul.h"

#include "body/columns.h"
#include "core/vec.h"
#include "device/rows.h"
#include "graph/place.h"
#include "graph/shape.h"
#include "plan/columns.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    return shape_pair(g, op, &out[0], err);
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    return columns_pair_params(t, g, op, err);
}

static void tile(tiler *t, const graph *g, const graph_op *op) { columns_pair_tile(t, g, op); }

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) { columns_pair_task(t, g, op, k, 20); }

static void fetch(kp_ctx *c) {
    const silu_mul_params *p = kb_params(c);
    kb_fetch_rows(c, KP_PAIR_OUT, SILU_MUL_GATE, p->n, c->task->lo, c->task->hi, p->logit_rows);
    kb_fetch_rows(c, KP_PAIR_B, SILU_MUL_UP, p->n, c->task->lo, c->task->hi, p->logit_rows);
}

static void compute(kp_ctx *c) { body_pair(c, vec_silu_mul); }

static void store(kp_ctx *c) {
    const silu_mul_params *p = kb_params(c);
    kb_store_rows(c, KP_PAIR_OUT, SILU_MUL_OUT, p->n, c->task->lo, c->task->hi, p->logit_rows);
}

const op_desc keel_op_silu_mul = {
    .name = "silu_mul",
    .summary = "out = silu(gate) × up",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .tagged_in = 3,
    .tagged_out = 1,
    .in_name = {"gate", "up"},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .place = place_elementwise,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 0.999999,
    .max_rel_error = 2e-6,
};
