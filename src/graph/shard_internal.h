/* SPDX-License-Identifier: Apache-2.0 */
/* What the steps of graph_shard share: rules of weights (shard.c), placements with everything that does not work out
 * (shard_place.c), the building of the rank's graph (shard_build.c). */
#ifndef KEEL_GRAPH_SHARD_INTERNAL_H
#define KEEL_GRAPH_SHARD_INTERNAL_H

#include "graph/build.h"
#include "graph/place.h"
#include "graph/shard.h"

typedef struct sharder {
    const graph *g;
    shard_options o;
    const graph_op *head; /* makes the logits; NULL without */
    placement *place;     /* [n_tensors + 1], as readers see a tensor: a partial sum already combined */
    bool *partial;        /* [n_ops] the op's output is a summand */
    int *users;           /* [n_tensors + 1] ops that read a weight */
    int64_t common;       /* greatest common divisor of all that is cut */
    bool uneven;          /* something does not divide */
    int first_layer;      /* the layer whose findings are told; −1 while there is none */
    int hidden;           /* findings in other layers */
    place_findings found;
    build b;
    int *map; /* [n_tensors + 1] tensor of the rank's graph */
    int next; /* first tensor that make_leaves has not seen */
} sharder;

typedef struct cut {
    shard_rule rule;
    int dim;
} cut;

/* The op that makes a tensor; NULL without. */
const graph_op *shard_producer(const graph *g, int id);
/* Whether w is the head that a vocab-parallel mode cuts, the last ranks padded. */
bool shard_padded(const sharder *s, const graph_op *op, const graph_tensor *w);
/* The rule of a weight as this op reads it: the head's is the head mode's. */
cut shard_cut(const sharder *s, const graph_op *op, const graph_tensor *w);
/* Parts that dimension `dim` of a weight is cut into. */
int64_t shard_parts(cut c, int dim, uint32_t tp, uint32_t ep);

/* Fills s->place and s->partial; KEEL_REFUSED with all that is wrong. */
keel_status shard_place(sharder *s);
/* From placements that work out: the rank's graph. */
keel_status shard_build(sharder *s, graph **out, keel_error *err);

#endif
