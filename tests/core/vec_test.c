/* SPDX-License-Identifier: Apache-2.0 */
/* Expected values: sums in double over naive loops, exp of libm in double, conversions by ldexp. Each check runs on the
 * portable text and on the one this processor picks, and the two must agree in every bit. */
#include "core/mem.h"
#include "core/vec.h"
#include "core/vec_ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
static const vec_ops *both[2]; /* portable, best */

static uint64_t seed = 20240611;

static uint32_t random_u32(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}
/* [−1, 1) */
static float random_float(void) { return (float)((double)random_u32() / 2147483648.0 - 1.0); }

/* Blocks of their exact size, at an odd address when asked: AddressSanitizer sees any step beyond. */
static void *block(size_t bytes, size_t shift) {
    unsigned char *p = mem_alloc(bytes + shift + !(bytes + shift));
    assert_non_null(p);
    return p + shift;
}
static void unblock(void *p, size_t shift) { mem_free((unsigned char *)p - shift); }

static float *random_floats(size_t n) {
    float *x = block(n * sizeof *x, 0);
    for (size_t i = 0; i < n; i++) x[i] = random_float();
    return x;
}

/* n weights of type t; what they are worth goes to value. */
static unsigned char *random_weights(dtype t, size_t n, size_t shift, double *value) {
    size_t each = dtype_bytes(t);
    unsigned char *w = block(n * each, shift);
    for (size_t i = 0; i < n; i++) {
        float f = random_float();
        uint16_t h = bf16_from_f32(f);
        value[i] = (double)f;
        if (t == DTYPE_BF16) value[i] = (double)bf16_to_f32(h);
        if (t == DTYPE_F16) {
            h = (uint16_t)(random_u32() & 0xb7ff); /* sign, exponent ≤ 13: below 1/2 */
            int exponent = (h >> 10) & 31, mantissa = h & 1023;
            value[i] = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
            if (h & 0x8000) value[i] = -value[i];
        }
        memcpy(w + i * each, t == DTYPE_F32 ? (void *)&f : (void *)&h, each);
    }
    return w;
}

static void assert_same_bits(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (isnan(a[i]) && isnan(b[i])) continue;
        if (memcmp(a + i, b + i, sizeof *a))
            fail_msg("element %zu of %zu: %a and %a", i, n, (double)a[i], (double)b[i]);
    }
}

/* y = W x, at an error bound of what k f32 roundings can do. */
static void check_matmul(const vec_ops *v, dtype t, const unsigned char *w, const double *value, size_t rows, size_t k,
                         const float *x, size_t ldx, size_t m, float *y, size_t ldy) {
    for (size_t i = 0; i < m * ldy; i++) y[i] = 12345;
    v->matmul(t, w, rows, k, x, ldx, m, y, ldy);
    for (size_t r = 0; r < m; r++) {
        for (size_t j = 0; j < rows; j++) {
            double sum = 0, size = 0;
            for (size_t i = 0; i < k; i++) {
                double product = value[j * k + i] * (double)x[r * ldx + i];
                sum += product;
                size += fabs(product);
            }
            double bound = size * 6e-8 * (double)(k / 8 + 5);
            if (!(fabs((double)y[r * ldy + j] - sum) <= bound)) {
                fail_msg("%s rows %zu k %zu m %zu: y[%zu][%zu] is %.9g, not %.9g", dtype_name(t), rows, k, m, r, j,
                         (double)y[r * ldy + j], sum);
            }
        }
        for (size_t j = rows; j < ldy; j++) assert_true(y[r * ldy + j] == 12345);
    }
}

static void matmul_case(dtype t, size_t rows, size_t k, size_t shift) {
    enum { M = 16 };
    size_t ldx = k + 3, ldy = rows + 2;
    double *value = block(rows * k * sizeof *value, 0);
    unsigned char *w = random_weights(t, rows * k, shift, value);
    float *x = random_floats(M * ldx), *all = block(M * ldy * sizeof *all, 0), *y = block(M * ldy * sizeof *y, 0);
    check_matmul(both[0], t, w, value, rows, k, x, ldx, M, all, ldy);
    for (int b = 0; b < 2; b++) {
        for (size_t m = 1; m <= M; m++) {
            check_matmul(both[b], t, w, value, rows, k, x, ldx, m, y, ldy);
            assert_same_bits(y, all, m * ldy); /* whatever m, and on both */
        }
        for (size_t j = 0; j < rows; j++) { /* whatever rows */
            both[b]->matmul(t, w + j * k * dtype_bytes(t), 1, k, x, ldx, 1, y, ldy);
            assert_same_bits(y, all + j, 1);
        }
    }
    mem_free(value);
    unblock(w, shift);
    mem_free(x);
    mem_free(all);
    mem_free(y);
}

