/* SPDX-License-Identifier: Apache-2.0 */
#include "draw/draw_fold.h"

#include "core/mem.h"
#include "graph/graph_text.h"

#include <stdio.h>
#include <string.h>

int fold_tensor_layer(const graph *g, int tensor) {
    const graph_tensor *t = graph_tensor_at(g, tensor);
    const char *rest;
    return t->producer >= 0 ? g->ops[t->producer].layer : graph_name_layer(t->name, &rest);
}

static size_t digits_at(const char *s) { return strspn(s, "0123456789"); }

/* The digits at s are this layer's number. */
static bool is_number(const char *s, size_t n, int layer) {
    char text[GRAPH_TEXT_BYTES];
    int bytes = snprintf(text, sizeof text, "%d", layer);
    return (size_t)bytes == n && memcmp(text, s, n) == 0;
}

/* Where a and b, keys of two layers that follow each other, differ, the number of the layer must stand. key (of
 * `layer`) must be like a with its own number there. With out, the template is written. */
static bool keys_alike(const char *a, const char *b, int first, const char *key, int layer, buf *out) {
    while (*a) {
        size_t na = digits_at(a), nb = digits_at(b), nk = digits_at(key);
        if (*a == '{' || *a == '}') return false;
        if (na && is_number(a, na, first) && is_number(b, nb, first + 1)) {
            if (!is_number(key, nk, layer)) return false;
            if (out) buf_str(out, "{i}");
        } else {
            if (!na) na = nb = nk = 1;
            if (na != nb || na != nk || memcmp(a, b, na) != 0 || memcmp(a, key, na) != 0) return false;
            if (out) buf_put(out, a, na);
        }
        a += na, b += nb, key += nk;
    }
    return !*b && !*key;
}

static const char *behind_prefix(const char *name) {
    const char *rest;
    graph_name_layer(name, &rest);
    return rest;
}

static bool same_suffix(const char *a, const char *b) { return strcmp(behind_prefix(a), behind_prefix(b)) == 0; }

/* A run of ops of one layer. */
typedef struct run {
    int layer, op_first, n_ops;
    bool read_far; /* an op that is neither in this run nor in the next reads a tensor of it */
} run;

typedef struct finder {
    const graph *g;
    run *runs; /* [n_runs] */
    int n_runs;
    int *run_of;    /* [n_ops] run of every op */
    int highest;    /* layer */
    bool *repeated; /* [highest layer + 1] the layer has more than one run; behind it as much scratch */
} finder;

/* A const or cache of a layer is that layer's own; equal ones have equal content. */
static bool same_source(const graph_tensor *a, const graph_tensor *b) {
    if (a->kind != b->kind || a->dtype != b->dtype || a->rank != b->rank || a->external != b->external) return false;
    if (memcmp(a->dim, b->dim, sizeof a->dim) != 0) return false;
    return a->kind != TENSOR_CONST || memcmp(a->data, b->data, (size_t)a->dim[0] * sizeof *a->data) == 0;
}

/* Input of an op in run b against the same slot in run a, the run before it; a_is_first: what a reads from before it
 * may be anything outside. */
static bool same_input(const finder *f, const run *a, int ta, const run *b, int tb, bool a_is_first) {
    const graph *g = f->g;
    if (!ta != !tb) return false;
    if (!ta) return true;
    const graph_tensor *x = graph_tensor_at(g, ta), *y = graph_tensor_at(g, tb);
    int la = fold_tensor_layer(g, ta), lb = fold_tensor_layer(g, tb);
    if (ta == tb) return la != a->layer && la != b->layer;
    if (lb == b->layer) return la == a->layer && same_suffix(x->name, y->name) && same_source(x, y);
    if (lb != a->layer || y->producer < 0) return false;
    if (a_is_first) return la != a->layer && same_source(x, y);
    return la == a->layer - 1 && x->producer >= 0 && same_suffix(x->name, y->name);
}

static bool same_attrs(const graph_op *a, const graph_op *b) {
    if (a->n_attrs != b->n_attrs) return false;
    for (int i = 0; i < a->n_attrs; i++) {
        const graph_attr *x = &a->attr[i], *y = graph_attr_set(b, x->name);
        if (!y || memcmp(&x->value, &y->value, sizeof y->value) != 0) return false;
    }
    return true;
}

