/* SPDX-License-Identifier: Apache-2.0 */
#include "add.h"

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

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) { columns_pair_task(t, g, op, k, 1); }

static void fetch(kp_ctx *c) {
    const add_params *p = kb_params(c);
    kb_fetch_rows(c, KP_PAIR_OUT, ADD_A, p->n, c->task->lo, c->task->hi, p->logit_rows);
    kb_fetch_rows(c, KP_PAIR_B, ADD_B, p->n, c->task->lo, c->task->hi, p->logit_rows);
}

static void compute(kp_ctx *c) { body_pair(c, vec_add); }

static void store(kp_ctx *c) {
    const add_params *p = kb_params(c);
    kb_store_rows(c, KP_PAIR_OUT, ADD_OUT, p->n, c->task->lo, c->task->hi, p->logit_rows);
}

const op_desc keel_op_add = {
    .name = "add",
    .summary = "out = a + b",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .in_name = {"a", "b"},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = fetch, [KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .place = place_sum,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 1,
    .max_rel_error = 0,
};
