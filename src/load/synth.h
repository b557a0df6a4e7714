/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic weights: a counter-based 32-bit hash to uniform values, integer arithmetic and one exact float multiply,
 * so that every machine (and a 30-line Python reader, tests/synth.py) makes the same bytes.
 *
 *   name_hash = FNV-1a 32 of the checkpoint key, xor seed × 0x9E3779B1
 *   h(i)      = mix(mix(i.lo xor name_hash) + i.hi × 0x85EBCA6B + name_hash)
 *               with mix = the 32-bit finaliser of MurmurHash3 (public domain)
 *   u(i)      = (int32)(h >> 8) − 2^23, a whole number in [−2^23, 2^23)
 *   value(i)  = offset + u(i) × 2^−23 × scale, in f32, then rounded to nearest even to the tensor's dtype
 *
 * where i counts the tensor's elements in row-major order, i.lo and i.hi are its low and high 32 bits, all integer
 * arithmetic is modulo 2^32, and offset and scale follow from the tensor's role, the first rule that fits:
 *   key contains "embed_tokens":               offset 0, scale 1
 *   rank 1 and key ends in "norm.weight":      offset 1, scale 2^-4
 *   rank 1 (biases):                           offset 0, scale 2^-5
 *   rank 2 and key ends in "weight_scale_inv": offset 2^(−8−e), scale 2^(−10−e), e as below of 128 × K
 *   otherwise, K being the last dimension:     offset 0, scale 2^(−e), e = floor(log2(K)) / 2 (integer division),
 * so that a row's dot product with unit-variance input has variance between 1/3 and 4/3. u × 2^−23 × scale is exact,
 * hence a fused multiply-add gives the same bytes as two operations.
 *
 * A tensor of F8E4M3 has offset 0 and scale 2^8, whatever its role: the values times their scales are spread as the
 * same weight of another type is, and never too large for the type. */
#ifndef KEEL_LOAD_SYNTH_H
#define KEEL_LOAD_SYNTH_H

#include "core/dtype.h"
#include "core/error.h"

/* Fills elements [first, first + n) of tensor `key` ([rank] dims as in a checkpoint) in dtype t (F32, BF16, F16 or
 * F8E4M3; another is KEEL_UNSUPPORTED). out is aligned for t. Any slicing gives the same bytes: a rank fills its shard
 * alone. A dimension below 1 or elements past the tensor's end are KEEL_RANGE. */
keel_status synth_fill(const char *key, uint32_t seed, int rank, const int64_t *dim, dtype t, uint64_t first,
                       uint64_t n, void *out, keel_error *err);

#endif
