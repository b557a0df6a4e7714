/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives of device/protocol.h on an NVIDIA GPU, sm_90 on. A lane is a warp: each function here is called by all
 * 32 threads of it, together. Written over device/cuda_ptx.cuh; nothing here knows roles or ops.
 *
 * Whatever a lane branches on is the same for all of its threads, or their next kx_syncwarp() would pair up with
 * another one: loads that decide are made by one thread and handed round, tests are true when all threads found them
 * true.
 *
 * Order: an arrival is a release and a test an acquire at CTA scope; kx_syncwarp() in front of an arrival joins the
 * warp's threads to the one that arrives. Counters and events are release and acquire at GPU scope (system scope where
 * another rank or the host looks). What one chain of these orders is ordered for all who read it (causality order). */
#ifndef KEEL_DEVICE_CUDA_PRIM_CUH
#define KEEL_DEVICE_CUDA_PRIM_CUH

#include "device/cuda_ptx.cuh"

/* All of a worker's pages. As an address that the compiler sees: through a pointer kept in SMEM it could not tell which
 * memory it is, and generic accesses are slower. */
KP_FN kp_u8 *kd_pages(void) { return kx_shared_base() + KD_STAGES * KD_STAGE_BYTES; }

#include "device/body.h"

#define KD_WARP 32u

KP_FN kp_u32 kd_lane_thread(void) { return kx_laneid(); }
KP_FN int kd_first(void) { return kd_lane_thread() == 0; }

/* ---- counters ----------------------------------------------------------------------------------- */

/* One thread loads; kx_syncwarp() orders the others behind it. */
KP_FN kp_u32 kp_load_acquire(const kp_u32 *p) {
    kp_u32 v = 0;
    if (kd_first()) v = kx_ld_acquire(p);
    v = kx_shfl(v, 0);
    kx_syncwarp();
    return v;
}
KP_FN void kp_store_release(kp_u32 *p, kp_u32 v) {
    kx_syncwarp();
    if (kd_first()) kx_st_release(p, v);
}
KP_FN void kp_add_release(kp_u32 *p, kp_u32 v) {
    kx_syncwarp();
    if (kd_first()) kx_add_release(p, v);
}
KP_FN kp_u64 kp_load_acquire64(const kp_u64 *p) {
    kp_u64 v = 0;
    if (kd_first()) v = kx_ld_acquire64(p);
    v = kx_shfl(v, 0);
    kx_syncwarp();
    return v;
}
KP_FN void kp_store_release64(kp_u64 *p, kp_u64 v) {
    kx_syncwarp();
    if (kd_first()) kx_st_release64(p, v);
}

/* ---- slot barriers: mbarrier on kp_bar.word ------------------------------------------------------ */

/* One thread a worker; published to the others by the block's barrier before any role starts. */
KP_FN void kp_bar_init(kp_bar *b, kp_u32 count) { kx_mbar_init(&b->word, count); }
KP_FN void kp_bar_arrive(kp_bar *b) {
    kx_syncwarp();
    if (kd_first()) kx_mbar_arrive(&b->word);
}
/* By one thread. */
KP_FN void kp_bar_expect(kp_bar *b, kp_u32 bytes) { kx_mbar_expect(&b->word, bytes); }
KP_FN int kp_bar_test(const kp_bar *b, kp_u32 parity) { return kx_all((int)kx_mbar_try(&b->word, parity)); }

/* In SMEM; all threads of the lane get the same value. */
KP_FN kp_u32 kp_count(kp_u32 *p) {
    kp_u32 v = *p;
    kx_syncwarp();
    if (kd_first()) *p = v + 1;
    kx_syncwarp();
    return v;
}

/* What a task wrote is ordered by the addition to its event, or says itself that it is there. */
#define KP_SIGNAL(c, count) kd_signal(c, count)
KP_FN void kd_signal(const kp_ctx *c, kp_u32 *count) {
    kx_syncwarp();
    if (!kd_first()) return;
    if (c->slot->record.weak)
        kx_add_relaxed(count, 1);
    else
        kx_add_release(count, 1);
}

/* ---- waiting ------------------------------------------------------------------------------------ */

