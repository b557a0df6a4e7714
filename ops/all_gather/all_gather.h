/* SPDX-License-Identifier: Apache-2.0 */
/* all_gather: the columns of all ranks beside each other, without the padding of the last ones.
 *
 *   out[r][c] = x_{c / n}[r][c mod n],  c < cols
 *
 * n = ceil(cols / W), so that every rank has as many; what ranks hold of columns from cols on is left out. */
#ifndef KEEL_OPS_ALL_GATHER_H
#define KEEL_OPS_ALL_GATHER_H

#include "device/types.h"

enum {
    ALL_GATHER_X,   /* [M or M_LOGIT][n], on every rank */
    ALL_GATHER_OUT, /* [as x][cols] */
    ALL_GATHER_BUFFERS
};

#endif
