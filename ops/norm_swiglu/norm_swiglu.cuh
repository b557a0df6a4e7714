/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_NORM_SWIGLU_CUH
#define KEEL_OPS_NORM_SWIGLU_CUH

#include "device/cuda_norm.cuh"
#include "norm_swiglu.h"

KD_BODY(norm_swiglu, main, LOADER) { kd_norm_stream(c, NORM_SWIGLU_W_GATE); }

KD_EARLY(norm_swiglu, main) { kd_norm_early(c, NORM_SWIGLU_X, NORM_SWIGLU_SCALE); }

KD_BODY(norm_swiglu, main, LAUNCHER) { kd_norm_fetch(c, NORM_SWIGLU_X); }

KD_BODY(norm_swiglu, main, CONSUMER) { kd_norm_matmul(c); }

KD_BODY(norm_swiglu, main, STORER) {
    kd_norm_store_pair(c, NORM_SWIGLU_BIAS_GATE, NORM_SWIGLU_OUT,
                       [](float a, float b) { return a / (1 + kx_exp(-a)) * b; });
}

#endif
