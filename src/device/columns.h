/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and SMEM regions of tasks that several ops have in common: each task makes columns [lo, hi) of the output,
 * for all live rows. plan/columns.h cuts them, body/columns.h computes them on the CPU. */
#ifndef KEEL_DEVICE_COLUMNS_H
#define KEEL_DEVICE_COLUMNS_H

#include "device/types.h"

/* out = f(a, b), element by element. Regions: [rows][hi − lo] of activations each. */
enum {
    KP_PAIR_OUT, /* a, until it holds the result; goes back with the storer */
    KP_PAIR_B    /* goes back with the consumer */
};
typedef struct kp_pair {
    kp_u32 n;
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
} kp_pair;

/* y = x Wᵀ (+ bias), W [n][k]. */
enum {
    KP_MATMUL_X, /* [rows][k] of activations, where x_staged; goes back with the consumer */
    KP_MATMUL_Y  /* [rows][hi − lo] of f32; goes back with the storer */
};
typedef struct kp_matmul {
    kp_u32 n, k;
    kp_u32 weight_dtype, bias_dtype;
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
    kp_u32 x_staged;   /* 1: KP_MATMUL_X is there; 0: x is read where it lies */
} kp_matmul;
KP_FN kp_u64 kp_matmul_x_bytes(const kp_matmul *p, kp_u32 m_max, kp_u32 act_bytes) {
    return (kp_u64)m_max * p->k * act_bytes;
}
/* Of one column. */
KP_FN kp_u64 kp_matmul_y_bytes(kp_u32 m_max) { return (kp_u64)m_max * sizeof(float); }

#endif
