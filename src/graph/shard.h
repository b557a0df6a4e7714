/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor and expert parallelism: the graph of one rank, from the graph with global shapes. The rules stand at the
 * weights of the global graph and nowhere else; what follows from a rule is said once, in each op's `place`.
 *
 *   rep   unchanged on every rank
 *   col   output columns / W: the output stays sharded by columns
 *   row   input columns / W: the output is full-width but PARTIAL; only a collective may read it
 *   ep    experts / E, inner dimension / (W / E)
 *
 * A residual and a bias are added exactly once, after the all-reduce: a row-sharded linear (with or without a residual)
 * becomes linear + allreduce(partial, residual, bias). */
#ifndef KEEL_GRAPH_SHARD_H
#define KEEL_GRAPH_SHARD_H

#include "graph/graph.h"
#include "graph/op.h"

typedef struct shard_options {
    uint32_t tp, ep;     /* W and E; E divides W. 0 = 1 */
    uint32_t rank;       /* 0 … tp − 1 */
    bool vocab_parallel; /* the head's rows are cut over the ranks; otherwise every rank computes all logits */
} shard_options;

/* A new graph, owned by the caller; the global graph may go. tp 1 gives an equal graph. KEEL_REFUSED names the op and
 * the dimension that does not divide, or the op that has no rule for a sharded input. */
keel_status graph_shard(const graph *global, const shard_options *options, graph **out, keel_error *err);

/* The property itself, over a rank's graph of any origin: placements follow from the weights' rules and the ops; no
 * partial tensor is read but by a collective; every residual and bias is added exactly once to what it belongs to; the
 * logits are whole on every rank. KEEL_REFUSED names ops and tensors. tp 1: nothing is sharded. */
keel_status graph_check_placement(const graph *rank_graph, keel_error *err);

/* Slice of a weight that this rank holds: elements [first, first + n) of dimension `dim` of the `whole`. A replicated
 * weight: dim −1, first 0. */
typedef struct shard_slice {
    int dim;
    int64_t first, n, whole;
} shard_slice;
shard_slice graph_weight_slice(const graph *rank_graph, const graph_tensor *weight);
/* A weight with the rule ep is cut twice: graph_weight_slice says which experts (dimension 0), this one which part of
 * the inner dimension, its shard_dim. dim −1 where there is no such cut. */
shard_slice graph_weight_inner_slice(const graph *rank_graph, const graph_tensor *weight);

#endif
