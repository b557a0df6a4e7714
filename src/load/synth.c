/* SPDX-License-Identifier: Apache-2.0 */
#include "load/synth.h"

#include <string.h>

/* What the loop below needs; the two product terms of h(i) that stay the same while i.hi does are folded. */
typedef struct synth_stream {
    uint32_t name_hash;
    float offset, step; /* step = 2^-23 × scale */
} synth_stream;

static inline uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    x ^= x >> 16;
    return x;
}

static inline float value_at(uint32_t lo, uint32_t tail, const synth_stream *s) {
    uint32_t h = mix(mix(lo ^ s->name_hash) + tail);
    return s->offset + (float)((int32_t)(h >> 8) - (1 << 23)) * s->step;
}

static inline uint16_t bf16_at(uint32_t lo, uint32_t tail, const synth_stream *s) {
    union {
        float f;
        uint32_t u;
    } x = {value_at(lo, tail, s)};
    /* bf16_from_f32 without its NaN branch: no value is one. */
    return (uint16_t)((x.u + 0x7fffu + ((x.u >> 16) & 1u)) >> 16);
}

/* The inner loops have a constant trip count, so that gcc vectorises them at -O2 as well as at -O3. */
enum { SYNTH_BLOCK = 256 };

static inline __attribute__((always_inline)) void fill_bf16_body(const synth_stream *stream, uint32_t lo, uint32_t tail,
                                                                 size_t n, uint16_t *restrict out) {
    const synth_stream s = *stream;
    size_t i = 0;
    for (; n - i >= SYNTH_BLOCK; i += SYNTH_BLOCK) {
        for (uint32_t j = 0; j < SYNTH_BLOCK; j++) out[i + j] = bf16_at(lo + (uint32_t)i + j, tail, &s);
    }
    for (; i < n; i++) out[i] = bf16_at(lo + (uint32_t)i, tail, &s);
}

static inline __attribute__((always_inline)) void fill_f32_body(const synth_stream *stream, uint32_t lo, uint32_t tail,
                                                                size_t n, float *restrict out) {
    const synth_stream s = *stream;
    size_t i = 0;
    for (; n - i >= SYNTH_BLOCK; i += SYNTH_BLOCK) {
        for (uint32_t j = 0; j < SYNTH_BLOCK; j++) out[i + j] = value_at(lo + (uint32_t)i + j, tail, &s);
    }
    for (; i < n; i++) out[i] = value_at(lo + (uint32_t)i, tail, &s);
}

static void fill(const synth_stream *s, uint32_t lo, uint32_t tail, size_t n, dtype t, void *out) {
    if (t == DTYPE_BF16) {
        fill_bf16_body(s, lo, tail, n, out);
    } else {
        fill_f32_body(s, lo, tail, n, out);
    }
}

#if defined(__x86_64__)
/* Baseline x86-64 has no 32-bit vector multiply, and the hash is four of them: worth a second copy of the loop. */
__attribute__((target("avx2"))) static void fill_avx2(const synth_stream *s, uint32_t lo, uint32_t tail, size_t n,
                                                      dtype t, void *out) {
    if (t == DTYPE_BF16) {
        fill_bf16_body(s, lo, tail, n, out);
    } else {
        fill_f32_body(s, lo, tail, n, out);
    }
}
#endif

static void fill_fastest(const synth_stream *s, uint32_t lo, uint32_t tail, size_t n, dtype t, void *out) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        fill_avx2(s, lo, tail, n, t, out);
        return;
    }
#endif
    fill(s, lo, tail, n, t, out);
}

static void fill_f16(const synth_stream *s, uint32_t lo, uint32_t tail, size_t n, uint16_t *out) {
    float block[SYNTH_BLOCK];
    for (size_t i = 0; i < n; i += SYNTH_BLOCK) {
        size_t some = n - i < SYNTH_BLOCK ? n - i : SYNTH_BLOCK;
        fill_fastest(s, lo + (uint32_t)i, tail, some, DTYPE_F32, block);
        for (size_t j = 0; j < some; j++) out[i + j] = f16_from_f32(block[j]);
    }
}

