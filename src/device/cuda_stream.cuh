/* SPDX-License-Identifier: Apache-2.0 */
/* The weight stream: a ring of stages in SMEM beside the pages. The loader pushes stages in the order of the queue and
 * runs ahead over task borders, as far as the ring reaches; consumer lane l takes the stages whose number, counted from
 * the launch, is l modulo the lanes. Tasks of one queue are consumed in queue order and a stage is pushed only into a
 * slot that an earlier stage of the same queue left: all waits point backwards.
 *
 * A lane that waits for stage k sees a barrier that is at most one phase behind, so its parity cannot alias: it has
 * taken stage k − lanes before, a stage is pushed only when the one KD_IN_FLIGHT before has landed, so all up to
 * k − lanes − KD_IN_FLIGHT have, and the ring is that long.
 *
 * Weights of a task whose x is not there yet come with fewer copies in flight: the bandwidth belongs to those workers
 * that are still at the phase before. */
#ifndef KEEL_DEVICE_CUDA_STREAM_CUH
#define KEEL_DEVICE_CUDA_STREAM_CUH

#include "device/cuda_prim.cuh"

/* Copies in flight at most: with more, polls and activations queue behind them. Fewer where pages have left the ring
 * few stages. */
#ifndef KD_IN_FLIGHT
#if KD_STAGES < 8
#define KD_IN_FLIGHT 3u
#elif KD_STAGES < 9
#define KD_IN_FLIGHT 4u
#else
#define KD_IN_FLIGHT 5u
#endif
#endif
#ifndef KD_IN_FLIGHT_AHEAD /* of a task whose x is not there yet; at most KD_IN_FLIGHT */
#define KD_IN_FLIGHT_AHEAD 2u
#endif

static_assert(KD_STAGES >= kd_pick(KP_CONSUMER, KD_LANES_OF) + KD_IN_FLIGHT, "a slot could be a phase behind unseen");

typedef struct kd_ring {
    kp_bar full[KD_STAGES], empty[KD_STAGES];
} kd_ring;

KP_FN kd_ring *kd_ring_shared(void) {
    KX_SHARED(kd_ring, ring);
    return &ring;
}
/* The stages lie below the pages. */
KP_FN kp_u8 *kd_stage(kp_u32 k) { return kx_shared_base() + k % KD_STAGES * KD_STAGE_BYTES; }

KP_FN void kd_ring_init(kd_ring *r) {
    for (kp_u32 s = 0; s < KD_STAGES; s++) {
        kp_bar_init(&r->full[s], 1);
        kp_bar_init(&r->empty[s], 1);
    }
}

KP_FN void kp_part_brought(kp_ctx *c);
KP_FN int kp_wait_rest(kp_ctx *c);

/* Waits for the ring; a trace keeps how long. */
KP_FN int kd_ring_wait(kp_ctx *c, kp_bar *bar, kp_u32 parity) {
#ifdef KD_TRACE
    kp_u32 from = (kp_u32)kx_clock64();
    int on = kp_wait_bar(c, bar, parity, KP_WHAT_STREAM);
    c->held += (kp_u32)kx_clock64() - from;
    return on;
#else
    return kp_wait_bar(c, bar, parity, KP_WHAT_STREAM);
#endif
}

/* The loader's lane: until there is room for stage k. */
KP_FN int kd_push_room(kp_ctx *c, kp_u32 k) {
    kd_ring *r = kd_ring_shared();
    if (k >= KD_STAGES && !kd_ring_wait(c, &r->empty[k % KD_STAGES], (k / KD_STAGES - 1) & 1)) return 0;
    kp_u32 most = KD_IN_FLIGHT;
    if (KD_IN_FLIGHT_AHEAD < KD_IN_FLIGHT && !kx_all((int)kx_mbar_test(&c->slot->loaded.word, c->parity)))
        most = KD_IN_FLIGHT_AHEAD;
    if (k < most) return 1;
    kp_u32 o = k - most;
    return kp_wait_bar(c, &r->full[o % KD_STAGES], (o / KD_STAGES) & 1, KP_WHAT_STREAM);
}

/* The loader's lane: the next stage, bytes (a multiple of 16) from src. 0: aborted. */
KP_FN int kd_push(kp_ctx *c, const void *src, kp_u32 bytes) {
    kp_u32 k = c->stream++;
    if (!kd_push_room(c, k)) return 0;
    if (kd_first()) {
        kp_u64 *full = &kd_ring_shared()->full[k % KD_STAGES].word;
        kx_mbar_arrive_expect(full, bytes);
#ifdef KD_NO_HINT
        kx_bulk_load(kd_stage(k), src, bytes, full);
#else
        kx_bulk_load_once(kd_stage(k), src, bytes, full);
#endif
    }
    return 1;
}
/* The next stage: so many bytes from a and, from byte `second` of the stage on, from b. May be none. */
KP_FN int kd_push_two(kp_ctx *c, const void *a, const void *b, kp_u32 second, kp_u32 bytes) {
    kp_u32 k = c->stream++;
    if (!kd_push_room(c, k)) return 0;
    if (kd_first()) {
        kp_u64 *full = &kd_ring_shared()->full[k % KD_STAGES].word;
        kx_mbar_arrive_expect(full, 2 * bytes);
        if (bytes) {
            kx_bulk_load(kd_stage(k), a, bytes, full);
            kx_bulk_load(kd_stage(k) + second, b, bytes, full);
        }
    }
    return 1;
}

/* The loader's lane, where what it pushes depends on the step: until the worker has this iteration's record. The
 * launcher brings it behind the first events of the queue, which are of this task or an earlier one. */
KP_FN int kd_wait_step(kp_ctx *c) {
    kp_u32 *of = &c->worker->step_of;
    for (;;) {
        kp_u32 now = 0;
        if (kd_first()) now = kx_ld_acquire_cta(of);
        if (kx_shfl(now, 0) == c->iteration + 1) break;
        kp_hint hint = {KP_HINT_COUNTER, KP_WHAT_STEP, c->iteration + 1, 0, 0, of};
        if (kp_abort_poll(c)) return 0;
        kp_yield(c, hint);
    }
    kx_syncwarp();
    return 1;
}

/* A consumer's lane, for stage number k, which is its own: waits until it has landed. */
KP_FN int kd_take(kp_ctx *c, kp_u32 k) {
    return kd_ring_wait(c, &kd_ring_shared()->full[k % KD_STAGES], (k / KD_STAGES) & 1);
}
KP_FN void kd_give(kp_ctx *c, kp_u32 k) { kp_bar_arrive(&kd_ring_shared()->empty[k % KD_STAGES]); }

#endif
