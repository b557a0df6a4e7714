/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_NORM_QKV_CUH
#define KEEL_OPS_NORM_QKV_CUH

#include "device/cuda_norm.cuh"
#include "norm_qkv.h"

KD_BODY(norm_qkv, main, LOADER) { kd_norm_stream(c, NORM_QKV_W_Q); }

KD_EARLY(norm_qkv, main) { kd_norm_early(c, NORM_QKV_X, NORM_QKV_SCALE); }

KD_BODY(norm_qkv, main, LAUNCHER) { kd_norm_fetch(c, NORM_QKV_X); }

KD_BODY(norm_qkv, main, CONSUMER) { kd_norm_matmul(c); }

KD_BODY(norm_qkv, main, STORER) { kd_norm_store(c, NORM_QKV_BIAS_Q, NORM_QKV_Q); }

#endif
