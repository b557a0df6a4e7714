/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_scatter: this rank's columns of the sum of what the ranks hold.
 *
 *   out[r][c] = Σ_rank partial_rank[r][own × n / W + c]
 *
 * in rank order, in f32; own is this rank. */
#ifndef KEEL_OPS_REDUCE_SCATTER_H
#define KEEL_OPS_REDUCE_SCATTER_H

#include "device/types.h"

enum {
    REDUCE_SCATTER_PARTIAL, /* [M or M_LOGIT][n], on every rank */
    REDUCE_SCATTER_OUT,     /* [as partial][n / W] */
    REDUCE_SCATTER_BUFFERS
};

#endif
