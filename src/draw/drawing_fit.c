/* SPDX-License-Identifier: Apache-2.0 */
/* What a drawing leaves open and an op's shape rule decides: the rule is asked about each way to fill the gap, on
 * tensors of its own, and one way must be the only one it accepts. */
#include "draw/drawing_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    OPEN_MAX = 3,      /* edges without a slot that are tried: at most 8 × 7 × 6 ways */
    WIDTHS_MAX = 16,   /* lengths that a left out dimension is tried with */
    STRANGE = 1000003, /* a length that no model has: where the rule accepts it, it does not decide */
};

bool drawing_agrees(const drawing_shape *s, const graph_tensor *t) {
    bool act = t->dtype == DTYPE_ACT;
    if (s->typed && s->dtype != t->dtype && !(act && s->dtype <= DTYPE_F16)) return false;
    return s->rank == t->rank && memcmp(s->dim, t->dim, (size_t)s->rank * sizeof *s->dim) == 0;
}

/* ---- one question ----------------------------------------------------------------------------------- */

/* A graph of one op: tensor 0 is none, then inputs by slot, then weights by slot. */
typedef struct question {
    const drawing_node *n;
    int *asked;
    graph g;
    graph_tensor tensors[1 + GRAPH_IN + GRAPH_WEIGHTS];
    graph_op op;
    keel_error err;            /* scratch */
    int refusals;              /* of the rule; −1: they differ, or something else refused */
    drawing_complaint refusal; /* the one that they are */
} question;

static void ask_about(question *q, const drawing_node *n, int *questions) {
    *q = (question){.n = n,
                    .asked = questions,
                    .err = KEEL_ERROR_INITIALIZER,
                    .op = {.desc = n->desc, .name = n->name, .layer = n->layers.first, .notes = ""}};
    q->g.tp = q->g.ep = 1;
    q->tensors[0] = (graph_tensor){.name = "none", .producer = -1};
    q->op.n_attrs = n->n_attrs;
    for (int i = 0; i < n->n_attrs; i++) q->op.attr[i] = n->attrs[i];
}

static void bind_input(question *q, int slot, const graph_tensor *t) {
    q->tensors[1 + slot] = *t;
    q->op.in[slot] = 1 + slot;
    if (slot >= q->op.n_in) q->op.n_in = slot + 1;
}

static void bind_weight(question *q, const drawing_weight *w) {
    graph_tensor *t = &q->tensors[1 + GRAPH_IN + w->slot];
    *t = (graph_tensor){.kind = TENSOR_WEIGHT, .name = w->key, .key = w->key, .dtype = w->shape.dtype, .producer = -1};
    t->rank = w->shape.rank;
    memcpy(t->dim, w->shape.dim, sizeof t->dim);
    q->op.weight[w->slot] = 1 + GRAPH_IN + w->slot;
    if (w->slot >= q->op.n_weights) q->op.n_weights = w->slot + 1;
}

/* One more refusal of the rule; NULL: of something else. The place names the op already. */
static void refuse(question *q, const char *text) {
    size_t n = strlen(q->op.name);
    if (text && strncmp(text, q->op.name, n) == 0 && strncmp(text + n, ": ", 2) == 0) text += n + 2;
    if (!text || q->refusals < 0 || (q->refusals && strcmp(text, q->refusal.text) != 0)) {
        q->refusals = -1;
        return;
    }
    q->refusals = 1;
    snprintf(q->refusal.text, sizeof q->refusal.text, "%.*s", (int)sizeof q->refusal.text - 1, text);
}

/* What all ways are refused for: then no way is at fault. */
static bool refused_alike(const question *q, drawing_complaint *why) {
    if (q->refusals > 0) *why = q->refusal;
    return q->refusals > 0;
}

/* Whether the rule accepts, and what is written agrees. */
static bool accepts(question *q) {
    const drawing_node *n = q->n;
    graph_tensor out[GRAPH_OUT] = {{0}};
    ++*q->asked;
    q->g.tensors = q->tensors;
    q->g.n_tensors = GRAPH_IN + GRAPH_WEIGHTS;
    for (int slot = 0, i = 0; slot < q->op.n_in && n->n_in; slot++) {
        if (!q->op.in[slot] || (i < n->n_in && drawing_agrees(&n->in[i++], &q->tensors[q->op.in[slot]]))) continue;
        refuse(q, NULL);
        return false;
    }
    if (n->desc->infer(&q->g, &q->op, out, q->refusals < 0 ? NULL : &q->err) != KEEL_OK) {
        refuse(q, q->err.detail);
        return false;
    }
    for (int i = 0; i < n->n_out; i++) {
        if (drawing_agrees(&n->out[i], &out[i])) continue;
        refuse(q, NULL);
        return false;
    }
    return true;
}

/* ---- slots ------------------------------------------------------------------------------------------ */

typedef struct slot_search {
    question q;
    const graph *g;
    const int *ids;
    int *slots, count;
    int found[GRAPH_IN]; /* the way that was accepted: tensor id by slot */
    int found_slots[GRAPH_IN], ways;
} slot_search;

static void count_way(slot_search *s) {
    int way[GRAPH_IN] = {0};
    for (int i = 0; i < s->count; i++) way[s->slots[i]] = s->ids[i];
    if (!accepts(&s->q)) return;
    if (s->ways && memcmp(way, s->found, sizeof way) == 0) return; /* the same tensor twice */
    s->ways++;
    memcpy(s->found, way, sizeof way);
    memcpy(s->found_slots, s->slots, (size_t)s->count * sizeof *s->slots);
}

