/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_ADD_CUH
#define KEEL_OPS_ADD_CUH

#include "device/cuda_columns.cuh"
#include "add.h"

KD_BODY(add, main, LAUNCHER) { kd_pair_fetch(c, ADD_A, ADD_B); }

KD_BODY(add, main, CONSUMER) {
    kd_pair_do(c, [](float a, float b) { return a + b; });
}

KD_BODY(add, main, STORER) { kd_pair_store(c, ADD_OUT); }

#endif
