/* SPDX-License-Identifier: Apache-2.0 */
/* CPU role bodies of the tasks that device/columns.h describes. Buffers are given by their index in the op. */
#ifndef KEEL_BODY_COLUMNS_H
#define KEEL_BODY_COLUMNS_H

#include "device/body.h"
#include "device/columns.h"

#include <stddef.h>

/* Consumer of kp_pair: f over the live rows, in place. */
void body_pair(kp_ctx *c, void (*f)(const float *a, const float *b, float *out, size_t n));

/* Launcher of kp_matmul: x into its region, where it has one. */
void body_matmul_fetch(kp_ctx *c, kp_u32 x);
/* Consumer of kp_matmul: x with the task's rows of w, as they lie in the checkpoint. F8E4M3: the sum over each block of
 * 128 columns times its scale, added up in order of the blocks (core/vec.h, vec_matmul_scaled). */
void body_matmul(kp_ctx *c, kp_u32 x, kp_u32 w);
/* Rows [lo, hi) of such a w, with such scales where there are some, with n_rows of x, p->k apart; y [n_rows][ldy]. */
void body_product(const kp_matmul *p, const void *w, const void *scale, kp_u32 lo, kp_u32 hi, const float *x,
                  kp_u32 n_rows, float *y, size_t ldy);
/* Storer of kp_matmul: out = (product + bias) + residual, in f32. residual KP_NONE, and a bias that is not bound:
 * without. */
void body_matmul_store(kp_ctx *c, kp_u32 bias, kp_u32 residual, kp_u32 out);

/* Storer: out = region (+ bias) (+ residual) over the task's columns; lanes share the columns. */
typedef struct body_sum {
    kp_u32 region; /* [rows][hi − lo] of f32 */
    kp_u32 cols;   /* of the output */
    kp_u32 logit_rows, bias_dtype;
    kp_u32 bias, residual, out; /* buffers; bias may be unbound, residual unbound or KP_NONE */
} body_sum;
void body_store_sum(kp_ctx *c, const body_sum *s);

#endif
