/* SPDX-License-Identifier: Apache-2.0 */
/* rope_table: cosines and sines of the rotary angles, once a pass for all layers.
 *
 *   out[r] = [cos(a_0) … cos(a_half−1), sin(a_0) … sin(a_half−1)] × attention_factor,  a_i = position[r] × inv_freq[i]
 *
 * The angle is one f32 product, as in Hugging Face's rotary embedding; its cosine and sine are rounded from double. */
#ifndef KEEL_OPS_ROPE_TABLE_H
#define KEEL_OPS_ROPE_TABLE_H

#include "device/types.h"

enum {
    ROPE_TABLE_INV_FREQ, /* constant [half] */
    ROPE_TABLE_OUT,      /* [M][2 × half] */
    ROPE_TABLE_BUFFERS
};
enum { ROPE_TABLE_REGION_ROWS }; /* region [rows][2 × half] */

typedef struct rope_table_params {
    kp_u32 half;
    float attention_factor;
} rope_table_params;

#endif
