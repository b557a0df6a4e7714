/* SPDX-License-Identifier: Apache-2.0 */
/* The first pass: placements, and whether everything that is cut divides. */
#include "graph/shard_internal.h"

#include <stdio.h>

enum { WORLDS_SHOWN = 64 };

/* Models repeat what is wrong in every layer; one is told. */
#define FINDING(s, op, fmt, ...)                                                                                       \
    do {                                                                                                               \
        if (told((s), (op))) {                                                                                         \
            place_finding(&(s)->found, "op %s (%s): " fmt, (op)->name, (op)->desc->name, __VA_ARGS__);                 \
        }                                                                                                              \
    } while (0)

static bool told(sharder *s, const graph_op *op) {
    if (op->layer < 0) return true;
    if (s->first_layer < 0) s->first_layer = op->layer;
    if (op->layer != s->first_layer) s->hidden++;
    return op->layer == s->first_layer;
}

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static void divides(sharder *s, const graph_op *op, const char *what, const char *of, int64_t n, int64_t parts) {
    if (parts == 1) return;
    s->common = gcd(n, s->common);
    if (n % parts == 0) return;
    s->uneven = true;
    FINDING(s, op, "%s%s is %lld, which does not divide by %lld; W = %u, E = %u", what, of, (long long)n,
            (long long)parts, s->o.tp, s->o.ep);
}

/* A cut of F8E4M3 falls on borders of its scale blocks, so that a rank's scales are whole ones. */
static void blocks_divide(sharder *s, const graph_op *op, const char *what, const graph_tensor *w, int d,
                          int64_t parts) {
    if (parts == 1) return;
    s->common = gcd(w->dim[d] % FP8_BLOCK ? 1 : w->dim[d] / FP8_BLOCK, s->common);
    if (shard_padded(s, op, w)) {
        FINDING(s, op, "%s%s: a head of %s cannot be padded to be cut; take it replicated", what, w->name,
                dtype_name(w->dtype));
    } else if (w->dim[d] % (parts * FP8_BLOCK)) {
        s->uneven = true;
        FINDING(s, op,
                "%s%s is %lld, which does not divide by %lld on borders of its scale blocks, of %d; W = %u, E = %u",
                what, w->name, (long long)w->dim[d], (long long)parts, FP8_BLOCK, s->o.tp, s->o.ep);
    }
}

static void weights_divide(sharder *s, const graph_op *op) {
    for (int i = 0; i < op->n_weights; i++) {
        if (!op->weight[i] || op_is_scale(op->desc, i)) continue;
        const graph_tensor *w = graph_tensor_at(s->g, op->weight[i]);
        cut c = shard_cut(s, op, w);
        for (int d = 0; d < w->rank; d++) {
            char what[48];
            snprintf(what, sizeof what, "dimension %d (%s) of weight ", d, shard_name(c.rule));
            int64_t parts = shard_parts(c, d, s->o.tp, s->o.ep);
            if (w->dtype == DTYPE_F8E4M3) {
                blocks_divide(s, op, what, w, d, parts);
            } else if (!shard_padded(s, op, w)) {
                divides(s, op, what, w->name, w->dim[d], parts);
            } else if (d == 0 && (w->dim[0] + parts - 1) / parts * (parts - 1) >= w->dim[0]) {
                FINDING(s, op, "%s%s is %lld, too few to give each of %u ranks its own", what, w->name,
                        (long long)w->dim[0], s->o.tp);
            }
        }
    }
}

static bool sharded(const op_places *p) { return p->in[0] == PLACE_SHARD; }

static void attrs_divide(sharder *s, const graph_op *op) {
    for (int i = 0; i < OP_ATTRS && op->desc->attrs[i].name; i++) {
        const op_attr *a = &op->desc->attrs[i];
        if (a->per_rank) divides(s, op, "attribute ", a->name, (int64_t)graph_attr_of(op, a->name), s->o.tp);
    }
}

static void caches_divide(sharder *s, const graph_op *op) {
    for (int i = 0; i < op->n_in; i++) {
        const graph_tensor *t = graph_tensor_at(s->g, op->in[i]);
        bool is_cut = t->kind == TENSOR_CACHE && s->place[op->in[i]] == PLACE_SHARD;
        if (is_cut) divides(s, op, "heads of cache ", t->name, t->dim[0], s->o.tp);
    }
}

/* A cache is where its op's input 0 is: a rank keeps the KV of its own heads. */
static void take_places(const sharder *s, const graph_op *op, op_places *p) {
    for (int i = 0; i < op->n_in; i++) p->in[i] = s->place[op->in[i]];
    for (int i = 0; i < op->n_in; i++) {
        if (graph_tensor_at(s->g, op->in[i])->kind == TENSOR_CACHE) p->in[i] = s->place[op->in[i]] = p->in[0];
    }
    for (int i = 0; i < op->n_weights; i++) {
        if (op->weight[i]) p->weight[i] = shard_cut(s, op, graph_tensor_at(s->g, op->weight[i])).rule;
    }
}

static void place_one(sharder *s, int index) {
    const graph_op *op = &s->g->ops[index];
    op_places p = {0};
    take_places(s, op, &p);
    const char *wrong = place_op(op, &p);
    if (wrong) {
        FINDING(s, op, "at W = %u: %s (%s)", s->o.tp, wrong, place_describe(s->g, op, &p).text);
        return;
    }
    weights_divide(s, op);
    if (sharded(&p)) attrs_divide(s, op);
    caches_divide(s, op);
    s->partial[index] = p.out[0] == PLACE_PARTIAL;
    if (s->partial[index] && !op->desc->partial_kind) FINDING(s, op, "%s", "its output is a partial sum, of no kind");
    bool cut_head = op == s->head && s->o.vocab_parallel;
    if (cut_head && p.out[0] != PLACE_SHARD) {
        FINDING(s, op, "%s", "makes the logits, and not by columns of a weight: no vocab-parallel head");
    }
    for (int i = 0; i < op->n_out; i++) s->place[op->out[i]] = s->partial[index] || cut_head ? PLACE_WHOLE : p.out[i];
}

static void append_worlds(const sharder *s) {
    char text[256] = "";
    size_t used = 0;
    for (int64_t w = 1; w <= WORLDS_SHOWN && used < sizeof text; w++) {
        if (s->common % w == 0) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", used ? ", " : "", (long long)w);
        }
    }
    error_append(s->found.err, "everything that is cut divides by W = %s", text);
}

keel_status shard_place(sharder *s) {
    for (int i = 0; i < s->g->n_ops; i++) {
        for (int w = 0; w < s->g->ops[i].n_weights; w++) s->users[s->g->ops[i].weight[w]]++;
    }
    for (int i = 0; i < s->g->n_ops && s->o.tp > 1; i++) place_one(s, i);
    keel_status status = place_verdict(&s->found);
    if (s->hidden) error_append(s->found.err, "and %d more of layers other than %d", s->hidden, s->first_layer);
    if (s->uneven) append_worlds(s);
    return status;
}
