/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of vec.h, one text over eight-lane vectors. Included once by each implementation, which defines before:
 * VEC_FN, VEC_INLINE (storage and target of functions), VEC_TABLE (name of the table), v8 and its functions.
 * Products that are summed are fused (v8_fma) and nothing else is, whatever the compiler may contract. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

VEC_INLINE size_t type_bytes(dtype t) { return t == DTYPE_F32 ? 4 : t == DTYPE_F8E4M3 ? 1 : 2; }

VEC_INLINE v8 load_as(dtype t, const unsigned char *p) {
    if (t == DTYPE_F8E4M3) return v8_load_f8(p);
    return t == DTYPE_F32 ? v8_load(p) : t == DTYPE_BF16 ? v8_load_bf16(p) : v8_load_f16(p);
}

/* The first n elements, or all eight; zeros after them. */
VEC_INLINE v8 load_n_as(dtype t, const unsigned char *p, size_t n) {
    if (n >= 8) return load_as(t, p);
    unsigned char padded[32] = {0};
    memcpy(padded, p, n * type_bytes(t));
    return load_as(t, padded);
}

VEC_INLINE v8 load_fill(const float *p, size_t n, float fill) {
    if (n >= 8) return v8_load(p);
    float padded[8] = {fill, fill, fill, fill, fill, fill, fill, fill};
    memcpy(padded, p, n * sizeof *p);
    return v8_load(padded);
}

VEC_INLINE v8 load_n(const float *p, size_t n) { return load_fill(p, n, 0); }

VEC_INLINE void store_n(float *p, v8 a, size_t n) {
    if (n >= 8) {
        v8_store(p, a);
        return;
    }
    float all[8];
    v8_store(all, a);
    memcpy(p, all, n * sizeof *p);
}

/* One step of eight elements at i: sum[r × R + j] += w[j] × x[r]. */
VEC_INLINE void tile_step(dtype t, size_t R, size_t C, const unsigned char *w, size_t ldw, const float *x, size_t ldx,
                          size_t i, size_t n, v8 *sum) {
    v8 wv[8];
    for (size_t j = 0; j < R; j++) wv[j] = load_n_as(t, w + j * ldw + i * type_bytes(t), n);
    for (size_t r = 0; r < C; r++) {
        v8 xv = load_n(x + r * ldx + i, n);
        for (size_t j = 0; j < R; j++) sum[r * R + j] = v8_fma(wv[j], xv, sum[r * R + j]);
    }
}

/* R rows of w (ldw bytes apart) with C of x; R × C ≤ 12 sums stay in registers. next: the rows that follow are fetched
 * ahead, as many bytes as this tile has. */
VEC_INLINE void tile(dtype t, size_t R, size_t C, const unsigned char *w, size_t k, const float *x, size_t ldx,
                     int next, float *y, size_t ldy) {
    size_t ldw = k * type_bytes(t), i = 0;
    v8 sum[12];
    for (size_t a = 0; a < R * C; a++) sum[a] = v8_set(0);
    for (; i + 32 <= k; i += 32) {
        if (next) {
            const unsigned char *p = w + R * (ldw + i * type_bytes(t));
            for (size_t line = 0; line < R * type_bytes(t) / 2; line++) v8_prefetch(p + 64 * line);
        }
        for (size_t u = 0; u < 32; u += 8) tile_step(t, R, C, w, ldw, x, ldx, i + u, 8, sum);
    }
    for (; i + 8 <= k; i += 8) tile_step(t, R, C, w, ldw, x, ldx, i, 8, sum);
    if (i < k) tile_step(t, R, C, w, ldw, x, ldx, i, k - i, sum);
    for (size_t r = 0; r < C; r++) {
        for (size_t j = 0; j < R; j++) y[r * ldy + j] = v8_sum(sum[r * R + j]);
    }
}

/* m = 1: the weights stream from memory. Eight rows are eight streams, which the processor's own prefetch follows best
 * (Milan: as fast as a loop that only reads; four rows 95 %, one row 73 %, any software prefetch slower). Rows too
 * short for it to catch on are fetched a tile ahead (576 columns of bf16: 39 → 89 %). */
