/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_NORM_LINEAR_CUH
#define KEEL_OPS_NORM_LINEAR_CUH

#include "device/cuda_norm.cuh"
#include "norm_linear.h"

KD_BODY(norm_linear, main, LOADER) { kd_norm_stream(c, NORM_LINEAR_W); }

KD_EARLY(norm_linear, main) { kd_norm_early(c, NORM_LINEAR_X, NORM_LINEAR_SCALE); }

KD_BODY(norm_linear, main, LAUNCHER) { kd_norm_fetch(c, NORM_LINEAR_X); }

KD_BODY(norm_linear, main, CONSUMER) { kd_norm_matmul(c); }

KD_BODY(norm_linear, main, STORER) { kd_norm_store(c, NORM_LINEAR_BIAS, NORM_LINEAR_OUT); }

#endif
