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

float f16_to_f32(uint16_t v);
/* Round to nearest even; too large is infinity, NaN stays NaN. */
uint16_t f16_from_f32(float f);

#endif
