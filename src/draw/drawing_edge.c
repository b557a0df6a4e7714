/* SPDX-License-Identifier: Apache-2.0 */
/* Cells → edges: what each connects, which output it carries and into which slot. */
#include "draw/drawing_internal.h"

#include "core/mem.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { EDGE_LABEL_BYTES = 4096 };

/* draw.io keeps the label of an edge in the edge or in vertices that lie in it. */
static keel_status join_labels(drawing *d) {
    for (int i = 0; i < d->n_cells; i++) {
        const drawing_cell *c = &d->cells[i];
        if (!c->vertex || c->edge || c->parent < 0 || !d->cells[c->parent].edge || !c->value || !*c->value) continue;
        drawing_cell *edge = &d->cells[c->parent];
        const char *before = edge->value ? edge->value : "";
        if (strlen(before) > EDGE_LABEL_BYTES || strlen(c->value) > EDGE_LABEL_BYTES) continue; /* refused below */
        edge->value = arena_printf(&d->arena, "%s %s", before, c->value);
        if (!edge->value) return drawing_nomem(d);
        d->text_bytes += strlen(edge->value);
        if (d->text_bytes > DRAWING_TEXT) {
            return error_set(d->err, KEEL_RANGE, "%s: the edges have too many labels, more than %d MB", d->file,
                             DRAWING_TEXT >> 20);
        }
    }
    return KEEL_OK;
}

/* ---- ends ------------------------------------------------------------------------------------------- */

static const char *node_text(const drawing_node *n) { return n->name ? n->name : "?"; }

/* " (it begins at NAME)": where the edge is, when one end is lost. "" where the other one is lost, too. */
static const char *other_end(drawing *d, int at, const char *does, char *out, size_t cap) {
    char shown[64];
    out[0] = '\0';
    if (at < 0 || !d->cells[at].vertex) return out;
    int node = d->cells[at].node;
    char *text = node >= 0 ? NULL : drawing_text(&d->arena, d->cells[at].value ? d->cells[at].value : "");
    if (node < 0 && !text) d->faults.failed = true;
    if (node < 0 && !text) return out;
    if (text) text += strspn(text, " \t\r\n");
    if (text) text[strcspn(text, "\r\n")] = '\0';
    drawing_show(text ? text : node_text(&d->nodes[node]), shown, sizeof shown);
    if (*shown) snprintf(out, cap, " (it %s at %s)", does, shown);
    return out;
}

/* The node at one end; −1 after a fault, or where the vertex there already has one. */
static int end_node(drawing *d, int cell, bool source) {
    const drawing_cell *c = &d->cells[cell];
    const char *id = source ? c->source_id : c->target_id, *what = source ? "source" : "target";
    int at = source ? c->source : c->target;
    char shown[64], other[96];
    if (at >= 0 && d->cells[at].node >= 0) return d->cells[at].node;
    if (drawing_faults_full(d)) { /* is counted, not shown */
        other[0] = '\0';
    } else {
        other_end(d, source ? c->target : c->source, source ? "ends" : "begins", other, sizeof other);
    }
    if (!id) {
        FAULT(d, cell, "the edge has no %s%s; connect both of its ends", what, other);
    } else if (at < 0) {
        FAULT(d, cell, "its %s, cell %s, is not on this page%s", what, drawing_show(id, shown, sizeof shown), other);
    } else if (!d->cells[at].vertex || (d->cells[at].parent >= 0 && d->cells[d->cells[at].parent].edge)) {
        FAULT(d, cell, "its %s, cell %s, is no vertex%s", what, drawing_show(id, shown, sizeof shown), other);
    }
    return -1;
}

static bool ends_fit(drawing *d, int cell, const drawing_node *from, const drawing_node *to) {
    if (from->kind == DRAWING_MODEL || to->kind == DRAWING_MODEL) return false;
    if (to->kind != DRAWING_OP) {
        FAULT(d, cell, "the edge ends at %.60s, which reads nothing; edges end at ops", node_text(to));
        return false;
    }
    if (from->desc && from->desc->n_out == 0) {
        FAULT(d, cell, "the edge begins at %.60s, and %s has no output", node_text(from), from->desc->name);
        return false;
    }
    if (to->desc && to->desc->max_in == 0) {
        FAULT(d, cell, "the edge ends at %.60s, and %s has no inputs", node_text(to), to->desc->name);
        return false;
    }
    return true;
}

