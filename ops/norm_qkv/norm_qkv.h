/* SPDX-License-Identifier: Apache-2.0 */
/* norm_qkv: a norm and the three projections that read it, before attention.
 *
 *   n = scale × x / √(mean(x²) + eps)
 *   q = n W_qᵀ (+ bias), k = n W_kᵀ (+ bias), v = n W_vᵀ (+ bias)
 *
 * Tiling: the columns of q, k and v, one behind the other, whole bands of KP_BAND each, in whole rounds over the
 * workers. Roles, CPU: the launcher norms the live rows into KP_MATMUL_X; the consumer multiplies them with the task's
 * rows of W into KP_MATMUL_Y; the storer adds the biases and writes the columns. GPU: device/cuda_norm.cuh. Pages:
 * KP_MATMUL_X goes back with the consumer, KP_MATMUL_Y with the storer. Without room for every row that a
 * pass may carry, the chain stays as it is (plan/lower.h). */
#ifndef KEEL_OPS_NORM_QKV_H
#define KEEL_OPS_NORM_QKV_H

#include "device/columns.h"

enum {
    NORM_QKV_X,      /* [M or M_LOGIT][k] */
    NORM_QKV_SCALE,  /* weight [k] */
    NORM_QKV_W_Q,    /* weight [q columns][k] */
    NORM_QKV_W_K,    /* weight [k columns][k] */
    NORM_QKV_W_V,    /* weight [v columns][k] */
    NORM_QKV_BIAS_Q, /* weight [q columns], or none; the others alike */
    NORM_QKV_BIAS_K,
    NORM_QKV_BIAS_V,
    NORM_QKV_W_Q_SCALE, /* weight, the block scales of a W that is F8E4M3; the others alike */
    NORM_QKV_W_K_SCALE,
    NORM_QKV_W_V_SCALE,
    NORM_QKV_Q, /* [M or M_LOGIT][q columns] */
    NORM_QKV_K,
    NORM_QKV_V,
    NORM_QKV_BUFFERS
};

typedef kp_norm_matmul norm_qkv_params;

#endif
