/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_LINEAR_CUH
#define KEEL_OPS_LINEAR_CUH

#include "device/cuda_columns.cuh"
#include "linear.h"

KD_BODY(linear, main, LOADER) { kd_matmul_stream(c, LINEAR_W); }

KD_BODY(linear, main, LAUNCHER) { kd_matmul_fetch(c, LINEAR_X); }

KD_BODY(linear, main, CONSUMER) { kd_matmul(c, LINEAR_X); }

KD_BODY(linear, main, STORER) { kd_matmul_store(c, LINEAR_BIAS, 0, LINEAR_OUT); }

#endif