/* first: the op in the first layer of the range, second: in the second one. */
static bool same_weights(const graph *g, const graph_op *first, const graph_op *second, const graph_op *op) {
    for (int i = 0; i < first->n_weights; i++) {
        if (!first->weight[i] != !second->weight[i] || !first->weight[i] != !op->weight[i]) return false;
        if (!first->weight[i]) continue;
        const graph_tensor *a = graph_tensor_at(g, first->weight[i]), *b = graph_tensor_at(g, second->weight[i]),
                           *t = graph_tensor_at(g, op->weight[i]);
        if (a->dtype != t->dtype || a->rank != t->rank || memcmp(a->dim, t->dim, sizeof a->dim) != 0) return false;
        if (a->shard != t->shard || a->shard_dim != t->shard_dim) return false;
        if (!keys_alike(a->key, b->key, first->layer, t->key, op->layer, NULL)) return false;
    }
    return true;
}

/* Run b like run a, the one before it, in a range that begins with `first`. */
static bool same_run(const finder *f, const run *first, const run *a, const run *b) {
    const graph *g = f->g;
    if (b->layer != a->layer + 1 || a->n_ops != b->n_ops || f->repeated[b->layer] || f->repeated[a->layer])
        return false;
    for (int k = 0; k < b->n_ops; k++) {
        const graph_op *x = &g->ops[a->op_first + k], *y = &g->ops[b->op_first + k];
        const graph_op *begin = &g->ops[first->op_first + k], *next = &g->ops[first->op_first + first->n_ops + k];
        if (x->desc != y->desc || x->n_in != y->n_in || x->n_weights != y->n_weights) return false;
        if (!same_suffix(x->name, y->name) || strcmp(x->notes, y->notes) != 0 || !same_attrs(x, y)) return false;
        if (!same_weights(g, begin, next, y)) return false;
        for (int i = 0; i < y->n_in; i++) {
            if (!same_input(f, a, x->in[i], b, y->in[i], a == first)) return false;
        }
    }
    return true;
}

bool fold_from_before(const graph *g, const fold_range *r, int k, int slot) {
    int id = g->ops[r->op_first + r->n_ops + k].in[slot];
    return id && graph_tensor_at(g, id)->producer >= 0 && fold_tensor_layer(g, id) == r->first;
}

/* A reader takes an edge inside the range for one from the layer before only where it would close a cycle: the reading
 * op must lead to the op that is read. reached: [n_ops] scratch. */
static bool closes_cycles(const graph *g, const run *a, const run *b, bool *reached) {
    for (int k = 0; k < b->n_ops; k++) {
        for (int slot = 0; slot < g->ops[b->op_first + k].n_in; slot++) {
            int id = g->ops[b->op_first + k].in[slot];
            if (!id || graph_tensor_at(g, id)->producer < 0 || fold_tensor_layer(g, id) != a->layer) continue;
            int target = graph_tensor_at(g, id)->producer - a->op_first;
            memset(reached, 0, (size_t)b->n_ops * sizeof *reached);
            reached[k] = true;
            for (int j = k + 1; j <= target; j++) {
                const graph_op *op = &g->ops[b->op_first + j];
                for (int i = 0; i < op->n_in && !reached[j]; i++) {
                    int producer = op->in[i] ? graph_tensor_at(g, op->in[i])->producer - b->op_first : -1;
                    reached[j] = producer >= 0 && reached[producer];
                }
            }
            if (target < k || target >= b->n_ops || !reached[target]) return false;
        }
    }
    return true;
}

/* Splits the ops into runs, and finds what is read from afar. */
static void find_runs(finder *f) {
    const graph *g = f->g;
    for (int i = 0; i < g->n_ops; i++) {
        const graph_op *op = &g->ops[i];
        if (!i || op->layer != g->ops[i - 1].layer) {
            f->runs[f->n_runs++] = (run){.layer = op->layer, .op_first = i};
        }
        f->run_of[i] = f->n_runs - 1;
        f->runs[f->n_runs - 1].n_ops++;
        for (int k = 0; k < op->n_in; k++) {
            if (!op->in[k]) continue;
            int producer = graph_tensor_at(g, op->in[k])->producer, home = fold_tensor_layer(g, op->in[k]);
            if (producer < 0) { /* a layer whose const or cache others read stands for itself */
                if (home >= 0 && home <= f->highest && home != op->layer) f->repeated[home] = true;
                continue;
            }
            run *from = &f->runs[f->run_of[producer]];
            bool next = from == &f->runs[f->n_runs - 2] && op->layer == home + 1;
            if (from != &f->runs[f->n_runs - 1] && !next) from->read_far = true;
        }
    }
}

