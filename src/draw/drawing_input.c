/* SPDX-License-Identifier: Apache-2.0 */
/* Edges → inputs of instances: the rules of docs/drawing.md, Layers.
 *
 * An edge is *inside* where its ends have layers in common, else *outside*. A slot that has an outside edge and inside
 * ones takes, from an inside edge that closes a cycle of inside edges, the tensor of the layer before (a *carry*).
 * Where edges could not be read (d->lost), it may be those that close the cycle. */
#include "draw/drawing_internal.h"

#include "core/mem.h"

#include <string.h>

enum { STEPS = 30000000 };

static const drawing_edge *edge_at(const drawing *d, const drawing_node *n, int k) {
    return &d->edges[d->edge_order[n->edges + k]];
}

static bool has_outside(const drawing *d, const drawing_node *n, int slot) {
    for (int k = 0; k < n->n_edges; k++) {
        const drawing_edge *e = edge_at(d, n, k);
        if (e->slot == slot && !e->inside) return true;
    }
    return false;
}

/* ---- carries ---------------------------------------------------------------------------------------- */

/* Search against the edges, from the source of a candidate. */
typedef struct search {
    drawing *d;
    int *stack, n_stack; /* nodes */
    int *seen;           /* [n_nodes]: the last search that saw it */
    int turn, steps;
} search;

static void push(search *s, int node) {
    if (node < 0 || s->seen[node] == s->turn) return;
    s->seen[node] = s->turn;
    s->stack[s->n_stack++] = node;
}

/* What a ref names. */
static void push_named(search *s, int node) {
    const drawing_node *n = &s->d->nodes[node];
    for (int l = n->layers.first; l <= n->layers.last; l++, s->steps--) {
        int i = drawing_source(s->d, node, l);
        if (i >= 0) push(s, s->d->instances[i].node);
    }
}

/* Marks every node from which inside edges that are no candidates lead to `from`. */
static void search_back(search *s, int from) {
    s->turn++;
    push(s, from);
    while (s->n_stack && s->steps > 0) {
        int node = s->stack[--s->n_stack];
        const drawing_node *n = &s->d->nodes[node];
        if (n->kind == DRAWING_REF) push_named(s, node);
        for (int k = 0; k < n->n_edges; k++, s->steps--) {
            const drawing_edge *e = edge_at(s->d, n, k);
            if (e->inside && !e->carry) push(s, e->source);
        }
    }
    s->n_stack = 0;
}

/* `carry` means candidate at first; what closes no cycle loses it once all are judged. */
static keel_status judge(search *s) {
    drawing *d = s->d;
    bool *drop = mem_calloc((size_t)d->n_edges + 1, sizeof *drop);
    int *last = mem_alloc(((size_t)d->n_nodes + 1) * sizeof *last); /* by source: its first candidate */
    int *next = mem_alloc(((size_t)d->n_edges + 1) * sizeof *next);
    if (drop && last && next) {
        memset(last, 0xff, ((size_t)d->n_nodes + 1) * sizeof *last);
        for (int i = 0; i < d->n_edges; i++) {
            if (!d->edges[i].carry) continue;
            next[i] = last[d->edges[i].source];
            last[d->edges[i].source] = i;
        }
        for (int node = 0; node < d->n_nodes; node++) {
            if (last[node] < 0) continue;
            search_back(s, node);
            for (int i = last[node]; i >= 0; i = next[i]) drop[i] = !d->lost && s->seen[d->edges[i].target] != s->turn;
        }
        for (int i = 0; i < d->n_edges; i++) d->edges[i].carry &= !drop[i];
    }
    bool fine = drop && last && next;
    mem_free(drop);
    mem_free(last);
    mem_free(next);
    return fine ? KEEL_OK : drawing_nomem(d);
}

static keel_status find_carries(drawing *d) {
    bool any = false;
    for (int i = 0; i < d->n_edges; i++) {
        drawing_edge *e = &d->edges[i];
        e->inside = drawing_meets(d->nodes[e->source].layers, d->nodes[e->target].layers);
    }
    for (int i = 0; i < d->n_edges; i++) {
        drawing_edge *e = &d->edges[i];
        const drawing_node *to = &d->nodes[e->target];
        e->carry = e->inside && e->slot >= 0 && to->n_edges <= DRAWING_EDGES_IN && has_outside(d, to, e->slot);
        any |= e->carry;
    }
    if (!any) return KEEL_OK;
    search s = {.d = d, .steps = STEPS};
    s.stack = mem_alloc(((size_t)d->n_nodes + 1) * sizeof *s.stack);
    s.seen = mem_calloc((size_t)d->n_nodes + 1, sizeof *s.seen);
    keel_status status = s.stack && s.seen ? judge(&s) : drawing_nomem(d);
    mem_free(s.stack);
    mem_free(s.seen);
    if (status == KEEL_OK && s.steps <= 0) {
        return error_set(d->err, KEEL_RANGE, "%s: the edges between repeated layers are too many to follow", d->file);
    }
    return status;
}

