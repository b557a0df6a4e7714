/* SPDX-License-Identifier: Apache-2.0 */
/* Cells → nodes: who is the parent of whom, what each vertex is, and in which layers it lies. */
#include "draw/drawing_internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DEPTH_MAX = 64, NAME_MAX_BYTES = 200 };

/* ---- ids -------------------------------------------------------------------------------------------- */

static int find_cell(const names *ids, const char *id) { return id ? names_find(ids, NAMES_OP, id) : -1; }

/* Ids are unique within a page; [from, to) are a page's cells. */
static keel_status link_page(drawing *d, names *ids, int from, int to) {
    for (int i = from; i < to; i++) {
        const char *id = d->cells[i].id;
        if (!id) continue;
        if (names_find(ids, NAMES_OP, id) >= 0) {
            FAULT(d, i, "two cells of the page have this id");
        } else if (!names_put(ids, NAMES_OP, id, i)) {
            return drawing_nomem(d);
        }
    }
    for (int i = from; i < to; i++) {
        drawing_cell *c = &d->cells[i];
        c->parent = find_cell(ids, c->parent_id);
        if (c->parent >= 0 && c->vertex) d->cells[c->parent].holds = true;
        if (!c->edge) continue;
        c->source = find_cell(ids, c->source_id);
        c->target = find_cell(ids, c->target_id);
        if (c->source >= 0) d->cells[c->source].begins = true;
        if (c->target >= 0) d->cells[c->target].ends = true;
    }
    return KEEL_OK;
}

static keel_status link_cells(drawing *d) {
    for (int from = 0, to; from < d->n_cells; from = to) {
        for (to = from; to < d->n_cells && d->cells[to].page == d->cells[from].page;) to++;
        names *ids = names_new();
        keel_status s = ids ? link_page(d, ids, from, to) : drawing_nomem(d);
        names_free(ids);
        KEEL_TRY(s);
    }
    return KEEL_OK;
}

/* ---- what a vertex is ------------------------------------------------------------------------------- */

static const char *word_of(const drawing *d, const char *key) {
    for (int i = 0; i < d->n_words; i++) {
        if (d->words[i].key && !d->words[i].slot && strcmp(d->words[i].key, key) == 0) return d->words[i].value;
    }
    return NULL;
}

/* Words that no text has by chance: the vertex was meant to be more. */
static bool says_something(const drawing *d) {
    static const char *const keys[] = {"in", "out", "w", "shard", "collective", "values"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (word_of(d, keys[i])) return true;
    }
    return false;
}

/* What edges do at a vertex that takes none. */
static const char *edge_does(const drawing_cell *c) {
    return c->begins && c->ends ? "edges begin and end" : c->begins ? "an edge begins" : "an edge ends";
}

/* A vertex without kind=: a group of a layer, or decoration. */
static void plain_vertex(drawing *d, int cell, const char *text) {
    drawing_cell *c = &d->cells[cell];
    text += strspn(text, " \t\r\n");
    char line[64];
    size_t bytes = strcspn(text, "\n");
    snprintf(line, sizeof line, "%.*s", bytes < sizeof line ? (int)bytes : 0, text);
    drawing_range layers;
    drawing_match m = drawing_layers_of(line, &layers);
    if (m == DRAWING_MALFORMED)
        FAULT(d, cell, "a group of layers is called l3 or l{0-29}, numbers below %d", DRAWING_LAYERS);
    if (m == DRAWING_YES) c->layers = layers;
    c->unread = m == DRAWING_MALFORMED;
    if ((c->begins || c->ends) && (m != DRAWING_NO || c->holds)) {
        FAULT(d, cell, "%s at this group; edges go from op to op", edge_does(c));
    } else if (c->begins || c->ends) {
        FAULT(d, cell, "%s here, but the label has no kind=", edge_does(c));
    } else if (says_something(d)) {
        FAULT(d, cell, "kind= is missing");
    }
}

