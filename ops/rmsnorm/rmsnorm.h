/* SPDX-License-Identifier: Apache-2.0 */
/* rmsnorm: y = w × x / √(mean(x²) + eps), in f32, rounded step by step as Hugging Face's modules do.
 *
 * Tiling: one task; a row needs all its columns, and rows are few and known only when the pass runs. Roles: the
 * launcher copies the live rows into REGION_ROWS, the consumer norms them in place, the storer writes them out; lanes
 * share the rows. The region's pages go back with the storer. With logit_rows only the rows whose logits are wanted are
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
enum { RMSNORM_REGION_ROWS }; /* region [rows][hidden] */

typedef struct rmsnorm_params {
    kp_u32 hidden;
    kp_u32 weight_dtype;
    kp_u32 logit_rows; /* 1: rows from logit_from */
    float eps;
} rmsnorm_params;

#endif