/* ---- inputs ----------------------------------------------------------------------------------------- */

/* What the edge brings to a layer; −1: nothing. */
static int brought(const drawing *d, const drawing_edge *e, int layer) {
    drawing_range r = d->nodes[e->source].layers;
    if (!e->inside) return drawing_source(d, e->source, r.last);
    if (e->carry) layer--;
    return drawing_has(r, layer) ? drawing_source(d, e->source, layer) : -1;
}

static void fault_twice(drawing *d, int instance, int a, int b) {
    drawing_node *n = &d->nodes[d->instances[instance].node];
    if (n->reported) return;
    n->reported = true;
    const char *slot = n->desc->in_name[d->edges[a].slot];
    FAULT(d, n->cell, "two edges fill the slot %s of %s: from %.60s and %.60s", slot ? slot : "?",
          d->instances[instance].name, d->nodes[d->edges[a].source].name, d->nodes[d->edges[b].source].name);
}

/* Whether edge e (which brings something) gives way to a carry into the same slot and layer. */
static bool gives_way(const drawing *d, const drawing_node *n, const drawing_edge *e, int layer) {
    if (e->inside || e->slot < 0) return false;
    for (int k = 0; k < n->n_edges; k++) {
        const drawing_edge *other = edge_at(d, n, k);
        if (other->carry && other->slot == e->slot && brought(d, other, layer) >= 0) return true;
    }
    return false;
}

static keel_status add_input(drawing *d, int instance, int edge) {
    drawing_instance *x = &d->instances[instance];
    const drawing_edge *e = &d->edges[edge];
    int source = brought(d, e, x->layer);
    if (source < 0 || gives_way(d, &d->nodes[x->node], e, x->layer)) return KEEL_OK;
    for (int i = 0; i < x->n_inputs && e->slot >= 0; i++) {
        const drawing_input *other = &d->inputs[x->inputs + i];
        if (other->slot != e->slot) continue;
        fault_twice(d, instance, other->edge, edge);
        return KEEL_OK;
    }
    KEEL_TRY(DRAWING_GROW(d, d->inputs, d->n_inputs, d->cap_inputs));
    d->inputs[d->n_inputs++] = (drawing_input){source, e->output, e->slot, edge};
    x->n_inputs++;
    d->instances[source].read = true;
    return KEEL_OK;
}

/* Who reads what cannot be said: the sources are not to be blamed. */
static void excuse_sources(drawing *d, const drawing_node *n) {
    for (int k = 0; k < n->n_edges; k++) {
        int source = edge_at(d, n, k)->source;
        d->nodes[source].excused = true;
        if (d->nodes[source].kind != DRAWING_REF) continue;
        int i = drawing_source(d, source, d->nodes[source].layers.last);
        if (i >= 0) d->nodes[d->instances[i].node].excused = true;
    }
}

/* What reads something that is not known is not judged. */
static void pass_on(drawing *d) {
    for (int i = 0; i < d->n_edges; i++) {
        const drawing_node *from = &d->nodes[d->edges[i].source];
        if (from->bad && from->instance < 0) d->nodes[d->edges[i].target].bad = true;
    }
}

keel_status drawing_inputs(drawing *d) {
    KEEL_TRY(find_carries(d));
    pass_on(d);
    for (int i = 0; i < d->n_instances; i++) {
        drawing_instance *x = &d->instances[i];
        drawing_node *n = &d->nodes[x->node];
        x->inputs = d->n_inputs;
        if (n->bad) continue;
        for (int k = 0; k < n->n_edges; k++) KEEL_TRY(add_input(d, i, d->edge_order[n->edges + k]));
        if (n->reported) n->bad = true;
        if (x->n_inputs <= GRAPH_IN) continue;
        FAULT(d, n->cell, "%d edges end at %s; it has %d slots", x->n_inputs, x->name, n->desc->max_in);
        n->bad = true;
    }
    for (int i = 0; i < d->n_nodes; i++) {
        if (d->nodes[i].bad) excuse_sources(d, &d->nodes[i]);
    }
    return KEEL_OK;
}
