/* SPDX-License-Identifier: Apache-2.0 */
/* norm_linear: a norm and the one projection that reads it: the head.
 *
 *   out = (scale × x / √(mean(x²) + eps)) Wᵀ (+ bias)
 *
 * Tiling: columns [lo, hi), whole bands of KP_BAND, in whole rounds over the workers. Roles, CPU: the launcher norms
 * the live rows into KP_MATMUL_X; the consumer multiplies them with the task's rows of W into KP_MATMUL_Y; the storer
 * adds the bias and writes the columns. GPU: device/cuda_norm.cuh. Pages: KP_MATMUL_X goes back with the consumer,
 * KP_MATMUL_Y with the storer. Without room for every row that a pass may carry, the chain stays as it is
 * (plan/lower.h). */
#ifndef KEEL_OPS_NORM_LINEAR_H
#define KEEL_OPS_NORM_LINEAR_H

#include "device/columns.h"

enum {
    NORM_LINEAR_X,       /* [M or M_LOGIT][k] */
    NORM_LINEAR_SCALE,   /* weight [k] */
    NORM_LINEAR_W,       /* weight [n][k] */
    NORM_LINEAR_BIAS,    /* weight [n], or none */
    NORM_LINEAR_W_SCALE, /* weight, the block scales of a W that is F8E4M3 */
    NORM_LINEAR_OUT,     /* [M or M_LOGIT][n] */
    NORM_LINEAR_BUFFERS
};

typedef kp_norm_matmul norm_linear_params;

#endif