/* The last run of the range that begins at run i. */
static int range_end(const finder *f, int i, bool *reached) {
    const run *first = &f->runs[i];
    int end = i;
    if (first->layer < 0) return i;
    while (end + 1 < f->n_runs && !f->runs[end].read_far && same_run(f, first, &f->runs[end], &f->runs[end + 1])) {
        if (end == i && !closes_cycles(f->g, first, &f->runs[end + 1], reached)) break;
        end++;
    }
    return end;
}

static bool finder_open(finder *f, bool **reached) {
    size_t n = (size_t)f->g->n_ops + 1;
    for (int i = 0; i < f->g->n_ops; i++) {
        if (f->g->ops[i].layer > f->highest) f->highest = f->g->ops[i].layer;
    }
    size_t layers = (size_t)f->highest + 2;
    f->runs = mem_calloc(n, sizeof *f->runs);
    f->run_of = mem_calloc(n, sizeof *f->run_of);
    f->repeated = mem_calloc(2 * layers, sizeof *f->repeated);
    *reached = mem_calloc(n, sizeof **reached);
    if (!f->runs || !f->run_of || !f->repeated || !*reached) return false;
    find_runs(f);
    bool *seen = f->repeated + layers;
    for (int i = 0; i < f->n_runs; i++) {
        int layer = f->runs[i].layer;
        if (layer < 0) continue;
        if (seen[layer]) f->repeated[layer] = true;
        seen[layer] = true;
    }
    return true;
}

/* Layer after layer, and nothing between them: in a drawing with ranges that is the order of execution. */
static bool in_order(const finder *f) {
    int layer = -1;
    for (int i = 0; i < f->n_runs; i++) {
        bool outside = f->runs[i].layer < 0;
        if (outside ? i && i + 1 < f->n_runs : f->runs[i].layer <= layer) return false;
        if (!outside) layer = f->runs[i].layer;
    }
    return true;
}

keel_status fold_find(const graph *g, fold *out, keel_error *err) {
    finder f = {.g = g};
    bool *reached = NULL, open = finder_open(&f, &reached);
    fold found = {.ranges = open ? mem_calloc((size_t)f.n_runs + 1, sizeof *found.ranges) : NULL};
    for (int i = found.ranges && in_order(&f) ? 0 : f.n_runs; i < f.n_runs; i++) {
        int end = range_end(&f, i, reached);
        if (end == i) continue;
        found.ranges[found.n_ranges++] =
            (fold_range){f.runs[i].layer, f.runs[end].layer, f.runs[i].op_first, f.runs[i].n_ops};
        i = end;
    }
    mem_free(f.runs);
    mem_free(f.run_of);
    mem_free(f.repeated);
    mem_free(reached);
    if (!found.ranges) return KEEL_NOMEM_AT(err, "layers of the graph");
    *out = found;
    return KEEL_OK;
}

void fold_free(fold *f) {
    mem_free(f->ranges);
    *f = (fold){0};
}

const fold_range *fold_of_op(const fold *f, int op) {
    for (int lo = 0, hi = f->n_ranges; lo < hi;) {
        int mid = (lo + hi) / 2;
        const fold_range *r = &f->ranges[mid];
        if (op < r->op_first) {
            hi = mid;
        } else if (op >= r->op_first + r->n_ops * fold_n_layers(r)) {
            lo = mid + 1;
        } else {
            return r;
        }
    }
    return NULL;
}

void fold_put_name(buf *b, const fold_range *r, const char *name) {
    buf_printf(b, "l{%d-%d}.%s", r->first, r->last, behind_prefix(name));
}

void fold_put_key(buf *b, const fold_range *r, const char *first, const char *second) {
    keys_alike(first, second, r->first, first, r->first, b);
}
