/* SPDX-License-Identifier: Apache-2.0 */
/* The product of one stage of packed weights (device/columns.h, docs/hopper.md) with rows of x. bf16, or F8E4M3 with a
 * scale for each block of 128 columns, which becomes bf16 in registers (kd_f8_…). */
#ifndef KEEL_DEVICE_CUDA_WEIGHT_CUH
#define KEEL_DEVICE_CUDA_WEIGHT_CUH

#include "device/columns.h"
#include "device/cuda_body.cuh"

KP_FN int kd_is_f8(const kp_matmul *p) { return p->weight_dtype == KP_F8E4M3; }
KP_FN kp_u32 kd_band_bytes(const kp_matmul *p) { return kp_band_bytes(kd_is_f8(p), p->k, KD_STAGE_BYTES); }

typedef struct kd_acc {
    float v[4];
} kd_acc;

KP_FN void kd_mma(kd_acc *d, kd_vec a, kp_u32 b0, kp_u32 b1) { kx_mma_bf16(d->v, a, b0, b1); }

/* Two columns of x, `more` behind `at`, from SMEM or, where there are too many rows for it, from global memory. Two
 * numbers, of which the second is a constant: added up before, they would cost an addition a load. */
template <int STAGED> KP_FN kp_u32 kd_pair_of(const kd_act *x, kp_u32 at, kp_u32 more, kp_u32 k) {
    if (STAGED) return *(const kp_u32 *)(x + at + more);
    at += more;
    if (at + 1 < k && (k & 1u) == 0) return kx_ld32(x + at);
    kp_u32 low = at < k ? kd_load_act(x + at) : 0, high = at + 1 < k ? kd_load_act(x + at + 1) : 0;
    return low | high << 16;
}

/* Eight columns of x, `more` behind `at`, both multiples of 8; past k they are 0. */
template <int STAGED> KP_FN kd_vec kd_eight_of(const kd_act *x, kp_u32 at, kp_u32 more, kp_u32 k) {
    if (STAGED) return *(const kd_vec *)(x + at + more);
    kd_vec v = {{0, 0, 0, 0}};
    if (k % 8 == 0) { /* known when this is compiled */
        if (at + more < k) v = kd_load16(x + at + more);
        return v;
    }
#pragma unroll
    for (kp_u32 i = 0; i < 4; i++) v.w[i] = kd_pair_of<0>(x, at, more + 2 * i, k);
    return v;
}

/* ---- bf16: groups of KP_GROUP tiles, whose columns are dealt so that a thread's share of x is one run ---------- */

/* Sums that a row's products go to in turns: two where a pass may carry more than 8 rows, whoever is there. */
enum { KD_CHAINS = KD_M_MAX > 8 ? 2 : 4 };

template <int HALVES> struct kd_group { kd_vec a[KP_GROUP], x[HALVES][KP_GROUP / 2]; };
/* w: this thread's first vector of the group; at: its first column. */
template <int HALVES, int STAGED>
KP_FN void kd_group_load(kd_group<HALVES> *g, const kd_vec *w, const kd_act *x0, const kd_act *x1, kp_u32 at,
                         kp_u32 k) {
#pragma unroll
    for (int j = 0; j < KP_GROUP; j++) g->a[j] = w[j * KD_WARP];
#pragma unroll
    for (int i = 0; i < KP_GROUP / 2; i++) {
        g->x[0][i] = kd_eight_of<STAGED>(x0, at, i * 8, k);
        if (HALVES == 2) g->x[HALVES - 1][i] = kd_eight_of<STAGED>(x1, at, i * 8, k);
    }
}
template <int HALVES> KP_FN void kd_group_product(const kd_group<HALVES> *g, kd_acc *acc) {
#pragma unroll
    for (int j = 0; j < KP_GROUP; j++) {
#pragma unroll
        for (int h = 0; h < HALVES; h++)
            kd_mma(&acc[KD_CHAINS == 4 ? j : 2 * h + (j & 1)], g->a[j], g->x[h][j / 2].w[j % 2 * 2],
                   g->x[h][j / 2].w[j % 2 * 2 + 1]);
    }
}

/* One stage, `tiles` tiles from column `col` on, against up to 8 × HALVES rows of x. Loads run a group ahead of the
 * products; past the last pair of groups they load it again. */
