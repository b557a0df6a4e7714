/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_init: an activation of one value, where a graph needs one that nothing computes.
 *
 *   out[r][c] = value
 *
 * Tiling: columns [lo, hi), at most one tile a worker. Roles: the storer writes the live rows; there are no regions. */
#ifndef KEEL_OPS_TENSOR_INIT_H
#define KEEL_OPS_TENSOR_INIT_H

#include "device/types.h"

enum {
    TENSOR_INIT_OUT, /* [M][cols] */
    TENSOR_INIT_BUFFERS
};

typedef struct tensor_init_params {
    kp_u32 cols;
    float value;
} tensor_init_params;

#endif
