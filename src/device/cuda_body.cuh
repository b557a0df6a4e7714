/* SPDX-License-Identifier: Apache-2.0 */
/* What CUDA role bodies have in common: activations are bf16 in global memory and in regions; arithmetic is f32.
 * KD_BODY(op, phase, ROLE) begins a body; phase is `main` where the op has one. The generator of the body table reads
 * these lines, so each stands on a line of its own. */
#ifndef KEEL_DEVICE_CUDA_BODY_CUH
#define KEEL_DEVICE_CUDA_BODY_CUH

#include "device/cuda_prim.cuh"

#define KD_BODY(op, phase, ROLE) KP_FN void kd_##op##_##phase##_##ROLE(kp_ctx *c)
/* The launcher's part before the task's events: what no task of this run writes, into regions of the task. Pages are
 * its own by then. */
#define KD_EARLY(op, phase) KP_FN void kd_##op##_##phase##_EARLY(kp_ctx *c)

typedef kp_u16 kd_act;
#define KB_ACT_BYTES 2u

typedef kx_vec kd_vec;

KP_FN float kd_f32(kd_act v) { return kx_f32_of_bits((kp_u32)v << 16); }
KP_FN kd_act kd_round(float v) { return kx_bf16_of_f32(v); }
KP_FN kp_u32 kd_round2(float low, float high) { return kx_bf16x2_of_f32(low, high); }
KP_FN float kd_low(kp_u32 pair) { return kx_f32_of_bits(pair << 16); }
KP_FN float kd_high(kp_u32 pair) { return kx_f32_of_bits(pair & 0xffff0000u); }

/* Global memory that other workers write: not through the first-level cache. */
KP_FN kd_vec kd_load16(const void *p) { return kx_ld128(p); }
KP_FN kd_act kd_load_act(const kd_act *p) { return kx_ld16(p); }
KP_FN float kd_load_f32(const float *p) { return kx_ld_f32(p); }
/* Weights: written by nobody while the kernel runs. */
KP_FN kd_vec kd_weight16(const void *p) { return kx_ld128_const(p); }

KP_FN float kd_warp_sum(float v) {
    for (kp_u32 o = KD_WARP / 2; o; o >>= 1) v += kx_shfl_xor(v, o);
    return v;
}

/* The live rows [first, end) of a tensor, from logit_from on where logit_rows is 1. */
KP_FN kp_u32 kd_rows_first(const kp_ctx *c, kp_u32 logit_rows) { return kb_rows_from(c, logit_rows); }

/* All threads of the role: n vectors, each loaded and then put. All of a batch are on their way before the first is put
 * down: a trip to the second-level cache costs more than the copy. The first half of each test is known when this is
 * compiled wherever n is. */
enum { KD_AT_ONCE = KD_M_MAX > 1 ? 8 : 12 }; /* with more the launcher runs out of registers */
template <class Load, class Put> KP_FN void kd_move(const kp_ctx *c, kp_u32 n, Load load, Put put) {
    kp_u32 all = kd_threads(c), me = kd_thread(c);
#pragma unroll 1
    for (kp_u32 base = 0; base < n; base += KD_AT_ONCE * all) {
        kd_vec v[KD_AT_ONCE];
#pragma unroll
        for (kp_u32 j = 0; j < KD_AT_ONCE; j++) { /* the first test is for the compiler, where n is a constant */
            if (base + j * all < n && base + j * all + me < n) v[j] = load(base + j * all + me);
        }
#pragma unroll
        for (kp_u32 j = 0; j < KD_AT_ONCE; j++) {
            if (base + j * all < n && base + j * all + me < n) put(base + j * all + me, v[j]);
        }
    }
}

/* All threads of the role: columns [lo, hi) of the live rows of [rows][cols] in global memory, packed into `to`. */
KP_FN void kd_fetch(kp_ctx *c, kd_act *to, const void *from, kp_u32 cols, kp_u32 lo, kp_u32 hi, kp_u32 logit_rows) {
    kp_u32 first = kd_rows_first(c, logit_rows), rows = kb_rows_live(c) - first, width = hi - lo;
    const kd_act *at = (const kd_act *)from + (kp_u64)first * cols + lo;
    if (((cols | lo | width) & 7u) == 0) {
        kp_u32 vecs = width / 8;
        kd_move(
            c, rows * vecs,
            [=](kp_u32 i) {
                kp_u32 r = rows == 1 ? 0 : i / vecs;
                return kd_load16(at + (kp_u64)r * cols + (i - r * vecs) * 8);
            },
            [=](kp_u32 i, kd_vec v) { *(kd_vec *)(to + (kp_u64)i * 8) = v; });
    } else {
        for (kp_u32 i = kd_thread(c); i < rows * width; i += kd_threads(c))
            to[i] = kd_load_act(at + (kp_u64)(i / width) * cols + i % width);
    }
}

/* The way back: packed rows of `from` into columns [lo, hi). */
KP_FN void kd_store(kp_ctx *c, const kd_act *from, void *to, kp_u32 cols, kp_u32 lo, kp_u32 hi, kp_u32 logit_rows) {
    kp_u32 first = kd_rows_first(c, logit_rows), rows = kb_rows_live(c) - first, width = hi - lo;
    kd_act *at = (kd_act *)to + (kp_u64)first * cols + lo;
    if (((cols | lo | width) & 7u) == 0) {
        kp_u32 vecs = width / 8;
        for (kp_u32 i = kd_thread(c); i < rows * vecs; i += kd_threads(c))
            *(kd_vec *)(at + (kp_u64)(i / vecs) * cols + (i % vecs) * 8) = *(const kd_vec *)(from + (kp_u64)i * 8);
    } else {
        for (kp_u32 i = kd_thread(c); i < rows * width; i += kd_threads(c))
            at[(kp_u64)(i / width) * cols + i % width] = from[i];
    }
}

#endif
