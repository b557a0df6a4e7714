/* SPDX-License-Identifier: Apache-2.0 */
/* linear_residual: y = x Wᵀ (+ bias) + residual, the residual added once, by the storer, in f32.
 *
 *   out[r][j] = (Σ_i W[j][i] × x[r][i] + bias[j]) + residual[r][j]
 *
 * Tiling: output columns [lo, hi), whole rounds over the workers, so that each worker streams its own rows of W once a
 * pass. Roles: the launcher copies the live rows of x into REGION_X; the consumer multiplies them with W's rows as they
 * lie in the checkpoint into REGION_Y; the storer adds the bias, then the residual from its buffer, and writes the
 * columns. Pages: REGION_X goes back with the consumer, REGION_Y with the storer. Where m_max rows of x are more than
 * half of SMEM there is no REGION_X and the consumer reads x where it lies. Row r of a region is the (r − first live
 * row)-th. */
#ifndef KEEL_OPS_LINEAR_RESIDUAL_H
#define KEEL_OPS_LINEAR_RESIDUAL_H

#include "graph/op.h"

enum {
    LINEAR_RESIDUAL_X,        /* [M or M_LOGIT][k] */
    LINEAR_RESIDUAL_RESIDUAL, /* [as x][n] */
    LINEAR_RESIDUAL_W,        /* weight [n][k] */
    LINEAR_RESIDUAL_BIAS,     /* weight [n], or none */
    LINEAR_RESIDUAL_OUT,      /* [as x][n] */
    LINEAR_RESIDUAL_BUFFERS
};

typedef struct linear_residual_params {
    kp_u32 n, k;
    kp_u32 weight_dtype, bias_dtype;
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
    kp_u32 x_staged;   /* 1: REGION_X is there */
} linear_residual_params;

extern const op_desc keel_op_linear_residual;

#endif