/* Edge k and those behind it into the free slots. The depth is that of OPEN_MAX open edges. */
static void try_slots(slot_search *s, int k) {
    while (k < s->count && s->slots[k] >= 0) k++;
    if (k == s->count) {
        count_way(s);
        return;
    }
    for (int slot = 0; slot < s->q.n->desc->max_in && s->ways < 2; slot++) {
        if (s->q.op.in[slot]) continue;
        int before = s->q.op.n_in;
        bind_input(&s->q, slot, graph_tensor_at(s->g, s->ids[k]));
        s->slots[k] = slot;
        try_slots(s, k + 1);
        s->slots[k] = -1;
        s->q.op.in[slot] = 0;
        s->q.op.n_in = before;
    }
}

static bool complain(drawing_complaint *why, const char *text) {
    snprintf(why->text, sizeof why->text, "%s", text);
    return false;
}

/* The only free slot for the only open edge. */
static bool take_last_slot(const slot_search *s) {
    int open = -1, slot = -1;
    for (int i = 0; i < s->count; i++) {
        if (s->slots[i] < 0) open = i;
    }
    for (int i = 0; i < s->q.n->desc->max_in; i++) {
        if (s->q.op.in[i]) continue;
        if (slot >= 0) return false;
        slot = i;
    }
    if (slot < 0) return false;
    s->slots[open] = slot;
    return true;
}

bool drawing_fit_slots(const drawing_node *n, const graph *g, const int *ids, int *slots, int count, int *questions,
                       drawing_complaint *why) {
    slot_search s = {.g = g, .ids = ids, .slots = slots, .count = count};
    int open = 0;
    ask_about(&s.q, n, questions);
    for (int i = 0; i < count; i++) {
        open += slots[i] < 0;
        if (slots[i] >= 0) bind_input(&s.q, slots[i], graph_tensor_at(g, ids[i]));
    }
    if (!open) return true;
    if (open > OPEN_MAX) return complain(why, "too many edges without a slot; name it in their labels");
    if (count > n->desc->max_in) return complain(why, "more edges end here than it has slots");
    if (open == 1 && take_last_slot(&s)) return true;
    for (int i = 0; i < n->n_weights; i++) {
        if (n->weights[i].shape.rank) bind_weight(&s.q, &n->weights[i]);
    }
    try_slots(&s, 0);
    if (s.ways == 0 && refused_alike(&s.q, why)) return false;
    if (s.ways == 0) return complain(why, "no slot fits the shapes of its edges; name it in their labels");
    if (s.ways > 1) return complain(why, "its edges fit more than one slot; name it in their labels");
    memcpy(slots, s.found_slots, (size_t)count * sizeof *slots);
    return true;
}

/* ---- dimensions of weights ---------------------------------------------------------------------------- */

static void add_width(int64_t *list, int *n, double width) {
    if (!(width >= 1 && width <= 1e9) || width != floor(width) || *n == WIDTHS_MAX) return;
    for (int i = 0; i < *n; i++) {
        if (list[i] == (int64_t)width) return;
    }
    list[(*n)++] = (int64_t)width;
}

/* Every length that stands at the op. */
static int widths_of(const question *q, int64_t *list) {
    const drawing_node *n = q->n;
    int count = 0;
    add_width(list, &count, STRANGE);
    for (int i = 0; i < q->op.n_in; i++) {
        const graph_tensor *t = &q->tensors[q->op.in[i]];
        for (int k = 0; k < t->rank; k++) add_width(list, &count, (double)t->dim[k]);
    }
    for (int i = 0; i < n->n_out; i++) {
        for (int k = 0; k < n->out[i].rank; k++) add_width(list, &count, (double)n->out[i].dim[k]);
    }
    for (int i = 0; i < n->n_weights; i++) {
        for (int k = 0; k < n->weights[i].shape.rank; k++) add_width(list, &count, (double)n->weights[i].shape.dim[k]);
    }
    for (int i = 0; i < n->n_attrs; i++) add_width(list, &count, n->attrs[i].value);
    return count;
}

/* Tries [a] and [a, b]; true where exactly one is accepted, which w then has. */
static bool fit_weight(question *q, drawing_weight *w) {
    int64_t width[WIDTHS_MAX];
    int n = widths_of(q, width), ways = 0;
    q->refusals = 0;
    drawing_shape found = w->shape;
    for (int i = 0; i < n * (n + 1) && ways < 2; i++) {
        w->shape.rank = i < n ? 1 : 2;
        w->shape.dim[0] = width[i % n];
        w->shape.dim[1] = i < n ? 0 : width[(i - n) / n];
        bind_weight(q, w);
        if (!accepts(q)) continue;
        ways++;
        found = w->shape;
    }
    w->shape = found;
    if (ways) q->refusals = -1;
    bool decided = ways == 1 && found.dim[0] != STRANGE && found.dim[1] != STRANGE;
    if (!decided) w->shape.rank = 0;
    if (decided) bind_weight(q, w);
    return decided;
}

bool drawing_fit_weights(const drawing_node *n, const graph *g, const int *in, int *questions, drawing_complaint *why) {
    question q;
    ask_about(&q, n, questions);
    for (int i = 0; i < GRAPH_IN; i++) {
        if (in[i] > 0) bind_input(&q, i, graph_tensor_at(g, in[i]));
    }
    for (int i = 0; i < n->n_weights; i++) {
        if (n->weights[i].shape.rank) bind_weight(&q, &n->weights[i]);
    }
    for (int i = 0; i < n->n_weights; i++) {
        drawing_weight *w = &n->weights[i];
        if (w->shape.rank) continue;
        if (fit_weight(&q, w)) continue;
        if (refused_alike(&q, why)) return false;
        snprintf(why->text, sizeof why->text,
                 "the shapes here do not tell the dimensions of %.80s: w=KEY[dimensions]dtype", w->key);
        return false;
    }
    return true;
}
