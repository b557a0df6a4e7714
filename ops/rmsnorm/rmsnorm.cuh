/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_RMSNORM_CUH
#define KEEL_OPS_RMSNORM_CUH

#include "device/cuda_tagged.cuh"
#include "rmsnorm.h"

KP_FN kp_u32 kd_norm_rows(const kp_ctx *c, const rmsnorm_params *p) {
    return kb_rows_live(c) - kd_rows_first(c, p->logit_rows);
}

KD_BODY(rmsnorm, main, LAUNCHER) {
    const rmsnorm_params *p = (const rmsnorm_params *)kb_params(c);
    if (kd_norm_rows(c, p) <= p->staged_rows)
        kd_fetch_slot(c, (kd_act *)kb_region(c, RMSNORM_REGION_ROWS), RMSNORM_X, p->hidden, 0, p->hidden,
                      p->logit_rows);
}

/* Eight values at a time where the row allows it. */
KP_FN float kd_norm_square(kd_vec v) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) sum += kd_low(v.w[i]) * kd_low(v.w[i]) + kd_high(v.w[i]) * kd_high(v.w[i]);
    return sum;
}
KP_FN float kd_norm_one(float x, float scale, float w) { return kd_f32(kd_round(x * scale)) * w; }
KP_FN kd_vec kd_norm_scale(kd_vec v, float scale, kd_vec w) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        v.w[i] = kd_round2(kd_norm_one(kd_low(v.w[i]), scale, kd_low(w.w[i])),
                           kd_norm_one(kd_high(v.w[i]), scale, kd_high(w.w[i])));
    return v;
}

/* One row by all lanes of the consumer. The normalised value is rounded before the weight multiplies it, as Hugging
 * Face's modules do. `sums` [lanes] in SMEM. */
KP_FN void kd_norm_row(kp_ctx *c, const rmsnorm_params *p, const kd_act *w, const kd_act *from, int far, kd_act *to,
                       float *sums) {
    kp_u32 vecs = p->hidden % 8 ? 0 : p->hidden / 8, me = kd_thread(c), all = kd_threads(c);
    float sum = 0;
#pragma unroll 4
    for (kp_u32 i = me; i < vecs; i += all)
        sum += kd_norm_square(far ? kd_load16(from + (kp_u64)i * 8) : *(const kd_vec *)(from + (kp_u64)i * 8));
    for (kp_u32 i = vecs * 8 + me; i < p->hidden; i += all) {
        float v = kd_f32(far ? kd_load_act(from + i) : from[i]);
        sum += v * v;
    }
    sum = kd_warp_sum(sum);
    if (kd_first()) sums[c->lane] = sum;
    kd_role_sync(c);
    sum = 0;
    for (kp_u32 l = 0; l < kd_lanes(KP_CONSUMER); l++) sum += sums[l];
    float scale = kx_rsqrt(sum / (float)p->hidden + p->eps);
#pragma unroll 4
    for (kp_u32 i = me; i < vecs; i += all) {
        kd_vec g = kd_weight16(w + (kp_u64)i * 8);
        kd_vec x = far ? kd_load16(from + (kp_u64)i * 8) : *(const kd_vec *)(from + (kp_u64)i * 8);
        *(kd_vec *)(to + (kp_u64)i * 8) = kd_norm_scale(x, scale, g);
    }
    for (kp_u32 i = vecs * 8 + me; i < p->hidden; i += all)
        to[i] = kd_round(kd_norm_one(kd_f32(far ? kd_load_act(from + i) : from[i]), scale, kd_f32(w[i])));
    kd_role_sync(c); /* sums are used again */
}

KD_BODY(rmsnorm, main, CONSUMER) {
    const rmsnorm_params *p = (const rmsnorm_params *)kb_params(c);
    const kd_act *w = (const kd_act *)kb_buffer(c, RMSNORM_W);
    kp_u32 rows = kd_norm_rows(c, p), first = kd_rows_first(c, p->logit_rows);
    float *sums = (float *)kb_region(c, RMSNORM_REGION_SUMS);
    for (kp_u32 r = 0; r < rows; r++) {
        if (rows <= p->staged_rows) {
            kd_act *x = (kd_act *)kb_region(c, RMSNORM_REGION_ROWS) + (kp_u64)r * p->hidden;
            kd_norm_row(c, p, w, x, 0, x, sums);
        } else {
            kp_u64 at = (kp_u64)(first + r) * p->hidden;
            kd_norm_row(c, p, w, (const kd_act *)kb_buffer(c, RMSNORM_X) + at, 1,
                        (kd_act *)kb_buffer(c, RMSNORM_OUT) + at, sums);
        }
    }
}

KD_BODY(rmsnorm, main, STORER) {
    const rmsnorm_params *p = (const rmsnorm_params *)kb_params(c);
    if (kd_norm_rows(c, p) <= p->staged_rows)
        kd_store_slot(c, (const kd_act *)kb_region(c, RMSNORM_REGION_ROWS), RMSNORM_OUT, p->hidden, 0, p->hidden,
                      p->logit_rows);
}

#endif
