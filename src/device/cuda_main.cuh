/* SPDX-License-Identifier: Apache-2.0 */
/* The persistent kernel: one block a worker, the roles of a worker on fixed warps. Included last, behind the bodies and
 * kp_dispatch(), in the one translation unit of a plan. */
#ifndef KEEL_DEVICE_CUDA_MAIN_CUH
#define KEEL_DEVICE_CUDA_MAIN_CUH

#include "device/protocol.h"

/* Where a lane stood when the run was aborted; in the host's memory, [workers][KD_LANES]. */
typedef struct kd_report {
    kp_u32 left; /* 1: in good order */
    kp_u32 role, lane, iteration;
    kp_u32 instance; /* of the task in hand; KP_NONE without */
    kp_u32 what, target, pad;
} kd_report;

/* All workers check in before any of them starts: another program may hold multiprocessors, and a wait for a worker
 * that never starts would be a hang. 0: not all came within limit_ns. */
KP_FN int kd_check_in(const kp_launch *l, kp_u64 limit_ns) {
    kp_u64 from = kb_now_ns();
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(&l->control->checked_in) : "memory");
    while (*(volatile const kp_u32 *)&l->control->checked_in < l->n_workers) {
        if (kb_now_ns() - from > limit_ns) return 0;
    }
    return 1;
}

/* Weights [n][k] as the checkpoint has them → tiles of 16 × 16 in the register order of mma.m16n8k16's A, a row of
 * tiles after the other; what is beyond n and k is 0. (PTX ISA, "matrix fragments for mma.m16n8k16") */
extern "C" __global__ void keel_pack(const kd_act *from, kd_vec *to, kp_u32 n, kp_u32 k, kp_u64 vecs) {
    kp_u32 tiles = (k + 15) / 16;
    for (kp_u64 i = blockIdx.x * (kp_u64)blockDim.x + threadIdx.x; i < vecs; i += gridDim.x * (kp_u64)blockDim.x) {
        kp_u32 lane = (kp_u32)(i % KD_WARP), tile = (kp_u32)(i / KD_WARP % tiles), band = (kp_u32)(i / KD_WARP / tiles);
        kd_vec v;
        for (kp_u32 e = 0; e < 4; e++) {
            kp_u32 row = band * 16 + lane / 4 + (e & 1) * 8, col = tile * 16 + lane % 4 * 2 + (e >> 1) * 8;
            kp_u32 low = row < n && col < k ? from[(kp_u64)row * k + col] : 0;
            kp_u32 high = row < n && col + 1 < k ? from[(kp_u64)row * k + col + 1] : 0;
            v.w[e] = low | high << 16;
        }
        to[i] = v;
    }
}

/* The read ceiling: every block brings stages of 16 KiB into SMEM, all of the ring in flight, and looks at none. */
extern "C" __global__ void __launch_bounds__(KD_WARP, 1) keel_read(const kp_u8 *from, kp_u64 stages) {
    extern __shared__ __align__(1024) kp_u8 smem[];
    __shared__ kd_ring ring;
    if (!kd_first()) return;
    kd_ring_init(&ring);
    kp_u32 k = 0;
    for (kp_u64 i = blockIdx.x; i < stages + (kp_u64)KD_STAGES * gridDim.x; i += gridDim.x, k++) {
        kp_u32 s = k % KD_STAGES, bar = kd_smem(&ring.full[s].word);
        if (k >= KD_STAGES && i - (kp_u64)KD_STAGES * gridDim.x < stages) {
            kp_u32 done = 0;
            while (!done)
                asm volatile(
                    "{.reg .pred P; mbarrier.try_wait.parity.shared::cta.b64 P, [%1], %2; selp.u32 %0, 1, 0, P;}"
                    : "=r"(done)
                    : "r"(bar), "r"((k / KD_STAGES - 1) & 1)
                    : "memory");
        }
        if (i >= stages) continue;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(KD_STAGE_BYTES)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         kd_smem(smem + s * KD_STAGE_BYTES)),
                     "l"(from + i * KD_STAGE_BYTES), "r"(KD_STAGE_BYTES), "r"(bar)
                     : "memory");
    }
}

extern "C" __global__ void __launch_bounds__(KD_LANES *KD_WARP, 1) keel_run(const __grid_constant__ kp_launch launch) {
    extern __shared__ __align__(1024) kp_u8 smem[];
    __shared__ kp_worker worker;
    __shared__ kp_bar page_free[KD_PAGES];
    __shared__ kp_u32 claims[KD_PAGES];
    __shared__ kd_ring ring;
    __shared__ kp_u32 ready;
    const kp_u32 lanes[KP_ROLES] = {KD_LANES_OF};
    kp_u32 warp = threadIdx.x / KD_WARP;
    if (threadIdx.x == 0) {
        worker.index = blockIdx.x;
        for (kp_u32 r = 0; r < KP_ROLES; r++) worker.lanes[r] = lanes[r];
        worker.n_pages = KD_PAGES;
        worker.page_bytes = KD_PAGE_BYTES;
        worker.smem = smem + KD_STAGES * KD_STAGE_BYTES; /* the ring lies below */
        worker.stream = &ring;
        kd_ring_init(&ring);
        worker.page_free = page_free;
        worker.claims = claims;
        worker.launch = &launch;
        worker.step_of = 0;
        kp_worker_init(&worker);
        ready = kd_check_in(&launch, KD_CHECK_IN_NS);
    }
    __syncthreads();
    kd_lane waits = {0, 0, 0};
    kp_ctx c;
    c.worker = &worker;
    c.iteration = 0;
    c.stream = 0;
    c.slot = 0;
    c.task = 0;
    c.backend = &waits;
    kp_u32 first = 0;
    c.role = 0;
    while (warp >= first + lanes[c.role]) first += lanes[c.role++];
    c.lane = warp - first;
    if (ready) kp_role_main(&c);
    if (kd_first()) {
        kd_report *r = (kd_report *)launch.report + blockIdx.x * KD_LANES + warp;
        r->role = c.role;
        r->lane = c.lane;
        r->iteration = c.iteration;
        r->instance = c.task ? c.task->instance : KP_NONE;
        r->what = ready ? waits.what : KP_WHAT_BORDER;
        r->target = waits.target;
        r->left = ready && !*(volatile const kp_u32 *)&launch.control->abort;
    }
}

#endif
