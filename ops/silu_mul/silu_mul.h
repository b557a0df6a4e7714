/* SPDX-License-Identifier: Apache-2.0 */
/* silu_mul: the gate of a gated MLP.
 *
 *   out = gate / (1 + exp(−gate)) × up
 *
 * Tiling: columns [lo, hi), at most one tile a worker unless SMEM is short. Roles: the launcher copies the pieces of
 * both inputs' live rows into KP_PAIR_OUT and KP_PAIR_B, the consumer computes in place, the storer writes KP_PAIR_OUT
 * out. */
#ifndef KEEL_OPS_SILU_MUL_H
#define KEEL_OPS_SILU_MUL_H

#include "device/columns.h"

enum {
    SILU_MUL_GATE, /* [M or M_LOGIT][n] */
    SILU_MUL_UP,   /* the same */
    SILU_MUL_OUT,  /* the same */
    SILU_MUL_BUFFERS
};

typedef kp_pair silu_mul_params;

#endif