static void fill_f8(const synth_stream *s, uint32_t lo, uint32_t tail, size_t n, uint8_t *out) {
    float block[SYNTH_BLOCK];
    for (size_t i = 0; i < n; i += SYNTH_BLOCK) {
        size_t some = n - i < SYNTH_BLOCK ? n - i : SYNTH_BLOCK;
        fill_fastest(s, lo + (uint32_t)i, tail, some, DTYPE_F32, block);
        for (size_t j = 0; j < some; j++) out[i + j] = f8e4m3_from_f32(block[j]);
    }
}

static bool ends_in(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && memcmp(s + n - m, tail, m) == 0;
}

static float power_of_two(int e) {
    float f = 1.0f;
    for (; e < 0; e++) f *= 0.5f;
    return f;
}

static int log2_of(int64_t n) {
    int e = 0;
    for (; n > 1; n >>= 1) e++;
    return e;
}

static synth_stream stream_of(const char *key, uint32_t seed, int rank, const int64_t *dim, dtype t) {
    uint32_t hash = 2166136261u;
    for (const char *c = key; *c; c++) hash = (hash ^ (uint8_t)*c) * 16777619u;
    synth_stream s = {.name_hash = hash ^ (seed * 0x9E3779B1u)};
    int e = 0;
    if (t == DTYPE_F8E4M3) {
        e = 8;
    } else if (strstr(key, "embed_tokens")) {
        e = 0;
    } else if (rank == 1 && ends_in(key, "norm.weight")) {
        s.offset = 1.0f;
        e = -4;
    } else if (rank == 1) {
        e = -5;
    } else if (rank == 2 && ends_in(key, "weight_scale_inv")) {
        e = -10 - (log2_of(dim[1]) + log2_of(FP8_BLOCK)) / 2;
        s.offset = 4 * power_of_two(e);
    } else {
        e = -(log2_of(dim[rank - 1]) / 2);
    }
    s.step = power_of_two(e - 23);
    return s;
}

static keel_status range_check(const char *key, int rank, const int64_t *dim, uint64_t first, uint64_t n,
                               keel_error *err) {
    uint64_t elements = 1;
    if (rank < 1) return error_set(err, KEEL_RANGE, "synthetic tensor %s: rank %d; it must be 1 or more", key, rank);
    for (int r = 0; r < rank; r++) {
        if (dim[r] < 1 || __builtin_mul_overflow(elements, (uint64_t)dim[r], &elements)) {
            return error_set(err, KEEL_RANGE,
                             "synthetic tensor %s: dimension %d is %lld; sizes must be 1 or more and "
                             "their product below 2^64",
                             key, r, (long long)dim[r]);
        }
    }
    if (first > elements || n > elements - first) {
        return error_set(err, KEEL_RANGE, "synthetic tensor %s: elements %llu to %llu asked for, it has %llu", key,
                         (unsigned long long)first, (unsigned long long)(first + n), (unsigned long long)elements);
    }
    return KEEL_OK;
}

keel_status synth_fill(const char *key, uint32_t seed, int rank, const int64_t *dim, dtype t, uint64_t first,
                       uint64_t n, void *out, keel_error *err) {
    if (t != DTYPE_F32 && t != DTYPE_BF16 && t != DTYPE_F16 && t != DTYPE_F8E4M3) {
        return error_set(err, KEEL_UNSUPPORTED,
                         "synthetic tensor %s: dtype %s; synthetic weights come in F32, BF16, F16 and F8_E4M3", key,
                         dtype_name(t));
    }
    KEEL_TRY(range_check(key, rank, dim, first, n, err));
    synth_stream s = stream_of(key, seed, rank, dim, t);
    uint8_t *to = out;
    while (n) {
        uint32_t lo = (uint32_t)first, hi = (uint32_t)(first >> 32);
        uint64_t run = (UINT64_C(1) << 32) - lo; /* i.hi is the same this far */
        if (run > n) run = n;
        uint32_t tail = hi * 0x85EBCA6Bu + s.name_hash;
        if (t == DTYPE_F16)
            fill_f16(&s, lo, tail, (size_t)run, (uint16_t *)(void *)to);
        else if (t == DTYPE_F8E4M3)
            fill_f8(&s, lo, tail, (size_t)run, to);
        else
            fill_fastest(&s, lo, tail, (size_t)run, t, to);
        to += run * dtype_bytes(t);
        first += run;
        n -= run;
    }
    return KEEL_OK;
}