VEC_INLINE void matmul_vector(dtype t, const unsigned char *w, size_t rows, size_t k, const float *x, float *y) {
    size_t ldw = k * type_bytes(t), j = 0;
    if (ldw <= 3072) {
        for (; j + 16 <= rows; j += 8) tile(t, 8, 1, w + j * ldw, k, x, 0, 1, y + j, 0);
    }
    for (; j + 8 <= rows; j += 8) tile(t, 8, 1, w + j * ldw, k, x, 0, 0, y + j, 0);
    for (; j < rows; j++) tile(t, 1, 1, w + j * ldw, k, x, 0, 0, y + j, 0);
}

/* R rows of w with all m of x, four at a time. R is 3 or 4 (then m ≤ 3), or 1 for what is left over. */
VEC_INLINE void matmul_rows(dtype t, size_t R, const unsigned char *w, size_t k, const float *x, size_t ldx, size_t m,
                            float *y, size_t ldy) {
    size_t r = 0;
    int next = k * type_bytes(t) <= 3072;
    for (; R < 4 && r + 4 <= m; r += 4) tile(t, R, 4, w, k, x + r * ldx, ldx, next, y + r * ldy, ldy);
    if (m - r == 3) tile(t, R, 3, w, k, x + r * ldx, ldx, next, y + r * ldy, ldy);
    if (m - r == 2) tile(t, R, 2, w, k, x + r * ldx, ldx, next, y + r * ldy, ldy);
    if (R < 4 && m - r == 1) tile(t, R, 1, w, k, x + r * ldx, ldx, next, y + r * ldy, ldy);
}

/* Three rows by four fill sixteen registers (12 sums, 3 weights, 1 x): 70 GFLOP/s a core in bf16 on Milan, where 4 × 3
 * reaches 57. With two or three rows of x the weights stream still, and four streams are faster than three. */
VEC_INLINE void matmul_of(dtype t, const unsigned char *w, size_t rows, size_t k, const float *x, size_t ldx, size_t m,
                          float *y, size_t ldy) {
    size_t ldw = k * type_bytes(t), j = 0;
    if (m == 1) {
        matmul_vector(t, w, rows, k, x, y);
        return;
    }
    if (m < 4) {
        for (; j + 4 <= rows; j += 4) matmul_rows(t, 4, w + j * ldw, k, x, ldx, m, y + j, ldy);
    }
    for (; j + 3 <= rows; j += 3) matmul_rows(t, 3, w + j * ldw, k, x, ldx, m, y + j, ldy);
    for (; j < rows; j++) matmul_rows(t, 1, w + j * ldw, k, x, ldx, m, y + j, ldy);
}

VEC_FN void k_matmul(dtype wt, const void *w, size_t rows, size_t k, const float *x, size_t ldx, size_t m, float *y,
                     size_t ldy) {
    if (wt == DTYPE_F32) {
        matmul_of(DTYPE_F32, w, rows, k, x, ldx, m, y, ldy);
    } else if (wt == DTYPE_BF16) {
        matmul_of(DTYPE_BF16, w, rows, k, x, ldx, m, y, ldy);
    } else {
        matmul_of(DTYPE_F16, w, rows, k, x, ldx, m, y, ldy);
    }
}

