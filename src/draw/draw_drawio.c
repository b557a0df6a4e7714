/* SPDX-License-Identifier: Apache-2.0 */
/* draw.io's file format: https://www.drawio.com/doc/faq/drawio-file-format-xml (mxfile, mxCell, styles). */
#include "draw/draw.h"
#include "draw/draw_scene.h"
#include "draw/draw_words.h"
#include "draw/draw_xml.h"

#include <stdio.h>

static const char *const family_styles[DRAW_FAMILIES] = {
    [DRAW_MODEL] = "shape=note;size=10;fillColor=#ffffff;strokeColor=#555555;",
    [DRAW_CONST] = "dashed=1;fillColor=#ffffff;strokeColor=#808080;",
    [DRAW_CACHE] = "rounded=1;arcSize=30;dashed=1;fillColor=#f0e6f7;strokeColor=#9673a6;",
    [DRAW_INPUT] = "dashed=1;fillColor=#e6f5e0;strokeColor=#82b366;",
    [DRAW_LOOKUP] = "rounded=1;arcSize=8;fillColor=#d5e8d4;strokeColor=#82b366;",
    [DRAW_MATMUL] = "rounded=1;arcSize=8;fillColor=#dae8fc;strokeColor=#6c8ebf;",
    [DRAW_SCALE] = "rounded=1;arcSize=8;fillColor=#fff2cc;strokeColor=#d6b656;",
    [DRAW_ATTENTION] = "rounded=1;arcSize=8;fillColor=#e1d5e7;strokeColor=#9673a6;",
    [DRAW_COLLECTIVE] = "rounded=1;arcSize=8;fillColor=#ffe6cc;strokeColor=#d79b00;",
    [DRAW_ARITHMETIC] = "rounded=1;arcSize=8;fillColor=#f5f5f5;strokeColor=#666666;",
    [DRAW_TOKEN] = "rounded=1;arcSize=8;fillColor=#f8cecc;strokeColor=#b85450;",
};

/* The label as HTML in an attribute: the name bold, lines broken. */
static void put_label(buf *out, const char *text) {
    size_t n = strcspn(text, "\n");
    buf_str(out, "&lt;b&gt;");
    draw_put_escaped(out, text, n, 2);
    buf_str(out, "&lt;/b&gt;");
    for (text += n; *text; text += n) {
        n = strcspn(++text, "\n");
        buf_str(out, "&lt;br&gt;");
        draw_put_escaped(out, text, n, 2);
    }
}

static void put_section(buf *out, const draw_section *d, int index) {
    buf_printf(out, "        <mxCell id=\"g%d\" value=\"", index);
    draw_put_escaped(out, d->label, strlen(d->label), 1);
    buf_printf(out,
               "\" style=\"swimlane;startSize=%d;collapsible=0;align=left;spacingLeft=%d;fontStyle=1;fontSize=%d;"
               "fillColor=#eeeeee;swimlaneFillColor=#fcfcfc;strokeColor=#999999;\" vertex=\"1\" parent=\"1\">\n"
               "          <mxGeometry x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" as=\"geometry\"/>\n"
               "        </mxCell>\n",
               DRAW_HEADER, d->label_x - d->x, DRAW_FONT + 1, d->x, d->y, d->w, d->h);
}

/* Children of a container have their place relative to it. */
static void put_node(buf *out, const draw_scene *s, int index) {
    const draw_node *n = &s->nodes[index];
    const draw_section *d = &s->sections[n->section];
    bool inside = n->contained && d->label;
    char parent[16] = "1";
    if (inside) snprintf(parent, sizeof parent, "g%d", n->section);
    buf_printf(out, "        <mxCell id=\"v%d\" value=\"", index);
    put_label(out, n->text);
    buf_printf(out,
               "\" style=\"html=1;align=left;verticalAlign=middle;spacing=%d;fontSize=%d;%s\" vertex=\"1\" "
               "parent=\"%s\">\n"
               "          <mxGeometry x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" as=\"geometry\"/>\n"
               "        </mxCell>\n",
               DRAW_PAD / 2, DRAW_FONT, family_styles[n->family], parent, inside ? n->x - d->x : n->x,
               inside ? n->y - d->y : n->y, n->w, n->h);
}

