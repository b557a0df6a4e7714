/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_STEP_BEGIN_CUH
#define KEEL_OPS_STEP_BEGIN_CUH

#include "device/cuda_body.cuh"
#include "step_begin.h"

KD_BODY(step_begin, main, STORER) {
    const kp_launch *l = c->worker->launch;
    if (kd_thread(c) == 0) step_begin(l->request, l->state, l->step, c->iteration);
}

#endif
