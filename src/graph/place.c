/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/place.h"

#include <stdarg.h>
#include <stdio.h>

enum { FINDINGS_SHOWN = 16 };

static void all_out(const graph_op *op, op_places *places, placement p) {
    for (int i = 0; i < op->desc->n_out; i++) places->out[i] = p;
}

/* Whether inputs from `first` on are all p and weights from `first_weight` on all rep, where bound. Scales go with
 * their weights. */
static bool rest_is(const graph_op *op, const op_places *places, int first, placement p, int first_weight) {
    for (int i = first; i < op->n_in; i++) {
        if (op->in[i] && places->in[i] != p) return false;
    }
    for (int i = first_weight; i < op->n_weights; i++) {
        if (op->weight[i] && !op_is_scale(op->desc, i) && places->weight[i] != SHARD_REP) return false;
    }
    return true;
}

/* A shard's rows or columns of blocks are those of its weight. */
static bool scales_alike(const graph_op *op, const op_places *places) {
    for (int i = 0; i < op->n_weights; i++) {
        int at = op->desc->scale[i];
        if (at && op->weight[at] && places->weight[at] != places->weight[i]) return false;
    }
    return true;
}

static const char *place_whole(const graph_op *op, op_places *places) {
    all_out(op, places, PLACE_WHOLE);
    return rest_is(op, places, 0, PLACE_WHOLE, 0) ? NULL : "it has no rule for sharded inputs or weights";
}

const char *place_elementwise(const graph_op *op, op_places *places) {
    placement p = places->in[0];
    all_out(op, places, p);
    if (p == PLACE_PARTIAL) return "a partial sum would be combined before its summands are added";
    return rest_is(op, places, 0, p, 0) ? NULL : "its inputs must be alike, all whole or all sharded, its weights rep";
}

const char *place_sum(const graph_op *op, op_places *places) { return place_elementwise(op, places); }

const char *place_matmul(const graph_op *op, op_places *places) {
    bool whole = places->in[0] == PLACE_WHOLE, sharded = places->in[0] == PLACE_SHARD, fits;
    switch (places->weight[0]) {
    case SHARD_REP:
        places->out[0] = PLACE_WHOLE;
        if (!whole) return "a weight with the rule rep needs a whole input";
        fits = rest_is(op, places, 1, PLACE_WHOLE, 1);
        return fits ? NULL : "with a rep weight the bias must be rep and the residual whole";
    case SHARD_COL:
        places->out[0] = PLACE_SHARD;
        if (!whole) return "a weight with the rule col needs a whole input";
        fits = rest_is(op, places, 1, PLACE_SHARD, GRAPH_WEIGHTS) && (!op->weight[1] || places->weight[1] == SHARD_COL);
        return fits ? NULL : "with a col weight the bias must be col and the residual sharded";
    case SHARD_ROW:
        places->out[0] = PLACE_PARTIAL;
        if (!sharded) return "a weight with the rule row needs a sharded input";
        fits = rest_is(op, places, 1, PLACE_WHOLE, 1);
        return fits ? NULL
                    : "with a row weight the bias must be rep and the residual whole: both are added once, later";
    case SHARD_EP:
        break;
    }
    places->out[0] = PLACE_WHOLE;
    return "it has no rule for a weight cut by experts";
}

const char *place_norm_matmul(const graph_op *op, op_places *places) {
    shard_rule rule = places->weight[1];
    all_out(op, places, rule == SHARD_COL ? PLACE_SHARD : PLACE_WHOLE);
    if (places->in[0] != PLACE_WHOLE || places->weight[0] != SHARD_REP)
        return "a norm needs a whole input and a rep weight";
    for (int i = 1; i < op->n_weights; i++) {
        if (op->weight[i] && (places->weight[i] != rule || (rule != SHARD_REP && rule != SHARD_COL)))
            return "matrices and biases must be alike, all rep or all col";
    }
    return NULL;
}

/* A collective of one summand or piece a rank. */
static const char *collective(const graph_op *op, op_places *places, placement in, placement out, const char *wrong) {
    all_out(op, places, out);
    if (places->in[0] != in) return wrong;
    return rest_is(op, places, 1, PLACE_WHOLE, 0) ? NULL
                                                  : "what it takes beside its input 0 must be whole, weights rep";
}

static const char not_partial[] = "its input 0 must be a partial sum: anything else would be added once a rank";

const char *place_reduce(const graph_op *op, op_places *places) {
    return collective(op, places, PLACE_PARTIAL, PLACE_WHOLE, not_partial);
}

const char *place_reduce_scatter(const graph_op *op, op_places *places) {
    return collective(op, places, PLACE_PARTIAL, PLACE_SHARD, not_partial);
}

const char *place_gather(const graph_op *op, op_places *places) {
    return collective(op, places, PLACE_SHARD, PLACE_WHOLE, "its input 0 must be sharded by columns");
}

const char *place_op(const graph_op *op, op_places *places) {
    for (int i = 0; i < op->n_in && !op->desc->collective; i++) {
        if (!op->in[i] || places->in[i] != PLACE_PARTIAL) continue;
        all_out(op, places, PLACE_WHOLE);
        return "a partial sum must be combined by a collective before anything else reads it";
    }
    if (!scales_alike(op, places)) {
        all_out(op, places, PLACE_WHOLE);
        return "block scales must have the shard rule of their weight";
    }
    return (op->desc->place ? op->desc->place : place_whole)(op, places);
}

void place_finding(place_findings *f, const char *fmt, ...) {
    char text[640];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    f->n++;
    if (f->n == 1) {
        error_put(f->err, KEEL_REFUSED, "%s", text);
    } else if (f->n <= FINDINGS_SHOWN) {
        error_append(f->err, "%s", text);
    }
}

keel_status place_verdict(const place_findings *f) {
    if (!f->n) return KEEL_OK;
    if (f->n > FINDINGS_SHOWN) error_append(f->err, "and %d more", f->n - FINDINGS_SHOWN);
    return KEEL_REFUSED;
}

place_text place_describe(const graph *g, const graph_op *op, const op_places *places) {
    place_text t = {""};
    size_t used = 0;
    for (int i = 0; i < op->n_in && used < sizeof t.text; i++) {
        if (!op->in[i]) continue;
        const char *slot = op->desc->in_name[i] ? op->desc->in_name[i] : "?";
        used += (size_t)snprintf(t.text + used, sizeof t.text - used, "%s%s = %s is %s", used ? ", " : "", slot,
                                 graph_tensor_at(g, op->in[i])->name, placement_name(places->in[i]));
    }
    for (int i = 0; i < op->n_weights && used < sizeof t.text; i++) {
        if (!op->weight[i]) continue;
        const char *slot = op->desc->weight_name[i] ? op->desc->weight_name[i] : "?";
        used += (size_t)snprintf(t.text + used, sizeof t.text - used, "%s%s = %s is %s", used ? ", " : "", slot,
                                 graph_tensor_at(g, op->weight[i])->name, shard_name(places->weight[i]));
    }
    return t;
}