static void test_matmul(void **state) {
    (void)state;
    static const size_t rows[] = {0, 1, 2, 3, 7, 8, 11, 19}, ks[] = {0, 1, 7, 8, 9, 31, 32, 33, 40, 71, 200};
    for (size_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) matmul_case(types[t], rows[i], ks[j], 0);
        }
        matmul_case(types[t], 13, 45, 1); /* odd addresses */
        matmul_case(types[t], 17, 1700, 0);
    }
}

static const uint32_t e4m3[256] = {
#include "f8e4m3.inc"
};

/* n codes at an odd address, none of them NaN; what they are worth goes to value. */
static unsigned char *random_codes(size_t n, double *value) {
    unsigned char *w = block(n, 1);
    for (size_t i = 0; i < n; i++) {
        float f;
        do w[i] = (unsigned char)(random_u32() >> 13);
        while ((w[i] & 0x7f) == 0x7f);
        memcpy(&f, &e4m3[w[i]], sizeof f);
        value[i] = (double)f;
    }
    return w;
}

/* y against sums in double: k roundings, one a block for its factor and one for adding it. */
static void check_scaled(const float *y, const double *value, const double *scale, size_t rows, size_t k,
                         const float *x, size_t ldx, size_t m, size_t ldy) {
    for (size_t r = 0; r < m; r++) {
        for (size_t j = 0; j < rows; j++) {
            double sum = 0, size = 0;
            for (size_t i = 0; i < k; i++) {
                double product = value[j * k + i] * scale[i / 128] * (double)x[r * ldx + i];
                sum += product;
                size += fabs(product);
            }
            double off = fabs((double)y[r * ldy + j] - sum), bound = size * 6e-8 * (double)(16 + (k + 127) / 128 + 5);
            if (!(off <= bound)) fail_msg("rows %zu k %zu m %zu: y[%zu][%zu] off by %g", rows, k, m, r, j, off);
        }
        for (size_t j = rows; j < ldy; j++) assert_true(y[r * ldy + j] == 12345);
    }
}

static void scaled_case(dtype st, size_t rows, size_t k) {
    enum { M = 16 };
    size_t ldx = k + 3, ldy = rows + 2, blocks = (k + 127) / 128;
    double *value = block(rows * k * sizeof *value, 0), *worth = block(blocks * sizeof *worth, 0);
    unsigned char *w = random_codes(rows * k, value), *scale = random_weights(st, blocks, 1, worth);
    float *x = random_floats(M * ldx), *all = block(M * ldy * sizeof *all, 0), *y = block(M * ldy * sizeof *y, 0);
    for (size_t i = 0; i < M * ldy; i++) all[i] = 12345;
    both[0]->matmul_scaled(w, st, scale, rows, k, x, ldx, M, all, ldy);
    check_scaled(all, value, worth, rows, k, x, ldx, M, ldy);
    for (int b = 0; b < 2; b++) {
        for (size_t m = 1; m <= M; m++) { /* whatever m, rows and processor: the same bits */
            for (size_t i = 0; i < M * ldy; i++) y[i] = 12345;
            both[b]->matmul_scaled(w, st, scale, rows, k, x, ldx, m, y, ldy);
            assert_same_bits(y, all, m * ldy);
        }
        for (size_t j = 0; j < rows; j++) {
            both[b]->matmul_scaled(w + j * k, st, scale, 1, k, x, ldx, 1, y, ldy);
            assert_same_bits(y, all + j, 1);
        }
    }
    mem_free(value), mem_free(worth), mem_free(x), mem_free(all), mem_free(y);
    unblock(w, 1), unblock(scale, 1);
}

static void test_matmul_scaled(void **state) {
    (void)state;
    static const size_t rows[] = {0, 1, 3, 8, 19}, ks[] = {0, 1, 8, 127, 128, 129, 261, 1700};
    for (size_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) scaled_case(types[t], rows[i], ks[j]);
        }
    }
}

