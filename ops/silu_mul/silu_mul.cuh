/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_SILU_MUL_CUH
#define KEEL_OPS_SILU_MUL_CUH

#include "device/cuda_columns.cuh"
#include "silu_mul.h"

KD_BODY(silu_mul, main, LAUNCHER) { kd_pair_fetch(c, SILU_MUL_GATE, SILU_MUL_UP); }

KD_BODY(silu_mul, main, CONSUMER) {
    kd_pair_do(c, [](float a, float b) { return a / (1 + kx_exp(-a)) * b; });
}

KD_BODY(silu_mul, main, STORER) { kd_pair_store(c, SILU_MUL_OUT); }

#endif
