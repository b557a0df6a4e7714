/* SPDX-License-Identifier: Apache-2.0 */
/* rmsnorm: y = w × x / √(mean(x²) + eps), in f32, rounded step by step as Hugging Face's modules do.
 *
 * Tiling: one task; a row needs all its columns, and rows are few and known only when the pass runs. Roles: the loader,
 * ahead of the task's events, copies the weight into REGION_W where both regions fit SMEM; the launcher copies the live
 * rows into REGION_ROWS, the consumer norms them in place and gives the weight's pages back, the storer writes the rows
 * out and gives back theirs; lanes share the rows. With logit_rows only the rows whose logits are wanted are
 * normed: the last norm before the head. */
#ifndef KEEL_OPS_RMSNORM_H
#define KEEL_OPS_RMSNORM_H

#include "device/types.h"

enum {
    RMSNORM_X,   /* [M or M_LOGIT][hidden] */
    RMSNORM_W,   /* weight [hidden] */
    RMSNORM_OUT, /* [M or M_LOGIT][hidden] */
    RMSNORM_BUFFERS
};
enum {
    RMSNORM_REGION_ROWS, /* [staged_rows][hidden]; with more live rows than that, x is read where it lies */
    RMSNORM_REGION_SUMS, /* a f32 of each consumer lane, on the GPU */
    RMSNORM_REGION_W,    /* [hidden] as the weight lies; with w_staged */
};

typedef struct rmsnorm_params {
    kp_u32 hidden;
    kp_u32 weight_dtype;
    kp_u32 logit_rows; /* 1: rows from logit_from */
    kp_u32 staged_rows;
    kp_u32 w_staged; /* 1: the loader brings the weight into SMEM */
    kp_u32 w_bytes;
    float eps;
} rmsnorm_params;

#endif
