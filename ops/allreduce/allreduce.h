/* SPDX-License-Identifier: Apache-2.0 */
/* allreduce: the sum of what the ranks hold, with bias and residual added once.
 *
 *   out[r][c] = Σ_rank partial_rank[r][c] (+ bias[c]) (+ residual[r][c])
 *
 * in rank order, in f32, so that every rank gets the same bits. */
#ifndef KEEL_OPS_ALLREDUCE_H
#define KEEL_OPS_ALLREDUCE_H

#include "device/types.h"

enum {
    ALLREDUCE_PARTIAL,  /* [M or M_LOGIT][n], on every rank */
    ALLREDUCE_RESIDUAL, /* [as partial][n], or none */
    ALLREDUCE_BIAS,     /* weight [n], or none */
    ALLREDUCE_OUT,      /* [as partial][n] */
    ALLREDUCE_BUFFERS
};

#endif
