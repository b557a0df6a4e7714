/* SPDX-License-Identifier: Apache-2.0 */
/* The implementations behind vec.h. For vec.c and its test only. */
#ifndef KEEL_CORE_VEC_OPS_H
#define KEEL_CORE_VEC_OPS_H

#include "core/dtype.h"

/* X(result, name, parameters, arguments): the functions of vec.h that have one implementation a processor. */
#define VEC_OP_MAP(X)                                                                                                  \
    X(void, matmul,                                                                                                    \
      (dtype wt, const void *w, size_t rows, size_t k, const float *x, size_t ldx, size_t m, float *y, size_t ldy),    \
      (wt, w, rows, k, x, ldx, m, y, ldy))                                                                             \
    X(void, matmul_scaled,                                                                                             \
      (const void *w, dtype st, const void *scale, size_t rows, size_t k, const float *x, size_t ldx, size_t m,        \
       float *y, size_t ldy),                                                                                          \
      (w, st, scale, rows, k, x, ldx, m, y, ldy))                                                                      \
    X(void, convert_to_f32, (dtype t, const void *src, float *dst, size_t n), (t, src, dst, n))                        \
    X(float, dot, (const float *a, const float *b, size_t n), (a, b, n))                                               \
    X(float, sum_squares, (const float *x, size_t n), (x, n))                                                          \
    X(float, max, (const float *x, size_t n), (x, n))                                                                  \
    X(size_t, argmax, (const float *x, size_t n), (x, n))                                                              \
    X(void, axpy, (float a, const float *x, float *y, size_t n), (a, x, y, n))                                         \
    X(void, accumulate,                                                                                                \
      (const float *w, size_t ldw, size_t m, const float *x, size_t n, size_t k, float *y, size_t ldy),                \
      (w, ldw, m, x, n, k, y, ldy))                                                                                    \
    X(void, scale, (float a, const float *x, float *y, size_t n), (a, x, y, n))                                        \
    X(void, add, (const float *a, const float *b, float *out, size_t n), (a, b, out, n))                               \
    X(void, mul, (const float *a, const float *b, float *out, size_t n), (a, b, out, n))                               \
    X(float, exp_sum, (float *x, float max, size_t n), (x, max, n))                                                    \
    X(void, silu_mul, (const float *gate, const float *up, float *out, size_t n), (gate, up, out, n))                  \
    X(void, rmsnorm, (const float *x, dtype wt, const void *w, float eps, float *out, size_t n),                       \
      (x, wt, w, eps, out, n))

typedef struct vec_ops {
#define X(result, name, parameters, arguments) result(*name) parameters;
    VEC_OP_MAP(X)
#undef X
} vec_ops;

extern const vec_ops vec_portable;
#if defined(__x86_64__)
extern const vec_ops vec_avx2;
#endif
/* What this processor runs. */
const vec_ops *vec_best(void);

#endif
