/* SPDX-License-Identifier: Apache-2.0 */
/* What a drawing of a graph shows, and where: boxes, containers and lines, before any file format. Coordinates are
 * pixels, y grows downwards, all of them whole and ≥ 0. */
#ifndef KEEL_GRAPH_DRAW_SCENE_H
#define KEEL_GRAPH_DRAW_SCENE_H

#include "draw/draw_fold.h"

/* Colours go by what an op is made of, so that a new one has its place. */
typedef enum draw_family {
    DRAW_MODEL,
    DRAW_CONST,
    DRAW_CACHE,
    DRAW_INPUT,
    DRAW_LOOKUP,     /* an op without inputs: embedding */
    DRAW_MATMUL,     /* weights of two dimensions */
    DRAW_SCALE,      /* weights of one: norms */
    DRAW_ATTENTION,  /* reads a cache */
    DRAW_COLLECTIVE, /* reads other ranks' tensors */
    DRAW_ARITHMETIC, /* none of these */
    DRAW_TOKEN,      /* no output: picks the token */
    DRAW_FAMILIES
} draw_family;

typedef struct draw_node {
    const char *text; /* lines with '\n' between, the name first */
    draw_family family;
    int section;    /* index; −1 until placed */
    bool contained; /* lies in the container of its section */
    int n_out;      /* output ports, at least 1 */
    int row;
    int x, y, w, h;
} draw_node;

/* A stretch of rows: a layer, a range of layers, or what stands before, between and behind them. */
typedef struct draw_section {
    const char *label;          /* NULL: no container is drawn */
    int node_first, node_count; /* nodes of a section follow each other */
    int row_first, row_count;
    int x, y, w, h; /* of the container */
    int label_x;    /* right of the lanes */
} draw_section;

typedef struct draw_point {
    int x, y;
} draw_point;

enum { DRAW_POINTS = 6 };

typedef struct draw_edge {
    int from, to;      /* nodes */
    int net;           /* edges of one tensor share it */
    int out_port;      /* which output of `from` */
    bool back;         /* from a layer to the next one of a range: upwards */
    const char *label; /* tensor, and the slot where the op has several inputs */
    int n_points;
    draw_point point[DRAW_POINTS]; /* the first on the lower side of `from`, the last on the upper side of `to` */
    draw_point text;               /* of the label: left end, middle of its height */
    int text_w;
} draw_edge;

typedef struct draw_scene {
    arena arena;
    draw_node *nodes;
    draw_section *sections;
    draw_edge *edges;
    int n_nodes, n_sections, n_edges, n_nets;
    int w, h;
} draw_scene;

enum { DRAW_LINE_H = 14, DRAW_PAD = 6, DRAW_FONT = 11, DRAW_EDGE_FONT = 9, DRAW_HEADER = 24 };

/* Nodes and edges of a graph, not yet placed; f has the ranges that are drawn once (no ranges: everything is drawn). */
keel_status draw_scene_make(const graph *g, const fold *f, draw_scene *out, keel_error *err);
/* Gives everything its place. No two boxes overlap, no line crosses a box that is not its end. */
keel_status draw_scene_place(draw_scene *s, keel_error *err);
void draw_scene_free(draw_scene *s);
/* Both, with equal layers drawn once or not. */
keel_status draw_scene_of(const graph *g, bool folded, draw_scene *out, keel_error *err);

/* Width of `bytes` bytes of UTF-8 in any usual sans-serif font of that size, rounded up. */
int draw_text_width(const char *text, size_t bytes, int font);

#endif
