/* SPDX-License-Identifier: Apache-2.0 */
/* Block formats by their published layout: an f16 scale d (and an f16 minimum m, or in the K formats a scale of the
 * 6-bit sub-block minima), then packed integers q; a value is d × q, d × (q − bias) or d × q + m. Products and sums are
 * rounded to f32 one by one, in the order that the gguf Python package does it, so that results agree to the bit. */
#include "load/gguf_internal.h"

#include <stdio.h>
#include <string.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* gcc has it off under -std=c11 and does not know the pragma */
#endif

/* X(name, number in the file, elements a block, bytes a block, function or NULL) */
#define GGUF_TYPE_MAP(X)                                                                                               \
    X(F32, 0, 1, 4, dequantize_f32)                                                                                    \
    X(F16, 1, 1, 2, dequantize_f16)                                                                                    \
    X(Q4_0, 2, 32, 18, dequantize_q4_0)                                                                                \
    X(Q4_1, 3, 32, 20, dequantize_q4_1)                                                                                \
    X(Q5_0, 6, 32, 22, dequantize_q5_0)                                                                                \
    X(Q5_1, 7, 32, 24, dequantize_q5_1)                                                                                \
    X(Q8_0, 8, 32, 34, dequantize_q8_0)                                                                                \
    X(Q8_1, 9, 32, 40, NULL)                                                                                           \
    X(Q2_K, 10, 256, 84, NULL)                                                                                         \
    X(Q3_K, 11, 256, 110, NULL)                                                                                        \
    X(Q4_K, 12, 256, 144, dequantize_q4_k)                                                                             \
    X(Q5_K, 13, 256, 176, dequantize_q5_k)                                                                             \
    X(Q6_K, 14, 256, 210, dequantize_q6_k)                                                                             \
    X(Q8_K, 15, 256, 292, NULL)                                                                                        \
    X(IQ2_XXS, 16, 256, 66, NULL)                                                                                      \
    X(IQ2_XS, 17, 256, 74, NULL)                                                                                       \
    X(IQ3_XXS, 18, 256, 98, NULL)                                                                                      \
    X(IQ1_S, 19, 256, 50, NULL)                                                                                        \
    X(IQ4_NL, 20, 32, 18, NULL)                                                                                        \
    X(IQ3_S, 21, 256, 110, NULL)                                                                                       \
    X(IQ2_S, 22, 256, 82, NULL)                                                                                        \
    X(IQ4_XS, 23, 256, 136, NULL)                                                                                      \
    X(I8, 24, 1, 1, NULL)                                                                                              \
    X(I16, 25, 1, 2, NULL)                                                                                             \
    X(I32, 26, 1, 4, NULL)                                                                                             \
    X(I64, 27, 1, 8, NULL)                                                                                             \
    X(F64, 28, 1, 8, NULL)                                                                                             \
    X(IQ1_M, 29, 256, 56, NULL)                                                                                        \
    X(BF16, 30, 1, 2, dequantize_bf16)                                                                                 \
    X(TQ1_0, 34, 256, 54, NULL)                                                                                        \
    X(TQ2_0, 35, 256, 66, NULL)                                                                                        \
    X(MXFP4, 39, 32, 17, NULL)                                                                                         \
    X(NVFP4, 40, 64, 36, NULL)

typedef void (*dequantizer)(const uint8_t *block, uint64_t n, float *restrict out);

static inline uint16_t le16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static inline float f32_of_bits(uint32_t u) {
    union {
        uint32_t u;
        float f;
    } x = {u};
    return x.f;
}

/* Without a branch, for vectors: the exponent is shifted into place and rebiased by an exact product, which brings
 * subnormals right; infinities and NaN get their exponent back. */