/* ---- labels ----------------------------------------------------------------------------------------- */

/* In place: spaces at the ends off. */
static char *trim(char *text) {
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n && strchr(" \t\r\n", text[n - 1])) n--;
    text[n] = '\0';
    return text;
}

/* Cuts "tensor → slot" in two; NULL without a slot. */
static char *cut_slot(char *text) {
    for (size_t i = strlen(text); i-- > 0;) {
        bool arrow = strncmp(text + i, "\u2192", 3) == 0;
        if (!arrow && text[i] != '>' && text[i] != ':') continue;
        char *slot = trim(text + i + (arrow ? 3 : 1));
        bool dash = text[i] == '>' && i && text[i - 1] == '-';
        text[dash ? i - 1 : i] = '\0';
        return slot;
    }
    return NULL;
}

static int slot_of(const op_desc *desc, const char *name) {
    for (int i = 0; i < desc->max_in; i++) {
        if (desc->in_name[i] && strcasecmp(desc->in_name[i], name) == 0) return i;
    }
    return name[0] >= '0' && name[0] < '0' + desc->max_in && !name[1] ? name[0] - '0' : -1;
}

/* Which output of the node a tensor's name means; −1: it is none of it. A name stands with its layers or without. */
static int output_of(const drawing_node *n, const char *text) {
    const char *rest, *dot;
    drawing_range r;
    if (!n->name) return 0;
    drawing_match m = drawing_prefix_of(text, &r, &rest);
    if (m == DRAWING_MALFORMED) return -1;
    if (m == DRAWING_YES && (r.first != n->layers.first || r.last != n->layers.last)) return -1;
    size_t bytes = strlen(n->name);
    bool known = strncmp(rest, n->name, bytes) == 0;
    if (known && !rest[bytes]) return n->ref_output > 0 && n->kind == DRAWING_REF ? n->ref_output : 0;
    dot = rest + bytes;
    int outputs = n->desc ? n->desc->n_out : GRAPH_OUT;
    return known && dot[0] == '.' && dot[1] >= '0' && dot[1] < '0' + outputs && !dot[2] ? dot[1] - '0' : -1;
}

/* "q, k, v" */
static const char *slots_text(const op_desc *desc, char *out, size_t cap) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < desc->max_in && used < cap; i++) {
        used +=
            (size_t)snprintf(out + used, cap - used, "%s%s", i ? ", " : "", desc->in_name[i] ? desc->in_name[i] : "?");
    }
    return out;
}

/* alone: the text may have been meant as a slot of that kind; NULL. */
static void fault_tensor(drawing *d, int cell, const drawing_node *from, const char *text, const op_desc *alone) {
    char shown[64], known[160];
    if (from->desc && from->desc->n_out > 1) {
        FAULT(d, cell, "the label must say which of %.60s.0 to .%d the edge is", node_text(from),
              from->desc->n_out - 1);
    } else if (alone) {
        FAULT(d, cell, "the label says %s, but the edge begins at %.60s, and %s has no slot %s: %s",
              drawing_show(text, shown, sizeof shown), node_text(from), alone->name, shown,
              slots_text(alone, known, sizeof known));
    } else {
        FAULT(d, cell, "the label says %s, but the edge begins at %.60s", drawing_show(text, shown, sizeof shown),
              node_text(from));
    }
}

static void fault_slot(drawing *d, int cell, const op_desc *desc, const char *slot) {
    char shown[64], known[160];
    FAULT(d, cell, "%s has no slot \"%s\"; it has: %s", desc->name, drawing_show(slot, shown, sizeof shown),
          slots_text(desc, known, sizeof known));
}