VEC_INLINE float scale_at(dtype t, const unsigned char *scale, size_t i) {
    float f;
    uint16_t h;
    if (t == DTYPE_F32) {
        memcpy(&f, scale + 4 * i, sizeof f);
        return f;
    }
    memcpy(&h, scale + 2 * i, sizeof h);
    return t == DTYPE_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

/* F8E4M3 as it is loaded is 2^-8 of what it is worth, NaN a number: the factor of a block has 2^8 more, and a row with
 * NaN is found by its codes. */
VEC_INLINE v8 factor_at(dtype st, const unsigned char *scale, size_t block) {
    return v8_set(256.0f * scale_at(st, scale, block));
}

VEC_INLINE codes codes_seen(codes seen, const unsigned char *p, size_t n) {
    unsigned char rest[32] = {0};
    for (; n >= 32; n -= 32, p += 32) seen = codes_most(seen, p);
    memcpy(rest, p, n);
    return n ? codes_most(seen, rest) : seen;
}

/* Rows with NaN among their codes: each of C columns of y. */
VEC_FN void put_nan(const unsigned char *w, size_t R, size_t k, size_t C, float *y, size_t ldy) {
    for (size_t j = 0; j < R; j++) {
        if (!codes_nan(codes_seen(codes_none(), w + j * k, k))) continue;
        for (size_t r = 0; r < C; r++) y[r * ldy + j] = NAN;
    }
}

/* R rows of w with one of x; R ≤ 8. The sums over blocks need registers once a block, and lie in memory between. */
VEC_INLINE void scaled_vector(size_t R, const unsigned char *w, dtype st, const unsigned char *scale, size_t k,
                              const float *x, float *y) {
    v8 total[8];
    codes seen = codes_none();
    for (size_t j = 0; j < R; j++) total[j] = v8_set(0);
    for (size_t at = 0; at < k; at += FP8_BLOCK) {
        size_t end = k - at < FP8_BLOCK ? k : at + FP8_BLOCK, i = at;
        v8 sum[8], factor = factor_at(st, scale, at / FP8_BLOCK);
        for (size_t j = 0; j < R; j++) sum[j] = v8_set(0);
        for (; i + 32 <= end; i += 32) {
            for (size_t j = 0; j < R; j++) seen = codes_most(seen, w + j * k + i);
            for (size_t u = 0; u < 32; u += 8) tile_step(DTYPE_F8E4M3, R, 1, w, k, x, 0, i + u, 8, sum);
        }
        for (size_t j = 0; j < R && i < end; j++) seen = codes_seen(seen, w + j * k + i, end - i);
        for (; i + 8 <= end; i += 8) tile_step(DTYPE_F8E4M3, R, 1, w, k, x, 0, i, 8, sum);
        if (i < end) tile_step(DTYPE_F8E4M3, R, 1, w, k, x, 0, i, end - i, sum);
        for (size_t j = 0; j < R; j++) total[j] = v8_fma(sum[j], factor, total[j]);
    }
    for (size_t j = 0; j < R; j++) y[j] = v8_sum(total[j]);
    if (codes_nan(seen)) put_nan(w, R, k, 1, y, 0);
}

/* One block, converted: R rows of n with C of x. */
VEC_INLINE void scaled_block(size_t R, size_t C, const float *w, size_t n, const float *x, size_t ldx, v8 factor,
                             v8 *total) {
    v8 sum[12];
    size_t i = 0;
    for (size_t a = 0; a < R * C; a++) sum[a] = v8_set(0);
    const unsigned char *bytes = (const unsigned char *)w;
    for (; i + 8 <= n; i += 8) tile_step(DTYPE_F32, R, C, bytes, FP8_BLOCK * sizeof *w, x, ldx, i, 8, sum);
    if (i < n) tile_step(DTYPE_F32, R, C, bytes, FP8_BLOCK * sizeof *w, x, ldx, i, n - i, sum);
    for (size_t a = 0; a < R * C; a++) total[a] = v8_fma(sum[a], factor, total[a]);
}

/* R ≤ 3 rows of w with m ≤ 16 of x: each block is converted once. */
VEC_INLINE void scaled_rows(size_t R, const unsigned char *w, dtype st, const unsigned char *scale, size_t k,
                            const float *x, size_t ldx, size_t m, float *y, size_t ldy) {
    float block[3 * FP8_BLOCK];
    v8 total[3 * 16];
    codes seen = codes_none();
    for (size_t a = 0; a < R * m; a++) total[a] = v8_set(0);
    for (size_t at = 0; at < k; at += FP8_BLOCK) {
        size_t n = k - at < FP8_BLOCK ? k - at : FP8_BLOCK, r = 0;
        v8 factor = factor_at(st, scale, at / FP8_BLOCK);
        for (size_t j = 0; j < R; j++) {
            const unsigned char *row = w + j * k + at;
            seen = codes_seen(seen, row, n);
            for (size_t i = 0; i < n; i += 8)
                store_n(block + j * FP8_BLOCK + i, load_n_as(DTYPE_F8E4M3, row + i, n - i), n - i);
        }
        for (; r + 4 <= m; r += 4) scaled_block(R, 4, block, n, x + r * ldx + at, ldx, factor, total + r * R);
        for (; r + 2 <= m; r += 2) scaled_block(R, 2, block, n, x + r * ldx + at, ldx, factor, total + r * R);
        for (; r < m; r++) scaled_block(R, 1, block, n, x + r * ldx + at, ldx, factor, total + r * R);
    }
    for (size_t r = 0; r < m; r++) {
        for (size_t j = 0; j < R; j++) y[r * ldy + j] = v8_sum(total[r * R + j]);
    }
    if (codes_nan(seen)) put_nan(w, R, k, m, y, ldy);
}

VEC_FN void k_matmul_scaled(const void *weights, dtype st, const void *scale, size_t rows, size_t k, const float *x,
                            size_t ldx, size_t m, float *y, size_t ldy) {
    const unsigned char *w = weights;
    size_t j = 0;
    if (m == 1) {
        for (; j + 8 <= rows; j += 8) scaled_vector(8, w + j * k, st, scale, k, x, y + j);
        for (; j < rows; j++) scaled_vector(1, w + j * k, st, scale, k, x, y + j);
        return;
    }
    for (; m > 16; m -= 16, x += 16 * ldx, y += 16 * ldy) k_matmul_scaled(w, st, scale, rows, k, x, ldx, 16, y, ldy);
    for (; j + 3 <= rows; j += 3) scaled_rows(3, w + j * k, st, scale, k, x, ldx, m, y + j, ldy);
    for (; j < rows; j++) scaled_rows(1, w + j * k, st, scale, k, x, ldx, m, y + j, ldy);
}

/* Four vectors of partial sums: the chain of one would wait for itself. */
VEC_FN float k_dot(const float *a, const float *b, size_t n) {
    v8 sum[4] = {v8_set(0), v8_set(0), v8_set(0), v8_set(0)};
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (size_t u = 0; u < 4; u++) sum[u] = v8_fma(v8_load(a + i + 8 * u), v8_load(b + i + 8 * u), sum[u]);
    }
    for (size_t u = 0; i < n; u++, i += 8) sum[u] = v8_fma(load_n(a + i, n - i), load_n(b + i, n - i), sum[u]);
    return v8_sum(v8_add(v8_add(sum[0], sum[1]), v8_add(sum[2], sum[3])));
}

