/* SPDX-License-Identifier: Apache-2.0 */
#include "body/columns.h"

#include "core/vec.h"
#include "device/columns.h"
#include "device/rows.h"

#include <string.h>

/* Lanes share the columns here: one row is the usual case. */
void body_pair(kp_ctx *c, void (*f)(const float *a, const float *b, float *out, size_t n)) {
    const kp_pair *p = kb_params(c);
    float *out = kb_region(c, KP_PAIR_OUT);
    const float *b = kb_region(c, KP_PAIR_B);
    kp_u32 rows = kb_rows_live(c) - kb_rows_from(c, p->logit_rows), lo, hi;
    size_t width = c->task->hi - c->task->lo;
    kb_share(c, 0, (kp_u32)width, 16, &lo, &hi);
    for (kp_u32 r = 0; r < rows; r++) {
        float *x = out + r * width + lo;
        f(x, b + r * width + lo, x, hi - lo);
    }
}

void body_matmul_fetch(kp_ctx *c, kp_u32 x) {
    const kp_matmul *p = kb_params(c);
    if (p->x_rows) kb_fetch_rows(c, KP_MATMUL_X, x, p->k, 0, p->k, p->logit_rows);
}

/* F8E4M3: band by band of its scale blocks. */
void body_product(const kp_matmul *p, const void *w, const void *scale, kp_u32 lo, kp_u32 hi, const float *x,
                  kp_u32 n_rows, float *y, size_t ldy) {
    dtype type = (dtype)p->weight_dtype, st = (dtype)p->scale_dtype;
    const unsigned char *from = (const unsigned char *)w + (size_t)lo * p->k * dtype_bytes(type), *factors = scale;
    size_t band = (size_t)fp8_blocks(p->k) * dtype_bytes(st);
    if (type != DTYPE_F8E4M3) {
        vec_matmul(type, from, hi - lo, p->k, x, p->k, n_rows, y, ldy);
        return;
    }
    for (size_t j = lo, end; j < hi; from += (end - j) * p->k, y += end - j, j = end) {
        end = (j / FP8_BLOCK + 1) * FP8_BLOCK;
        if (end > hi) end = hi;
        vec_matmul_scaled(from, st, factors + j / FP8_BLOCK * band, end - j, p->k, x, p->k, n_rows, y, ldy);
    }
}

void body_matmul(kp_ctx *c, kp_u32 x, kp_u32 w) {
    const kp_matmul *p = kb_params(c);
    const kp_task *task = c->task;
    kp_u32 first = kb_rows_from(c, p->logit_rows), lo, hi;
    const float *rows = (const float *)kb_buffer(c, x) + (size_t)first * p->k;
    if (p->x_rows) rows = kb_region(c, KP_MATMUL_X);
    float *y = kb_region(c, KP_MATMUL_Y);
    kb_share(c, task->lo, task->hi, 8, &lo, &hi);
    body_product(p, kb_buffer(c, w), p->scale == KP_NONE ? NULL : kb_buffer(c, p->scale), lo, hi, rows,
                 kb_rows_live(c) - first, y + (lo - task->lo), task->hi - task->lo);
}

/* out = sum + bias + residual over n columns; bias and residual may be null. */
static void finish(const float *sum, const float *bias, const float *residual, float *out, size_t n) {
    if (bias) vec_add(sum, bias, out, n);
    if (residual) vec_add(bias ? out : sum, residual, out, n);
    if (!bias && !residual) memcpy(out, sum, n * sizeof *out);
}

void body_store_sum(kp_ctx *c, const body_sum *s) {
    enum { BIAS_BLOCK = 64 }; /* bias values converted at a time */
    const kp_task *task = c->task;
    const unsigned char *b = kb_buffer(c, s->bias);
    const float *y = kb_region(c, s->region), *add = s->residual == KP_NONE ? NULL : kb_buffer(c, s->residual);
    float *to = kb_buffer(c, s->out), values[BIAS_BLOCK];
    kp_u32 first = kb_rows_from(c, s->logit_rows), live = kb_rows_live(c), lo, hi;
    size_t width = task->hi - task->lo, block = b ? BIAS_BLOCK : width;
    dtype bt = (dtype)s->bias_dtype;
    kb_share(c, task->lo, task->hi, 16, &lo, &hi);
    for (size_t j = lo; j < hi; j += block) {
        size_t n = hi - j < block ? hi - j : block;
        if (b) vec_convert_to_f32(bt, b + j * dtype_bytes(bt), values, n);
        for (kp_u32 r = first; r < live; r++) {
            size_t at = (size_t)r * s->cols + j;
            finish(y + (r - first) * width + (j - task->lo), b ? values : NULL, add ? add + at : NULL, to + at, n);
        }
    }
}

void body_matmul_store(kp_ctx *c, kp_u32 bias, kp_u32 residual, kp_u32 out) {
    const kp_matmul *p = kb_params(c);
    body_sum s = {KP_MATMUL_Y, p->n, p->logit_rows, p->bias_dtype, bias, residual, out};
    body_store_sum(c, &s);
}
