/* SPDX-License-Identifier: Apache-2.0 */
/* allreduce: the sum of what the ranks hold, with bias and residual added once.
 *
 *   out[r][c] = Σ_rank partial_rank[r][c] (+ bias[c]) (+ residual[r][c])
 *
 * in rank order, in f32, so that every rank gets the same bits. The partial lies in symmetric memory. The events of the
 * tasks that make it count the additions of all ranks, so a task here starts when every rank's columns are there: it
 * needs no handshake of its own.
 *
 *   launcher  fetches its columns of every rank's partial
 *   consumer  adds them up
 *   storer    adds bias and residual, stores */
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
enum {
    ALLREDUCE_REGION_TERMS, /* [world][rows][hi − lo] of activations; goes back with the consumer */
    ALLREDUCE_REGION_SUM    /* [rows][hi − lo] of f32; goes back with the storer */
};

typedef struct allreduce_params {
    kp_u32 n, world;
    kp_u32 m_max;      /* rows that a term has room for */
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
    kp_u32 bias_dtype;
} allreduce_params;

#endif
