/* SPDX-License-Identifier: Apache-2.0 */
#include "draw/draw_scene.h"

#include "core/mem.h"
#include "draw/draw_words.h"
#include "graph/graph_text.h"

#include <string.h>

/* Widths of the characters 32 … 126 in thousandths of the font size: Adobe's Helvetica.afm. */
static const short helvetica[] = {278,  278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,
                                  556,  556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
                                  1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
                                  667,  778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,
                                  333,  556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,
                                  556,  556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584};

int draw_text_width(const char *text, size_t bytes, int font) {
    int64_t sum = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 32 && c <= 126) {
            sum += helvetica[c - 32];
        } else if ((c & 0xc0) != 0x80) {
            sum += 1000; /* as wide as any: arrows, letters of other scripts */
        }
    }
    /* where Helvetica is missing, what stands in may be a fifth wider (DejaVu Sans), bold a little more */
    return (int)((sum * font * 5 / 4 + 999) / 1000);
}

/* Scratch while a scene is made. source_node[tensor]: node + 1 of a const, cache or input. */
typedef struct maker {
    const graph *g;
    const fold *f;
    draw_scene *s;
    int *op_node;     /* [n_ops] of the ops that are drawn */
    int *source_node; /* [n_tensors + 1] */
    keel_error *err;
} maker;

static keel_status nomem(const maker *m) { return KEEL_NOMEM_AT(m->err, "drawing"); }

/* The finished text, in the scene's arena; frees b. */
static keel_status keep_text(maker *m, buf *b, const char **out) {
    *out = b->failed ? NULL : arena_strndup(&m->s->arena, (const char *)b->data, b->len);
    buf_free(b);
    return *out ? KEEL_OK : nomem(m);
}

static void size_node(draw_node *n) {
    int lines = 0, widest = 0;
    for (const char *at = n->text;; lines++) {
        size_t bytes = strcspn(at, "\n");
        int w = draw_text_width(at, bytes, DRAW_FONT);
        if (!lines) w += w / 8; /* bold */
        if (w > widest) widest = w;
        at += bytes;
        if (!*at++) break;
    }
    n->w = (widest + 2 * DRAW_PAD + 1) & ~1; /* even, so that the middle is whole */
    n->h = (lines + 1) * DRAW_LINE_H + 2 * DRAW_PAD;
}

static keel_status add_node(maker *m, buf *text, draw_family family, bool contained) {
    draw_scene *s = m->s;
    draw_node *n = &s->nodes[s->n_nodes];
    *n = (draw_node){.family = family, .section = s->n_sections - 1, .contained = contained, .n_out = 1};
    KEEL_TRY(keep_text(m, text, &n->text));
    size_node(n);
    s->sections[s->n_sections - 1].node_count++;
    s->n_nodes++;
    return KEEL_OK;
}

static draw_family family_of(const graph *g, const graph_op *op) {
    int n_in = 0;
    draw_family by_weights = DRAW_ARITHMETIC;
    for (int i = 0; i < op->n_in; i++) {
        if (op->in[i] && graph_tensor_at(g, op->in[i])->kind == TENSOR_CACHE) return DRAW_ATTENTION;
        n_in += op->in[i] != 0;
    }
    for (int i = 0; i < op->n_weights; i++) {
        if (!op->weight[i]) continue;
        if (graph_tensor_at(g, op->weight[i])->rank > 1) {
            by_weights = DRAW_MATMUL;
        } else if (by_weights == DRAW_ARITHMETIC) {
            by_weights = DRAW_SCALE;
        }
    }
    if (op->desc->collective) return DRAW_COLLECTIVE;
    if (!op->n_out) return DRAW_TOKEN;
    return n_in ? by_weights : DRAW_LOOKUP;
}

static bool is_source(const graph_tensor *t) {
    return t->kind == TENSOR_CONST || t->kind == TENSOR_CACHE || (t->kind == TENSOR_ACTIVATION && t->producer < 0);
}

