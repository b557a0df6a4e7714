/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA bodies of the tasks that device/columns.h describes. */
#ifndef KEEL_DEVICE_CUDA_COLUMNS_CUH
#define KEEL_DEVICE_CUDA_COLUMNS_CUH

#include "device/columns.h"
#include "device/cuda_body.cuh"
#include "device/cuda_stream.cuh"

KP_FN void kd_pair_fetch(kp_ctx *c, kp_u32 a, kp_u32 b) {
    const kp_pair *p = (const kp_pair *)kb_params(c);
    kd_fetch(c, (kd_act *)kb_region(c, KP_PAIR_OUT), kb_buffer(c, a), p->n, c->task->lo, c->task->hi, p->logit_rows);
    kd_fetch(c, (kd_act *)kb_region(c, KP_PAIR_B), kb_buffer(c, b), p->n, c->task->lo, c->task->hi, p->logit_rows);
}

template <class F> KP_FN void kd_pair_do(kp_ctx *c, F f) {
    const kp_pair *p = (const kp_pair *)kb_params(c);
    kd_act *out = (kd_act *)kb_region(c, KP_PAIR_OUT);
    const kd_act *b = (const kd_act *)kb_region(c, KP_PAIR_B);
    kp_u32 n = (kb_rows_live(c) - kd_rows_first(c, p->logit_rows)) * (c->task->hi - c->task->lo);
    for (kp_u32 i = kd_thread(c); i < n; i += kd_threads(c)) out[i] = kd_round(f(kd_f32(out[i]), kd_f32(b[i])));
}

KP_FN void kd_pair_store(kp_ctx *c, kp_u32 out) {
    const kp_pair *p = (const kp_pair *)kb_params(c);
    kd_store(c, (const kd_act *)kb_region(c, KP_PAIR_OUT), kb_buffer(c, out), p->n, c->task->lo, c->task->hi,
             p->logit_rows);
}

/* ---- y = x Wᵀ ----------------------------------------------------------------------------------- */

/* Bytes of a band of 16 rows of the packed weight. */
KP_FN kp_u32 kd_band_bytes(kp_u32 k) { return (k + 15) / 16 * 512; }

/* The loader: the task's bands, stage by stage. */
KP_FN void kd_matmul_stream(kp_ctx *c, kp_u32 weight) {
    const kp_matmul *p = (const kp_matmul *)kb_params(c);
    kp_u32 band = kd_band_bytes(p->k), bands = (c->task->hi - c->task->lo + 15) / 16;
    const kp_u8 *w = (const kp_u8 *)kb_buffer(c, weight) + (kp_u64)(c->task->lo / 16) * band;
    for (kp_u32 b = 0; b < bands; b++, w += band) {
        for (kp_u32 at = 0; at < band; at += KD_STAGE_BYTES) {
            if (!kd_push(c, w + at, band - at < KD_STAGE_BYTES ? band - at : KD_STAGE_BYTES)) return;
        }
    }
}

KP_FN int kd_x_staged(const kp_ctx *c, const kp_matmul *p) {
    return kb_rows_live(c) - kd_rows_first(c, p->logit_rows) <= p->x_rows;
}

/* The launcher: live rows of x into SMEM, x_pitch apart; the end of a row is 0 up to a multiple of 16. */
KP_FN void kd_matmul_fetch(kp_ctx *c, kp_u32 x) {
    const kp_matmul *p = (const kp_matmul *)kb_params(c);
    if (!kd_x_staged(c, p)) return;
    kp_u32 first = kd_rows_first(c, p->logit_rows), rows = kb_rows_live(c) - first, k = p->k, pitch = p->x_pitch;
    kd_act *to = (kd_act *)kb_region(c, KP_MATMUL_X);
    const kd_act *from = (const kd_act *)kb_buffer(c, x) + (kp_u64)first * k;
    if (k % 8 == 0) {
        kp_u32 vecs = k / 8;
        kd_move(
            c, rows * vecs, [=](kp_u32 i) { return kd_load16(from + (kp_u64)i * 8); },
            [=](kp_u32 i, kd_vec v) { *(kd_vec *)(to + i / vecs * pitch + i % vecs * 8) = v; });
    } else {
        for (kp_u32 i = kd_thread(c); i < rows * k; i += kd_threads(c))
            to[i / k * pitch + i % k] = kd_load_act(from + i);
    }
    kp_u32 more = (k + 15) / 16 * 16 - k;
    if (more == 0) return;
    for (kp_u32 i = kd_thread(c); i < rows * more; i += kd_threads(c)) to[i / more * pitch + k + i % more] = 0;
}

