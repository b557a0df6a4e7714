/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA bodies of kp_norm_matmul (device/columns.h). A norm multiplies each row of x by one number, so that its products
 * need not wait for it: the launcher puts x × scale into SMEM and sums the squares on the way, the consumer multiplies
 * by the matrices, and the storer by 1 / √(mean(x²) + eps), in f32. x × scale is rounded once to bf16, where the chain
 * rounds twice.
 *
 * Launcher, before the task's events: the norm's weight into row 0 of KP_MATMUL_X; behind them: x. A thread overwrites
 * in row 0 what it has put there itself, so that its lanes need not meet. KP_MATMUL_Y: [lanes][rows][bands × 16],
 * paired: the bands of the second matrix behind those of the first. */
#ifndef KEEL_DEVICE_CUDA_NORM_CUH
#define KEEL_DEVICE_CUDA_NORM_CUH

#include "device/cuda_columns.cuh"

KP_FN const kp_norm_matmul *kd_norm_params(const kp_ctx *c) { return (const kp_norm_matmul *)kb_params(c); }
KP_FN kp_u32 kd_norm_live(const kp_ctx *c, const kp_norm_matmul *p) {
    return kb_rows_live(c) - kd_rows_first(c, p->m.logit_rows);
}

/* The loader: the task's bands, one matrix after the other. */
KP_FN void kd_norm_stream(kp_ctx *c, kp_u32 w) {
    const kp_norm_matmul *p = kd_norm_params(c);
    kp_u32 n = kx_opaque((p->cols[0] != 0) + (p->cols[1] != 0) + (p->cols[2] != 0)); /* or the loop is unrolled */
    KP_ROLLED
    for (kp_u32 i = 0; i < n; i++) {
        kp_u32 lo, hi;
        kp_norm_part(p, i, c->task->lo, c->task->hi, &lo, &hi);
        if (lo < hi && !kd_stream_bands(c, &p->m, w + i, lo / KP_BAND, kp_banded(hi) / KP_BAND)) return;
    }
}

/* x is the slot of the row that will come: each thread puts what it will overwrite. */
KP_FN void kd_norm_early(kp_ctx *c, kp_u32 x, kp_u32 scale) {
    const kp_norm_matmul *p = kd_norm_params(c);
    kd_act *to = (kd_act *)kb_region(c, KP_MATMUL_X);
    const kd_act *from = (const kd_act *)kb_buffer(c, scale);
    kp_u32 k = p->m.k;
    if (kd_tagged(c, x)) {
#pragma unroll
        for (kp_u32 half = 0; half < KP_TAGGED_COLS; half += 8)
            kd_move(
                c, k / KP_TAGGED_COLS, [=](kp_u32 i) { return kd_weight16(from + i * KP_TAGGED_COLS + half); },
                [=](kp_u32 i, kd_vec v) { *(kd_vec *)(to + i * KP_TAGGED_COLS + half) = v; });
    } else if (k % 8 == 0) {
        kd_move(
            c, k / 8, [=](kp_u32 i) { return kd_weight16(from + (kp_u64)i * 8); },
            [=](kp_u32 i, kd_vec v) { *(kd_vec *)(to + i * 8) = v; });
    } else {
        for (kp_u32 i = kd_thread(c); i < k; i += kd_threads(c)) to[i] = from[i];
    }
}

/* Eight values of x × scale; their squares into *sum. */
KP_FN kd_vec kd_norm_scale8(kd_vec x, kd_vec g, float *sum) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float low = kd_low(x.w[i]), high = kd_high(x.w[i]);
        *sum += low * low + high * high;
        x.w[i] = kx_mul_bf16x2(x.w[i], g.w[i]); /* exact before it is rounded */
    }
    return x;
}

/* One row, which lies where the norm's weight does. All loads are on their way before the first is looked at. Returns
 * this thread's squares. */
KP_FN float kd_norm_row_alone(const kp_ctx *c, const kd_act *from, kd_act *to, kp_u32 k) {
    float sum = 0;
    kd_move(
        c, k / 8, [=](kp_u32 i) { return kd_load16(from + (kp_u64)i * 8); },
        [&](kp_u32 i, kd_vec v) {
            kd_vec *at = (kd_vec *)(to + i * 8);
            *at = kd_norm_scale8(v, *at, &sum);
        });
    return sum;
}

KP_FN float kd_norm_row_tagged(kp_ctx *c, kp_u32 x, kd_act *to, kp_u32 k) {
    float sum = 0;
    kd_tagged_fetch(c, kb_buffer(c, x), 0, k, [&](kp_u32 column, kd_vec a, kd_vec b) {
        kd_vec *at = (kd_vec *)(to + column);
        at[0] = kd_norm_scale8(a, at[0], &sum);
        at[1] = kd_norm_scale8(b, at[1], &sum);
    });
    return sum;
}