template <int HALVES, int STAGED>
KP_FN void kd_stage_bf16(const kp_u8 *stage, kp_u32 tiles, const kd_act *x0, const kd_act *x1, kp_u32 col, kp_u32 k,
                         kd_acc *acc) {
    const kd_vec *w = (const kd_vec *)stage + kd_lane_thread();
    kp_u32 column = kd_lane_thread() % 4, pairs = tiles / (2 * KP_GROUP), t = pairs * 2 * KP_GROUP;
    kp_u32 at = col + column * KP_GROUP * 4;
    if (pairs) {
        kd_group<HALVES> even, odd;
        kd_group_load<HALVES, STAGED>(&even, w, x0, x1, at, k);
        KP_ROLLED
        for (kp_u32 p = 0; p < pairs; p++) {
            kp_u32 g = 2 * p + 1, next = p + 1 < pairs ? 2 * p + 2 : 2 * p;
            kd_group_load<HALVES, STAGED>(&odd, w + g * KP_GROUP * KD_WARP, x0, x1, at + g * KP_GROUP * 16, k);
            kd_group_product<HALVES>(&even, acc);
            kd_group_load<HALVES, STAGED>(&even, w + next * KP_GROUP * KD_WARP, x0, x1, at + next * KP_GROUP * 16, k);
            kd_group_product<HALVES>(&odd, acc);
        }
    }
    KP_ROLLED
    for (; t + KP_GROUP <= tiles; t += KP_GROUP) {
        kd_group<HALVES> one;
        kd_group_load<HALVES, STAGED>(&one, w + t * KD_WARP, x0, x1, at + t * 16, k);
        kd_group_product<HALVES>(&one, acc);
    }
    KP_ROLLED
    for (; t < tiles; t++) {
        kp_u32 c = col + t * 16 + column * 2;
        kd_mma(&acc[0], w[t * KD_WARP], kd_pair_of<STAGED>(x0, c, 0, k), kd_pair_of<STAGED>(x0, c, 8, k));
        if (HALVES == 2)
            kd_mma(&acc[2], w[t * KD_WARP], kd_pair_of<STAGED>(x1, c, 0, k), kd_pair_of<STAGED>(x1, c, 8, k));
    }
}

/* ---- F8E4M3 --------------------------------------------------------------------------------------- */

/* A register of two codes as bf16 but for 2^120, as the biases are 7 and 127: sign, exponent and mantissa where bf16
 * has them, in half of the register's bits. A word holds two registers, the second one turned into the other half. */
#define KD_F8_FIRST 0x87f087f0u
#define KD_F8_LOW 0x80f080f0u  /* of the second register, 4 bits up */
#define KD_F8_HIGH 0x07000700u /* and the rest of it, 12 bits round */
KP_FN kp_u32 kd_f8_spread(kp_u32 low, kp_u32 high) {
    kp_u32 codes = low | high << 16;
    return (codes & 0x00800080u) << 8 | (codes & 0x007f007fu) << 4;
}
KP_FN kp_u32 kd_f8_word(kp_u32 first, kp_u32 second) {
    kp_u32 low = second & KD_F8_LOW, high = second & KD_F8_HIGH;
    return first | low >> 4 | high >> 12 | high << 20;
}
KP_FN kp_u32 kd_f8_first(kp_u32 word) { return word & KD_F8_FIRST; }
KP_FN kp_u32 kd_f8_second(kp_u32 word) { return (word << 4 & KD_F8_LOW) | ((word << 12 | word >> 20) & KD_F8_HIGH); }

/* The product by 2^120 has every bit, and makes subnormal codes normal numbers. */
KP_FN kd_vec kd_f8_tile(kp_u32 low, kp_u32 high) {
    kd_vec a = {{kd_f8_first(low), kd_f8_second(low), kd_f8_first(high), kd_f8_second(high)}};
#pragma unroll
    for (int i = 0; i < 4; i++) a.w[i] = kx_mul_bf16x2(a.w[i], 0x7b807b80u);
    return a;
}

/* A thread's x for two tiles, 8 of their 32 columns, where a row of SMEM may end between the two. */
template <int STAGED> KP_FN kd_vec kd_f8_x_end(const kd_act *x, kp_u32 at, kp_u32 k) {
    if (!STAGED || at < kp_tiles(k) * 16) return kd_eight_of<STAGED>(x, at, 0, k);
    return {{0, 0, 0, 0}};
}

/* A block's sums, four a half, so that a product need not wait for the one before it. */
template <int HALVES> struct kd_f8_sums { kd_acc of[HALVES][4]; };
template <int HALVES> KP_FN void kd_f8_clear(kd_f8_sums<HALVES> *sum) {
#pragma unroll
    for (int i = 0; i < HALVES * 16; i++) sum->of[i / 16][i / 4 % 4].v[i % 4] = 0;
}

/* acc += a block's sums times its scale; the sums are 0 again. */
template <int HALVES> KP_FN void kd_f8_scale(kd_acc *acc, kd_f8_sums<HALVES> *sum, float scale) {
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        const kd_acc *s = sum->of[h];
#pragma unroll
        for (int e = 0; e < 4; e++) acc[2 * h].v[e] += scale * ((s[0].v[e] + s[1].v[e]) + (s[2].v[e] + s[3].v[e]));
    }
    kd_f8_clear<HALVES>(sum);
}

/* The two tiles of pair j into the sums. */
template <int HALVES> KP_FN void kd_f8_pair(kd_f8_sums<HALVES> *sum, int j, kd_vec t0, kd_vec t1, const kd_vec *x) {
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        kd_mma(&sum->of[h][j % 2 * 2], t0, x[h].w[0], x[h].w[1]);
        kd_mma(&sum->of[h][j % 2 * 2 + 1], t1, x[h].w[2], x[h].w[3]);
    }
}

