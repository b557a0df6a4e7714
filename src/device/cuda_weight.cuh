/* SPDX-License-Identifier: Apache-2.0 */
/* The product of one stage of packed weights (device/columns.h, docs/hopper.md) with rows of x. bf16, or F8E4M3 with a
 * scale for each block of 128 columns, which becomes bf16 in registers. */
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

/* Two columns of x at `at`, from SMEM or, where there are too many rows for it, from global memory. */
template <int STAGED> KP_FN kp_u32 kd_pair_of(const kd_act *x, kp_u32 at, kp_u32 k) {
    if (STAGED) return *(const kp_u32 *)(x + at);
    if (at + 1 < k && (k & 1u) == 0) return kx_ld32(x + at);
    kp_u32 low = at < k ? kd_load_act(x + at) : 0, high = at + 1 < k ? kd_load_act(x + at + 1) : 0;
    return low | high << 16;
}

/* Bytes 1 and 3 of q, e4m3, as two bf16, exactly: sign, exponent and mantissa where bf16 has them are 2^-120 of the
 * value, as the biases are 7 and 127; the product has every bit, and makes subnormal codes normal numbers. */
KP_FN kp_u32 kd_bf16x2_of_f8(kp_u32 q) {
    return kx_mul_bf16x2((q & 0x80008000u) | (q >> 4 & 0x07f007f0u), 0x7b807b80u);
}
KP_FN kd_vec kd_tile_of_f8(kp_u32 low, kp_u32 high) {
    kd_vec a;
    a.w[0] = kd_bf16x2_of_f8(low);
    a.w[1] = kd_bf16x2_of_f8(low << 8);
    a.w[2] = kd_bf16x2_of_f8(high);
    a.w[3] = kd_bf16x2_of_f8(high << 8);
    return a;
}

/* Tile j of what w holds: a vector each, or two in one. */
template <int F8> KP_FN kd_vec kd_tile_of(const kd_vec *w, int j) {
    if (!F8) return w[j];
    return j & 1 ? kd_tile_of_f8(w[j / 2].w[2], w[j / 2].w[3]) : kd_tile_of_f8(w[j / 2].w[0], w[j / 2].w[1]);
}

/* acc of a block's sums: F8 times the block's scale, and then the sums are 0 again. */
template <int HALVES> KP_FN void kd_scale_into(kd_acc *acc, kd_acc *sum, float scale) {
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            acc[2 * h].v[e] += scale * (sum[2 * h].v[e] + sum[2 * h + 1].v[e]);
            sum[2 * h].v[e] = sum[2 * h + 1].v[e] = 0;
        }
    }
}

/* One stage, `tiles` tiles from column `col` on, against up to 8 × HALVES rows of x. */
template <int HALVES, int STAGED, int F8>
KP_FN void kd_stage_product(const kp_u8 *stage, kp_u32 tiles, const kd_act *x0, const kd_act *x1, kp_u32 col, kp_u32 k,
                            kd_acc *acc) {
    enum { AT_ONCE = KP_F8_BLOCK / 16, VECS = F8 ? AT_ONCE / 2 : AT_ONCE };
    const kd_vec *w = (const kd_vec *)stage + kd_lane_thread();
    const float *scale = (const float *)(stage + kp_stage_codes(F8, tiles));
    kp_u32 at = col + kd_lane_thread() % 4 * 2, t = 0;
    kd_acc block[2 * HALVES], *sum = F8 ? block : acc;
#pragma unroll
    for (int i = 0; i < 2 * HALVES; i++) block[i].v[0] = block[i].v[1] = block[i].v[2] = block[i].v[3] = 0;
    KP_ROLLED
    for (; t + AT_ONCE <= tiles; t += AT_ONCE) {
        kd_vec a[VECS];
        kp_u32 b[HALVES][AT_ONCE][2];
#pragma unroll
        for (int j = 0; j < VECS; j++) a[j] = w[(t / AT_ONCE * VECS + j) * KD_WARP];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            b[0][j][0] = kd_pair_of<STAGED>(x0, at + (t + j) * 16, k);
            b[0][j][1] = kd_pair_of<STAGED>(x0, at + (t + j) * 16 + 8, k);
            if (HALVES == 2) {
                b[HALVES - 1][j][0] = kd_pair_of<STAGED>(x1, at + (t + j) * 16, k);
                b[HALVES - 1][j][1] = kd_pair_of<STAGED>(x1, at + (t + j) * 16 + 8, k);
            }
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            kd_vec tile = kd_tile_of<F8>(a, j);
            kd_mma(&sum[j & 1], tile, b[0][j][0], b[0][j][1]);
            if (HALVES == 2) kd_mma(&sum[2 + (j & 1)], tile, b[HALVES - 1][j][0], b[HALVES - 1][j][1]);
        }
        if (F8) kd_scale_into<HALVES>(acc, sum, scale[t / AT_ONCE]);
    }
    if (t == tiles) return;
    kp_u32 last = t / AT_ONCE;
    KP_ROLLED
    for (; t < tiles; t++) {
        kd_vec a = w[(F8 ? t / 2 : t) * KD_WARP];
        if (F8) a = t & 1 ? kd_tile_of_f8(a.w[2], a.w[3]) : kd_tile_of_f8(a.w[0], a.w[1]);
        kd_mma(&sum[0], a, kd_pair_of<STAGED>(x0, at + t * 16, k), kd_pair_of<STAGED>(x0, at + t * 16 + 8, k));
        if (HALVES == 2)
            kd_mma(&sum[2], a, kd_pair_of<STAGED>(x1, at + t * 16, k), kd_pair_of<STAGED>(x1, at + t * 16 + 8, k));
    }
    if (F8) kd_scale_into<HALVES>(acc, sum, scale[last]);
}

#endif