static void fault_kind(drawing *d, int cell, const char *kind) {
    char known[KEEL_ERROR_DETAIL_BYTES / 4] = "model, const, cache, input, ref";
    size_t used = strlen(known);
    for (unsigned i = 0; i < op_registry_count && used < sizeof known; i++) {
        if (strcmp(op_registry[i]->name, "step_begin") == 0) continue;
        used += (size_t)snprintf(known + used, sizeof known - used, ", %s", op_registry[i]->name);
    }
    if (strcasecmp(kind, "step_begin") == 0) {
        FAULT(d, cell, "kind=step_begin is not drawn: every graph begins with it");
    } else if (d->kinds_listed) {
        drawing_fault(d, cell, KEEL_UNSUPPORTED, "kind=%.40s is unknown", kind);
    } else {
        drawing_fault(d, cell, KEEL_UNSUPPORTED, "kind=%.40s is unknown; known: %s", kind, known);
        d->kinds_listed = true;
    }
}

static void set_kind(drawing *d, drawing_node *n, const char *kind) {
    static const struct {
        const char *name;
        drawing_kind kind;
    } table[] = {{"model", DRAWING_MODEL},
                 {"const", DRAWING_CONST},
                 {"cache", DRAWING_CACHE},
                 {"input", DRAWING_INPUT},
                 {"ref", DRAWING_REF}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        n->kind = table[i].kind;
        if (strcasecmp(table[i].name, kind) == 0) return;
    }
    n->kind = DRAWING_OP;
    for (unsigned i = 0; i < op_registry_count; i++) {
        if (strcasecmp(op_registry[i]->name, kind) == 0) n->desc = op_registry[i];
    }
    if (n->desc && strcmp(n->desc->name, "step_begin") == 0) n->desc = NULL;
    n->bad = !n->desc;
    if (n->bad) fault_kind(d, n->cell, kind);
}

static void check_name(drawing *d, drawing_node *n, bool crowded) {
    if (n->kind == DRAWING_MODEL) return;
    if (!n->name) {
        FAULT(d, n->cell, "the first line must be the name");
    } else if (crowded) {
        FAULT(d, n->cell, "the first line must be the name alone: one word");
    } else if (!drawing_plain(n->name, NAME_MAX_BYTES)) {
        FAULT(d, n->cell, "the name is longer than %d bytes or has control characters", NAME_MAX_BYTES);
    } else {
        return;
    }
    n->bad = true;
    n->name = NULL;
}

static void set_model(drawing *d, int node) {
    const drawing_cell *c = &d->cells[d->nodes[node].cell];
    if (c->begins || c->ends) FAULT(d, d->nodes[node].cell, "%s at the model vertex", edge_does(c));
    if (d->model >= 0) FAULT(d, d->nodes[node].cell, "a second kind=model; a drawing has one");
    d->model = node;
}

/* Label → d->text, NULL where it is too long to be read. */
static keel_status take_text(drawing *d, int cell, const char **out) {
    const char *value = d->cells[cell].value ? d->cells[cell].value : "";
    size_t bytes = strlen(value);
    *out = NULL;
    if (bytes > DRAWING_HTML) {
        drawing_fault(d, cell, KEEL_RANGE, "the label is longer than %d MB", DRAWING_HTML >> 20);
        return KEEL_OK;
    }
    while ((size_t)d->cap_text < bytes + 1) KEEL_TRY(DRAWING_GROW(d, d->text, d->cap_text, d->cap_text));
    d->text_bytes += bytes = drawing_text_into(d->text, value);
    if (d->text_bytes > DRAWING_TEXT) {
        return error_set(d->err, KEEL_RANGE,
                         "%s: the labels have more than %d MB of text; draw repeated layers once (layer*N)", d->file,
                         DRAWING_TEXT >> 20);
    }
    if (bytes <= DRAWING_CONST_LABEL) {
        *out = d->text;
    } else {
        drawing_fault(d, cell, KEEL_RANGE, "the label has more than %d KB of text, and no const needs so much",
                      DRAWING_CONST_LABEL >> 10);
    }
    return KEEL_OK;
}

/* Whether a label is one that a person or a writer makes; else a fault. */
static bool check_length(drawing *d, int cell, bool values) {
    if (d->n_words > DRAWING_WORDS) {
        drawing_fault(d, cell, KEEL_RANGE, "the label has more than %d words", DRAWING_WORDS);
    } else if (!values && strlen(d->text) > DRAWING_LABEL) {
        drawing_fault(d, cell, KEEL_RANGE, "the label has more than %d KB of text; only a const may, up to %d",
                      DRAWING_LABEL >> 10, DRAWING_CONST_LABEL >> 10);
    } else {
        return true;
    }
    return false;
}