/* Every code, NaN too, in every lane; and NaN in a weight is NaN in what it makes. */
static void test_codes(void **state) {
    (void)state;
    unsigned char codes[264];
    float got[2][264], want, one = 1, x[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0}, y;
    for (size_t shift = 0; shift < 8; shift++) {
        for (size_t i = 0; i < sizeof codes; i++) codes[i] = (unsigned char)(i + shift);
        for (int b = 0; b < 2; b++) {
            both[b]->convert_to_f32(DTYPE_F8E4M3, codes, got[b], 259);
            for (size_t i = 0; i < 259; i++) {
                memcpy(&want, &e4m3[codes[i]], sizeof want);
                assert_same_bits(&want, got[b] + i, 1);
            }
        }
    }
    for (size_t i = 0; i < 9; i++) {
        memset(codes, 0x38, 9);
        for (int sign = 0; sign < 2; sign++) {
            codes[i] = sign ? 0xff : 0x7f;
            for (int b = 0; b < 2; b++) {
                both[b]->matmul_scaled(codes, DTYPE_F32, &one, 1, 9, x, 9, 1, &y, 1);
                assert_true(isnan(y));
            }
        }
    }
}

/* The same values as f32, bf16 or f16 give the same bits. */
static void test_types_agree(void **state) {
    (void)state;
    enum { ROWS = 5, K = 77 };
    uint16_t bf16[ROWS * K], f16[ROWS * K];
    float f32[ROWS * K], x[K], y[3][ROWS];
    for (size_t i = 0; i < ROWS * K; i++) {
        uint32_t n = random_u32() % 128, negative = random_u32() & 1; /* ±n / 128 is exact in all three */
        uint32_t top = n ? 31 - (uint32_t)__builtin_clz(n) : 0;
        f32[i] = (negative ? -1.0f : 1.0f) * (float)n / 128;
        bf16[i] = bf16_from_f32(f32[i]);
        f16[i] = (uint16_t)(negative << 15 | (n ? (top + 8) << 10 | ((n << (10 - top)) & 1023) : 0));
    }
    for (size_t i = 0; i < K; i++) x[i] = random_float();
    vec_matmul(DTYPE_F32, f32, ROWS, K, x, K, 1, y[0], ROWS);
    vec_matmul(DTYPE_BF16, bf16, ROWS, K, x, K, 1, y[1], ROWS);
    vec_matmul(DTYPE_F16, f16, ROWS, K, x, K, 1, y[2], ROWS);
    assert_same_bits(y[0], y[1], ROWS);
    assert_same_bits(y[0], y[2], ROWS);
}

static void test_convert(void **state) {
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        for (size_t n = 0; n < 40; n += n < 18 ? 1 : 7) {
            double *value = block(n * sizeof *value, 0);
            unsigned char *w = random_weights(types[t], n, n & 1, value);
            float *out = block(n * sizeof *out, 0);
            for (int b = 0; b < 2; b++) {
                both[b]->convert_to_f32(types[t], w, out, n);
                for (size_t i = 0; i < n; i++) assert_true((double)out[i] == value[i]);
            }
            mem_free(value);
            unblock(w, n & 1);
            mem_free(out);
        }
    }
    for (uint32_t h = 0; h < 65536; h += 8) { /* all of them, infinities too */
        uint16_t in[8];
        float out[2][8];
        for (uint32_t l = 0; l < 8; l++) in[l] = (uint16_t)(h + l);
        for (size_t t = 1; t < 3; t++) {
            for (int b = 0; b < 2; b++) both[b]->convert_to_f32(types[t], in, out[b], 8);
            assert_same_bits(out[0], out[1], 8);
        }
    }
    assert_true(vec_reads(DTYPE_F32) && vec_reads(DTYPE_BF16) && vec_reads(DTYPE_F16));
    assert_false(vec_reads(DTYPE_F8E4M3) || vec_reads(DTYPE_I32) || vec_reads(DTYPE_ACT));
}

static void test_reductions(void **state) {
    (void)state;
    for (size_t n = 0; n < 140; n++) {
        float *a = random_floats(n), *b = random_floats(n), got[2][2];
        double dot = 0, squares = 0;
        for (size_t i = 0; i < n; i++) {
            dot += (double)a[i] * (double)b[i];
            squares += (double)a[i] * (double)a[i];
        }
        for (int i = 0; i < 2; i++) {
            got[i][0] = both[i]->dot(a, b, n);
            got[i][1] = both[i]->sum_squares(a, n);
            assert_true(fabs((double)got[i][0] - dot) <= 1e-7 * (double)n);
            assert_true(fabs((double)got[i][1] - squares) <= 1e-7 * squares * 4);
        }
        assert_same_bits(got[0], got[1], 2);
        mem_free(a);
        mem_free(b);
    }
}

static void check_extremes(const float *x, size_t n, float max, size_t index) {
    for (int b = 0; b < 2; b++) {
        assert_true(both[b]->max(x, n) == max);
        assert_int_equal(both[b]->argmax(x, n), index);
    }
}