/* The launcher: the residual's columns, which would keep the storer waiting. [rows][hi − lo] */
KP_FN void kd_matmul_fetch_residual(kp_ctx *c, kp_u32 residual) {
    const kp_matmul *p = (const kp_matmul *)kb_params(c);
    kd_fetch(c, (kd_act *)kb_region(c, KP_MATMUL_R), kb_buffer(c, residual), p->n, c->task->lo, c->task->hi,
             p->logit_rows);
}

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

/* One stage, `tiles` tiles from column `col` on, against up to 8 × HALVES rows of x. */
template <int HALVES, int STAGED>
KP_FN void kd_matmul_stage(const kp_u8 *stage, kp_u32 tiles, const kd_act *x0, const kd_act *x1, kp_u32 col, kp_u32 k,
                           kd_acc *acc) {
    enum { AT_ONCE = 8 };
    const kd_vec *w = (const kd_vec *)stage + kd_lane_thread();
    kp_u32 at = col + kd_lane_thread() % 4 * 2;
    kp_u32 t = 0;
    for (; t + AT_ONCE <= tiles; t += AT_ONCE) {
        kd_vec a[AT_ONCE];
        kp_u32 b[HALVES][AT_ONCE][2];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            a[j] = w[(t + j) * KD_WARP];
            b[0][j][0] = kd_pair_of<STAGED>(x0, at + (t + j) * 16, k);
            b[0][j][1] = kd_pair_of<STAGED>(x0, at + (t + j) * 16 + 8, k);
            if (HALVES == 2) {
                b[HALVES - 1][j][0] = kd_pair_of<STAGED>(x1, at + (t + j) * 16, k);
                b[HALVES - 1][j][1] = kd_pair_of<STAGED>(x1, at + (t + j) * 16 + 8, k);
            }
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            kd_mma(&acc[j & 1], a[j], b[0][j][0], b[0][j][1]);
            if (HALVES == 2) kd_mma(&acc[2 + (j & 1)], a[j], b[HALVES - 1][j][0], b[HALVES - 1][j][1]);
        }
    }
    for (; t < tiles; t++) {
        kd_vec a = w[t * KD_WARP];
        kd_mma(&acc[0], a, kd_pair_of<STAGED>(x0, at + t * 16, k), kd_pair_of<STAGED>(x0, at + t * 16 + 8, k));
        if (HALVES == 2)
            kd_mma(&acc[2], a, kd_pair_of<STAGED>(x1, at + t * 16, k), kd_pair_of<STAGED>(x1, at + t * 16 + 8, k));
    }
}

