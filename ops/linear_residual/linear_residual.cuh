/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_LINEAR_RESIDUAL_CUH
#define KEEL_OPS_LINEAR_RESIDUAL_CUH

#include "device/cuda_columns.cuh"
#include "linear_residual.h"

KD_BODY(linear_residual, main, LOADER) { kd_matmul_stream(c, LINEAR_RESIDUAL_W); }

KD_BODY(linear_residual, main, LAUNCHER) {
    kd_matmul_fetch_residual(c, LINEAR_RESIDUAL_RESIDUAL);
    kd_matmul_fetch(c, LINEAR_RESIDUAL_X);
}

KD_BODY(linear_residual, main, CONSUMER) { kd_matmul(c, LINEAR_RESIDUAL_X); }

KD_BODY(linear_residual, main, STORER) { kd_matmul_store(c, LINEAR_RESIDUAL_BIAS, 1, LINEAR_RESIDUAL_OUT); }

#endif