static inline float half(uint16_t h) {
    union {
        float f;
        uint32_t u;
    } x = {f32_of_bits((uint32_t)(h & 0x7fff) << 13) * 0x1p112f};
    x.u |= (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
    x.u |= (uint32_t)(h & 0x8000) << 16;
    return x.f;
}

static inline float half_at(const uint8_t *p) { return half(le16(p)); }

static void dequantize_f32(const uint8_t *b, uint64_t n, float *restrict out) { memcpy(out, b, n * 4); }

static void dequantize_f16(const uint8_t *b, uint64_t n, float *restrict out) {
    for (uint64_t i = 0; i < n; i++) out[i] = half_at(b + 2 * i);
}

static void dequantize_bf16(const uint8_t *b, uint64_t n, float *restrict out) {
    for (uint64_t i = 0; i < n; i++) out[i] = f32_of_bits((uint32_t)le16(b + 2 * i) << 16);
}

/* d, 32 signed bytes */
static void dequantize_q8_0(const uint8_t *b, uint64_t n, float *restrict out) {
    for (; n; n -= 32, b += 34, out += 32) {
        float d = half_at(b);
        for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)b[2 + i];
    }
}

/* d, 16 bytes: low nibbles are elements 0..15, high ones 16..31 */
static void dequantize_q4_0(const uint8_t *b, uint64_t n, float *restrict out) {
    for (; n; n -= 32, b += 18, out += 32) {
        float d = half_at(b);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)((b[2 + i] & 15) - 8);
            out[16 + i] = d * (float)((b[2 + i] >> 4) - 8);
        }
    }
}

/* d, m, nibbles as above */
static void dequantize_q4_1(const uint8_t *b, uint64_t n, float *restrict out) {
    for (; n; n -= 32, b += 20, out += 32) {
        float d = half_at(b), m = half_at(b + 2);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)(b[4 + i] & 15) + m;
            out[16 + i] = d * (float)(b[4 + i] >> 4) + m;
        }
    }
}

/* d, 32 fifth bits, nibbles */
static void dequantize_q5_0(const uint8_t *b, uint64_t n, float *restrict out) {
    for (; n; n -= 32, b += 22, out += 32) {
        float d = half_at(b);
        uint32_t fifth = le32(b + 2);
        for (uint32_t i = 0; i < 16; i++) {
            int q = b[6 + i];
            out[i] = d * (float)(((q & 15) | (int)(fifth >> i & 1) << 4) - 16);
            out[16 + i] = d * (float)((q >> 4 | (int)(fifth >> (16 + i) & 1) << 4) - 16);
        }
    }
}

/* d, m, 32 fifth bits, nibbles */
static void dequantize_q5_1(const uint8_t *b, uint64_t n, float *restrict out) {
    for (; n; n -= 32, b += 24, out += 32) {
        float d = half_at(b), m = half_at(b + 2);
        uint32_t fifth = le32(b + 4);
        for (uint32_t i = 0; i < 16; i++) {
            int q = b[8 + i];
            out[i] = d * (float)((q & 15) | (int)(fifth >> i & 1) << 4) + m;
            out[16 + i] = d * (float)(q >> 4 | (int)(fifth >> (16 + i) & 1) << 4) + m;
        }
    }
}

/* Scale and minimum of sub-block s of 8, 6 bits each in 12 bytes: bytes 0..3 hold scales 0..3 and bytes 4..7 minima
 * 0..3 in their low 6 bits; bytes 8..11 hold the low 4 bits of scales (low nibble) and minima (high nibble) 4..7, whose
 * upper 2 bits are the top bits of bytes 0..3 and 4..7. */
static inline void sub_block(const uint8_t *packed, int s, float d, float dmin, float *scale, float *minimum) {
    int sc, m;
    if (s < 4) {
        sc = packed[s] & 63;
        m = packed[s + 4] & 63;
    } else {
        sc = (packed[s + 4] & 15) | packed[s - 4] >> 6 << 4;
        m = packed[s + 4] >> 4 | packed[s] >> 6 << 4;
    }
    *scale = d * (float)sc;
    *minimum = dmin * (float)m;
}

