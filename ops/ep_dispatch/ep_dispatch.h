/* SPDX-License-Identifier: Apache-2.0 */
/* ep_dispatch: the rows that experts of this rank take, put together from the columns that the ranks hold.
 *
 *   out[r][c] = x_{c / n}[r][c mod n] where Σ_e |w[r][e]| > 0 over this rank's experts e, else 0
 *
 * w has the router's weights, 0 where an expert was not chosen. With E expert groups rank i has the experts of group
 * i / (W / E), experts / E of them. What comes out differs from rank to rank, so it counts as sharded. */
#ifndef KEEL_OPS_EP_DISPATCH_H
#define KEEL_OPS_EP_DISPATCH_H

#include "device/types.h"

enum {
    EP_DISPATCH_X,   /* [M][n], on every rank */
    EP_DISPATCH_W,   /* [M][experts] */
    EP_DISPATCH_OUT, /* [M][W × n] */
    EP_DISPATCH_BUFFERS
};

#endif
