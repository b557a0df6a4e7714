/* SPDX-License-Identifier: Apache-2.0 */
/* The greatest of many values and where it stands, over a warp. B: {float value; kp_u32 index; …}. */
#ifndef KEEL_DEVICE_CUDA_BEST_CUH
#define KEEL_DEVICE_CUDA_BEST_CUH

#include "device/cuda_body.cuh"

/* The greater value, of equal ones the lower index. NaN compares false and never wins. */
template <class B> KP_FN B kd_better(B a, B b) {
    return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}
template <class B> KP_FN B kd_warp_best(B best) {
    for (kp_u32 o = KD_WARP / 2; o; o >>= 1) {
        B other = {kx_shfl_xor(best.value, o), kx_shfl_xor(best.index, o)};
        best = kd_better(best, other);
    }
    return best;
}

#endif
