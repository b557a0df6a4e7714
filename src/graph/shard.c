/* SPDX-License-Identifier: Apache-2.0 */
/* Two passes over the global graph: placements, with everything that does not work out, then the building of the rank's
 * graph by graph/build.h, so that every op's own shape rule sees the local shapes. */
#include "graph/shard.h"

#include "core/mem.h"
#include "graph/build.h"
#include "graph/place.h"

#include <stdio.h>
#include <string.h>

enum { WORLDS_SHOWN = 64 };

typedef struct sharder {
    const graph *g;
    shard_options o;
    const graph_op *head; /* makes the logits; NULL without */
    placement *place;     /* [n_tensors + 1], as readers see a tensor: a partial sum already combined */
    bool *partial;        /* [n_ops] the op's output is a summand */
    int *users;           /* [n_tensors + 1] ops that read a weight */
    int64_t common;       /* greatest common divisor of all that is cut */
    bool uneven;          /* something does not divide */
    int first_layer;      /* the layer whose findings are told; −1 while there is none */
    int hidden;           /* findings in other layers */
    place_findings found;
    build b;
    int *map; /* [n_tensors + 1] tensor of the rank's graph */
    int next; /* first tensor that make_leaves has not seen */
} sharder;

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

/* ---- the rules of weights ------------------------------------------------------------------------ */

typedef struct cut {
    shard_rule rule;
    int dim;
} cut;

static bool padded(const sharder *s, const graph_op *op, const graph_tensor *w) {
    return op == s->head && s->o.vocab_parallel && w->dim[0] == graph_tensor_at(s->g, s->g->logits)->dim[1];
}

/* The rule of a weight as this op reads it: the head's is the head mode's. */
static cut cut_of(const sharder *s, const graph_op *op, const graph_tensor *w) {
    if (padded(s, op, w)) return (cut){SHARD_COL, 0};
    if (op == s->head && w->shard == SHARD_COL) return (cut){SHARD_REP, 0};
    return (cut){w->shard, w->shard_dim};
}

/* Parts that dimension `dim` of a weight is cut into. */
static int64_t parts_of(cut c, int dim, uint32_t tp, uint32_t ep) {
    switch (c.rule) {
    case SHARD_REP:
        break;
    case SHARD_COL:
    case SHARD_ROW:
        return dim == c.dim ? tp : 1;
    case SHARD_EP:
        return dim == 0 ? ep : dim == c.dim ? tp / ep : 1;
    }
    return 1;
}

static void local_dims(const sharder *s, const graph_op *op, const graph_tensor *w, int64_t *dim) {
    cut c = cut_of(s, op, w);
    for (int i = 0; i < w->rank; i++) {
        int64_t parts = parts_of(c, i, s->o.tp, s->o.ep);
        dim[i] = w->dim[i] / parts + (w->dim[i] % parts != 0); /* what is not padded divides */
    }
}

static const graph_op *producer_of(const graph *g, int id) {
    int op = id ? graph_tensor_at(g, id)->producer : -1;
    return op >= 0 ? &g->ops[op] : NULL;
}

/* Rows of a head that is cut by the vocabulary, without padding; 0 when w is none. */
static int64_t true_rows(const graph *g, const graph_tensor *w) {
    const graph_op *gather = producer_of(g, g->logits);
    const graph_op *head = gather && gather->desc->collective ? producer_of(g, gather->in[0]) : NULL;
    for (int i = 0; head && i < head->n_weights; i++) {
        if (head->weight[i] && graph_tensor_at(g, head->weight[i]) == w) return graph_tensor_at(g, g->logits)->dim[1];
    }
    return 0;
}

static shard_slice slice_of(const graph *g, const graph_tensor *w, int dim, uint32_t index) {
    int64_t parts = parts_of((cut){w->shard, w->shard_dim}, dim, g->tp, g->ep), n = w->dim[dim];
    if (parts == 1) return (shard_slice){-1, 0, n, n};
    int64_t rows = dim == 0 ? true_rows(g, w) : 0;
    return (shard_slice){dim, index * n, n, rows ? rows : parts * n};
}

shard_slice graph_weight_slice(const graph *rank_graph, const graph_tensor *weight) {
    const graph *g = rank_graph;
    if (weight->shard == SHARD_EP) return slice_of(g, weight, 0, g->rank / (g->tp / g->ep));
    return slice_of(g, weight, weight->shard == SHARD_REP ? 0 : weight->shard_dim, g->rank);
}

