/* SPDX-License-Identifier: Apache-2.0 */
/* argmax: the greedy choice of the next token from the last row's logits.
 *
 * Phase "partial": each tile of the vocabulary finds its largest logit. Phase "reduce": one task picks the largest of
 * those, hands the token over (device/emit.h) and, where the request wants them, copies the logits. The lowest index
 * wins a tie. NaN never wins; with nothing but NaN or −∞ the token is 0. A pass that predicts nothing leaves both idle.
 */
#ifndef KEEL_OPS_ARGMAX_H
#define KEEL_OPS_ARGMAX_H

#include "device/types.h"

enum {
    ARGMAX_LOGITS, /* [M_LOGIT][vocab] */
    ARGMAX_BEST,   /* scratch [tiles]: argmax_best */
    ARGMAX_BUFFERS
};
enum { ARGMAX_REGION_LANES }; /* partial: [ARGMAX_LANES_MAX] argmax_best of each consumer lane */
enum { ARGMAX_LANES_MAX = 8 };

typedef struct argmax_best {
    float value;
    kp_u32 index;
} argmax_best;

typedef struct argmax_params {
    kp_u32 vocab, tiles;
} argmax_params;

#endif