/* "tensor", "tensor → slot", "→ slot", a slot alone, or nothing. False after a fault. */
static bool read_label(drawing *d, drawing_edge *e, char *text) {
    const drawing_node *from = &d->nodes[e->source], *to = &d->nodes[e->target];
    char *slot = cut_slot(text);
    text = trim(text);
    int only = to->desc ? slot_of(to->desc, text) : -1, output = *text ? output_of(from, text) : 0;
    if (output < 0 && !slot && only >= 0) {
        e->slot = only;
        *text = '\0';
        output = 0;
    }
    bool several = from->desc && from->desc->n_out > 1;
    const char *suffix = *text ? strrchr(text, '.') : NULL;
    if (output < 0 || (several && (!suffix || suffix[1] != '0' + output || suffix[2]))) {
        fault_tensor(d, e->cell, from, text, slot ? NULL : to->desc);
        return false;
    }
    e->output = output;
    if (from->kind == DRAWING_REF && !*text && from->ref_output > 0) e->output = from->ref_output;
    if (!to->desc) return true;
    if (slot && *slot) {
        e->slot = slot_of(to->desc, slot);
        if (e->slot < 0) fault_slot(d, e->cell, to->desc, slot);
        return e->slot >= 0;
    }
    if (to->desc->max_in == 1) e->slot = 0;
    return true;
}

/* ---- edges ------------------------------------------------------------------------------------------ */

static bool in_layers(const drawing *d, int node) { return d->nodes[node].layers.first >= 0; }

/* An edge that is left out: who hangs on it is not to be judged. */
static void lose(drawing *d, const drawing_edge *e) {
    if (e->source >= 0) d->nodes[e->source].excused = true;
    if (e->target >= 0) d->nodes[e->target].bad = true;
    d->lost |= e->source < 0 || e->target < 0 || in_layers(d, e->source) || in_layers(d, e->target);
}

static keel_status edge(drawing *d, int cell) {
    const drawing_cell *c = &d->cells[cell];
    KEEL_TRY(DRAWING_GROW(d, d->edges, d->n_edges, d->cap_edges));
    drawing_edge *e = &d->edges[d->n_edges];
    *e = (drawing_edge){.cell = cell, .slot = -1};
    e->source = end_node(d, cell, true);
    e->target = end_node(d, cell, false);
    bool fine = e->source >= 0 && e->target >= 0 && ends_fit(d, cell, &d->nodes[e->source], &d->nodes[e->target]);
    if (c->value && strlen(c->value) > 2 * EDGE_LABEL_BYTES + 1) {
        FAULT(d, cell, "the label is longer than %d bytes", EDGE_LABEL_BYTES);
        fine = false;
    } else if (fine) {
        char *text = drawing_text(&d->arena, c->value ? c->value : "");
        if (!text) return drawing_nomem(d);
        fine = read_label(d, e, text);
    }
    if (e->source >= 0) d->nodes[e->source].readers++;
    if (!fine) lose(d, e);
    if (fine) d->n_edges++;
    return KEEL_OK;
}

/* d->edge_order, and in each node where its edges stand there. */
static keel_status sort_edges(drawing *d) {
    d->edge_order = mem_alloc(((size_t)d->n_edges + 1) * sizeof *d->edge_order);
    if (!d->edge_order) return drawing_nomem(d);
    for (int i = 0; i < d->n_edges; i++) d->nodes[d->edges[i].target].n_edges++;
    for (int i = 0, at = 0; i < d->n_nodes; i++) {
        d->nodes[i].edges = at;
        at += d->nodes[i].n_edges;
        d->nodes[i].n_edges = 0;
    }
    for (int i = 0; i < d->n_edges; i++) {
        drawing_node *n = &d->nodes[d->edges[i].target];
        d->edge_order[n->edges + n->n_edges++] = i;
    }
    for (int i = 0; i < d->n_nodes; i++) {
        drawing_node *n = &d->nodes[i];
        if (n->n_edges <= DRAWING_EDGES_IN) continue;
        FAULT(d, n->cell, "%d edges end here", n->n_edges);
        n->bad = true;
    }
    return KEEL_OK;
}

keel_status drawing_edges(drawing *d) {
    KEEL_TRY(join_labels(d));
    for (int i = 0; i < d->n_cells; i++) {
        if (d->cells[i].edge) KEEL_TRY(edge(d, i));
    }
    for (int i = 0; i < d->n_nodes; i++) {
        const drawing_node *n = &d->nodes[i];
        if (n->kind == DRAWING_REF && !n->readers && !n->bad) FAULT(d, n->cell, "no edge begins at this ref");
    }
    return sort_edges(d);
}