/* What a lane waited for last, for the hang report: in SMEM, one a warp. */
typedef struct kd_lane {
    kp_u32 spins, what, target;
} kd_lane;
typedef struct kd_waits {
    const kp_u32 *abort; /* the run's abort word */
    kd_lane lane[KD_LANES];
} kd_waits;
KP_FN kd_waits *kd_waits_shared(void) {
    KX_SHARED(kd_waits, waits);
    return &waits;
}
KP_FN kd_lane *kd_lane_mine(void) { return &kd_waits_shared()->lane[kx_thread() / KD_WARP]; }
KP_FN void kd_waits_for(kp_u32 what, kp_u32 target) {
    kd_lane *l = kd_lane_mine();
    if (!kd_first()) return;
    l->what = what;
    l->target = target;
}

/* What a lane does in a turn of a wait that found nothing stands in the text once, away from where it waits: the text
 * of a layer has to fit the instruction cache.
 *
 * The abort word is looked at once in a while: it lies in global memory, and a look costs more than a wait should. */
#define KD_POLL_EVERY 4096u
KX_OUTLINED int kd_turn(void) {
    kd_lane *l = kd_lane_mine();
    kp_u32 spins = l->spins + 1;
    kx_syncwarp();
    if (kd_first()) l->spins = spins;
    kx_syncwarp();
    return spins % KD_POLL_EVERY == 0 && kx_any((int)kx_ld_volatile(kd_waits_shared()->abort));
}
KX_OUTLINED int kd_wait_long(const kp_bar *bar, kp_u32 parity, kp_u32 what) {
    kd_waits_for(what, parity);
    KP_ROLLED
    for (;;) {
        if (kp_bar_test(bar, parity)) return 1;
        if (kd_turn()) return 0;
    }
}
#define KP_OWN_WAIT_BAR
KP_FN int kp_wait_bar(kp_ctx *c, kp_bar *bar, kp_u32 parity, kp_u32 what) {
    (void)c;
    return kp_bar_test(bar, parity) || kd_wait_long(bar, parity, what);
}

KP_FN int kp_abort_poll(kp_ctx *c) {
    (void)c;
    return kd_turn();
}
KP_FN void kp_yield(kp_ctx *c, kp_hint hint) {
    (void)c;
    kd_waits_for(hint.what, hint.target);
}
KP_FN int kp_run_over(const kp_launch *l) { return kp_load_acquire(&l->state->finished) != 0; }

/* What the consumer's lanes have ready of a task that is stored by bands: each says how many bands it is through with.
 */
#define KP_STORES_EARLY(c) ((c)->slot->record.by_bands)
KP_FN void kd_band_ready(const kp_ctx *c, kp_u32 bands) {
    if (KD_M_MAX > 1 || !c->slot->record.by_bands) return;
    kx_syncwarp();
    if (kd_first()) kx_st_release_cta(&c->slot->bands[c->lane], bands);
}
static_assert(kd_pick(KP_CONSUMER, KD_LANES_OF) <= KP_BAND_LANES, "no word for a lane's bands");
/* The storer: until all of them are through with so many. A task that is not stored by bands was waited for as a whole.
 * 0: aborted. */
KP_FN int kd_wait_bands(const kp_ctx *c, kp_u32 bands) {
    if (!c->slot->record.by_bands) return 1;
    int looks = kd_lane_thread() < kd_lanes(KP_CONSUMER);
    const kp_u32 *mine = &c->slot->bands[looks ? kd_lane_thread() : 0];
    KP_ROLLED
    while (!kx_all(!looks || kx_ld_acquire_cta(mine) >= bands)) {
        if (kd_turn()) return 0;
    }
    kx_syncwarp();
    return 1;
}
/* The storer, behind the last band. */
KP_FN void kd_bands_over(const kp_ctx *c) {
    kx_syncwarp();
    if (kd_lane_thread() < kd_lanes(KP_CONSUMER)) kx_st_release_cta(&c->slot->bands[kd_lane_thread()], 0);
}

/* ---- what the protocol leaves to the backend ------------------------------------------------------ */