VEC_FN float k_sum_squares(const float *x, size_t n) { return k_dot(x, x, n); }

VEC_FN float k_max(const float *x, size_t n) {
    v8 most = v8_set(-INFINITY);
    for (size_t i = 0; i < n; i += 8) most = v8_max(load_fill(x + i, n - i, -INFINITY), most);
    float lane[8], max = -INFINITY;
    v8_store(lane, most);
    for (int l = 0; l < 8; l++) max = lane[l] > max ? lane[l] : max;
    return max;
}

VEC_FN size_t k_argmax(const float *x, size_t n) {
    float max = k_max(x, n);
    v8 most = v8_set(max);
    size_t i = 0;
    while (i + 8 <= n && !v8_any_equal(v8_load(x + i), most)) i += 8;
    while (i < n && !(x[i] == max)) i++;
    return i < n ? i : 0;
}

VEC_INLINE void convert_codes(const unsigned char *src, float *dst, size_t n) {
    for (size_t i = 0; i < n; i += 8) {
        v8 v = v8_mul(load_n_as(DTYPE_F8E4M3, src + i, n - i), v8_set(256.0f));
        store_n(dst + i, v, n - i);
    }
    if (!codes_nan(codes_seen(codes_none(), src, n))) return;
    for (size_t i = 0; i < n; i++) {
        if ((src[i] & 0x7f) == 0x7f) dst[i] = f8e4m3_to_f32(src[i]);
    }
}

VEC_INLINE void convert_of(dtype t, const unsigned char *src, float *dst, size_t n) {
    for (size_t i = 0; i < n; i += 8) store_n(dst + i, load_n_as(t, src + i * type_bytes(t), n - i), n - i);
}

