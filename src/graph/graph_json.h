/* SPDX-License-Identifier: Apache-2.0 */
/* A graph as JSON, in one spelling: equal graphs have equal bytes, and reading what was written gives the graph that
 * was written. Ops stand in execution order, one a line; tensors go by name, there are no ids. Constants and caches
 * stand in the order of their first use. The op step_begin, which every graph has first, is not written. */
#ifndef KEEL_GRAPH_GRAPH_JSON_H
#define KEEL_GRAPH_GRAPH_JSON_H

#include "core/buf.h"
#include "graph/graph.h"

typedef struct graph_json_options {
    bool sample; /* the graph ends in the sampling op where the file has argmax; the other way round it stays */
} graph_json_options;

/* Appends the text, with a newline at its end. A failed growth stands in out->failed. */
void graph_json_write(const graph *g, buf *out);

/* Reads any JSON of that form, not only the canonical spelling, and builds the graph as a builder would: shapes follow
 * from the ops, and what the file says of them must agree (KEEL_FORMAT). file names it in messages. A rank's graph is
 * KEEL_UNSUPPORTED. options may be NULL. The caller owns *out. */
keel_status graph_json_read(const char *file, const char *data, size_t bytes, const graph_json_options *options,
                            graph **out, keel_error *err);

#endif