static void test_max(void **state) {
    (void)state;
    for (size_t n = 1; n < 100; n++) {
        float *x = random_floats(n);
        size_t best = 0;
        for (size_t i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
        check_extremes(x, n, x[best], best);
        size_t first = random_u32() % n;
        x[first] = x[n - 1] = x[n / 2] = 2; /* ties: the lowest */
        first = first < n / 2 ? first : n / 2;
        check_extremes(x, n, 2, first);
        for (size_t i = 0; i < n; i++) x[i] = -INFINITY;
        check_extremes(x, n, -INFINITY, 0);
        for (size_t i = 0; i < n; i++) x[i] = NAN;
        check_extremes(x, n, -INFINITY, 0);
        x[n - 1] = -5;
        check_extremes(x, n, -5, n - 1);
        mem_free(x);
    }
    check_extremes(NULL, 0, -INFINITY, 0);
}

/* Each on its own arrays and in place. */
static void test_elementwise(void **state) {
    (void)state;
    for (size_t n = 0; n < 50; n++) {
        float *a = random_floats(n), *b = random_floats(n), *out = block(n * sizeof *out, 0);
        size_t bytes = n * sizeof *out;
        for (int k = 0; k < 2; k++) {
            both[k]->add(a, b, out, n);
            for (size_t i = 0; i < n; i++) assert_true(out[i] == a[i] + b[i]);
            both[k]->mul(a, b, out, n);
            for (size_t i = 0; i < n; i++) assert_true(out[i] == a[i] * b[i]);
            both[k]->scale(0.37f, a, out, n);
            for (size_t i = 0; i < n; i++) assert_true(out[i] == 0.37f * a[i]);
            memcpy(out, b, bytes);
            both[k]->axpy(0.37f, a, out, n);
            for (size_t i = 0; i < n; i++) assert_true(out[i] == fmaf(0.37f, a[i], b[i]));
            memcpy(out, b, bytes);
            both[k]->add(out, out, out, n);
            for (size_t i = 0; i < n; i++) assert_true(out[i] == b[i] + b[i]);
        }
        mem_free(a);
        mem_free(b);
        mem_free(out);
    }
}

/* Distance in units of the last place of the true value. */
static double ulps(float got, double want) {
    int e;
    frexp(want, &e);
    double ulp = ldexp(1, (e < -125 ? -125 : e) - 24);
    return fabs((double)got - want) / ulp;
}

/* By its definition the same bits as a row of axpy calls. */
static void test_accumulate(void **state) {
    (void)state;
    enum { LDW = 64 };
    for (size_t m = 0; m <= 9; m++) {
        for (size_t k = 1; k <= 130; k += k < 20 ? 1 : 11) {
            for (size_t n = 0; n <= 64; n += n < 3 ? 1 : 13) {
                size_t ldy = k + 3;
                float *w = random_floats(m * LDW), *x = random_floats(n * k), *y = random_floats(m * ldy);
                float *want = block(m * ldy * sizeof *want, 0), *got = block(m * ldy * sizeof *got, 0);
                memcpy(want, y, m * ldy * sizeof *want);
                for (size_t r = 0; r < m; r++) {
                    for (size_t t = 0; t < n; t++) vec_portable.axpy(w[r * LDW + t], x + t * k, want + r * ldy, k);
                }
                for (int v = 0; v < 2; v++) {
                    memcpy(got, y, m * ldy * sizeof *got);
                    both[v]->accumulate(w, LDW, m, x, n, k, got, ldy);
                    assert_same_bits(want, got, m * ldy);
                }
                unblock(w, 0), unblock(x, 0), unblock(y, 0), unblock(want, 0), unblock(got, 0);
            }
        }
    }
}

static void test_exp(void **state) {
    (void)state;
    enum { STEPS = 200000, N = 40 };
    double worst = 0;
    float x[2][N], in[N];
    for (int s = 0; s < STEPS; s += N) {
        for (int i = 0; i < N; i++) {
            in[i] = x[0][i] = x[1][i] = -104 + (float)(s + i) * (192.0f / STEPS) + 0.0005f * random_float();
        }
        float sum[2];
        double want_sum = 0;
        for (int b = 0; b < 2; b++) sum[b] = both[b]->exp_sum(x[b], 0, N);
        assert_same_bits(x[0], x[1], N);
        assert_same_bits(&sum[0], &sum[1], 1);
        for (int i = 0; i < N; i++) {
            double want = exp((double)in[i]), off = ulps(x[0][i], want);
            want_sum += (double)x[0][i];
            worst = off > worst ? off : worst;
        }
        if (want_sum < 3e38) assert_true(fabs((double)sum[0] - want_sum) <= 5e-7 * want_sum);
    }
    printf("exp: worst error %.3f ulp\n", worst);
    assert_true(worst < 1.02);

    float edge[] = {0, -0.0f, 88.7228f, 88.73f, 1e30f, INFINITY, -103.0f, -1e30f, -INFINITY, NAN, -3 * 0.69314718f};
    enum { EDGES = sizeof edge / sizeof *edge };
    for (int b = 0; b < 2; b++) {
        float y[EDGES];
        memcpy(y, edge, sizeof y);
        both[b]->exp_sum(y, 0, EDGES);
        assert_true(y[0] == 1 && y[1] == 1);
        assert_true(isfinite(y[2]) && y[3] == INFINITY && y[4] == INFINITY && y[5] == INFINITY);
        assert_true(y[6] == ldexpf(1, -149)); /* the smallest: exp(−103) = 1.32 × 2^−149 */
        assert_true(y[7] == 0 && y[8] == 0 && isnan(y[9]));
    }
    for (size_t n = 0; n < 20; n++) { /* lengths; the greatest stands for max */
        float *v = random_floats(n), *out = block(n * sizeof *out, 0), max = vec_max(v, n);
        memcpy(out, v, n * sizeof *out);
        double want = 0;
        for (size_t i = 0; i < n; i++) want += exp((double)(v[i] - max));
        assert_true(fabs((double)vec_exp_sum(out, max, n) - want) <= 1e-6 * want);
        for (size_t i = 0; i < n; i++) assert_true(ulps(out[i], exp((double)(v[i] - max))) < 1.02);
        mem_free(v);
        mem_free(out);
    }
}

static void test_silu_mul(void **state) {
    (void)state;
    double worst = 0;
    for (size_t n = 0; n < 300; n++) {
        float *g = random_floats(n), *u = random_floats(n), *out[2];
        for (size_t i = 0; i < n; i++) g[i] *= i % 3 ? 8.0f : 80.0f;
        for (int b = 0; b < 2; b++) {
            out[b] = block(n * sizeof(float), 0);
            both[b]->silu_mul(g, u, out[b], n);
        }
        assert_same_bits(out[0], out[1], n);
        for (size_t i = 0; i < n; i++) {
            double want = (double)g[i] / (1 + exp(-(double)g[i])) * (double)u[i], off = ulps(out[0][i], want);
            worst = off > worst ? off : worst;
        }
        both[1]->silu_mul(g, u, g, n); /* in place */
        assert_same_bits(g, out[0], n);
        mem_free(g);
        mem_free(u);
        for (int b = 0; b < 2; b++) mem_free(out[b]);
    }
    printf("silu × up: worst error %.3f ulp\n", worst);
    assert_true(worst < 3);
    float g[] = {0, -200, 200, INFINITY, NAN}, u[] = {1, 1, 1, 1, 1}, out[5];
    vec_silu_mul(g, u, out, 5);
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 200 && out[3] == INFINITY && isnan(out[4]));
}

