/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes → instances: a vertex of a range of layers is as many ops. Every instance has its full name; refs are looked up
 * by it. */
#include "draw/drawing_internal.h"

#include "core/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256, LOOKUPS = 1 << 20 };

bool drawing_meets(drawing_range a, drawing_range b) {
    return a.first >= 0 && b.first >= 0 && a.first <= b.last && b.first <= a.last;
}

static int find(const drawing *d, int layer, const char *name) {
    char full[NAME_BYTES];
    if (layer < 0) return names_find(d->names, NAMES_OP, name);
    snprintf(full, sizeof full, "l%d.%s", layer, name);
    return names_find(d->names, NAMES_OP, full);
}

int drawing_source(const drawing *d, int node, int layer) {
    const drawing_node *n = &d->nodes[node];
    if (n->kind == DRAWING_REF) return n->ref_name ? find(d, layer, n->ref_name) : -1;
    if (n->instance < 0) return -1;
    return n->instance + (layer < 0 ? 0 : layer - n->layers.first);
}

/* ---- instances -------------------------------------------------------------------------------------- */

static bool has_instances(const drawing_node *n) {
    return n->kind != DRAWING_REF && n->kind != DRAWING_MODEL && n->name != NULL;
}

static int count_of(const drawing_node *n) {
    return !has_instances(n) ? 0 : n->layers.first < 0 ? 1 : n->layers.last - n->layers.first + 1;
}

static void fault_taken(drawing *d, drawing_node *n, const char *name, int other) {
    const drawing_cell *c = &d->cells[d->nodes[d->instances[other].node].cell];
    char id[64], page[64];
    if (!n->bad && !d->nodes[d->instances[other].node].unplaced) {
        FAULT(d, n->cell, "the name %s is taken by cell %s of page \"%s\"", name,
              c->id ? drawing_show(c->id, id, sizeof id) : "without id",
              drawing_show(d->pages[c->page].name, page, sizeof page));
    }
    n->bad = true;
}

static keel_status add_instance(drawing *d, int node, int layer) {
    drawing_node *n = &d->nodes[node];
    const char *name = n->name;
    if (layer >= 0) name = arena_printf(&d->arena, "l%d.%s", layer, n->name);
    if (!name) return drawing_nomem(d);
    int other = names_find(d->names, NAMES_OP, name);
    if (other >= 0) {
        fault_taken(d, n, name, other);
    } else if (!names_put(d->names, NAMES_OP, name, d->n_instances)) {
        return drawing_nomem(d);
    }
    d->instances[d->n_instances++] = (drawing_instance){.node = node, .layer = layer, .name = name};
    return KEEL_OK;
}

static keel_status add_instances(drawing *d) {
    int64_t total = 0;
    for (int i = 0; i < d->n_nodes; i++) total += count_of(&d->nodes[i]);
    if (total > DRAWING_INSTANCES) {
        return error_set(d->err, KEEL_RANGE, "%s: %lld ops, repeated layers counted; at most %d can be read", d->file,
                         (long long)total, DRAWING_INSTANCES);
    }
    d->instances = mem_calloc((size_t)total + 1, sizeof *d->instances);
    d->names = names_new();
    if (!d->instances || !d->names) return drawing_nomem(d);
    for (int i = 0; i < d->n_nodes; i++) {
        drawing_node *n = &d->nodes[i];
        if (!has_instances(n)) continue;
        n->instance = d->n_instances;
        for (int l = n->layers.first; l <= n->layers.last; l++) KEEL_TRY(add_instance(d, i, l));
    }
    return KEEL_OK;
}

/* ---- refs ------------------------------------------------------------------------------------------- */

/* The layers of r that have the name; false: none has. Steps are counted down. */
static bool shrink(const drawing *d, drawing_range *r, const char *name, int *steps) {
    drawing_range x = *r;
    while (x.first <= x.last && *steps > 0 && find(d, x.first, name) < 0) x.first++, --*steps;
    while (x.first<x.last && * steps> 0 && find(d, x.last, name) < 0) x.last--, --*steps;
    if (x.first > x.last || find(d, x.first, name) < 0) return false;
    *r = x;
    return true;
}

/* In the layers of the prefix, group or page; a name without a prefix also outside them. */
static bool look_up(const drawing *d, drawing_node *n, const char *name, int *steps) {
    if (n->layers.first >= 0 && shrink(d, &n->layers, name, steps)) return true;
    if (n->prefixed || find(d, -1, name) < 0) return false;
    n->layers = (drawing_range){-1, -1};
    return true;
}

/* It names what lies in layers that could not be read. */
static bool is_unplaced(const drawing *d, const char *name) {
    int i = find(d, -1, name);
    return i >= 0 && d->nodes[d->instances[i].node].unplaced;
}

/* "NAME.1": the name without its output; *out NULL where there is none. */
static keel_status without_output(drawing *d, const char *name, const char **out, int *output) {
    const char *dot = strrchr(name, '.');
    *out = NULL;
    if (!dot || dot == name || dot[1] < '0' || dot[1] >= '0' + GRAPH_OUT || dot[2]) return KEEL_OK;
    *output = dot[1] - '0';
    *out = arena_strndup(&d->arena, name, (size_t)(dot - name));
    return *out ? KEEL_OK : drawing_nomem(d);
}

static keel_status resolve(drawing *d, drawing_node *n, int *steps) {
    n->ref_output = -1;
    if (!n->name || n->bad) return KEEL_OK;
    if (look_up(d, n, n->name, steps)) {
        n->ref_name = n->name;
        return KEEL_OK;
    }
    const char *name;
    KEEL_TRY(without_output(d, n->name, &name, &n->ref_output));
    if (name && look_up(d, n, name, steps)) {
        n->ref_name = name;
        return KEEL_OK;
    }
    if (*steps <= 0) {
        return error_set(d->err, KEEL_RANGE, "%s: the refs name tensors of too many layers that are not drawn",
                         d->file);
    }
    n->bad = true;
    if (!is_unplaced(d, n->name) && !(name && is_unplaced(d, name)))
        FAULT(d, n->cell, "no tensor of this name is drawn");
    return KEEL_OK;
}

keel_status drawing_instances(drawing *d) {
    int steps = LOOKUPS;
    KEEL_TRY(add_instances(d));
    for (int i = 0; i < d->n_nodes; i++) {
        if (d->nodes[i].kind == DRAWING_REF) KEEL_TRY(resolve(d, &d->nodes[i], &steps));
    }
    return KEEL_OK;
}