VEC_FN void k_convert_to_f32(dtype t, const void *src, float *dst, size_t n) {
    if (t == DTYPE_F32) {
        convert_of(DTYPE_F32, src, dst, n);
    } else if (t == DTYPE_BF16) {
        convert_of(DTYPE_BF16, src, dst, n);
    } else if (t == DTYPE_F16) {
        convert_of(DTYPE_F16, src, dst, n);
    } else {
        convert_codes(src, dst, n);
    }
}

VEC_FN void k_axpy(float a, const float *x, float *y, size_t n) {
    v8 av = v8_set(a);
    for (size_t i = 0; i < n; i += 8) {
        store_n(y + i, v8_fma(av, load_n(x + i, n - i), load_n(y + i, n - i)), n - i);
    }
}

/* R rows of y, C vectors of each in registers over n rows of x. x streams from memory: what the same columns of the
 * next n rows hold is fetched ahead. */
VEC_INLINE void accumulate_tile(size_t R, size_t C, const float *w, size_t ldw, const float *x, size_t n, size_t k,
                                float *y, size_t ldy) {
    v8 sum[12];
    for (size_t r = 0; r < R; r++) {
        for (size_t c = 0; c < C; c++) sum[r * C + c] = v8_load(y + r * ldy + 8 * c);
    }
    for (size_t t = 0; t < n; t++, x += k) {
        v8 xv[8];
        for (size_t c = 0; c < C; c++) xv[c] = v8_load(x + 8 * c);
        for (size_t c = 0; c < C; c += 2) v8_prefetch(x + n * k + 8 * c);
        for (size_t r = 0; r < R; r++) {
            v8 wv = v8_set(w[r * ldw + t]);
            for (size_t c = 0; c < C; c++) sum[r * C + c] = v8_fma(wv, xv[c], sum[r * C + c]);
        }
    }
    for (size_t r = 0; r < R; r++) {
        for (size_t c = 0; c < C; c++) v8_store(y + r * ldy + 8 * c, sum[r * C + c]);
    }
}

/* All m rows of y and all k columns over n rows of x. */
VEC_INLINE void accumulate_rows(const float *w, size_t ldw, size_t m, const float *x, size_t n, size_t k, float *y,
                                size_t ldy) {
    size_t r = 0, i;
    for (; r + 4 <= m; r += 4) {
        for (i = 0; i + 16 <= k; i += 16) accumulate_tile(4, 2, w + r * ldw, ldw, x + i, n, k, y + r * ldy + i, ldy);
        for (; i + 8 <= k; i += 8) accumulate_tile(4, 1, w + r * ldw, ldw, x + i, n, k, y + r * ldy + i, ldy);
    }
    for (; r + 2 <= m; r += 2) {
        for (i = 0; i + 32 <= k; i += 32) accumulate_tile(2, 4, w + r * ldw, ldw, x + i, n, k, y + r * ldy + i, ldy);
        for (; i + 8 <= k; i += 8) accumulate_tile(2, 1, w + r * ldw, ldw, x + i, n, k, y + r * ldy + i, ldy);
    }
    for (; r < m; r++) {
        for (i = 0; i + 64 <= k; i += 64) accumulate_tile(1, 8, w + r * ldw, ldw, x + i, n, k, y + r * ldy + i, ldy);
        for (; i + 8 <= k; i += 8) accumulate_tile(1, 1, w + r * ldw, ldw, x + i, n, k, y + r * ldy + i, ldy);
    }
    i = k / 8 * 8;
    for (r = 0; i < k && r < m; r++) {
        v8 sum = load_n(y + r * ldy + i, k - i);
        for (size_t t = 0; t < n; t++) sum = v8_fma(v8_set(w[r * ldw + t]), load_n(x + t * k + i, k - i), sum);
        store_n(y + r * ldy + i, sum, k - i);
    }
}

/* Blocks of rows that stay in the first-level cache while the columns are gone through. Milan, 128 columns, four rows
 * of y: 16 is the best of 4 to 64. */
VEC_FN void k_accumulate(const float *w, size_t ldw, size_t m, const float *x, size_t n, size_t k, float *y,
                         size_t ldy) {
    enum { BLOCK = 16 };
    for (size_t t = 0; t < n; t += BLOCK) {
        accumulate_rows(w + t, ldw, m, x + t * k, n - t < BLOCK ? n - t : BLOCK, k, y, ldy);
    }
}

