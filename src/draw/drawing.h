/* SPDX-License-Identifier: Apache-2.0 */
/* A draw.io drawing → a graph. The format is docs/drawing.md. */
#ifndef KEEL_GRAPH_DRAWING_H
#define KEEL_GRAPH_DRAWING_H

#include "graph/graph.h"

struct op_desc;

typedef struct drawing_options {
    bool sample; /* the tail becomes `sample` where argmax is drawn; a drawn `sample` stays one */
} drawing_options;

/* Reads the bytes of a drawing (XML, plain or with compressed pages) and builds the graph through graph/build.h, as a
 * model's builder would. file stands in messages; o NULL: no options. *out is the caller's (graph_close). All
 * deviations from the format are named at once, one line each with page, cell id and label, mostly KEEL_FORMAT;
 * KEEL_RANGE where a limit is passed; text that is no drawing at all is one message. */
keel_status drawing_read(const char *file, const char *data, size_t bytes, const drawing_options *o, graph **out,
                         keel_error *err);

/* A note `KEY=` of an op is refused where KEY is nearly a word that means something there: that word; NULL: a note. */
const char *drawing_slip(const struct op_desc *desc, const char *key, size_t bytes);

#endif
