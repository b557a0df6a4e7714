/* SPDX-License-Identifier: Apache-2.0 */
/* A graph, and what graphs are made of, as text for a person. */
#ifndef KEEL_DRAW_DRAW_TEXT_H
#define KEEL_DRAW_DRAW_TEXT_H

#include "core/buf.h"
#include "graph/graph.h"

/* Appends a table of ops: name, kind, shapes, weights, shard rule, collective. Layers that differ by their number alone
 * are one ("l{0-27}.attn"). */
keel_status graph_show(const graph *g, buf *out, keel_error *err);

/* Appends the known kinds of ops with slots, attributes and formula. A failed growth stands in out->failed. */
void graph_show_ops(buf *out);
/* The same as a JSON list. */
void graph_show_ops_json(buf *out);

#endif