/* What is less than a block, at a stage's end. */
template <int HALVES, int STAGED>
KP_FN void kd_f8_rest(const kd_vec *w, kp_u32 t, kp_u32 tiles, const kd_act *x0, const kd_act *x1, kp_u32 at, kp_u32 k,
                      kd_f8_sums<HALVES> *sum) {
    KP_ROLLED
    for (; t < tiles; t += 2) {
        kd_vec a = w[t / 2 * KD_WARP], x[HALVES];
        x[0] = kd_f8_x_end<STAGED>(x0, at + t * 16, k);
        if (HALVES == 2) x[HALVES - 1] = kd_f8_x_end<STAGED>(x1, at + t * 16, k);
        kd_f8_pair<HALVES>(sum, 0, kd_f8_tile(a.w[0], a.w[1]), kd_f8_tile(a.w[2], a.w[3]), x);
    }
}

/* Whole blocks. While one is multiplied the weights of the next come, of which the first two tiles are made ready, and
 * the sums of the one before are scaled: a warp has its part of the machine to itself, and nobody else fills its waits.
 * One turn of the loop fits the first instruction cache; unrolled, the bodies of a layer pushed each other out of the
 * last. */
template <int HALVES, int STAGED>
KP_FN void kd_f8_blocks(const kd_vec *w, const float *scale, kp_u32 blocks, const kd_act *x0, const kd_act *x1,
                        kp_u32 at, kp_u32 k, kd_acc *acc, kd_f8_sums<HALVES> *sum) {
    enum { PAIRS = KP_F8_BLOCK / 32 };
    int mine = KD_M_MAX > 1 || kd_lane_thread() < 4; /* with one row, only the first column of the product counts */
    kd_vec a[PAIRS], x[PAIRS][HALVES];
    float before = 0;
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        a[j] = w[j * KD_WARP];
        x[j][0] = x[j][HALVES - 1] = {{0, 0, 0, 0}};
    }
    kd_vec t0 = kd_f8_tile(a[0].w[0], a[0].w[1]), t1 = kd_f8_tile(a[0].w[2], a[0].w[3]);
    KP_ROLLED
    for (kp_u32 b = 0; b < blocks; b++, at += KP_F8_BLOCK) {
        if (mine) {
#pragma unroll
            for (int j = 0; j < PAIRS; j++) {
                x[j][0] = kd_eight_of<STAGED>(x0, at, j * 32, k);
                if (HALVES == 2) x[j][HALVES - 1] = kd_eight_of<STAGED>(x1, at, j * 32, k);
            }
        }
        kd_vec t[PAIRS][2] = {{t0, t1}};
#pragma unroll
        for (int j = 1; j < PAIRS; j++) {
            t[j][0] = kd_f8_tile(a[j].w[0], a[j].w[1]);
            t[j][1] = kd_f8_tile(a[j].w[2], a[j].w[3]);
        }
        if (b + 1 < blocks) w += PAIRS * KD_WARP;
#pragma unroll
        for (int j = 0; j < PAIRS; j++) a[j] = w[j * KD_WARP];
        kd_f8_scale<HALVES>(acc, sum, before);
        before = scale[b];
#pragma unroll
        for (int j = 0; j < PAIRS; j++) kd_f8_pair<HALVES>(sum, j, t[j][0], t[j][1], x[j]);
        t0 = kd_f8_tile(a[0].w[0], a[0].w[1]), t1 = kd_f8_tile(a[0].w[2], a[0].w[3]);
    }
    kd_f8_scale<HALVES>(acc, sum, before);
}

/* One stage of F8E4M3, as of bf16. */
template <int HALVES, int STAGED>
KP_FN void kd_stage_f8(const kp_u8 *stage, kp_u32 tiles, const kd_act *x0, const kd_act *x1, kp_u32 col, kp_u32 k,
                       kd_acc *acc) {
    enum { BLOCK = KP_F8_BLOCK / 16 };
    const kd_vec *w = (const kd_vec *)stage + kd_lane_thread();
    const float *scale = (const float *)(stage + kp_stage_codes(1, tiles));
    kp_u32 at = col + kd_lane_thread() % 4 * 8;
    kp_u32 blocks = kx_opaque(tiles / BLOCK); /* a loop of 8 turns at most would be unrolled */
    kd_f8_sums<HALVES> sum;
    kd_f8_clear<HALVES>(&sum);
    if (blocks) kd_f8_blocks<HALVES, STAGED>(w, scale, blocks, x0, x1, at, k, acc, &sum);
    if (tiles % BLOCK == 0) return;
    kd_f8_rest<HALVES, STAGED>(w, blocks * BLOCK, tiles, x0, x1, at, k, &sum);
    kd_f8_scale<HALVES>(acc, &sum, scale[blocks]);
}

/* One stage of either type. */
template <int HALVES, int STAGED, int F8>
KP_FN void kd_stage_product(const kp_u8 *stage, kp_u32 tiles, const kd_act *x0, const kd_act *x1, kp_u32 col, kp_u32 k,
                            kd_acc *acc) {
    if (F8)
        kd_stage_f8<HALVES, STAGED>(stage, tiles, x0, x1, col, k, acc);
    else
        kd_stage_bf16<HALVES, STAGED>(stage, tiles, x0, x1, col, k, acc);
}

#endif