static keel_status add_source(maker *m, int tensor, const fold_range *range, bool contained) {
    const graph_tensor *t = graph_tensor_at(m->g, tensor);
    buf text = {0};
    draw_source_words(&text, m->g, tensor, range);
    draw_family family = t->kind == TENSOR_CONST ? DRAW_CONST : t->kind == TENSOR_CACHE ? DRAW_CACHE : DRAW_INPUT;
    KEEL_TRY(add_node(m, &text, family, contained));
    m->source_node[tensor] = m->s->n_nodes;
    return KEEL_OK;
}

/* The sources that this op is the first to read; those that belong to no layer, or to another one, stand outside of
 * the containers: in the first section. */
static keel_status add_sources_of(maker *m, int index, const fold_range *range, bool foreign) {
    const graph_op *op = &m->g->ops[index];
    for (int i = 0; i < op->n_in; i++) {
        int id = op->in[i];
        if (!id || m->source_node[id] || !is_source(graph_tensor_at(m->g, id))) continue;
        bool own = fold_tensor_layer(m->g, id) == op->layer;
        if (own == !foreign) KEEL_TRY(add_source(m, id, own ? range : NULL, own && op->layer >= 0));
    }
    return KEEL_OK;
}

/* A range's ops but those of its first layer are not drawn. */
static bool is_drawn(const fold_range *range, int op) { return !range || op < range->op_first + range->n_ops; }

static bool is_step(const graph *g, const graph_op *op) { return op->n_out && op->out[0] == g->step; }

static keel_status open_section(maker *m, const graph_op *op, const fold_range *range) {
    draw_scene *s = m->s;
    draw_section *d = &s->sections[s->n_sections++];
    *d = (draw_section){.node_first = s->n_nodes};
    if (op->layer < 0) return KEEL_OK;
    buf label = {0};
    if (range) {
        buf_printf(&label, "l{%d-%d}.", range->first, range->last);
    } else {
        buf_printf(&label, "l%d", op->layer);
    }
    return keep_text(m, &label, &d->label);
}

static keel_status add_op(maker *m, int index, const fold_range *range) {
    const graph_op *op = &m->g->ops[index];
    buf text = {0};
    KEEL_TRY(add_sources_of(m, index, range, false));
    draw_op_words(&text, m->g, index, range);
    KEEL_TRY(add_node(m, &text, family_of(m->g, op), op->layer >= 0));
    m->s->nodes[m->s->n_nodes - 1].n_out = op->n_out ? op->n_out : 1;
    m->op_node[index] = m->s->n_nodes - 1;
    return KEEL_OK;
}

/* The first section: the model, and what belongs to no section. */
static keel_status add_front(maker *m) {
    const graph *g = m->g;
    buf text = {0};
    m->s->sections[m->s->n_sections++] = (draw_section){0};
    draw_model_words(&text, g);
    KEEL_TRY(add_node(m, &text, DRAW_MODEL, false));
    for (int i = 0; i < g->n_ops; i++) {
        const fold_range *range = fold_of_op(m->f, i);
        if (is_drawn(range, i)) KEEL_TRY(add_sources_of(m, i, range, true));
    }
    return KEEL_OK;
}

static keel_status add_ops(maker *m) {
    const graph *g = m->g;
    int layer = -1;
    KEEL_TRY(add_front(m));
    for (int i = 0; i < g->n_ops; i++) {
        const fold_range *range = fold_of_op(m->f, i);
        if (is_step(g, &g->ops[i]) || !is_drawn(range, i)) continue;
        if (g->ops[i].layer != layer) KEEL_TRY(open_section(m, &g->ops[i], range));
        layer = g->ops[i].layer;
        KEEL_TRY(add_op(m, i, range));
    }
    return KEEL_OK;
}

/* What stands for this tensor: the node, its port, and the range (NULL without). */
static int node_of_tensor(const maker *m, int tensor, int *port, const fold_range **range, int *drawn) {
    const graph_tensor *t = graph_tensor_at(m->g, tensor);
    *port = 0;
    *range = NULL;
    *drawn = tensor;
    if (t->producer < 0) {
        const char *rest;
        int layer = graph_name_layer(t->name, &rest);
        for (int i = 0; i < m->f->n_ranges && layer >= 0; i++) {
            if (layer == m->f->ranges[i].first && m->s->nodes[m->source_node[tensor] - 1].contained)
                *range = &m->f->ranges[i];
        }
        return m->source_node[tensor] - 1;
    }
    int op = t->producer;
    *range = fold_of_op(m->f, op);
    while (m->g->ops[op].out[*port] != tensor) (*port)++;
    if (*range) op = (*range)->op_first + (op - (*range)->op_first) % (*range)->n_ops;
    *drawn = m->g->ops[op].out[*port];
    return m->op_node[op];
}