/* Rows [first, first + n) of x, n at most KD_NORM_ROWS: a column of all of them at a time. */
enum { KD_NORM_ROWS = 4 }; /* with 6 the launcher runs out of registers */
KP_FN void kd_norm_some_rows(const kp_ctx *c, const kd_act *x, kd_act *to, kp_u32 first, kp_u32 n, kp_u32 k,
                             kp_u32 pitch, float *sum) {
#pragma unroll 1
    for (kp_u32 i = kd_thread(c) * 8; i < k; i += kd_threads(c) * 8) {
        kd_vec v[KD_NORM_ROWS], g = *(const kd_vec *)(to + i);
#pragma unroll
        for (kp_u32 r = 0; r < KD_NORM_ROWS; r++) {
            if (r < n) v[r] = kd_load16(x + (kp_u64)(first + r) * k + i);
        }
#pragma unroll
        for (kp_u32 r = 0; r < KD_NORM_ROWS; r++) {
            if (r < n) *(kd_vec *)(to + (first + r) * pitch + i) = kd_norm_scale8(v[r], g, &sum[r]);
        }
    }
}

/* The sums of a lane's columns to where the storer finds them. */
KP_FN void kd_norm_put_sum(const kp_ctx *c, kp_u32 row, float sum) {
    sum = kd_warp_sum(sum);
    if (kd_first()) ((float *)kb_region(c, KP_NORM_SUMS))[row * kd_lanes(KP_LAUNCHER) + c->lane] = sum;
}

/* Row 0 last, as the norm's weight lies there. */
KP_FN void kd_norm_fetch_rows(const kp_ctx *c, const kd_act *x, kd_act *to, kp_u32 rows, kp_u32 k, kp_u32 pitch) {
#pragma unroll 1
    for (kp_u32 left = rows; left;) {
        kp_u32 first = (left - 1) / KD_NORM_ROWS * KD_NORM_ROWS, n = left - first;
        float sum[KD_NORM_ROWS];
#pragma unroll
        for (kp_u32 r = 0; r < KD_NORM_ROWS; r++) sum[r] = 0;
        kd_norm_some_rows(c, x, to, first, n, k, pitch, sum);
#pragma unroll
        for (kp_u32 r = 0; r < KD_NORM_ROWS; r++) {
            if (r < n) kd_norm_put_sum(c, first + r, sum[r]);
        }
        left = first;
    }
}

/* Rows whose length is no multiple of eight. */
KP_FN void kd_norm_fetch_odd(const kp_ctx *c, const kd_act *x, kd_act *to, kp_u32 rows, kp_u32 k, kp_u32 pitch) {
    for (kp_u32 r = rows; r-- > 0;) {
        float sum = 0;
        for (kp_u32 i = kd_thread(c); i < k; i += kd_threads(c)) {
            float v = kd_f32(kd_load_act(x + (kp_u64)r * k + i));
            sum += v * v;
            to[r * pitch + i] = kd_round(v * kd_f32(to[i]));
        }
        kd_norm_put_sum(c, r, sum);
    }
}

KP_FN void kd_norm_fetch(kp_ctx *c, kp_u32 x) {
    const kp_norm_matmul *p = kd_norm_params(c);
    kp_u32 rows = kd_norm_live(c, p), k = p->m.k, pitch = p->m.x_pitch, more = (k + 15) / 16 * 16 - k;
    kd_act *to = (kd_act *)kb_region(c, KP_MATMUL_X);
    const kd_act *from = (const kd_act *)kb_buffer(c, x) + (kp_u64)kd_rows_first(c, p->m.logit_rows) * k;
    if (kd_tagged(c, x)) {
        if (rows == 1) kd_norm_put_sum(c, 0, kd_norm_row_tagged(c, x, to, k));
    } else if (k % 8)
        kd_norm_fetch_odd(c, from, to, rows, k, pitch);
    else if (rows == 1)
        kd_norm_put_sum(c, 0, kd_norm_row_alone(c, from, to, k));
    else if (KD_M_MAX > 1)
        kd_norm_fetch_rows(c, from, to, rows, k, pitch);
    if (more == 0) return;
    for (kp_u32 i = kd_thread(c); i < rows * more; i += kd_threads(c)) to[i / more * pitch + k + i % more] = 0;
}

KP_FN void kd_norm_matmul(kp_ctx *c) {
    const kp_norm_matmul *p = kd_norm_params(c);
    kp_u32 rows = kd_norm_live(c, p), bands = (c->task->hi - c->task->lo) / KP_BAND * (p->paired ? 2 : 1);
    const kd_act *x = (const kd_act *)kb_region(c, KP_MATMUL_X);
    if (KD_M_MAX <= 8 || rows <= 8)
        kd_matmul_bands<1, 1>(c, &p->m, x, rows, bands);
    else
        kd_matmul_bands<2, 1>(c, &p->m, x, rows, bands);
}

