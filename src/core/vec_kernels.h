/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of vec.h, one text over eight-lane vectors. Included once by each implementation, which defines before:
 * VEC_FN, VEC_INLINE (storage and target of functions), VEC_TABLE (name of the table), v8 and its functions.
 * Products that are summed are fused (v8_fma) and nothing else is, whatever the compiler may contract. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

VEC_INLINE size_t weight_bytes(dtype t) { return t == DTYPE_F32 ? 4 : 2; }

VEC_INLINE v8 load_as(dtype t, const unsigned char *p) {
    return t == DTYPE_F32 ? v8_load(p) : t == DTYPE_BF16 ? v8_load_bf16(p) : v8_load_f16(p);
}

/* The first n < 8 elements, zeros after them. */
VEC_INLINE v8 load_part_as(dtype t, const unsigned char *p, size_t n) {
    unsigned char padded[32] = {0};
    memcpy(padded, p, n * weight_bytes(t));
    return load_as(t, padded);
}

VEC_INLINE v8 load_part(const float *p, size_t n, float fill) {
    float padded[8] = {fill, fill, fill, fill, fill, fill, fill, fill};
    memcpy(padded, p, n * sizeof *p);
    return v8_load(padded);
}

VEC_INLINE void store_part(float *p, v8 a, size_t n) {
    float all[8];
    v8_store(all, a);
    memcpy(p, all, n * sizeof *p);
}

/* One step of eight elements at i: acc[r × R + j] += w[j] × x[r]. */
VEC_INLINE void tile_step(dtype t, size_t R, size_t C, const unsigned char *w, size_t ldw, const float *x, size_t ldx,
                          size_t i, v8 *acc) {
    v8 wv[8];
    for (size_t j = 0; j < R; j++) wv[j] = load_as(t, w + j * ldw + i * weight_bytes(t));
    for (size_t r = 0; r < C; r++) {
        v8 xv = v8_load(x + r * ldx + i);
        for (size_t j = 0; j < R; j++) acc[r * R + j] = v8_fma(wv[j], xv, acc[r * R + j]);
    }
}

#ifndef AHEAD
#define AHEAD 1024
#endif
#ifndef R1
#define R1 4
#endif

/* R rows of w times C rows of x; R × C accumulators stay in registers. ldw in bytes. */
VEC_INLINE void tile(dtype t, size_t R, size_t C, const unsigned char *w, size_t ldw, size_t k, const float *x, size_t ldx,
                     float *y, size_t ldy) {
    v8 acc[12];
    for (size_t a = 0; a < R * C; a++) acc[a] = v8_set(0);
    size_t i = 0;
    for (; i + 32 <= k; i += 32) {
        if (AHEAD && C == 1) {
            for (size_t j = 0; j < R; j++) {
                v8_prefetch(w + j * ldw + i * weight_bytes(t) + AHEAD);
                if (t == DTYPE_F32) v8_prefetch(w + j * ldw + i * weight_bytes(t) + AHEAD + 64);
            }
        }
        tile_step(t, R, C, w, ldw, x, ldx, i, acc);
        tile_step(t, R, C, w, ldw, x, ldx, i + 8, acc);
        tile_step(t, R, C, w, ldw, x, ldx, i + 16, acc);
        tile_step(t, R, C, w, ldw, x, ldx, i + 24, acc);
    }
    for (; i + 8 <= k; i += 8) tile_step(t, R, C, w, ldw, x, ldx, i, acc);
    if (i < k) {
        for (size_t j = 0; j < R; j++) {
            v8 wv = load_part_as(t, w + j * ldw + i * weight_bytes(t), k - i);
            for (size_t r = 0; r < C; r++) {
                acc[r * R + j] = v8_fma(wv, load_part(x + r * ldx + i, k - i, 0), acc[r * R + j]);
            }
        }
    }
    for (size_t r = 0; r < C; r++) {
        for (size_t j = 0; j < R; j++) y[r * ldy + j] = v8_sum(acc[r * R + j]);
    }
}

VEC_INLINE void matmul_of(dtype t, const unsigned char *w, size_t rows, size_t k, const float *x, size_t ldx, size_t m,
                          float *y, size_t ldy) {
    size_t ldw = k * weight_bytes(t), j = 0;
    if (m == 1) {
        for (; j + R1 <= rows; j += R1) tile(t, R1, 1, w + j * ldw, ldw, k, x, ldx, y + j, ldy);
        for (; j < rows; j++) tile(t, 1, 1, w + j * ldw, ldw, k, x, ldx, y + j, ldy);
        return;
    }
    for (; j < rows;) {
        size_t R = rows - j >= 3 ? 3 : 1;
        for (size_t r = 0; r < m;) {
            size_t C = m - r >= 4 ? 4 : 1;
            const float *xr = x + r * ldx;
            float *yr = y + r * ldy + j;
            const unsigned char *wj = w + j * ldw;
            if (R == 3 && C == 4) tile(t, 3, 4, wj, ldw, k, xr, ldx, yr, ldy);
            else if (R == 3) tile(t, 3, 1, wj, ldw, k, xr, ldx, yr, ldy);
            else if (C == 4) tile(t, 1, 4, wj, ldw, k, xr, ldx, yr, ldy);
            else tile(t, 1, 1, wj, ldw, k, xr, ldx, yr, ldy);
            r += C;
        }
        j += R;
    }
}

VEC_FN void k_matmul(dtype wt, const void *w, size_t rows, size_t k, const float *x, size_t ldx, size_t m, float *y, size_t ldy) {
    if (wt == DTYPE_F32) matmul_of(DTYPE_F32, w, rows, k, x, ldx, m, y, ldy);
    else if (wt == DTYPE_BF16) matmul_of(DTYPE_BF16, w, rows, k, x, ldx, m, y, ldy);
    else matmul_of(DTYPE_F16, w, rows, k, x, ldx, m, y, ldy);
}
const vec_ops VEC_TABLE = { .matmul = k_matmul };
