/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the CPU bodies. AVX2+FMA+F16C where the processor has them, portable C elsewhere; both are one text
 * (vec_kernels.h) over vectors of eight lanes, so that results are the same bits everywhere. Sums never depend on how
 * the work was cut: the value of a dot product is a function of its own operands alone.
 *
 * Pointers need no alignment, weights not even that of their type; n and k may be anything, 0 too. Outputs may be the
 * same array as an input of the same type, but may not overlap it otherwise. Weight types: F32, BF16, F16, and F8E4M3
 * where it is said. */
#ifndef KEEL_CORE_VEC_H
#define KEEL_CORE_VEC_H

#include "core/dtype.h"

/* Whether t is a type that weights may have here without a scale: F32, BF16, F16. */
int vec_reads(dtype t);

/* y[r × ldy + j] = Σ_i w[j][i] × x[r × ldx + i] for j < rows, i < k, r < m; w row-major without gaps. Eight partial
 * sums by i mod 8, in order of i, whatever rows and m are. y overlaps nothing. */
void vec_matmul(dtype wt, const void *w, size_t rows, size_t k, const float *x, size_t ldx, size_t m, float *y,
                size_t ldy);

/* The same of F8E4M3 weights in rows of one band of scale blocks (core/dtype.h): scale has the band's fp8_blocks(k)
 * factors, of a type that vec_reads(). Of each block eight partial sums as above; times its factor they are added,
 * fused, to eight sums over the blocks, in order. */
void vec_matmul_scaled(const void *w, dtype st, const void *scale, size_t rows, size_t k, const float *x, size_t ldx,
                       size_t m, float *y, size_t ldy);

/* dst[i] = (float)src[i]; F8E4M3 too */
void vec_convert_to_f32(dtype t, const void *src, float *dst, size_t n);

float vec_dot(const float *a, const float *b, size_t n);
float vec_sum_squares(const float *x, size_t n);
/* The greatest; NaN is passed over; −inf when nothing is left. */
float vec_max(const float *x, size_t n);
/* The lowest index of the greatest; NaN never wins; 0 when nothing is left. */
size_t vec_argmax(const float *x, size_t n);

/* y[i] = a × x[i] + y[i], rounded once */
void vec_axpy(float a, const float *x, float *y, size_t n);
/* y[r × ldy + i] = Σ_t w[r × ldw + t] × x[t × k + i] + y[r × ldy + i] for t < n, i < k, r < m: the same bits as n calls
 * of vec_axpy a row, in order of t. */
void vec_accumulate(const float *w, size_t ldw, size_t m, const float *x, size_t n, size_t k, float *y, size_t ldy);
/* y[i] = a × x[i] */
void vec_scale(float a, const float *x, float *y, size_t n);
void vec_add(const float *a, const float *b, float *out, size_t n);
void vec_mul(const float *a, const float *b, float *out, size_t n);

/* x[i] = exp(x[i] − max); returns the sum. exp within 1.02 ulp (every float tried), 0 and inf beyond its range. */
float vec_exp_sum(float *x, float max, size_t n);
/* out[i] = g / (1 + exp(−g)) × u with g = gate[i], u = up[i] */
void vec_silu_mul(const float *gate, const float *up, float *out, size_t n);
/* out[i] = w[i] × (x[i] × (1 / √(Σ x² / n + eps))), each step rounded to f32 as Hugging Face's modules do */
void vec_rmsnorm(const float *x, dtype wt, const void *w, float eps, float *out, size_t n);

#endif
