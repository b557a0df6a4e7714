/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that are equal but for their number, as docs/drawing.md (Layers) lets a drawing say them once: the same ops in
 * the same order, their weight keys alike but for the number, each input the same tensor in every layer, or one of the
 * layer itself, or one of the layer before it (of whatever stands before, for the first). In a graph whose layers do
 * not stand in ascending order, or have ops of no layer between them, every layer stands for itself. */
#ifndef KEEL_GRAPH_DRAW_FOLD_H
#define KEEL_GRAPH_DRAW_FOLD_H

#include "core/buf.h"
#include "graph/graph.h"

/* The layers first … last. Op k of layer first + j is ops[op_first + j × n_ops + k]. */
typedef struct fold_range {
    int first, last;
    int op_first, n_ops;
} fold_range;

/* The ranges of two layers and more, in execution order. */
typedef struct fold {
    fold_range *ranges; /* [n_ranges]; free with fold_free() */
    int n_ranges;
} fold;

/* g is borrowed. KEEL_NOMEM alone. */
keel_status fold_find(const graph *g, fold *out, keel_error *err);
void fold_free(fold *f);
/* The range that holds op i, NULL when that op stands for itself. */
const fold_range *fold_of_op(const fold *f, int op);
static inline int fold_n_layers(const fold_range *r) { return r->last - r->first + 1; }

/* The layer that a const, a cache or an op's output belongs to: its op's, or what the name says; −1 without. */
int fold_tensor_layer(const graph *g, int tensor);
/* Does this input of an op of the range's second layer come from the layer before it? Slot of op_first + n_ops + k. */
bool fold_from_before(const graph *g, const fold_range *r, int k, int slot);
/* "l{0-27}.attn" of the name of a tensor or op of the range's first layer. */
void fold_put_name(buf *b, const fold_range *r, const char *name);
/* The weight key of the first layer with {i} where the layer's number stands, told by the second layer's key. */
void fold_put_key(buf *b, const fold_range *r, const char *first, const char *second);

#endif
