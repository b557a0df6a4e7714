/* SPDX-License-Identifier: Apache-2.0 */
/* linear_residual: y = x Wᵀ (+ bias) + residual, the residual added once, by the storer, in f32.
 *
 *   out[r][j] = (Σ_i W[j][i] × x[r][i] + bias[j]) + residual[r][j]
 *
 * Tiling: output columns [lo, hi), whole rounds over the workers, so that each worker streams its own rows of W once a
 * pass. Roles: the launcher copies the live rows of x into KP_MATMUL_X; the consumer multiplies them with W's rows as
 * they lie in the checkpoint into KP_MATMUL_Y; the storer adds the bias, then the residual from its buffer, and writes
 * the columns. Pages: KP_MATMUL_X goes back with the consumer, KP_MATMUL_Y with the storer. Where m_max rows of x are
 * more than half of SMEM there is no KP_MATMUL_X and the consumer reads x where it lies. Row r of a region is the (r −
 * first live row)-th. */
#ifndef KEEL_OPS_LINEAR_RESIDUAL_H
#define KEEL_OPS_LINEAR_RESIDUAL_H

#include "device/columns.h"

enum {
    LINEAR_RESIDUAL_X,        /* [M or M_LOGIT][k] */
    LINEAR_RESIDUAL_RESIDUAL, /* [as x][n] */
    LINEAR_RESIDUAL_W,        /* weight [n][k] */
    LINEAR_RESIDUAL_BIAS,     /* weight [n], or none */
    LINEAR_RESIDUAL_SCALE, /* weight [⌈n / 128⌉][⌈k / 128⌉], of a W that is F8E4M3 (body/columns.h, body_matmul) */
    LINEAR_RESIDUAL_OUT, /* [as x][n] */
    LINEAR_RESIDUAL_BUFFERS
};

typedef kp_matmul linear_residual_params;

#endif