VEC_FN void k_scale(float a, const float *x, float *y, size_t n) {
    v8 av = v8_set(a);
    for (size_t i = 0; i < n; i += 8) store_n(y + i, v8_mul(av, load_n(x + i, n - i)), n - i);
}

VEC_FN void k_add(const float *a, const float *b, float *out, size_t n) {
    for (size_t i = 0; i < n; i += 8) store_n(out + i, v8_add(load_n(a + i, n - i), load_n(b + i, n - i)), n - i);
}

VEC_FN void k_mul(const float *a, const float *b, float *out, size_t n) {
    for (size_t i = 0; i < n; i += 8) store_n(out + i, v8_mul(load_n(a + i, n - i), load_n(b + i, n - i)), n - i);
}

/* exp(x) = 2^n × exp(r), n = round(x / ln 2), |r| ≤ ln 2 / 2. Polynomial and the two halves of ln 2 are those of expf
 * in the Cephes library (S. Moshier, single/expf.c). Adding 1.5 × 2^23 rounds to an integer and leaves it in the low
 * bits. */
VEC_INLINE v8 v8_exp(v8 x) {
    x = v8_min(v8_set(89.0f), v8_max(v8_set(-104.0f), x));
    v8 t = v8_fma(x, v8_set(1.44269504088896341f), v8_set(12582912.0f));
    v8 n = v8_sub(t, v8_set(12582912.0f));
    v8 r = v8_fma(n, v8_set(2.12194440e-4f), v8_fma(n, v8_set(-0.693359375f), x));
    v8 p = v8_set(1.9875691500e-4f);
    p = v8_fma(p, r, v8_set(1.3981999507e-3f));
    p = v8_fma(p, r, v8_set(8.3334519073e-3f));
    p = v8_fma(p, r, v8_set(4.1665795894e-2f));
    p = v8_fma(p, r, v8_set(1.6666665459e-1f));
    p = v8_fma(p, r, v8_set(5.0000001201e-1f));
    p = v8_fma(p, v8_mul(r, r), r);
    return v8_scale_by(v8_add(p, v8_set(1.0f)), t);
}

VEC_FN float k_exp_sum(float *x, float max, size_t n) {
    v8 sum = v8_set(0), most = v8_set(max);
    for (size_t i = 0; i < n; i += 8) {
        store_n(x + i, v8_exp(v8_sub(load_n(x + i, n - i), most)), n - i);
        sum = v8_add(sum, load_n(x + i, n - i));
    }
    return v8_sum(sum);
}

VEC_FN void k_silu_mul(const float *gate, const float *up, float *out, size_t n) {
    v8 one = v8_set(1.0f), zero = v8_set(0);
    for (size_t i = 0; i < n; i += 8) {
        v8 g = load_n(gate + i, n - i);
        v8 silu = v8_div(g, v8_add(one, v8_exp(v8_sub(zero, g))));
        store_n(out + i, v8_mul(silu, load_n(up + i, n - i)), n - i);
    }
}

VEC_INLINE void norm_of(dtype t, const float *x, const unsigned char *w, float scale, float *out, size_t n) {
    v8 scales = v8_set(scale);
    for (size_t i = 0; i < n; i += 8) {
        v8 normed = v8_mul(load_n(x + i, n - i), scales);
        store_n(out + i, v8_mul(load_n_as(t, w + i * type_bytes(t), n - i), normed), n - i);
    }
}

VEC_FN void k_rmsnorm(const float *x, dtype wt, const void *w, float eps, float *out, size_t n) {
    float mean = k_dot(x, x, n) / (float)n;
    float scale = 1.0f / sqrtf(mean + eps);
    if (wt == DTYPE_F32) {
        norm_of(DTYPE_F32, x, w, scale, out, n);
    } else if (wt == DTYPE_BF16) {
        norm_of(DTYPE_BF16, x, w, scale, out, n);
    } else {
        norm_of(DTYPE_F16, x, w, scale, out, n);
    }
}

const vec_ops VEC_TABLE = {
#define X(result, name, parameters, arguments) .name = k_##name,
    VEC_OP_MAP(X)
#undef X
};