/* The consumer's lanes: every band, each lane its stages; a lane's sums are one part of y. */
template <int HALVES, int STAGED>
KP_FN void kd_matmul_rows(kp_ctx *c, const kp_matmul *p, const kd_act *x, kp_u32 rows) {
    kp_u32 band = kd_band_bytes(p->k), width = c->task->hi - c->task->lo, bands = (width + 15) / 16;
    kp_u32 stages = (band + KD_STAGE_BYTES - 1) / KD_STAGE_BYTES, lanes = kd_lanes(KP_CONSUMER);
    kp_u32 group = kd_lane_thread() / 4, column = kd_lane_thread() % 4 * 2, pitch = STAGED ? p->x_pitch : p->k;
    const kd_act *x0 = x + (kp_u64)(group < rows ? group : 0) * pitch;
    const kd_act *x1 = x + (kp_u64)(group + 8 < rows ? group + 8 : 0) * pitch;
    float *y = (float *)kb_region(c, KP_MATMUL_Y) + (kp_u64)c->lane * rows * bands * 16;
    kp_u32 k0 = c->stream;
    for (kp_u32 b = 0; b < bands; b++) {
        kd_acc acc[2 * HALVES];
#pragma unroll
        for (int i = 0; i < 2 * HALVES; i++) acc[i].v[0] = acc[i].v[1] = acc[i].v[2] = acc[i].v[3] = 0;
        kp_u32 from = (c->lane + lanes - (k0 + b * stages) % lanes) % lanes;
        for (kp_u32 s = from; s < stages; s += lanes) {
            kp_u32 n = k0 + b * stages + s, bytes = band - s * KD_STAGE_BYTES;
            if (bytes > KD_STAGE_BYTES) bytes = KD_STAGE_BYTES;
            if (!kd_take(c, n)) return;
            kd_matmul_stage<HALVES, STAGED>(kd_stage(n), bytes / 512, x0, x1, s * (KD_STAGE_BYTES / 32), p->k, acc);
            kd_give(c, n);
        }
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                kp_u32 r = h * 8 + column + (e & 1);
                if (r < rows)
                    y[(kp_u64)r * bands * 16 + b * 16 + group + (e >> 1) * 8] = acc[2 * h].v[e] + acc[2 * h + 1].v[e];
            }
        }
    }
    c->stream = k0 + bands * stages;
}

KP_FN void kd_matmul(kp_ctx *c, kp_u32 x) {
    const kp_matmul *p = (const kp_matmul *)kb_params(c);
    kp_u32 first = kd_rows_first(c, p->logit_rows), rows = kb_rows_live(c) - first;
    const kd_act *far = (const kd_act *)kb_buffer(c, x) + (kp_u64)first * p->k;
    if (kd_x_staged(c, p)) {
        const kd_act *near = (const kd_act *)kb_region(c, KP_MATMUL_X);
        if (rows <= 8)
            kd_matmul_rows<1, 1>(c, p, near, rows);
        else
            kd_matmul_rows<2, 1>(c, p, near, rows);
    } else if (rows <= 8) {
        kd_matmul_rows<1, 0>(c, p, far, rows);
    } else {
        kd_matmul_rows<2, 0>(c, p, far, rows);
    }
}

/* out = Σ parts of y (+ bias) (+ residual), rounded once. residual: it lies in KP_MATMUL_R. */
KP_FN void kd_matmul_store(kp_ctx *c, kp_u32 bias, int residual, kp_u32 out) {
    const kp_matmul *p = (const kp_matmul *)kb_params(c);
    kp_u32 first = kd_rows_first(c, p->logit_rows), rows = kb_rows_live(c) - first, width = c->task->hi - c->task->lo;
    kp_u32 wide = (width + 15) / 16 * 16;
    const float *y = (const float *)kb_region(c, KP_MATMUL_Y);
    const kd_act *b = (const kd_act *)kb_buffer(c, bias);
    const kd_act *more = (const kd_act *)kb_region(c, KP_MATMUL_R);
    kd_act *to = (kd_act *)kb_buffer(c, out) + (kp_u64)first * p->n + c->task->lo;
    for (kp_u32 i = kd_thread(c); i < rows * width; i += kd_threads(c)) {
        kp_u32 r = rows == 1 ? 0 : i / width, j = i - r * width;
        float v = 0;
#pragma unroll
        for (kp_u32 part = 0; part < kd_lanes(KP_CONSUMER); part++) v += y[(part * rows + r) * wide + j];
        if (b) v += kd_f32(b[c->task->lo + j]);
        if (residual) v = kd_f32(kd_round(v)) + kd_f32(more[i]);
        to[(kp_u64)r * p->n + j] = kd_round(v);
    }
}

#endif