/* 1 / √(mean(x²) + eps) of a row. */
KP_FN float kd_norm_factor(const kp_ctx *c, const kp_norm_matmul *p, kp_u32 row) {
    const float *of = (const float *)kb_region(c, KP_NORM_SUMS) + row * kd_lanes(KP_LAUNCHER);
    float sum = 0;
#pragma unroll
    for (kp_u32 l = 0; l < kd_lanes(KP_LAUNCHER); l++) sum += of[l];
    return kx_rsqrt(sum / (float)p->m.k + p->eps);
}

KP_FN float kd_norm_bias(const kp_ctx *c, kp_u32 bias, kp_u32 column) {
    const kd_act *b = (const kd_act *)kb_buffer(c, bias);
    return b ? kd_f32(b[column]) : 0;
}

/* The matrix whose column stands at `column` of all of them. */
KP_FN kp_u32 kd_norm_matrix(const kp_norm_matmul *p, kp_u32 column) {
    kp_u32 m = 0;
#pragma unroll
    for (kp_u32 i = 1; i < KP_NORM_MATRICES; i++) m += p->cols[i] && column >= kp_norm_first(p, i);
    return m;
}

/* out i = product by matrix i, rounded once. */
KP_FN void kd_norm_store(kp_ctx *c, kp_u32 bias, kp_u32 out) {
    const kp_norm_matmul *p = kd_norm_params(c);
    kp_u32 rows = kd_norm_live(c, p), first = kd_rows_first(c, p->m.logit_rows), width = c->task->hi - c->task->lo;
    const float *y = (const float *)kb_region(c, KP_MATMUL_Y);
    float alone = rows == 1 ? kd_norm_factor(c, p, 0) : 0;
    kp_u32 lo = c->task->lo;
    auto value = [=](kp_u32 r, kp_u32 j) {
        kp_u32 m = kd_norm_matrix(p, lo + j), column = lo + j - kp_norm_first(p, m);
        float v = kd_parts_sum(y, rows, r, width, j) * (rows == 1 ? alone : kd_norm_factor(c, p, r));
        return kd_round(v + kd_norm_bias(c, bias + m, column));
    };
    if (kd_tagged(c, out)) { /* matrices of whole units */
        if (rows == 1)
            kd_tagged_store(
                c, width,
                [=](kp_u32 j) {
                    kp_u32 m = kd_norm_matrix(p, lo + j);
                    return kd_tagged_unit(c, out + m, lo + j - kp_norm_first(p, m));
                },
                [=](kp_u32 j) { return value(0, j); });
        return;
    }
    KP_ROLLED
    for (kp_u32 i = kd_thread(c); i < rows * width; i += kd_threads(c)) {
        kp_u32 r = rows == 1 ? 0 : i / width, j = i - r * width, m = kd_norm_matrix(p, lo + j);
        kp_u32 column = lo + j - kp_norm_first(p, m);
        if (column < p->cols[m])
            ((kd_act *)kb_buffer(c, out + m))[(kp_u64)(first + r) * p->cols[m] + column] = value(r, j);
    }
}

/* Paired: out = f(product by the first, product by the second), rounded once. */
template <class F> KP_FN void kd_norm_store_pair(kp_ctx *c, kp_u32 bias, kp_u32 out, F f) {
    const kp_norm_matmul *p = kd_norm_params(c);
    kp_u32 rows = kd_norm_live(c, p), first = kd_rows_first(c, p->m.logit_rows), width = c->task->hi - c->task->lo;
    const float *y = (const float *)kb_region(c, KP_MATMUL_Y);
    kd_act *to = (kd_act *)kb_buffer(c, out) + (kp_u64)first * p->cols[0];
    float alone = rows == 1 ? kd_norm_factor(c, p, 0) : 0;
    kp_u32 lo = c->task->lo;
    auto value = [=](kp_u32 r, kp_u32 j) {
        float s = rows == 1 ? alone : kd_norm_factor(c, p, r);
        float a = kd_parts_sum(y, rows, r, 2 * width, j) * s + kd_norm_bias(c, bias, lo + j);
        float b = kd_parts_sum(y, rows, r, 2 * width, width + j) * s + kd_norm_bias(c, bias + 1, lo + j);
        return kd_round(f(a, b));
    };
    if (kd_tagged(c, out)) {
        if (rows == 1)
            kd_tagged_store(
                c, width, [=](kp_u32 j) { return kd_tagged_unit(c, out, lo + j); },
                [=](kp_u32 j) { return value(0, j); });
        return;
    }
    KP_ROLLED
    for (kp_u32 i = kd_thread(c); i < rows * width; i += kd_threads(c)) {
        kp_u32 r = rows == 1 ? 0 : i / width, j = i - r * width;
        if (lo + j < p->cols[0]) to[(kp_u64)r * p->cols[0] + lo + j] = value(r, j);
    }
}

#endif
