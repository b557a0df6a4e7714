/* SPDX-License-Identifier: Apache-2.0 */
/* Eight lanes in plain C. */
#include "core/vec_ops.h"

#include <math.h>
#include <string.h>

#define VEC_FN static inline __attribute__((unused))
#define VEC_INLINE VEC_FN
#define VEC_TABLE vec_portable

typedef struct v8 {
    float f[8];
} v8;

#define LANES for (int l = 0; l < 8; l++)

VEC_FN v8 v8_set(float a) {
    v8 r;
    LANES r.f[l] = a;
    return r;
}
VEC_FN v8 v8_load(const void *p) {
    v8 r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}
VEC_FN v8 v8_load_bf16(const void *p) {
    uint16_t h[8];
    memcpy(h, p, sizeof h);
    v8 r;
    LANES r.f[l] = bf16_to_f32(h[l]);
    return r;
}
VEC_FN v8 v8_load_f16(const void *p) {
    uint16_t h[8];
    memcpy(h, p, sizeof h);
    v8 r;
    LANES r.f[l] = f16_to_f32(h[l]);
    return r;
}
/* F8E4M3 by the bits of f16, whose bias is 15 and not 7: 2^-8 of what it is worth, NaN ±480 × 2^-8. */
VEC_FN v8 v8_load_f8(const void *p) {
    unsigned char c[8];
    memcpy(c, p, sizeof c);
    v8 r;
    LANES r.f[l] = f16_to_f32((uint16_t)((c[l] & 0x80u) << 8 | (c[l] & 0x7fu) << 7));
    return r;
}
/* Whether a code of NaN was among those seen, 32 at a time. */
typedef int codes;
VEC_FN codes codes_none(void) { return 0; }
VEC_FN codes codes_most(codes seen, const void *p) {
    const unsigned char *c = p;
    for (int i = 0; i < 32; i++) seen |= (c[i] & 0x7f) == 0x7f;
    return seen;
}
VEC_FN int codes_nan(codes seen) { return seen; }
VEC_FN void v8_store(void *p, v8 a) { memcpy(p, a.f, sizeof a.f); }
VEC_FN v8 v8_add(v8 a, v8 b) {
    LANES a.f[l] = a.f[l] + b.f[l];
    return a;
}
VEC_FN v8 v8_sub(v8 a, v8 b) {
    LANES a.f[l] = a.f[l] - b.f[l];
    return a;
}
VEC_FN v8 v8_mul(v8 a, v8 b) {
    LANES a.f[l] = a.f[l] * b.f[l];
    return a;
}
VEC_FN v8 v8_div(v8 a, v8 b) {
    LANES a.f[l] = a.f[l] / b.f[l];
    return a;
}
VEC_FN v8 v8_fma(v8 a, v8 b, v8 c) {
    LANES c.f[l] = fmaf(a.f[l], b.f[l], c.f[l]);
    return c;
}
/* As the x86 instructions: b when either is NaN. */
VEC_FN v8 v8_max(v8 a, v8 b) {
    LANES b.f[l] = a.f[l] > b.f[l] ? a.f[l] : b.f[l];
    return b;
}
VEC_FN v8 v8_min(v8 a, v8 b) {
    LANES b.f[l] = a.f[l] < b.f[l] ? a.f[l] : b.f[l];
    return b;
}
VEC_FN int v8_any_equal(v8 a, v8 b) {
    int any = 0;
    LANES any |= a.f[l] == b.f[l];
    return any;
}
VEC_FN float v8_sum(v8 a) {
    float s[4];
    for (int l = 0; l < 4; l++) s[l] = a.f[l] + a.f[l + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}
/* p × 2^n, where t = n + 1.5 × 2^23. In two factors, so that the ends of the range come out right. */
VEC_FN v8 v8_scale_by(v8 p, v8 t) {
    LANES {
        int32_t n;
        memcpy(&n, &t.f[l], sizeof n);
        n = (int32_t)((uint32_t)n - 0x4b400000u);
        int32_t half = n >> 1;
        uint32_t u = (uint32_t)(half + 127) << 23, v = (uint32_t)(n - half + 127) << 23;
        float fu, fv;
        memcpy(&fu, &u, sizeof fu);
        memcpy(&fv, &v, sizeof fv);
        p.f[l] = p.f[l] * fu * fv;
    }
    return p;
}
VEC_FN void v8_prefetch(const void *p) { (void)p; }

#include "core/vec_kernels.h"
