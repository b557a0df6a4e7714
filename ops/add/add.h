/* SPDX-License-Identifier: Apache-2.0 */
/* add: out = a + b, element by element.
 *
 * Tiling: columns [lo, hi), at most one tile a worker unless SMEM is short. Roles: the launcher copies the pieces of
 * both inputs' live rows into KP_PAIR_OUT and KP_PAIR_B, the consumer computes in place, the storer writes KP_PAIR_OUT
 * out. */
#ifndef KEEL_OPS_ADD_H
#define KEEL_OPS_ADD_H

#include "device/columns.h"

enum {
    ADD_A,   /* [M or M_LOGIT][n] */
    ADD_B,   /* the same */
    ADD_OUT, /* the same */
    ADD_BUFFERS
};

typedef kp_pair add_params;

#endif
