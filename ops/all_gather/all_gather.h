/* SPDX-License-Identifier: Apache-2.0 */
/* all_gather: the columns of all ranks beside each other, without the padding of the last ones.
 *
 *   out[r][c] = x_{c / n}[r][c mod n],  c < cols
 *
 * n = ceil(cols / W), so that every rank has as many; what ranks hold of columns from cols on is left out. x lies
 * in symmetric memory.
 *
 * Tiling: output columns [lo, hi), which may lie on several ranks. Roles: the launcher copies their live rows from
 * where they lie into REGION_ROWS; the storer writes them and gives it back. */
#ifndef KEEL_OPS_ALL_GATHER_H
#define KEEL_OPS_ALL_GATHER_H

#include "device/types.h"

enum {
    ALL_GATHER_X,   /* [M or M_LOGIT][n], on every rank */
    ALL_GATHER_OUT, /* [as x][cols] */
    ALL_GATHER_BUFFERS
};
enum {
    ALL_GATHER_REGION_ROWS /* [rows][hi − lo] of activations */
};

typedef struct all_gather_params {
    kp_u32 n, cols;    /* columns of x on each rank, and of the output */
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
} all_gather_params;

#endif
