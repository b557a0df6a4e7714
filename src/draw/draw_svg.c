/* SPDX-License-Identifier: Apache-2.0 */
#include "draw/draw.h"
#include "draw/draw_scene.h"
#include "draw/draw_xml.h"

typedef struct paint {
    const char *fill, *stroke;
    bool dashed;
} paint;

static const paint family_paints[DRAW_FAMILIES] = {
    [DRAW_MODEL] = {"#ffffff", "#555555", false},      [DRAW_CONST] = {"#ffffff", "#808080", true},
    [DRAW_CACHE] = {"#f0e6f7", "#9673a6", true},       [DRAW_INPUT] = {"#e6f5e0", "#82b366", true},
    [DRAW_LOOKUP] = {"#d5e8d4", "#82b366", false},     [DRAW_MATMUL] = {"#dae8fc", "#6c8ebf", false},
    [DRAW_SCALE] = {"#fff2cc", "#d6b656", false},      [DRAW_ATTENTION] = {"#e1d5e7", "#9673a6", false},
    [DRAW_COLLECTIVE] = {"#ffe6cc", "#d79b00", false}, [DRAW_ARITHMETIC] = {"#f5f5f5", "#666666", false},
    [DRAW_TOKEN] = {"#f8cecc", "#b85450", false},
};

static void put_section(buf *out, const draw_section *d) {
    buf_printf(out,
               "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#fcfcfc\" stroke=\"#999999\"/>\n"
               "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#eeeeee\" stroke=\"#999999\"/>\n"
               "<text x=\"%d\" y=\"%d\" font-size=\"%d\" font-weight=\"bold\">",
               d->x, d->y, d->w, d->h, d->x, d->y, d->w, DRAW_HEADER, d->label_x, d->y + DRAW_HEADER - 8,
               DRAW_FONT + 1);
    draw_put_escaped(out, d->label, strlen(d->label), 1);
    buf_str(out, "</text>\n");
}

static void put_line(buf *out, const draw_edge *e, bool dashed) {
    buf_printf(out, "<polyline fill=\"none\" stroke=\"%s\" marker-end=\"url(#%s)\"%s points=\"",
               e->back ? "#b85450" : "#666666", e->back ? "back" : "arrow", dashed ? " stroke-dasharray=\"3 2\"" : "");
    for (int i = 0; i < e->n_points; i++) buf_printf(out, "%s%d,%d", i ? " " : "", e->point[i].x, e->point[i].y);
    buf_str(out, "\"/>\n");
}

/* On a white ground, so that lines behind it do not disturb. */
static void put_edge_label(buf *out, const draw_edge *e) {
    buf_printf(out,
               "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#ffffff\" fill-opacity=\"0.85\"/>"
               "<text x=\"%d\" y=\"%d\" font-size=\"%d\" fill=\"#333333\">",
               e->text.x - 2, e->text.y - DRAW_EDGE_FONT / 2 - 1, e->text_w, DRAW_EDGE_FONT + 2, e->text.x,
               e->text.y + DRAW_EDGE_FONT / 3, DRAW_EDGE_FONT);
    draw_put_escaped(out, e->label, strlen(e->label), 1);
    buf_str(out, "</text>\n");
}

static void put_node(buf *out, const draw_node *n) {
    const paint *p = &family_paints[n->family];
    int y = n->y + DRAW_PAD + DRAW_LINE_H - 3;
    buf_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" stroke=\"%s\"%s/>\n", n->x,
               n->y, n->w, n->h, p->fill, p->stroke, p->dashed ? " stroke-dasharray=\"3 2\"" : "");
    for (const char *at = n->text; at; y += DRAW_LINE_H) {
        size_t bytes = strcspn(at, "\n");
        buf_printf(out, "<text x=\"%d\" y=\"%d\"%s>", n->x + DRAW_PAD, y, at == n->text ? " font-weight=\"bold\"" : "");
        draw_put_escaped(out, at, bytes, 1);
        buf_str(out, "</text>\n");
        at = at[bytes] ? at + bytes + 1 : NULL;
    }
}

static void put_marker(buf *out, const char *id, const char *colour) {
    buf_printf(out,
               "<marker id=\"%s\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" "
               "orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"%s\"/></marker>\n",
               id, colour);
}

static bool is_source(const draw_node *n) {
    return n->family == DRAW_CONST || n->family == DRAW_CACHE || n->family == DRAW_INPUT;
}

static void put_svg(buf *out, const draw_scene *s) {
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
               "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"%d\">\n<defs>\n",
               s->w, s->h, s->w, s->h, DRAW_FONT);
    put_marker(out, "arrow", "#666666");
    put_marker(out, "back", "#b85450");
    buf_printf(out, "</defs>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", s->w, s->h);
    for (int i = 0; i < s->n_sections; i++) {
        if (s->sections[i].label) put_section(out, &s->sections[i]);
    }
    for (int i = 0; i < s->n_edges; i++) put_line(out, &s->edges[i], is_source(&s->nodes[s->edges[i].from]));
    for (int i = 0; i < s->n_edges; i++) put_edge_label(out, &s->edges[i]);
    for (int i = 0; i < s->n_nodes; i++) put_node(out, &s->nodes[i]);
    buf_str(out, "</svg>\n");
}

keel_status draw_svg(const graph *g, const draw_options *options, buf *out, keel_error *err) {
    draw_scene s;
    KEEL_TRY(draw_scene_of(g, options && options->fold, &s, err));
    put_svg(out, &s);
    draw_scene_free(&s);
    return out->failed ? KEEL_NOMEM_AT(err, "drawing") : KEEL_OK;
}
