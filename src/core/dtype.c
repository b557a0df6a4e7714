/* SPDX-License-Identifier: Apache-2.0 */
#include "core/dtype.h"

#include <string.h>

size_t dtype_bytes(dtype t) {
    switch (t) {
#define X(name, number, bytes, text)                                                                                   \
    case DTYPE_##name:                                                                                                 \
        return bytes;
        KEEL_DTYPE_MAP(X)
#undef X
    case DTYPE_COUNT:
        break;
    }
    return 0;
}

const char *dtype_name(dtype t) {
    switch (t) {
#define X(name, number, bytes, text)                                                                                   \
    case DTYPE_##name:                                                                                                 \
        return text;
        KEEL_DTYPE_MAP(X)
#undef X
    case DTYPE_COUNT:
        break;
    }
    return "?";
}

dtype dtype_parse(const char *name, size_t n) {
#define X(NAME, number, bytes, text)                                                                                   \
    if (n == sizeof(text) - 1 && memcmp(name, text, n) == 0) return DTYPE_##NAME;
    KEEL_DTYPE_MAP(X)
#undef X
    return DTYPE_COUNT;
}

/* IEEE 754 binary16, by bits, so that it needs no hardware and no math library. */
float f16_to_f32(uint16_t v) {
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, exponent = (v >> 10) & 0x1fu, mantissa = v & 0x3ffu;
    union {
        uint32_t u;
        float f;
    } x;
    if (exponent == 31) {
        x.u = sign | 0x7f800000u | (mantissa << 13);
    } else if (exponent) {
        x.u = sign | ((exponent + 112u) << 23) | (mantissa << 13);
    } else {
        x.u = 0x38800000u | (mantissa << 13); /* 2^-14 × (1 + m/1024) */
        x.f -= 6.103515625e-05f;              /* minus 2^-14 leaves the subnormal */
        x.u |= sign;
    }
    return x.f;
}

uint16_t f16_from_f32(float f) {
    union {
        float f;
        uint32_t u;
    } x = {f};
    uint32_t sign = (x.u >> 16) & 0x8000u, magnitude = x.u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 2^16 and more */
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 2^-1 × 2^0 leaves units of 2^-24 */
        x.u = magnitude;
        x.f += 0.5f;
        return (uint16_t)(sign | (x.u - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

/* An f16 with the same sign, exponent and mantissa bits is 2^-8 of it: the biases are 15 and 7. */
float f8e4m3_to_f32(uint8_t v) {
    if ((v & 0x7fu) == 0x7fu) return f16_to_f32((uint16_t)((v & 0x80u) << 8 | 0x7e00u));
    return 256.0f * f16_to_f32((uint16_t)((v & 0x80u) << 8 | (v & 0x7fu) << 7));
}

uint8_t f8e4m3_from_f32(float f) {
    union {
        float f;
        uint32_t u;
    } x = {f};
    uint32_t sign = (x.u >> 24) & 0x80u, magnitude = x.u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    if (magnitude >= 0x43e00000u) return (uint8_t)(sign | 0x7eu); /* 448 and more */
    if (magnitude < 0x3c800000u) {                                /* below 2^-6: adding 2^14 leaves units of 2^-9 */
        x.u = magnitude;
        x.f += 16384.0f;
        return (uint8_t)(sign | (x.u - 0x46800000u));
    }
    uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
    return (uint8_t)(sign | ((rounded - 0x3c000000u) >> 20));
}
