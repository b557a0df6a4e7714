/* SPDX-License-Identifier: Apache-2.0 */
/* The roles of a plan as kernels of their own. Compiled, never launched: the compiler says what an entry takes in
 * registers and stack, and of keel_run it says only what the hungriest role takes. Included last, behind the bodies and
 * kp_dispatch(), in place of device/cuda_main.cuh. */
#ifndef KEEL_DEVICE_CUDA_PROBE_CUH
#define KEEL_DEVICE_CUDA_PROBE_CUH

#include "device/protocol.h"

/* As in keel_run: the worker in shared memory, the launch a kernel parameter, the lane's own things in registers. */
#define KD_PROBE(ROLE, registers)                                                                                      \
    KX_KERNEL_CAPPED(keel_role_##ROLE, registers)(KX_PARAM(kp_launch, launch), const kp_u32 *given) {                  \
        KX_SHARED(kp_worker, worker);                                                                                  \
        for (kp_u32 i = kx_thread(); i < sizeof worker / 4; i += kx_block_threads())                                   \
            ((kp_u32 *)&worker)[i] = given[i];                                                                         \
        worker.launch = &launch;                                                                                       \
        kx_syncthreads();                                                                                              \
        kp_ctx c = {};                                                                                                 \
        c.worker = &worker;                                                                                            \
        c.role = KP_##ROLE;                                                                                            \
        c.lane = kx_thread() / KD_WARP;                                                                                \
        kp_role_main(&c);                                                                                              \
        ((kd_lane *)launch.report)[kx_thread()] = *kd_lane_mine();                                                     \
    }

#endif
