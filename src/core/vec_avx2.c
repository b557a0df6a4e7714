/* SPDX-License-Identifier: Apache-2.0 */
/* Eight lanes in a register. */
#include "core/vec_ops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define VEC_TARGET target("avx2,fma,f16c")
#define VEC_FN static inline __attribute__((VEC_TARGET, unused))
#define VEC_INLINE static inline __attribute__((VEC_TARGET, unused, always_inline))
#define VEC_TABLE vec_avx2

typedef __m256 v8;

VEC_INLINE v8 v8_set(float a) { return _mm256_set1_ps(a); }
VEC_INLINE v8 v8_load(const void *p) { return _mm256_loadu_ps(p); }
VEC_INLINE v8 v8_load_bf16(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
VEC_INLINE v8 v8_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
/* F8E4M3 by the bits of f16, whose bias is 15 and not 7: 2^-8 of what it is worth, NaN ±480 × 2^-8. */
VEC_INLINE v8 v8_load_f8(const void *p) {
    __m128i h = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64(p)), 7);
    return _mm256_cvtph_ps(_mm_and_si128(h, _mm_set1_epi16((short)0xbf80)));
}
/* The greatest of 32 streams of codes, signs left out: 0x7f is NaN. */
typedef __m256i codes;
VEC_INLINE codes codes_none(void) { return _mm256_setzero_si256(); }
VEC_INLINE codes codes_most(codes seen, const void *p) {
    return _mm256_max_epu8(seen, _mm256_or_si256(_mm256_loadu_si256(p), _mm256_set1_epi8((char)0x80)));
}
VEC_INLINE int codes_nan(codes seen) {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(seen, _mm256_set1_epi8((char)0xff))) != 0;
}
VEC_INLINE void v8_store(void *p, v8 a) { _mm256_storeu_ps(p, a); }
VEC_INLINE v8 v8_add(v8 a, v8 b) { return _mm256_add_ps(a, b); }
VEC_INLINE v8 v8_sub(v8 a, v8 b) { return _mm256_sub_ps(a, b); }
VEC_INLINE v8 v8_mul(v8 a, v8 b) { return _mm256_mul_ps(a, b); }
VEC_INLINE v8 v8_div(v8 a, v8 b) { return _mm256_div_ps(a, b); }
VEC_INLINE v8 v8_fma(v8 a, v8 b, v8 c) { return _mm256_fmadd_ps(a, b, c); }
/* b when either is NaN. */
VEC_INLINE v8 v8_max(v8 a, v8 b) { return _mm256_max_ps(a, b); }
VEC_INLINE v8 v8_min(v8 a, v8 b) { return _mm256_min_ps(a, b); }
VEC_INLINE int v8_any_equal(v8 a, v8 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)) != 0; }
VEC_INLINE float v8_sum(v8 a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 t = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
/* p × 2^n, where t = n + 1.5 × 2^23. In two factors, so that the ends of the range come out right. */
VEC_INLINE v8 v8_scale_by(v8 p, v8 t) {
    __m256i n = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(0x4b400000));
    __m256i half = _mm256_srai_epi32(n, 1), bias = _mm256_set1_epi32(127);
    __m256i u = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i v = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(u)), _mm256_castsi256_ps(v));
}
VEC_INLINE void v8_prefetch(const void *p) { _mm_prefetch(p, _MM_HINT_T0); }

#include "core/vec_kernels.h"
#endif