/* The controller runs ahead, and its one copy lands on the barrier that the roles wait for anyway. */
KP_FN void kp_slot_fill(kp_ctx *c, kp_slot *slot, kp_u32 q) {
    if (!kd_first()) return;
    kp_bar_expect(&slot->arrived, sizeof(kp_record));
    kx_bulk_load(&slot->record, &c->worker->launch->records[q], sizeof(kp_record), &slot->arrived.word);
}

/* A thread an event, so that the looks at all of them are one trip to the second-level cache. */
KP_FN int kd_wait_batch(kp_ctx *c, const kp_task *t, kp_u32 i) {
    const kp_launch *l = c->worker->launch;
    const kp_record *r = &c->slot->record;
    int mine = i < t->n_waits;
    kp_u32 event = !mine ? 0 : i < KP_RECORD_WAITS ? r->event[i] : l->waits[t->wait_first + i];
    kp_u32 triggers = !mine ? 0 : i < KP_RECORD_WAITS ? r->triggers[i] : l->triggers[event];
    kp_u32 *count = &l->events[event].count, target = triggers * (c->iteration + 1);
    while (!kx_all(!mine || (kp_i32)(kx_ld_acquire(count) - target) >= 0)) {
        kp_hint hint = {KP_HINT_COUNTER, KP_WHAT_EVENT + event, target, 0, 0, count};
        if (kp_abort_poll(c)) return 0;
        kp_yield(c, hint);
    }
    kx_syncwarp();
    return 1;
}
KP_FN int kp_wait_events(kp_ctx *c, const kp_task *t) {
    if (c->slot->record.by_step && c->worker->step_of == c->iteration + 1) return 1; /* seen by this lane before */
    for (kp_u32 i = 0; i < t->n_waits; i += KD_WARP) {
        if (!kd_wait_batch(c, t, i + kd_lane_thread())) return 0;
    }
    return 1;
}

#ifdef KD_TRACE
#define KP_MARK(c, mark) kd_mark(c, mark)
KP_FN void kd_mark(kp_ctx *c, kp_u32 mark) {
    const kp_launch *l = c->worker->launch;
    if (c->iteration + 1 == l->trace_iteration) c->held = 0;
    if (c->lane || !kd_first() || !l->trace || c->iteration != l->trace_iteration) return;
    kp_u64 at = (kp_u32)kx_clock64(); /* the global timer is slow to read, and the loader is ahead */
    if (mark == KP_MARK_LOADER_BEGINS) at |= kx_globaltimer() << 32;
    if (mark == KP_MARK_LOADER_DONE || mark == KP_MARK_COMPUTED) at |= (kp_u64)c->held << 32, c->held = 0;
    l->trace[(kp_u64)c->slot->record.entry * KP_MARKS + mark] = at;
}
#endif

/* Launcher lane 0. Every task but step_begin waits, and what it waits for is behind this iteration's step record. */
KP_FN void kp_events_passed(kp_ctx *c, const kp_task *t) {
    kp_worker *w = c->worker;
    if (!t->n_waits || w->step_of == c->iteration + 1) return;
    const kp_u32 *from = (const kp_u32 *)w->launch->step;
    for (kp_u32 i = kd_lane_thread(); i < sizeof(kp_step) / 4; i += KD_WARP)
        ((kp_u32 *)&w->step)[i] = kx_ld_volatile(from + i);
    kx_syncwarp();
    if (kd_first()) kx_st_release_cta(&w->step_of, c->iteration + 1);
    kx_syncwarp();
}

/* ---- what bodies use ---------------------------------------------------------------------------- */

/* This thread among all of its role, and how many they are. */
KP_FN kp_u32 kd_thread(const kp_ctx *c) { return c->lane * KD_WARP + kd_lane_thread(); }
KP_FN kp_u32 kd_threads(const kp_ctx *c) { return KP_LANES(c, c->role) * KD_WARP; }

/* All threads of this role: a named barrier of the hardware, one a role, fewer threads than the block has. */
KP_FN void kd_role_sync(const kp_ctx *c) { kx_bar_sync(1 + c->role, kd_threads(c)); }

KP_FN void kb_publish64(kp_u64 *p, kp_u64 v) { kx_st_release64_sys(p, v); }
KP_FN kp_u64 kb_now_ns(void) { return kx_globaltimer(); }

#endif
