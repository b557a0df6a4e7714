/* SPDX-License-Identifier: Apache-2.0 */
/* The sharding algebra (graph/shard.h) that ops have in common: functions for op_desc.place. An op that needs another
 * one has it in its own folder. */
#ifndef KEEL_GRAPH_PLACE_H
#define KEEL_GRAPH_PLACE_H

#include "graph/op.h"

/* Element by element: inputs alike, whole or sharded, weights rep; the output as they are. */
const char *place_elementwise(const graph_op *op, op_places *places);
/* The same of an op that adds its inputs: the check that a residual is added once asks for this function. */
const char *place_sum(const graph_op *op, op_places *places);
/* y = x Wᵀ (+ bias) (+ residual), by the rule of weight 0:
 *
 *   (block scales have the weight's rule)
 *   x whole, rep   whole; bias rep, residual whole
 *   x whole, col   shard; bias col, residual sharded alike
 *   x shard, row   PARTIAL; bias rep, residual whole: both belong to the collective that follows */
const char *place_matmul(const graph_op *op, op_places *places);
/* rmsnorm and products of it (shape_norm_matmul): x whole, weight 0 rep; all other weights rep: whole; all col: shards.
 */
const char *place_norm_matmul(const graph_op *op, op_places *places);
/* A collective that sums: input 0 partial, all else whole and rep; the output whole (AR) or this rank's columns. */
const char *place_reduce(const graph_op *op, op_places *places);
const char *place_reduce_scatter(const graph_op *op, op_places *places);
/* A collective that joins columns: input 0 sharded, all else whole and rep; the output whole. */
const char *place_gather(const graph_op *op, op_places *places);

/* Sets places->out by the op's function (without one everything must be whole), after the rule for all: a partial
 * tensor is read by collectives alone. NULL, or what is wrong, static text. */
const char *place_op(const graph_op *op, op_places *places);

/* Several findings in one error: a line each, as far as they fit. */
typedef struct place_findings {
    keel_error *err;
    int n;
} place_findings;
void place_finding(place_findings *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* KEEL_OK without findings, else KEEL_REFUSED. */
keel_status place_verdict(const place_findings *f);
/* "input x is shard, input residual is whole, weight w is row": what an op has bound, for a finding. */
typedef struct place_text {
    char text[384];
} place_text;
place_text place_describe(const graph *g, const graph_op *op, const op_places *places);

#endif
