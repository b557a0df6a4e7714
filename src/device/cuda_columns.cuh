/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA bodies of the tasks that device/columns.h describes. */
#ifndef KEEL_DEVICE_CUDA_COLUMNS_CUH
#define KEEL_DEVICE_CUDA_COLUMNS_CUH

#include "device/columns.h"
#include "device/cuda_body.cuh"
#include "device/cuda_stream.cuh"
#include "device/cuda_tagged.cuh"
#include "device/cuda_weight.cuh"

KP_FN void kd_pair_fetch(kp_ctx *c, kp_u32 a, kp_u32 b) {
    const kp_pair *p = (const kp_pair *)kb_params(c);
    kd_fetch_slot(c, (kd_act *)kb_region(c, KP_PAIR_OUT), a, p->n, c->task->lo, c->task->hi, p->logit_rows);
    kd_fetch_slot(c, (kd_act *)kb_region(c, KP_PAIR_B), b, p->n, c->task->lo, c->task->hi, p->logit_rows);
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
    kd_store_slot(c, (const kd_act *)kb_region(c, KP_PAIR_OUT), out, p->n, c->task->lo, c->task->hi, p->logit_rows);
}

/* ---- y = x Wᵀ ----------------------------------------------------------------------------------- */

/* The loader: bands [from, to) of a weight with p's columns and type, stage by stage. 0: aborted. */
KP_FN int kd_stream_bands(kp_ctx *c, const kp_matmul *p, kp_u32 weight, kp_u32 from, kp_u32 to) {
    kp_u32 band = kd_band_bytes(p), most = kp_stage_bytes(kd_is_f8(p), KD_STAGE_BYTES);
    const kp_u8 *w = (const kp_u8 *)kb_buffer(c, weight) + (kp_u64)from * band;
    KP_ROLLED
    for (kp_u32 b = from; b < to; b++, w += band) {
        KP_ROLLED
        for (kp_u32 at = 0; at < band; at += most) {
            if (!kd_push(c, w + at, band - at < most ? band - at : most)) return 0;
        }
    }
    return 1;
}
KP_FN void kd_matmul_stream(kp_ctx *c, kp_u32 weight) {
    const kp_matmul *p = (const kp_matmul *)kb_params(c);
    (void)kd_stream_bands(c, p, weight, c->task->lo / 16, (c->task->hi + 15) / 16);
}

KP_FN int kd_x_staged(const kp_ctx *c, const kp_matmul *p) {
    return p->x_rows >= KD_M_MAX || kb_rows_live(c) - kd_rows_first(c, p->logit_rows) <= p->x_rows;
}

/* The launcher: live rows of x into SMEM, x_pitch apart; the end of a row is 0 up to a multiple of 16. */
KP_FN void kd_matmul_fetch(kp_ctx *c, kp_u32 x) {
    const kp_matmul *p = (const kp_matmul *)kb_params(c);
    if (!kd_x_staged(c, p)) return;
    kp_u32 first = kd_rows_first(c, p->logit_rows), rows = kb_rows_live(c) - first, k = p->k, pitch = p->x_pitch;
    kd_act *to = (kd_act *)kb_region(c, KP_MATMUL_X);
    const kd_act *from = (const kd_act *)kb_buffer(c, x) + (kp_u64)first * k;
    if (kd_tagged(c, x)) { /* of one row */
        kd_fetch_slot(c, to, x, k, 0, k, p->logit_rows);
        return;
    }
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
    kd_fetch_slot(c, (kd_act *)kb_region(c, KP_MATMUL_R), residual, p->n, c->task->lo, c->task->hi, p->logit_rows);
}

/* The consumer's lanes: every band, each lane its stages; a lane's sums are one part of y. */
template <int HALVES, int STAGED, int F8>
KP_FN void kd_matmul_of(kp_ctx *c, const kp_matmul *p, const kd_act *x, kp_u32 rows, kp_u32 bands) {
    kp_u32 tiles = kp_tiles(p->k), most = kp_stage_tiles(F8, KD_STAGE_BYTES), lanes = kd_lanes(KP_CONSUMER);
    kp_u32 stages = (tiles + most - 1) / most;
    kp_u32 group = kd_lane_thread() / 4, column = kd_lane_thread() % 4 * 2, pitch = STAGED ? p->x_pitch : p->k;
    const kd_act *x0 = x + (kp_u64)(group < rows ? group : 0) * pitch;
    const kd_act *x1 = x + (kp_u64)(group + 8 < rows ? group + 8 : 0) * pitch;
    float *y = (float *)kb_region(c, KP_MATMUL_Y) + (kp_u64)c->lane * rows * bands * 16;
    kp_u32 k0 = c->stream;
    KP_ROLLED
    for (kp_u32 b = 0; b < bands; b++) {
        kd_acc acc[KP_GROUP];
#pragma unroll
        for (int i = 0; i < KP_GROUP; i++) acc[i].v[0] = acc[i].v[1] = acc[i].v[2] = acc[i].v[3] = 0;
        kp_u32 from = (c->lane + lanes - (k0 + b * stages) % lanes) % lanes;
        KP_ROLLED
        for (kp_u32 s = from; s < stages; s += lanes) {
            kp_u32 n = k0 + b * stages + s, left = tiles - s * most;
            if (!kd_take(c, n)) return;
            kd_stage_product<HALVES, STAGED, F8>(kd_stage(n), left < most ? left : most, x0, x1, s * most * 16, p->k,
                                                 acc);
            kd_give(c, n);
        }
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                kp_u32 r = h * 8 + column + (e & 1);
                float sum = acc[2 * h].v[e] + acc[2 * h + 1].v[e];
                if (KD_CHAINS == 4) sum += acc[2].v[e] + acc[3].v[e];
                if (r < rows) y[(kp_u64)r * bands * 16 + b * 16 + group + (e >> 1) * 8] = sum;
            }
        }
        kd_band_ready(c, b + 1);
    }
    c->stream = k0 + bands * stages;
}

