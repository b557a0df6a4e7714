/* SPDX-License-Identifier: Apache-2.0 */
/* The persistent kernel: one block a worker, the roles of a worker on fixed warps. Included last, behind the bodies and
 * kp_dispatch(), in the one translation unit of a plan. */
#ifndef KEEL_DEVICE_CUDA_MAIN_CUH
#define KEEL_DEVICE_CUDA_MAIN_CUH

#include "device/cuda_pack.cuh"
#include "device/protocol.h"
#include "device/cuda_stream.cuh"

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
    kx_add_release(&l->control->checked_in, 1);
    while (kx_ld_volatile(&l->control->checked_in) < l->n_workers) {
        if (kb_now_ns() - from > limit_ns) return 0;
    }
    return 1;
}

/* The read ceiling: every block brings stages of 16 KiB into SMEM, all of the ring in flight, and looks at none. */
KX_KERNEL_OF(keel_read, KD_WARP)(const kp_u8 *from, kp_u64 stages) {
    kp_u8 *smem = kx_shared_base();
    kd_ring *ring = kd_ring_shared();
    if (!kd_first()) return;
    kd_ring_init(ring);
    kp_u32 k = 0;
    for (kp_u64 i = kx_block(); i < stages + (kp_u64)KD_STAGES * kx_blocks(); i += kx_blocks(), k++) {
        kp_u32 s = k % KD_STAGES;
        kp_u64 *bar = &ring->full[s].word;
        if (k >= KD_STAGES && i - (kp_u64)KD_STAGES * kx_blocks() < stages) {
            while (!kx_mbar_try(bar, (k / KD_STAGES - 1) & 1)) {
            }
        }
        if (i >= stages) continue;
        kx_mbar_arrive_expect(bar, KD_STAGE_BYTES);
        kx_bulk_load(smem + s * KD_STAGE_BYTES, from + i * KD_STAGE_BYTES, KD_STAGE_BYTES, bar);
    }
}

/* Each role's loop by itself, so that the compiler knows the role in it. */
KP_FN void kd_role_run(kp_ctx *c) {
    switch (c->role) {
    case KP_CONTROLLER:
        c->role = KP_CONTROLLER;
        kp_role_main(c);
        break;
    case KP_LOADER:
        c->role = KP_LOADER;
        kp_role_main(c);
        break;
    case KP_LAUNCHER:
        c->role = KP_LAUNCHER;
        kp_role_main(c);
        break;
    case KP_CONSUMER:
        c->role = KP_CONSUMER;
        kp_role_main(c);
        break;
    default:
        c->role = KP_STORER;
        kp_role_main(c);
    }
}

KX_KERNEL_OF(keel_run, KD_LANES *KD_WARP)(KX_PARAM(kp_launch, launch)) {
    KX_SHARED(kp_worker, worker);
    KX_SHARED_ARRAY(kp_bar, page_free, KD_PAGES);
    KX_SHARED_ARRAY(kp_u32, claims, KD_PAGES);
    KX_SHARED(kp_u32, ready);
    static_assert(sizeof worker + sizeof page_free + sizeof claims + sizeof(kd_ring) + sizeof(kd_waits) + 16 <=
                      KD_FIXED_BYTES,
                  "slots and barriers do not fit beside pages and ring");
    kp_u32 warp = kx_thread() / KD_WARP;
    if (kd_first()) *kd_lane_mine() = kd_lane{0, 0, 0};
    if (kx_thread() == 0) {
        worker.index = kx_block();
        kd_waits_shared()->abort = &launch.control->abort;
#pragma unroll
        for (kp_u32 r = 0; r < KP_ROLES; r++) worker.lanes[r] = kd_lanes(r);
        worker.n_pages = KD_PAGES;
        worker.page_bytes = KD_PAGE_BYTES;
        worker.smem = kd_pages();
        kd_ring_init(kd_ring_shared());
        worker.page_free = page_free;
        worker.claims = claims;
        worker.launch = &launch;
        worker.step_of = 0;
        kp_worker_init(&worker);
        for (kp_u32 i = 0; i < KP_SLOTS * KP_BAND_LANES; i++)
            worker.slot[i / KP_BAND_LANES].bands[i % KP_BAND_LANES] = 0;
        ready = kd_check_in(&launch, KD_CHECK_IN_NS);
    }
    kx_syncthreads();
    kp_ctx c = {&worker, 0, warp};
    while (c.lane >= kd_lanes(c.role)) c.lane -= kd_lanes(c.role++);
    if (ready) kd_role_run(&c);
    if (kd_first()) {
        kd_report *r = (kd_report *)launch.report + kx_block() * KD_LANES + warp;
        r->role = c.role;
        r->lane = c.lane;
        r->iteration = c.iteration;
        r->instance = c.task ? c.task->instance : KP_NONE;
        r->what = ready ? kd_lane_mine()->what : KP_WHAT_BORDER;
        r->target = kd_lane_mine()->target;
        r->left = ready && !kx_ld_volatile(&launch.control->abort);
    }
}

#endif