static int distance(const draw_point *a, const draw_point *b) {
    int dx = a->x - b->x, dy = a->y - b->y;
    return (dx < 0 ? -dx : dx) + (dy < 0 ? -dy : dy);
}

/* A label's place is a fraction of the line's length, −1 … 1; it stands on the last piece, which comes down. */
static double label_position(const draw_edge *e) {
    int length = 0;
    for (int i = 1; i < e->n_points; i++) length += distance(&e->point[i - 1], &e->point[i]);
    int left = e->point[e->n_points - 1].y - e->text.y;
    return length ? 1 - 2.0 * left / length : 0;
}

static void put_edge(buf *out, const draw_scene *s, int index) {
    const draw_edge *e = &s->edges[index];
    const draw_node *from = &s->nodes[e->from], *to = &s->nodes[e->to];
    const draw_point *first = &e->point[0], *last = &e->point[e->n_points - 1];
    bool source = from->family == DRAW_CONST || from->family == DRAW_CACHE || from->family == DRAW_INPUT;
    buf_printf(out, "        <mxCell id=\"e%d\" value=\"", index);
    draw_put_escaped(out, e->label, strlen(e->label), 2);
    buf_printf(out,
               "\" style=\"edgeStyle=orthogonalEdgeStyle;rounded=1;arcSize=6;html=1;endArrow=block;endSize=4;endFill=1;"
               "%sstrokeColor=%s;fontSize=%d;align=left;labelBackgroundColor=#ffffff;exitX=%.6g;exitY=1;exitDx=0;"
               "exitDy=0;entryX=%.6g;entryY=0;entryDx=0;entryDy=0;\" edge=\"1\" parent=\"1\" source=\"v%d\" "
               "target=\"v%d\">\n",
               source ? "dashed=1;" : "", e->back ? "#b85450" : "#666666", DRAW_EDGE_FONT,
               (double)(first->x - from->x) / from->w, (double)(last->x - to->x) / to->w, e->from, e->to);
    buf_printf(out, "          <mxGeometry x=\"%.4f\" relative=\"1\" as=\"geometry\">\n", label_position(e));
    if (e->n_points > 2) {
        buf_str(out, "            <Array as=\"points\">\n");
        for (int i = 1; i + 1 < e->n_points; i++) {
            buf_printf(out, "              <mxPoint x=\"%d\" y=\"%d\"/>\n", e->point[i].x, e->point[i].y);
        }
        buf_str(out, "            </Array>\n");
    }
    buf_str(out, "            <mxPoint x=\"4\" as=\"offset\"/>\n          </mxGeometry>\n        </mxCell>\n");
}

static void put_drawio(buf *out, const draw_scene *s) {
    buf_printf(
        out,
        "<mxfile host=\"keel\">\n  <diagram id=\"graph\" name=\"graph\">\n"
        "    <mxGraphModel dx=\"0\" dy=\"0\" grid=\"0\" gridSize=\"10\" guides=\"1\" tooltips=\"1\" connect=\"1\" "
        "arrows=\"1\" fold=\"1\" page=\"0\" pageScale=\"1\" pageWidth=\"%d\" pageHeight=\"%d\" math=\"0\" "
        "shadow=\"0\">\n      <root>\n        <mxCell id=\"0\"/>\n        <mxCell id=\"1\" parent=\"0\"/>\n",
        s->w, s->h);
    for (int i = 0; i < s->n_sections; i++) {
        const draw_section *d = &s->sections[i];
        if (d->label) put_section(out, d, i);
        for (int k = 0; k < d->node_count; k++) put_node(out, s, d->node_first + k);
    }
    for (int i = 0; i < s->n_edges; i++) put_edge(out, s, i);
    buf_str(out, "      </root>\n    </mxGraphModel>\n  </diagram>\n</mxfile>\n");
}

keel_status draw_drawio(const graph *g, const draw_options *options, buf *out, keel_error *err) {
    draw_scene s;
    KEEL_TRY(draw_words_check(g, err));
    KEEL_TRY(draw_scene_of(g, options && options->fold, &s, err));
    put_drawio(out, &s);
    draw_scene_free(&s);
    return out->failed ? KEEL_NOMEM_AT(err, "drawing") : KEEL_OK;
}
