/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as drawings: a draw.io file that drawing_read() takes back, and a picture. docs/drawing.md is the format. */
#ifndef KEEL_GRAPH_DRAW_H
#define KEEL_GRAPH_DRAW_H

#include "core/buf.h"
#include "graph/graph.h"

typedef struct draw_options {
    bool fold; /* layers that differ by their number alone are drawn once */
} draw_options;

/* Appends an uncompressed draw.io file. KEEL_UNSUPPORTED names what a drawing cannot hold: the graph of a rank, names
 * that labels could not. options may be NULL. */
keel_status draw_drawio(const graph *g, const draw_options *options, buf *out, keel_error *err);
/* Appends an SVG picture of the same drawing; of any graph. */
keel_status draw_svg(const graph *g, const draw_options *options, buf *out, keel_error *err);

#endif
