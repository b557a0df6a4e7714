/* SPDX-License-Identifier: Apache-2.0 */
/* The second pass: the graph of the rank by graph/build.h, so that every op's own shape rule sees the local shapes. */
#include "graph/shard_internal.h"

#include <stdio.h>
#include <string.h>

static void set_place(sharder *s, int id, placement p) {
    if (s->b.status == KEEL_OK) s->b.g->tensors[id].place = p;
}

/* Constants, caches and inputs that stand before tensor `until`, so that ids keep their order. */
static void make_leaves(sharder *s, int until) {
    for (; s->next < until && s->b.status == KEEL_OK; s->next++) {
        const graph_tensor *t = graph_tensor_at(s->g, s->next);
        int id = 0;
        if (t->producer >= 0) continue;
        if (t->kind == TENSOR_CONST) id = build_const(&s->b, t->name, t->data, t->dim[0]);
        if (t->kind == TENSOR_ACTIVATION) id = build_input(&s->b, t->name, t->dim[1]);
        if (t->kind == TENSOR_CACHE) {
            int64_t parts = s->place[s->next] == PLACE_SHARD ? s->o.tp : 1;
            id = build_cache(&s->b, t->name, t->dim[0] / parts, t->dim[1]);
        }
        if (s->b.status != KEEL_OK || !id) continue;
        graph_tensor *made = &s->b.g->tensors[id];
        if (t->kind == TENSOR_ACTIVATION) made->dim[0] = t->dim[0];
        made->place = s->place[s->next];
        s->map[s->next] = id;
    }
}

static void local_dims(const sharder *s, const graph_op *op, const graph_tensor *w, int64_t *dim) {
    cut c = shard_cut(s, op, w);
    for (int i = 0; i < w->rank; i++) {
        int64_t parts = shard_parts(c, i, s->o.tp, s->o.ep);
        dim[i] = w->dim[i] / parts + (w->dim[i] % parts != 0); /* what is not padded divides */
    }
}

/* The weight as the op reads it. Where another op reads it by another rule (a tied head that is cut), the name tells
 * the two apart, and the key stays. */
static weight_spec weight_for(sharder *s, const graph_op *op, int id) {
    const graph_tensor *t = graph_tensor_at(s->g, id);
    cut c = shard_cut(s, op, t);
    bool second = (c.rule != t->shard || c.dim != t->shard_dim) && s->users[id] > 1;
    weight_spec w = {
        .key = second ? build_text(&s->b, "%s@head", t->name) : t->name, .shard = c.rule, .shard_dim = c.dim};
    local_dims(s, op, t, w.dim);
    return w;
}

/* The keys, which differ from the names where these tell two slices apart. from: the global tensors, by slot. */
static void set_keys(sharder *s, const int *from) {
    if (s->b.status != KEEL_OK) return;
    const graph_op *made = &s->b.g->ops[s->b.g->n_ops - 1];
    for (int i = 0; i < made->n_weights; i++) {
        if (!made->weight[i]) continue;
        const graph_tensor *t = graph_tensor_at(s->g, from[i]);
        const char *key = build_text(&s->b, "%s", t->key);
        s->b.g->tensors[made->weight[i]].key = key;
    }
}

/* A spec to be filled slot by slot, with the global ids of its weights. */
typedef struct draft {
    op_spec spec;
    int weight[GRAPH_WEIGHTS];
} draft;

/* Adds the op; its first output, placed. */
static int add_draft(sharder *s, draft *d, const graph_op *op, placement out) {
    int n_in = 0, n_weights = 0;
    for (int i = 0; i < GRAPH_IN; i++) n_in = d->spec.in[i] ? i + 1 : n_in;
    for (int i = 0; i < GRAPH_WEIGHTS; i++) n_weights = d->spec.weight[i].key ? i + 1 : n_weights;
    for (int i = 0; i < n_in; i++) d->spec.in[i] = d->spec.in[i] ? d->spec.in[i] : BUILD_NONE;
    for (int i = 0; i < n_weights; i++) d->spec.weight[i].key = d->spec.weight[i].key ? d->spec.weight[i].key : "";
    int id = build_op(&s->b, d->spec);
    set_keys(s, d->weight);
    if (s->b.status != KEEL_OK) return 0;
    graph_op *made = &s->b.g->ops[s->b.g->n_ops - 1];
    made->layer = op->layer;
    for (int i = 0; i < made->n_out; i++) set_place(s, made->out[i], out);
    return id;
}

static void draft_weight(sharder *s, draft *d, int slot, const graph_op *op, int i) {
    d->spec.weight[slot] = weight_for(s, op, op->weight[i]);
    d->spec.typed = true;
    d->spec.weight_dtype[slot] = graph_tensor_at(s->g, op->weight[i])->dtype;
    d->weight[slot] = op->weight[i];
}

