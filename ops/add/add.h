/* SPDX-License-Identifier: Apache-2.0 */
/* add: out = a + b, element by element.
 *
 * Tiling: columns [lo, hi), at most one tile a worker unless SMEM is
 * short. Roles: the launcher copies the pieces of both inputs' live rows into REGION_OUT and REGION_B, the consumer
 * computes in place, the storer writes REGION_OUT out. Pages: REGION_B goes back with the consumer, REGION_OUT with the
 * storer. */
#ifndef KEEL_OPS_ADD_H
#define KEEL_OPS_ADD_H

#include "graph/op.h"

enum {
    ADD_A,   /* [M or M_LOGIT][n] */
    ADD_B,   /* the same */
    ADD_OUT, /* the same */
    ADD_BUFFERS
};

typedef struct add_params {
    kp_u32 n;
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
} add_params;

extern const op_desc keel_op_add;

#endif
