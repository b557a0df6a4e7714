/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_scatter: this rank's columns of the sum of what the ranks hold.
 *
 *   out[r][c] = Σ_rank partial_rank[r][own × n / W + c]
 *
 * in rank order, in f32; own is this rank. The partial lies in symmetric memory.
 *
 * Tiling: output columns [lo, hi). Roles: the launcher copies the live rows of these columns of every rank's partial
 * into REGION_TERMS; the consumer adds them up into REGION_SUM; the storer writes them. */
#ifndef KEEL_OPS_REDUCE_SCATTER_H
#define KEEL_OPS_REDUCE_SCATTER_H

#include "device/types.h"

enum {
    REDUCE_SCATTER_PARTIAL, /* [M or M_LOGIT][n], on every rank */
    REDUCE_SCATTER_OUT,     /* [as partial][n / W] */
    REDUCE_SCATTER_BUFFERS
};
enum {
    REDUCE_SCATTER_REGION_TERMS, /* [world][rows][hi − lo] of activations; goes back with the consumer */
    REDUCE_SCATTER_REGION_SUM    /* [rows][hi − lo] of f32; goes back with the storer */
};

typedef struct reduce_scatter_params {
    kp_u32 n, world;   /* n: columns of the output */
    kp_u32 first;      /* the partial's column that is the output's first */
    kp_u32 m_max;      /* rows that a term has room for */
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
} reduce_scatter_params;

#endif
