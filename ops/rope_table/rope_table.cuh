/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_ROPE_TABLE_CUH
#define KEEL_OPS_ROPE_TABLE_CUH

#include "device/cuda_body.cuh"
#include "rope_table.h"

/* Of 0 ≤ v < 2^31. The machine's own sincosf keeps an array in local memory for large angles. Here the nearest multiple
 * of π/2 is taken off in double precision, then the polynomials of S. Moshier's Cephes (sinf.c, cosf.c: |r| ≤ π/4). */
KP_FN void kd_sincos(float v, float *sine, float *cosine) {
    kp_u32 n = (kp_u32)((double)v * 0.63661977236758134 + 0.5);
    float r = (float)((double)v - (double)n * 1.5707963267948966), z = r * r;
    float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
    float co = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1;
    float a = n & 1 ? co : s, b = n & 1 ? s : co;
    *sine = n & 2 ? -a : a;
    *cosine = (n + 1) & 2 ? -b : b;
}

/* The angle is a product of f32 as on the CPU; its sine and cosine are those of the f32 number. */
KD_BODY(rope_table, main, CONSUMER) {
    const rope_table_params *p = (const rope_table_params *)kb_params(c);
    const float *inv_freq = (const float *)kb_buffer(c, ROPE_TABLE_INV_FREQ);
    kd_act *rows = (kd_act *)kb_region(c, ROPE_TABLE_REGION_ROWS);
    kp_u32 half = p->half, n = kb_rows_live(c) * half;
    for (kp_u32 i = kd_thread(c); i < n; i += kd_threads(c)) {
        kp_u32 r = i / half, j = i % half;
        float s, co;
        kd_sincos((float)kb_step(c)->position[r] * inv_freq[j], &s, &co);
        rows[(kp_u64)r * 2 * half + j] = kd_round(co * p->attention_factor);
        rows[(kp_u64)r * 2 * half + half + j] = kd_round(s * p->attention_factor);
    }
}

KD_BODY(rope_table, main, STORER) {
    const rope_table_params *p = (const rope_table_params *)kb_params(c);
    kd_store(c, (const kd_act *)kb_region(c, ROPE_TABLE_REGION_ROWS), kb_buffer(c, ROPE_TABLE_OUT), 2 * p->half, 0,
             2 * p->half, 0);
}

#endif
