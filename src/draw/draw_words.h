/* SPDX-License-Identifier: Apache-2.0 */
/* The labels of docs/drawing.md as plain text: lines separated by '\n', the name first. A range says that the op (or
 * tensor) is the first layer's of those that the vertex stands for; NULL: it stands for itself. */
#ifndef KEEL_GRAPH_DRAW_WORDS_H
#define KEEL_GRAPH_DRAW_WORDS_H

#include "core/buf.h"
#include "draw/draw_fold.h"

void draw_op_words(buf *b, const graph *g, int op, const fold_range *range);
/* A const, a cache or an input. */
void draw_source_words(buf *b, const graph *g, int tensor, const fold_range *range);
void draw_model_words(buf *b, const graph *g);
/* What the rules of an op's weights imply at TP > 1 ("AR"); NULL for nothing. */
const char *draw_implied_collective(const graph *g, const graph_op *op);
/* The name of a tensor. */
void draw_tensor_name(buf *b, const graph *g, int tensor, const fold_range *range);

/* KEEL_UNSUPPORTED names the first op or tensor whose name, key or note a label could not hold. */
keel_status draw_words_check(const graph *g, keel_error *err);

#endif
