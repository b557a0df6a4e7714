/* SPDX-License-Identifier: Apache-2.0 */
/* Element types. The one table: graph, plan, loader and bodies all read it. Numbers are pinned, they
 * stand in plan files. */
#ifndef KEEL_CORE_DTYPE_H
#define KEEL_CORE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* X(NAME, number, bytes, name in a safetensors header) */
#define KEEL_DTYPE_MAP(X)                                                                                              \
    X(F32, 0, 4, "F32")                                                                                                \
    X(BF16, 1, 2, "BF16")                                                                                              \
    X(F16, 2, 2, "F16")                                                                                                \
    X(F8E4M3, 3, 1, "F8_E4M3")                                                                                         \
    X(I32, 4, 4, "I32")                                                                                                \
    X(U8, 5, 1, "U8")                                                                                                  \
    X(ACT, 6, 0, "act") /* "the arch's activation type": stands in graphs only, resolved by the plan */

typedef enum dtype {
#define X(name, number, bytes, text) DTYPE_##name = number,
    KEEL_DTYPE_MAP(X)
#undef X
        DTYPE_COUNT
} dtype;

size_t dtype_bytes(dtype t);
const char *dtype_name(dtype t);
/* DTYPE_COUNT when unknown. */
dtype dtype_parse(const char *name, size_t n);

static inline float bf16_to_f32(uint16_t v) {
    union {
        uint32_t u;
        float f;
    } x = {(uint32_t)v << 16};
    return x.f;
}

/* Round to nearest even; NaN stays NaN. */
static inline uint16_t bf16_from_f32(float f) {
    union {
        float f;
        uint32_t u;
    } x = {f};
    if ((x.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((x.u >> 16) | 0x40u);
    return (uint16_t)((x.u + 0x7fffu + ((x.u >> 16) & 1u)) >> 16);
}

/* OCP 8-bit floating point, E4M3: no infinities, ±448 the greatest, S.1111.111 is NaN. */
float f8e4m3_to_f32(uint8_t v);
/* Round to nearest even; what is too large, infinity too, becomes ±448; NaN stays NaN. */
uint8_t f8e4m3_from_f32(float f);

/* A matrix of F8E4M3 has a scale for each block of FP8_BLOCK × FP8_BLOCK elements, the last of a row or column smaller.
 * Blocks along n elements: */
enum { FP8_BLOCK = 128 };
static inline int64_t fp8_blocks(int64_t n) { return n / FP8_BLOCK + (n % FP8_BLOCK != 0); }

float f16_to_f32(uint16_t v);
/* Round to nearest even; too large is infinity, NaN stays NaN. */
uint16_t f16_from_f32(float f);

#endif
