/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_ROPE_TABLE_CUH
#define KEEL_OPS_ROPE_TABLE_CUH

#include "device/cuda_body.cuh"
#include "rope_table.h"

/* The angle is a product of f32 as on the CPU; its sine and cosine are those of the f32 number. */
KD_BODY(rope_table, main, CONSUMER) {
    const rope_table_params *p = (const rope_table_params *)kb_params(c);
    const float *inv_freq = (const float *)kb_buffer(c, ROPE_TABLE_INV_FREQ);
    kd_act *rows = (kd_act *)kb_region(c, ROPE_TABLE_REGION_ROWS);
    kp_u32 half = p->half, n = kb_rows_live(c) * half;
    for (kp_u32 i = kd_thread(c); i < n; i += kd_threads(c)) {
        kp_u32 r = i / half, j = i % half;
        float s, co;
        kx_sincos((float)kb_step(c)->position[r] * inv_freq[j], &s, &co);
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