template <int HALVES, int STAGED>
KP_FN void kd_matmul_bands(kp_ctx *c, const kp_matmul *p, const kd_act *x, kp_u32 rows, kp_u32 bands) {
    if (kd_is_f8(p))
        kd_matmul_of<HALVES, STAGED, 1>(c, p, x, rows, bands);
    else
        kd_matmul_of<HALVES, STAGED, 0>(c, p, x, rows, bands);
}

template <int HALVES, int STAGED>
KP_FN void kd_matmul_rows(kp_ctx *c, const kp_matmul *p, const kd_act *x, kp_u32 rows) {
    kd_matmul_bands<HALVES, STAGED>(c, p, x, rows, (c->task->hi - c->task->lo + 15) / 16);
}

KP_FN void kd_matmul(kp_ctx *c, kp_u32 x) {
    const kp_matmul *p = (const kp_matmul *)kb_params(c);
    kp_u32 first = kd_rows_first(c, p->logit_rows), rows = kb_rows_live(c) - first;
    const kd_act *far = (const kd_act *)kb_buffer(c, x) + (kp_u64)first * p->k;
    int few = KD_M_MAX <= 8 || rows <= 8;
    if (kd_x_staged(c, p)) {
        const kd_act *near = (const kd_act *)kb_region(c, KP_MATMUL_X);
        if (few)
            kd_matmul_rows<1, 1>(c, p, near, rows);
        else
            kd_matmul_rows<2, 1>(c, p, near, rows);
    } else if (few) {
        kd_matmul_rows<1, 0>(c, p, far, rows);
    } else {
        kd_matmul_rows<2, 0>(c, p, far, rows);
    }
}

/* Σ parts of column j, of `wide`, in a row: what the consumer's lanes left in KP_MATMUL_Y. */
KP_FN float kd_parts_sum(const float *y, kp_u32 rows, kp_u32 row, kp_u32 wide, kp_u32 j) {
    float v = 0;
#pragma unroll
    for (kp_u32 part = 0; part < kd_lanes(KP_CONSUMER); part++) v += y[(part * rows + row) * wide + j];
    return v;
}

/* out = Σ parts of y (+ bias) (+ residual), rounded once. residual: it lies in KP_MATMUL_R. */
KP_FN void kd_matmul_store(kp_ctx *c, kp_u32 bias, int residual, kp_u32 out) {
    const kp_matmul *p = (const kp_matmul *)kb_params(c);
    int early = kd_tagged(c, out); /* then the step record may not be there yet */
    kp_u32 first = early ? 0 : kd_rows_first(c, p->logit_rows), rows = early ? 1 : kb_rows_live(c) - first;
    kp_u32 width = c->task->hi - c->task->lo;
    kp_u32 wide = (width + 15) / 16 * 16;
    const float *y = (const float *)kb_region(c, KP_MATMUL_Y);
    const kd_act *b = (const kd_act *)kb_buffer(c, bias);
    const kd_act *more = (const kd_act *)kb_region(c, KP_MATMUL_R);
    kd_act *to = (kd_act *)kb_buffer(c, out) + (kp_u64)first * p->n + c->task->lo;
    auto sum = [=](kp_u32 i, kp_u32 r, kp_u32 j) {
        float v = kd_parts_sum(y, rows, r, wide, j);
        if (b) v += kd_f32(b[c->task->lo + j]);
        if (residual) v = kd_f32(kd_round(v)) + kd_f32(more[i]);
        return kd_round(v);
    };
    if (kd_tagged(c, out)) {
        kp_u32 lo = c->task->lo;
        kd_tagged_store_bands(
            c, width / 16, [=](kp_u32 j) { return kd_tagged_unit(c, out, lo + j); },
            [=](kp_u32 j) { return sum(j, 0, j); });
        return;
    }
    KP_ROLLED
    for (kp_u32 i = kd_thread(c); i < rows * width; i += kd_threads(c)) {
        kp_u32 r = rows == 1 ? 0 : i / width, j = i - r * width;
        to[(kp_u64)r * p->n + j] = sum(i, r, j);
    }
}

#endif
