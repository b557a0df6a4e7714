/* SPDX-License-Identifier: Apache-2.0 */
/* silu_mul: the gate of a gated MLP.
 *
 *   out = gate / (1 + exp(−gate)) × up
 *
 * Tiling: columns [lo, hi), at most one tile a worker unless SMEM is
 * short. Roles: the launcher copies the pieces of both inputs' live rows into REGION_OUT and REGION_UP, the consumer
 * computes in place, the storer writes REGION_OUT out. Pages: REGION_UP goes back with the consumer, REGION_OUT with
 * the storer. */
#ifndef KEEL_OPS_SILU_MUL_H
#define KEEL_OPS_SILU_MUL_H

#include "graph/op.h"

enum {
    SILU_MUL_GATE, /* [M or M_LOGIT][n] */
    SILU_MUL_UP,   /* the same */
    SILU_MUL_OUT,  /* the same */
    SILU_MUL_BUFFERS
};

typedef struct silu_mul_params {
    kp_u32 n;
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
} silu_mul_params;

extern const op_desc keel_op_silu_mul;

#endif
