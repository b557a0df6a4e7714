/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of shape rules that several ops have in common. The refusals name the op and what was expected. */
#ifndef KEEL_GRAPH_SHAPE_H
#define KEEL_GRAPH_SHAPE_H

#include "graph/op.h"

/* Sets an activation [rows][cols] in the arch's type; rows is GRAPH_M, GRAPH_M_LOGIT or those of an input. */
void shape_rows(graph_tensor *out, int64_t rows, int64_t cols);
/* Whether t is an activation [rows][cols]; cols 0: of any width. */
bool shape_is_rows(const graph_tensor *t, int64_t rows, int64_t cols);
/* Dimensions of a matrix that a task's 32-bit bounds can name. */
keel_status shape_plannable(const graph_op *op, const graph_tensor *w, keel_error *err);

/* Inputs 0 and 1: two activations of one shape, which is the output's. */
keel_status shape_pair(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err);
/* A matrix in weight slot `slot` of F8E4M3 has a scale for each of its blocks (core/dtype.h) in the slot that
 * op_desc.scale says: [⌈n / 128⌉, ⌈k / 128⌉] of F32, BF16 or F16, whose element [i / 128][j / 128] times the element
 * [i][j] is what that is worth. One of another type has none. */
keel_status shape_scaled(const graph *g, const graph_op *op, int slot, keel_error *err);
/* Input 0 [M, k], weight 0 [n, k], or F8E4M3 with its scales, weight 1 [n] or none; the output is [M, n]. */
keel_status shape_matmul(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err);
/* Input 0 [M, k], weight 0 [k], attributes eps and logit_rows: the rows of its norm. */
keel_status shape_norm(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err);
/* The same, then `matrices` products of it: weights 1 … matrices are [n, k], those behind them biases [n] or none; out
 * i is [rows of the norm, n of matrix i]. */
keel_status shape_norm_matmul(const graph *g, const graph_op *op, int matrices, graph_tensor *out, keel_error *err);

#endif
