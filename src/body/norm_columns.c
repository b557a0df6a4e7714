/* SPDX-License-Identifier: Apache-2.0 */
#include "body/norm_columns.h"

#include "body/columns.h"
#include "core/vec.h"
#include "device/columns.h"
#include "device/rows.h"

#include <string.h>

void body_norm_fetch(kp_ctx *c, kp_u32 x, kp_u32 scale) {
    const kp_norm_matmul *p = kb_params(c);
    kb_rows rows = kb_rows_of(c, p->m.logit_rows);
    const float *from = kb_buffer(c, x);
    float *to = kb_region(c, KP_MATMUL_X);
    for (kp_u32 r = rows.from; r < rows.to; r++) {
        vec_rmsnorm(from + (size_t)r * p->m.k, (dtype)p->norm_dtype, kb_buffer(c, scale), p->eps,
                    to + (size_t)(r - rows.first) * p->m.k, p->m.k);
    }
}

/* The task's columns of matrix i, where this lane's share of them begins and ends, and where the first row of these
 * stands in KP_MATMUL_Y. Lanes share the columns. */
typedef struct part {
    kp_u32 from, to;
    float *y;
} part;

static part part_of(const kp_ctx *c, const kp_norm_matmul *p, kp_u32 i, kp_u32 rows) {
    kp_u32 lo, hi, first = kp_norm_first(p, i), width = c->task->hi - c->task->lo;
    kp_norm_part(p, i, c->task->lo, c->task->hi, &lo, &hi);
    part s;
    kb_share(c, lo, hi, 16, &s.from, &s.to);
    s.y = (float *)kb_region(c, KP_MATMUL_Y) + (p->paired ? (size_t)i * rows * width : 0);
    if (s.from < s.to) s.y += first + s.from - c->task->lo;
    return s;
}

static kp_u32 live_rows(const kp_ctx *c, const kp_norm_matmul *p) {
    return kb_rows_live(c) - kb_rows_from(c, p->m.logit_rows);
}

void body_norm_matmul(kp_ctx *c, kp_u32 w) {
    const kp_norm_matmul *p = kb_params(c);
    kp_u32 rows = live_rows(c, p);
    for (kp_u32 i = 0; i < KP_NORM_MATRICES && p->cols[i]; i++) {
        part s = part_of(c, p, i, rows);
        const void *scale = p->m.scale == KP_NONE ? NULL : kb_buffer(c, p->m.scale + i);
        if (s.from < s.to)
            body_product(&p->m, kb_buffer(c, w + i), scale, s.from, s.to, kb_region(c, KP_MATMUL_X), rows, s.y,
                         c->task->hi - c->task->lo);
    }
}

/* Adds the bias to the lane's part, where it is. */
static void add_bias(const kp_ctx *c, const kp_norm_matmul *p, const part *s, kp_u32 bias, kp_u32 rows) {
    enum { BLOCK = 64 }; /* bias values converted at a time */
    const unsigned char *b = kb_buffer(c, bias);
    dtype type = (dtype)p->m.bias_dtype;
    float values[BLOCK];
    for (kp_u32 j = s->from; b && j < s->to; j += BLOCK) {
        kp_u32 n = s->to - j < BLOCK ? s->to - j : BLOCK;
        vec_convert_to_f32(type, b + j * dtype_bytes(type), values, n);
        for (kp_u32 r = 0; r < rows; r++) {
            float *y = s->y + (size_t)r * (c->task->hi - c->task->lo) + (j - s->from);
            vec_add(y, values, y, n);
        }
    }
}

void body_norm_store(kp_ctx *c, kp_u32 bias, kp_u32 out) {
    const kp_norm_matmul *p = kb_params(c);
    kp_u32 rows = live_rows(c, p), first = kb_rows_from(c, p->m.logit_rows);
    for (kp_u32 i = 0; i < KP_NORM_MATRICES && p->cols[i]; i++) {
        part s = part_of(c, p, i, rows);
        add_bias(c, p, &s, bias + i, rows);
        float *to = (float *)kb_buffer(c, out + i) + (size_t)first * p->cols[i];
        for (kp_u32 r = 0; r < rows && s.from < s.to; r++)
            memcpy(to + (size_t)r * p->cols[i] + s.from, s.y + (size_t)r * (c->task->hi - c->task->lo),
                   (s.to - s.from) * sizeof *to);
    }
}

void body_norm_store_pair(kp_ctx *c, kp_u32 bias, kp_u32 out,
                          void (*f)(const float *a, const float *b, float *out, size_t n)) {
    const kp_norm_matmul *p = kb_params(c);
    kp_u32 rows = live_rows(c, p), first = kb_rows_from(c, p->m.logit_rows);
    part a = part_of(c, p, 0, rows), b = part_of(c, p, 1, rows);
    add_bias(c, p, &a, bias, rows);
    add_bias(c, p, &b, bias + 1, rows);
    float *to = (float *)kb_buffer(c, out) + (size_t)first * p->cols[0];
    for (kp_u32 r = 0; r < rows && a.from < a.to; r++) {
        size_t at = (size_t)r * (c->task->hi - c->task->lo);
        f(a.y + at, b.y + at, to + (size_t)r * p->cols[0] + a.from, a.to - a.from);
    }
}