/* d, dmin, 12 bytes of sub-block scales, 4 × 32 bytes: low nibbles are one sub-block, high nibbles the next */
static void dequantize_q4_k(const uint8_t *b, uint64_t n, float *restrict out) {
    for (; n; n -= 256, b += 144) {
        float d = half_at(b), dmin = half_at(b + 2), scale, minimum;
        for (int s = 0; s < 8; s++, out += 32) {
            const uint8_t *q = b + 16 + 32 * (s / 2);
            int shift = 4 * (s % 2);
            sub_block(b + 4, s, d, dmin, &scale, &minimum);
            for (int i = 0; i < 32; i++) out[i] = scale * (float)(q[i] >> shift & 15) - minimum;
        }
    }
}

/* d, dmin, 12 bytes of sub-block scales, 32 bytes of fifth bits (bit s of byte i: element i of sub-block s), nibbles */
static void dequantize_q5_k(const uint8_t *b, uint64_t n, float *restrict out) {
    for (; n; n -= 256, b += 176) {
        float d = half_at(b), dmin = half_at(b + 2), scale, minimum;
        const uint8_t *fifth = b + 16;
        for (int s = 0; s < 8; s++, out += 32) {
            const uint8_t *q = b + 48 + 32 * (s / 2);
            int shift = 4 * (s % 2);
            sub_block(b + 4, s, d, dmin, &scale, &minimum);
            for (int i = 0; i < 32; i++) {
                out[i] = scale * (float)((q[i] >> shift & 15) | (fifth[i] >> s & 1) << 4) - minimum;
            }
        }
    }
}

/* 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales (one for 16 elements), d. Each half of 128 elements
 * is 4 groups of 32: group g takes nibbles of bytes 32 (g mod 2) up, high ones from g = 2, and bit pair g. */
static void dequantize_q6_k(const uint8_t *b, uint64_t n, float *restrict out) {
    for (; n; n -= 256, b += 210) {
        float d = half_at(b + 208);
        for (int g = 0; g < 8; g++, out += 32) {
            const uint8_t *low = b + 64 * (g / 4) + 32 * (g % 2), *high = b + 128 + 32 * (g / 4);
            const uint8_t *scales = b + 192 + 2 * g;
            int nibble = 4 * (g % 4 / 2), pair = 2 * (g % 4);
            for (int h = 0; h < 2; h++) {
                float scale = d * (float)(int8_t)scales[h];
                for (int i = 16 * h; i < 16 * h + 16; i++) {
                    out[i] = scale * (float)(((low[i] >> nibble & 15) | (high[i] >> pair & 3) << 4) - 32);
                }
            }
        }
    }
}

typedef struct type_info {
    const char *name;
    uint32_t number, elements, bytes;
    dequantizer run;
} type_info;

static const type_info *type_find(uint32_t number) {
    static const type_info types[] = {
#define X(name, number, elements, bytes, run) {#name, number, elements, bytes, run},
        GGUF_TYPE_MAP(X)
#undef X
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].number == number) return &types[i];
    }
    return NULL;
}

const char *gguf_type_name(uint32_t ggml_type, char *text) {
    const type_info *t = type_find(ggml_type);
    if (t) return t->name;
    snprintf(text, 16, "type %u", ggml_type);
    return text;
}

uint64_t gguf_type_bytes(uint32_t ggml_type, uint64_t n) {
    const type_info *t = type_find(ggml_type);
    if (!t || n % t->elements || n / t->elements > UINT64_MAX / t->bytes) return 0;
    return n / t->elements * t->bytes;
}

keel_status gguf_dequantize(uint32_t ggml_type, const void *blocks, uint64_t n, float *out, keel_error *err) {
    char scratch[16];
    const type_info *t = type_find(ggml_type);
    if (!t || !t->run) {
        return error_set(
            err, KEEL_UNSUPPORTED,
            "GGML %s is not supported; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K are",
            gguf_type_name(ggml_type, scratch));
    }
    if (n % t->elements) {
        return error_set(err, KEEL_RANGE, "GGML %s: %llu elements are no whole number of blocks of %u", t->name,
                         (unsigned long long)n, t->elements);
    }
    if (n) t->run(blocks, n, out);
    return KEEL_OK;
}
