/* SPDX-License-Identifier: Apache-2.0 */
/* norm_swiglu: a norm, the two projections that read it, and the gate of a gated MLP.
 *
 *   n = scale × x / √(mean(x²) + eps)
 *   out = silu(n W_gateᵀ (+ bias)) × (n W_upᵀ (+ bias))
 *
 * Tiling: columns [lo, hi) of both W, whole bands of KP_BAND, in whole rounds over the workers. Roles, CPU: the
 * launcher norms the live rows into KP_MATMUL_X; the consumer multiplies them with the task's rows of W into
 * KP_MATMUL_Y; the storer adds the biases, gates and writes the columns. GPU: device/cuda_norm.cuh. Pages: KP_MATMUL_X
 * goes back with the consumer, KP_MATMUL_Y with the storer. Without room for every row that a pass may carry, the chain
 * stays as it is (plan/lower.h). */
#ifndef KEEL_OPS_NORM_SWIGLU_H
#define KEEL_OPS_NORM_SWIGLU_H

#include "device/columns.h"

enum {
    NORM_SWIGLU_X,         /* [M or M_LOGIT][k] */
    NORM_SWIGLU_SCALE,     /* weight [k] */
    NORM_SWIGLU_W_GATE,    /* weight [n][k] */
    NORM_SWIGLU_W_UP,      /* weight [n][k] */
    NORM_SWIGLU_BIAS_GATE, /* weight [n], or none */
    NORM_SWIGLU_BIAS_UP,
    NORM_SWIGLU_W_GATE_SCALE, /* weight, the block scales of a W that is F8E4M3; the others alike */
    NORM_SWIGLU_W_UP_SCALE,
    NORM_SWIGLU_OUT, /* [M or M_LOGIT][n] */
    NORM_SWIGLU_BUFFERS
};

typedef kp_norm_matmul norm_swiglu_params;

#endif
