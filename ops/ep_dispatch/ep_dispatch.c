/* SPDX-License-Identifier: Apache-2.0 */
#include "ep_dispatch.h"

#include "graph/place.h"
#include "graph/shape.h"

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[EP_DISPATCH_X]), *w = graph_tensor_at(g, op->in[EP_DISPATCH_W]);
    if (!op->in[EP_DISPATCH_X] || x->kind != TENSOR_ACTIVATION || x->rank != 2) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 (x) must be an activation [M, n]", op->name);
    }
    if (!op->in[EP_DISPATCH_W] || !shape_is_rows(w, x->dim[0], 0) || w->dim[1] % g->ep != 0) {
        return error_set(
            err, KEEL_FORMAT,
            "%s: input 1 (w) must be [M, experts] with the rows of input %s; experts must divide by E = %u", op->name,
            x->name, g->ep);
    }
    shape_rows(&out[0], x->dim[0], x->dim[1] * g->tp);
    return KEEL_OK;
}

static const char *place(const graph_op *op, op_places *places) {
    const char *wrong = place_gather(op, places);
    places->out[0] = PLACE_SHARD;
    return wrong;
}

const op_desc keel_op_ep_dispatch = {
    .name = "ep_dispatch",
    .summary = "out = the rows that this rank's experts take, whole; other rows 0",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .in_name = {"x", "w"},
    .phases = {{.name = "", .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER)}},
    .infer = infer,
    .place = place,
    .collective = "EP",
    .min_cosine = 1,
    .max_rel_error = 0,
};
