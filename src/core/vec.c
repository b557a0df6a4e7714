/* SPDX-License-Identifier: Apache-2.0 */
#include "core/vec.h"

#include "core/vec_ops.h"

/* Asked at each call: two loads and a test, no state of our own. Every processor with AVX2 and FMA has F16C. */
const vec_ops *vec_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &vec_avx2;
#endif
    return &vec_portable;
}

int vec_reads(dtype t) { return t == DTYPE_F32 || t == DTYPE_BF16 || t == DTYPE_F16; }

#define X(result, name, parameters, arguments)                                                                         \
    result vec_##name parameters { return vec_best()->name arguments; }
VEC_OP_MAP(X)
#undef X