static void draft_attrs(const sharder *s, draft *d, const graph_op *op) {
    bool per_rank = op->n_in && s->place[op->in[0]] == PLACE_SHARD;
    for (int i = 0; i < op->n_attrs; i++) d->spec.attr[i] = op->attr[i];
    for (int k = 0; per_rank && k < OP_ATTRS && op->desc->attrs[k].name; k++) {
        if (!op->desc->attrs[k].per_rank) continue;
        for (int i = 0; i < op->n_attrs; i++) {
            if (strcmp(op->attr[i].name, op->desc->attrs[k].name) == 0) d->spec.attr[i].value /= s->o.tp;
        }
    }
}

static int slot_named(const char *const *names, int n, const char *name) {
    for (int i = 0; i < n && name; i++) {
        if (names[i] && strcmp(names[i], name) == 0) return i;
    }
    return -1;
}

/* The summand by the op's partial kind, then the collective. What has a slot of its name there (residual, bias) is
 * added there, once; the rest makes the summand. */
static int add_partial(sharder *s, const graph_op *op) {
    const op_desc *kind = op_find(op->desc->partial_kind), *sum = op_find("allreduce");
    draft d = {{.kind = kind->name, .name = op->name, .notes = op->notes}, {0}};
    draft ar = {{.kind = sum->name, .name = build_text(&s->b, "%s.ar", op->name)}, {0}};
    for (int i = 0; i < op->n_in; i++) {
        int later = slot_named(sum->in_name, GRAPH_IN, op->desc->in_name[i]);
        int now = slot_named(kind->in_name, GRAPH_IN, op->desc->in_name[i]);
        if (!op->in[i] || (later < 0 && now < 0)) continue;
        *(later >= 0 ? &ar.spec.in[later] : &d.spec.in[now]) = s->map[op->in[i]];
    }
    for (int i = 0; i < op->n_weights; i++) {
        int later = slot_named(sum->weight_name, GRAPH_WEIGHTS, op->desc->weight_name[i]);
        int now = slot_named(kind->weight_name, GRAPH_WEIGHTS, op->desc->weight_name[i]);
        if (!op->weight[i] || (later < 0 && now < 0)) continue;
        draft_weight(s, later >= 0 ? &ar : &d, later >= 0 ? later : now, op, i);
    }
    draft_attrs(s, &d, op);
    ar.spec.in[0] = add_draft(s, &d, op, PLACE_PARTIAL);
    return add_draft(s, &ar, op, PLACE_WHOLE);
}

static int add_whole_op(sharder *s, const graph_op *op, placement out) {
    draft d = {{.kind = op->desc->name, .name = op->name, .notes = op->notes}, {0}};
    for (int i = 0; i < op->n_in; i++) d.spec.in[i] = s->map[op->in[i]];
    for (int i = 0; i < op->n_weights; i++) {
        if (op->weight[i]) draft_weight(s, &d, i, op, i);
    }
    draft_attrs(s, &d, op);
    return add_draft(s, &d, op, out);
}

static int add_gather(sharder *s, const graph_op *op, int id) {
    draft d = {{.kind = "all_gather", .name = build_text(&s->b, "%s.ag", op->name), .in = {id}}, {0}};
    d.spec.attr[0] = (graph_attr){"cols", (double)graph_tensor_at(s->g, s->g->logits)->dim[1]};
    return add_draft(s, &d, op, PLACE_WHOLE);
}

static void build_one(sharder *s, int index) {
    const graph_op *op = &s->g->ops[index];
    if (op->n_out && op->out[0] == s->g->step) { /* build_begin's */
        s->map[s->g->step] = s->b.g->step;
        return;
    }
    make_leaves(s, op->n_out ? op->out[0] : s->g->n_tensors + 1);
    bool cut_head = op == s->head && s->o.vocab_parallel;
    int id;
    if (s->partial[index]) {
        id = add_partial(s, op);
    } else {
        id = add_whole_op(s, op, cut_head ? PLACE_SHARD : op->n_out ? s->place[op->out[0]] : PLACE_WHOLE);
    }
    if (cut_head) id = add_gather(s, op, id);
    for (int i = 0; i < op->n_out; i++) s->map[op->out[i]] = id + i;
}

keel_status shard_build(sharder *s, graph **out, keel_error *err) {
    const graph *g = s->g;
    char where[48];
    snprintf(where, sizeof where, "rank %u of %u", s->o.rank, s->o.tp);
    if (build_begin(&s->b, where, g->architecture, DTYPE_BF16, err) == KEEL_OK) {
        graph *r = s->b.g;
        r->n_layers = g->n_layers;
        r->layer_first = g->layer_first;
        r->vocab = g->vocab;
        r->hidden = g->hidden;
        r->max_position = g->max_position;
        r->sampling = g->sampling;
        r->tp = s->o.tp;
        r->ep = s->o.ep;
        r->rank = s->o.rank;
        r->vocab_parallel = s->o.vocab_parallel;
        s->next = 1;
    }
    for (int i = 0; i < g->n_ops && s->b.status == KEEL_OK; i++) build_one(s, i);
    make_leaves(s, g->n_tensors + 1);
    if (s->b.status == KEEL_OK) s->b.g->logits = s->map[g->logits];
    return build_finish(&s->b, out);
}
