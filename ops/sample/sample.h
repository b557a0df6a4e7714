/* SPDX-License-Identifier: Apache-2.0 */
/* sample: a random choice of the next token from the last row's logits, in the order of Hugging Face's processors:
 *
 *   temperature  s = logit / temperature; 0 (or less): the argmax
 *   top-k        keep s ≥ the k-th largest s, so ties with it stay; 0 or ≥ vocab: all
 *   top-p        keep a token while the probabilities of those before it (larger s; then lower index) sum to less than
 *                top_p; the first always stays; ≤ 0 or ≥ 1: all
 *   draw         the inverse of the cumulative distribution, in index order, at a number hashed from (seed, n_out)
 *
 * The same request gives the same tokens on any number of workers and lanes. NaN is never drawn. A vocabulary is never
 * sorted: both cuts are found by radix selection over the bits of s, three passes whatever the values. */
#ifndef KEEL_OPS_SAMPLE_H
#define KEEL_OPS_SAMPLE_H

#include "device/types.h"

enum {
    SAMPLE_LOGITS, /* [M_LOGIT][vocab] */
    SAMPLE_WORK,   /* scratch [2][vocab]: order keys, then probabilities before normalisation */
    SAMPLE_BUFFERS
};
enum { SAMPLE_REGION_TOKEN }; /* one kp_u32 */

typedef struct sample_params {
    kp_u32 vocab;
} sample_params;

/* Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA 2014), the finaliser of SplitMix64. */
KP_FN kp_u64 sample_mix(kp_u64 z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The number in [0, 1) that decides token n of a request. */
KP_FN double sample_uniform(kp_u32 seed, kp_u32 n) {
    kp_u64 z = sample_mix(sample_mix((kp_u64)seed + 0x9e3779b97f4a7c15u) + ((kp_u64)n + 1) * 0x9e3779b97f4a7c15u);
    return (double)(z >> 11) * 0x1p-53;
}

#endif
