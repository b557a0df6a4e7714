/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary frequencies from config.json: default, linear, llama3, yarn; old (rope_theta + rope_scaling) and new
 * (rope_parameters) spelling. */
#ifndef KEEL_GRAPH_ROPE_H
#define KEEL_GRAPH_ROPE_H

#include "core/json.h"

enum { ROPE_MAX_HALF = 256 };

typedef struct rope {
    int half;                      /* rotary dimension / 2 */
    float inv_freq[ROPE_MAX_HALF]; /* [half], radians a position */
    double attention_factor;       /* multiplies cos and sin (yarn); 1 otherwise */
} rope;

/* rotary_dim is the width of the head (or of its rotary part); a partial_rotary_factor in the config narrows it
 * further, so the caller compares 2 × half with what it can rotate. Types that depend on the sequence length (dynamic,
 * longrope) and unknown ones are KEEL_UNSUPPORTED. */
keel_status rope_from_config(const json_t *config, const char *file, int64_t rotary_dim, rope *out, keel_error *err);

/* The frequencies of type default, as rope_from_config makes them: inv_freq[i] = theta^(−2i / (2 × half)). */
void rope_plain(double theta, int half, float *inv_freq);

#endif
