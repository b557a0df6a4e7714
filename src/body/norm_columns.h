/* SPDX-License-Identifier: Apache-2.0 */
/* CPU role bodies of kp_norm_matmul (device/columns.h). Buffers are given by their index in the op: w and bias are the
 * first matrix and the first bias, out the first output; the others follow. The launcher norms, so that the results are
 * to the bit those of the ops that a fused one stands for. */
#ifndef KEEL_BODY_NORM_COLUMNS_H
#define KEEL_BODY_NORM_COLUMNS_H

#include "device/body.h"

#include <stddef.h>

void body_norm_fetch(kp_ctx *c, kp_u32 x, kp_u32 scale);
void body_norm_matmul(kp_ctx *c, kp_u32 w);
void body_norm_store(kp_ctx *c, kp_u32 bias, kp_u32 out);
/* Paired: out = f(product of w, product of the next). */
void body_norm_store_pair(kp_ctx *c, kp_u32 bias, kp_u32 out,
                          void (*f)(const float *a, const float *b, float *out, size_t n));

#endif
