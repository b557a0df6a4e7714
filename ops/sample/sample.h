/* SPDX-License-Identifier: Apache-2.0 */
/* sample: a random choice of the next token from the last row's logits, in the order of Hugging Face's processors:
 *
 *   temperature  s = logit / temperature; 0 (or less): the argmax
 *   top-k        keep logits ≥ the k-th largest, so ties with it stay; 0 or ≥ vocab: all
 *   top-p        keep a token while the probabilities of those before it (larger logit; then lower index) sum to less
 *                than top_p; the first always stays; ≤ 0 or ≥ 1: all
 *   draw         the inverse of the cumulative distribution, in index order, at a number hashed from (seed, n_out)
 *
 * The same logits and the same request give the same token on any number of workers and lanes, on the CPU and on a GPU,
 * by construction: e^(s − max) is an integer, made with integer arithmetic after one division and one subtraction that
 * IEEE 754 rounds in one way; sums of integers have no order; cuts compare integers. NaN is never drawn.
 *
 * On a GPU three phases: "best" finds the largest logit of every part of the vocabulary, "gather" sums each part's
 * weights and lists its candidates, the logits that reach the J-th largest of the parts' best ones (J = top_k: then at
 * least k logits are listed, and among them the k largest); "pick" is one task over the list. Where the list is too
 * short for top_p, or too long (many equal logits), it searches all logits, which takes longer and gives the same.
 * On the CPU "pick" alone does it all: both cuts by radix selection over the bits of the logits. */
#ifndef KEEL_OPS_SAMPLE_H
#define KEEL_OPS_SAMPLE_H

#include "device/types.h"

enum {
    SAMPLE_LOGITS, /* [M_LOGIT][vocab] */
    /* CPU */
    SAMPLE_WORK, /* scratch: [vocab] weights, then [vocab] order keys */
    /* GPU */
    SAMPLE_BEST = 1, /* scratch [tiles][SAMPLE_PARTS] sample_best */
    SAMPLE_SUMS,     /* scratch [tiles][SAMPLE_PARTS] sample_sum */
    SAMPLE_LISTS,    /* scratch [tiles][SAMPLE_PARTS][SAMPLE_EACH] sample_candidate */
    SAMPLE_BUFFERS
};
enum {
    SAMPLE_REGION_TOKEN,    /* pick: one kp_u32 */
    SAMPLE_REGION_LIST = 1, /* pick on a GPU: sample_list */
    SAMPLE_REGION_KEYS = 0  /* gather: [parts] order keys of the best ones */
};
enum {
    SAMPLE_PARTS = 4,     /* of a tile, each the work of one warp */
    SAMPLE_TILES = 256,   /* at most */
    SAMPLE_EACH = 64,     /* candidates of a part */
    SAMPLE_LIST = 640,    /* candidates of all */
    SAMPLE_SURE = 192,    /* J where only top_p cuts */
    SAMPLE_LANES_MAX = 8, /* of the consumer */
};

typedef struct sample_params {
    kp_u32 vocab, tiles;
    kp_u32 each; /* logits a part: part i of all is [i × each, (i + 1) × each) */
} sample_params;

typedef struct sample_best {
    float value;
    kp_u32 index;
} sample_best;
typedef struct sample_sum {
    kp_u64 weight;
    kp_u32 candidates, pad;
} sample_sum;
typedef sample_best sample_candidate;

/* What pick works on, in SMEM. The second half is of the search over all logits. */
typedef struct sample_list {
    kp_u64 weight[SAMPLE_LIST], before[SAMPLE_LIST]; /* before: of all that come first in the order of top-p */
    kp_u32 key[SAMPLE_LIST], index[SAMPLE_LIST], larger[SAMPLE_LIST];
    kp_u32 first[SAMPLE_TILES * SAMPLE_PARTS + 1]; /* of a part in this list */
    kp_u64 sum[SAMPLE_LANES_MAX][16];
    kp_u32 owner, ties_before;
    kp_u64 rest;
} sample_list;

/* ---- the arithmetic that all backends share ------------------------------------------------------ */

/* Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA 2014), the finaliser of SplitMix64. */
KP_FN kp_u64 sample_mix(kp_u64 z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The number that decides token n of a request, of [0, 2^64). */
KP_FN kp_u64 sample_number(kp_u32 seed, kp_u32 n) {
    return sample_mix(sample_mix((kp_u64)seed + 0x9e3779b97f4a7c15u) + ((kp_u64)n + 1) * 0x9e3779b97f4a7c15u);
}

/* Unsigned integers in the order of the floats; NaN below everything, −0 equal to 0. */
KP_FN kp_u32 sample_key(float f) {
    union {
        float f;
        kp_u32 u;
    } x;
    x.f = f + 0.0f;
    if (f != f) return 0;
    return x.u & 0x80000000u ? ~x.u : x.u | 0x80000000u;
}

KP_FN int sample_infinite(float f) { return f - f != 0 && f == f; }

/* 2^40 × e^d for d ≤ 0, from −28 downwards 0. d in units of 2^−26 is exact down to 2^−26 itself; −d / ln 2 splits into
 * a whole number of halvings and a rest, whose exponential is Taylor's, ten terms in units of 2^−32. */
KP_FN kp_u64 sample_exp(float d) {
    if (!(d > -28.0f)) return 0;
    kp_u64 halvings = (kp_u64)(kp_u32)(-d * 67108864.0f) * 6196328019u; /* × 2^32 / ln 2: units of 2^−58 */
    kp_u64 u = (halvings >> 26 & 0xffffffffu) * 2977044472u >> 32;      /* × ln 2 */
    kp_u64 p = 1184;                                                    /* 2^32 / 10!, then / 9! … */
    p = 11836 - (u * p >> 32);
    p = 106522 - (u * p >> 32);
    p = 852176 - (u * p >> 32);
    p = 5965232 - (u * p >> 32);
    p = 35791394 - (u * p >> 32);
    p = 178956971 - (u * p >> 32);
    p = 715827883 - (u * p >> 32);
    p = 2147483648u - (u * p >> 32);
    p = 4294967296u - (u * p >> 32);
    p = 4294967296u - (u * p >> 32);
    return p << 8 >> (halvings >> 58);
}

/* What a token weighs, s and max being logits by temperature. Infinite ones share everything. */
KP_FN kp_u64 sample_weight(float s, float max) {
    if (s != s) return 0;
    if (sample_infinite(max)) return s == max ? (kp_u64)1 << 40 : 0;
    return sample_exp(s - max);
}

/* ⌈p × total⌉ for 0 < p < 1 and a total below 2^63. */
KP_FN kp_u64 sample_share(float p, kp_u64 total) {
    kp_u64 f = (kp_u64)(p * 4294967296.0f);
    return (total >> 32) * f + (((total & 0xffffffffu) * f + 0xffffffffu) >> 32);
}

/* ⌊number × total / 2^64⌋: the token drawn is the first whose weight and those before it sum to more. */
KP_FN kp_u64 sample_scale(kp_u64 number, kp_u64 total) {
    kp_u64 ah = number >> 32, al = number & 0xffffffffu, bh = total >> 32, bl = total & 0xffffffffu;
    kp_u64 low = ah * bl + (al * bl >> 32), mid = al * bh + (low & 0xffffffffu);
    return ah * bh + (low >> 32) + (mid >> 32);
}

#endif