static keel_status vertex(drawing *d, int cell) {
    const char *name, *text;
    bool crowded;
    KEEL_TRY(take_text(d, cell, &text));
    if (!text) return KEEL_OK;
    KEEL_TRY(drawing_words(d, text, &name, &crowded));
    const char *kind = word_of(d, "kind");
    if (!check_length(d, cell, kind && strcasecmp(kind, "const") == 0)) return KEEL_OK;
    if (!kind) {
        plain_vertex(d, cell, text);
        return KEEL_OK;
    }
    KEEL_TRY(DRAWING_GROW(d, d->nodes, d->n_nodes, d->cap_nodes));
    drawing_node *n = &d->nodes[d->n_nodes];
    *n = (drawing_node){.cell = cell, .name = name, .layers = {-1, -1}, .instance = -1};
    d->cells[cell].node = d->n_nodes++;
    set_kind(d, n, kind);
    check_name(d, n, crowded);
    if (n->kind == DRAWING_MODEL) set_model(d, d->n_nodes - 1);
    return n->kind == DRAWING_OP && !n->desc ? KEEL_OK : drawing_label(d, n);
}

/* ---- layers ----------------------------------------------------------------------------------------- */

static bool same_range(drawing_range a, drawing_range b) { return a.first == b.first && a.last == b.last; }

static void show_range(drawing_range r, char *out, size_t cap) {
    snprintf(out, cap, r.first == r.last ? "l%d" : "l{%d-%d}", r.first, r.last);
}

/* One more place that says in which layers the node lies. */
static void join_layers(drawing *d, drawing_node *n, drawing_range r, const char *place) {
    if (r.first < 0) return;
    if (n->layers.first < 0) n->layers = r;
    if (same_range(n->layers, r) || n->bad) return;
    char mine[32], other[32];
    show_range(n->layers, mine, sizeof mine);
    show_range(r, other, sizeof other);
    FAULT(d, n->cell, "it is in %s, but %s says %s", mine, place, other);
    n->bad = d->lost = true;
}

void drawing_unplace(drawing *d, drawing_node *n) { n->bad = n->unplaced = d->unplaced = d->lost = true; }

/* The name's own prefix, the groups around, the page: what they say must be one. */
static void set_layers(drawing *d, drawing_node *n) {
    const char *rest;
    if (n->kind == DRAWING_MODEL) return;
    drawing_match m = n->name ? drawing_prefix_of(n->name, &n->layers, &rest) : DRAWING_NO;
    if (m == DRAWING_MALFORMED) {
        FAULT(d, n->cell, "expected l3.NAME or l{0-29}.NAME, from a lower layer to a higher one below %d",
              DRAWING_LAYERS);
        drawing_unplace(d, n);
        return;
    }
    n->prefixed = m == DRAWING_YES;
    if (n->name) n->name = rest;
    if (n->kind == DRAWING_REF && n->prefixed) return; /* it may name a tensor of other layers */
    int depth = 0, p = d->cells[n->cell].parent;
    bool unread = d->pages[d->cells[n->cell].page].unread;
    for (; p >= 0 && depth < DEPTH_MAX; depth++, p = d->cells[p].parent) {
        join_layers(d, n, d->cells[p].layers, "its group");
        unread |= d->cells[p].unread;
    }
    if (p >= 0) {
        FAULT(d, n->cell, "groups lie in each other more than %d deep", DEPTH_MAX);
        n->bad = true;
    }
    join_layers(d, n, d->pages[d->cells[n->cell].page].layers, "its page");
    if (unread && n->layers.first < 0 && n->kind != DRAWING_REF) drawing_unplace(d, n);
}

keel_status drawing_nodes(drawing *d) {
    d->model = -1;
    for (int i = 0; i < d->n_cells; i++) d->cells[i].layers = (drawing_range){-1, -1};
    KEEL_TRY(link_cells(d));
    drawing_pages(d);
    for (int i = 0; i < d->n_cells; i++) {
        const drawing_cell *c = &d->cells[i];
        bool edge_label = c->parent >= 0 && d->cells[c->parent].edge;
        if (c->vertex && !c->edge && !edge_label) KEEL_TRY(vertex(d, i));
    }
    for (int i = 0; i < d->n_nodes; i++) set_layers(d, &d->nodes[i]);
    return drawing_strange_pages(d);
}
