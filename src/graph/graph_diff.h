/* SPDX-License-Identifier: Apache-2.0 */
/* What makes two graphs different. Two graphs without a difference have the same canonical JSON, and the other way
 * round. */
#ifndef KEEL_GRAPH_GRAPH_DIFF_H
#define KEEL_GRAPH_GRAPH_DIFF_H

#include "core/buf.h"
#include "graph/graph.h"

/* Appends a line a difference: "- …" stands in a alone, "+ …" in b alone, "~ …" in both with what changed. Ops and
 * tensors are told apart by name. *n gets the number of lines. */
keel_status graph_diff(const graph *a, const graph *b, buf *out, size_t *n, keel_error *err);

#endif