static void test_rmsnorm(void **state) {
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        for (size_t n = 1; n < 150; n += n < 20 ? 1 : 13) {
            double *value = block(n * sizeof *value, 0), squares = 0;
            unsigned char *w = random_weights(types[t], n, 1, value);
            float *x = random_floats(n), *out[2];
            for (size_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
            double scale = 1 / sqrt(squares / (double)n + 1e-3);
            for (int b = 0; b < 2; b++) {
                out[b] = block(n * sizeof(float), 0);
                both[b]->rmsnorm(x, types[t], w, 1e-3f, out[b], n);
                for (size_t i = 0; i < n; i++) {
                    double want = value[i] * ((double)x[i] * scale);
                    assert_true(fabs((double)out[b][i] - want) <= 5e-7 * fabs(want) + 1e-30);
                }
            }
            assert_same_bits(out[0], out[1], n);
            both[1]->rmsnorm(x, types[t], w, 1e-3f, x, n); /* in place */
            assert_same_bits(x, out[0], n);
            mem_free(value);
            unblock(w, 1);
            mem_free(x);
            for (int b = 0; b < 2; b++) mem_free(out[b]);
        }
    }
}

int main(void) {
    both[0] = &vec_portable;
    both[1] = vec_best();
    printf("this processor runs the %s text\n", both[1] == both[0] ? "portable" : "vector");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),     cmocka_unit_test(test_types_agree),   cmocka_unit_test(test_convert),
        cmocka_unit_test(test_reductions), cmocka_unit_test(test_max),           cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_accumulate), cmocka_unit_test(test_exp),           cmocka_unit_test(test_silu_mul),
        cmocka_unit_test(test_rmsnorm),    cmocka_unit_test(test_matmul_scaled), cmocka_unit_test(test_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
