/* SPDX-License-Identifier: Apache-2.0 */
/* embedding: the row of the table that each token names, as activations.
 *
 *   out[r] = W[token[r]]
 *
 * Tokens come from the step record; that they are below the vocabulary is checked where they come in, by the host for
 * prompts and by the op that picks tokens. Tiling: columns [lo, hi), at most one tile a worker. Roles: the consumer
 * converts the live rows' pieces into REGION_ROWS, the storer writes them out; the region's pages go back with the
 * storer. */
#ifndef KEEL_OPS_EMBEDDING_H
#define KEEL_OPS_EMBEDDING_H

#include "device/types.h"

enum {
    EMBEDDING_W,   /* weight [vocab][hidden] */
    EMBEDDING_OUT, /* [M][hidden] */
    EMBEDDING_BUFFERS
};
enum { EMBEDDING_REGION_ROWS }; /* region [rows][hi − lo] */

typedef struct embedding_params {
    kp_u32 hidden;
    kp_u32 weight_dtype;
} embedding_params;

#endif
