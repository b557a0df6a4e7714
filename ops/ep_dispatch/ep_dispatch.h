/* SPDX-License-Identifier: Apache-2.0 */
/* ep_dispatch: the rows that experts of this rank take, put together from the columns that the ranks hold.
 *
 *   out[r][c] = x_{c / n}[r][c mod n] where Σ_e |w[r][e]| > 0 over this rank's experts e, else 0
 *
 * w has the router's weights, 0 where an expert was not chosen. With E expert groups rank i has the experts of group
 * i / (W / E), experts / E of them. What comes out differs from rank to rank, so it counts as sharded. x
 * lies in symmetric memory.
 *
 * Tiling: output columns [lo, hi), which may lie on several ranks. Roles: the launcher copies their live rows from
 * where they lie into REGION_ROWS and the rows of w into REGION_W; the consumer clears the rows that no expert of this
 * rank takes; the storer writes them. */
#ifndef KEEL_OPS_EP_DISPATCH_H
#define KEEL_OPS_EP_DISPATCH_H

#include "device/types.h"

enum {
    EP_DISPATCH_X,   /* [M][n], on every rank */
    EP_DISPATCH_W,   /* [M][experts] */
    EP_DISPATCH_OUT, /* [M][W × n] */
    EP_DISPATCH_BUFFERS
};
enum {
    EP_DISPATCH_REGION_ROWS, /* [rows][hi − lo] of activations; goes back with the storer */
    EP_DISPATCH_REGION_W     /* [rows][experts] of activations; goes back with the consumer */
};

typedef struct ep_dispatch_params {
    kp_u32 n, world;   /* n: columns of x on each rank */
    kp_u32 experts;    /* of all ranks */
    kp_u32 first, own; /* experts of this rank */
    kp_u32 logit_rows; /* 1: only rows from logit_from are there */
} ep_dispatch_params;

#endif