shard_slice graph_weight_inner_slice(const graph *rank_graph, const graph_tensor *weight) {
    const graph *g = rank_graph;
    if (weight->shard != SHARD_EP || weight->shard_dim == 0)
        return (shard_slice){-1, 0, weight->dim[0], weight->dim[0]};
    return slice_of(g, weight, weight->shard_dim, g->rank % (g->tp / g->ep));
}

/* ---- placements ---------------------------------------------------------------------------------- */

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

static void weights_divide(sharder *s, const graph_op *op) {
    for (int i = 0; i < op->n_weights; i++) {
        if (!op->weight[i]) continue;
        const graph_tensor *w = graph_tensor_at(s->g, op->weight[i]);
        cut c = cut_of(s, op, w);
        for (int d = 0; d < w->rank; d++) {
            char what[48];
            snprintf(what, sizeof what, "dimension %d (%s) of weight ", d, shard_name(c.rule));
            int64_t parts = parts_of(c, d, s->o.tp, s->o.ep);
            if (!padded(s, op, w)) {
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
        if (op->weight[i]) p->weight[i] = cut_of(s, op, graph_tensor_at(s->g, op->weight[i])).rule;
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

/* "W can be 1, 2, 4". */
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

static keel_status place_all(sharder *s) {
    for (int i = 0; i < s->g->n_ops; i++) {
        for (int w = 0; w < s->g->ops[i].n_weights; w++) s->users[s->g->ops[i].weight[w]]++;
    }
    for (int i = 0; i < s->g->n_ops && s->o.tp > 1; i++) place_one(s, i);
    keel_status status = place_verdict(&s->found);
    if (s->hidden) error_append(s->found.err, "and %d more of layers other than %d", s->hidden, s->first_layer);
    if (s->uneven) append_worlds(s);
    return status;
}

/* ---- building ------------------------------------------------------------------------------------ */

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
        made->external = t->external;
        made->place = s->place[s->next];
        s->map[s->next] = id;
    }
}

/* The weight as the op reads it. Where another op reads it by another rule (a tied head that is cut), the name tells
 * the two apart, and the key stays. */
static weight_spec weight_for(sharder *s, const graph_op *op, int id) {
    const graph_tensor *t = graph_tensor_at(s->g, id);
    cut c = cut_of(s, op, t);
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

static keel_status build_all(sharder *s, graph **out, keel_error *err) {
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

/* ---- the call ------------------------------------------------------------------------------------ */

static keel_status check_options(const graph *g, shard_options *o, keel_error *err) {
    if (!o->tp) o->tp = 1;
    if (!o->ep) o->ep = 1;
    if (g->tp > 1) return error_set(err, KEEL_RANGE, "the graph is one rank's already, of W = %u", g->tp);
    if (o->rank >= o->tp)
        return error_set(err, KEEL_RANGE, "rank %u: W = %u has the ranks 0-%u", o->rank, o->tp, o->tp - 1);
    if (o->tp % o->ep) return error_set(err, KEEL_RANGE, "E = %u must divide W = %u", o->ep, o->tp);
    if (o->tp == 1) o->vocab_parallel = false;
    if (o->vocab_parallel && !g->logits) {
        return error_set(err, KEEL_REFUSED, "the graph has no logits: no head that could be cut by the vocabulary");
    }
    bool experts = false;
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        experts |= t->kind == TENSOR_WEIGHT && t->shard == SHARD_EP;
    }
    if (o->ep > 1 && !experts) {
        return error_set(
            err, KEEL_REFUSED,
            "E = %u: no weight of the graph has the shard rule ep, so there are no experts to spread; use E = 1",
            o->ep);
    }
    return KEEL_OK;
}

keel_status graph_shard(const graph *global, const shard_options *options, graph **out, keel_error *err) {
    sharder s = {.g = global, .o = *options, .first_layer = -1, .found = {.err = err}};
    KEEL_TRY(check_options(global, &s.o, err));
    if (s.o.tp > 1) s.head = producer_of(global, global->logits);
    size_t n = (size_t)global->n_tensors + 1;
    s.place = mem_calloc(n, sizeof *s.place);
    s.users = mem_calloc(n, sizeof *s.users);
    s.map = mem_calloc(n, sizeof *s.map);
    s.partial = mem_calloc((size_t)global->n_ops + 1, sizeof *s.partial);
    keel_status status = KEEL_OK;
    if (!s.place || !s.users || !s.map || !s.partial) status = KEEL_NOMEM_AT(err, "sharding the graph");
    if (status == KEEL_OK) status = place_all(&s);
    if (status == KEEL_OK) status = build_all(&s, out, err);
    mem_free(s.place);
    mem_free(s.users);
    mem_free(s.map);
    mem_free(s.partial);
    return status;
}
