/* SPDX-License-Identifier: Apache-2.0 */
/* mul_sum_add: the weighted sum that combines experts.
 *
 *   out[r][c] = Σ_e w[r][e] × y[r][e × n + c] (+ residual[r][c])
 *
 * in order of e, each product fused with its addition in f32, the residual last and once. Tiling: output columns
 * [lo, hi), at most one tile a worker unless SMEM is short. Roles: the launcher copies the pieces of y's live rows into
 * REGION_Y and the rows of w into REGION_W; the consumer sums into REGION_OUT; the storer adds the residual from its
 * buffer and writes the columns. Pages: REGION_Y and REGION_W go back with the consumer, REGION_OUT with the storer. */
#ifndef KEEL_OPS_MUL_SUM_ADD_H
#define KEEL_OPS_MUL_SUM_ADD_H

#include "device/types.h"

enum {
    MUL_SUM_ADD_Y,        /* [M or M_LOGIT][experts × n] */
    MUL_SUM_ADD_W,        /* [as y][experts] */
    MUL_SUM_ADD_RESIDUAL, /* [as y][n], or none */
    MUL_SUM_ADD_OUT,      /* [as y][n] */
    MUL_SUM_ADD_BUFFERS
};
enum {
    MUL_SUM_ADD_REGION_Y,  /* [rows][experts][hi − lo] */
    MUL_SUM_ADD_REGION_W,  /* [rows][experts] */
    MUL_SUM_ADD_REGION_OUT /* [rows][hi − lo] of f32 */
};

typedef struct mul_sum_add_params {
    kp_u32 n, experts;
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
} mul_sum_add_params;

#endif