static keel_status add_edge(maker *m, int op, int slot, int tensor, bool back) {
    const op_desc *desc = m->g->ops[op].desc;
    draw_edge *e = &m->s->edges[m->s->n_edges];
    const fold_range *range;
    int drawn;
    *e = (draw_edge){.to = m->op_node[op], .back = back};
    e->from = node_of_tensor(m, tensor, &e->out_port, &range, &drawn);
    e->net = drawn;
    buf label = {0};
    draw_tensor_name(&label, m->g, drawn, range);
    if (desc->max_in > 1) {
        char name[GRAPH_TEXT_BYTES];
        graph_text_input(name, desc, slot);
        buf_printf(&label, " \xe2\x86\x92 %s", name);
    }
    KEEL_TRY(keep_text(m, &label, &e->label));
    e->text_w = draw_text_width(e->label, strlen(e->label), DRAW_EDGE_FONT) + 4;
    m->s->n_edges++;
    return KEEL_OK;
}

static keel_status add_edges(maker *m) {
    const graph *g = m->g;
    for (int i = 0; i < g->n_ops; i++) {
        const fold_range *range = fold_of_op(m->f, i);
        if (is_step(g, &g->ops[i]) || !is_drawn(range, i)) continue;
        for (int slot = 0; slot < g->ops[i].n_in; slot++) {
            int id = g->ops[i].in[slot];
            if (!id || id == g->step) continue;
            KEEL_TRY(add_edge(m, i, slot, id, false));
            if (!range || !fold_from_before(g, range, i - range->op_first, slot)) continue;
            KEEL_TRY(add_edge(m, i, slot, g->ops[i + range->n_ops].in[slot], true));
        }
    }
    m->s->n_nets = g->n_tensors + 1;
    return KEEL_OK;
}

keel_status draw_scene_make(const graph *g, const fold *f, draw_scene *out, keel_error *err) {
    draw_scene s = {0};
    maker m = {.g = g, .f = f, .s = &s, .err = err};
    size_t n_nodes = (size_t)g->n_ops + (size_t)g->n_tensors + 2, n_edges = 1;
    for (int i = 0; i < g->n_ops; i++) n_edges += 2 * (size_t)g->ops[i].n_in;
    s.nodes = arena_array(&s.arena, n_nodes, sizeof *s.nodes);
    s.sections = arena_array(&s.arena, (size_t)g->n_ops + 2, sizeof *s.sections);
    s.edges = arena_array(&s.arena, n_edges, sizeof *s.edges);
    m.op_node = mem_calloc((size_t)g->n_ops + 1, sizeof *m.op_node);
    m.source_node = mem_calloc((size_t)g->n_tensors + 1, sizeof *m.source_node);
    keel_status status = s.nodes && s.sections && s.edges && m.op_node && m.source_node ? KEEL_OK : nomem(&m);
    if (status == KEEL_OK) status = add_ops(&m);
    if (status == KEEL_OK) status = add_edges(&m);
    mem_free(m.op_node);
    mem_free(m.source_node);
    if (status == KEEL_OK) {
        *out = s;
    } else {
        draw_scene_free(&s);
    }
    return status;
}

void draw_scene_free(draw_scene *s) {
    arena_free(&s->arena);
    *s = (draw_scene){0};
}

keel_status draw_scene_of(const graph *g, bool folded, draw_scene *out, keel_error *err) {
    fold f = {0};
    draw_scene s;
    if (folded) KEEL_TRY(fold_find(g, &f, err));
    keel_status status = draw_scene_make(g, &f, &s, err);
    fold_free(&f);
    if (status != KEEL_OK) return status;
    status = draw_scene_place(&s, err);
    if (status == KEEL_OK) {
        *out = s;
    } else {
        draw_scene_free(&s);
    }
    return status;
}
