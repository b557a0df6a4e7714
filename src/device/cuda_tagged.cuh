/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing tagged rows (device/tagged.h). */
#ifndef KEEL_DEVICE_CUDA_TAGGED_CUH
#define KEEL_DEVICE_CUDA_TAGGED_CUH

#include "device/cuda_body.cuh"
#include "device/tagged.h"

/* Is the buffer in this slot tagged? Known when the plan's code is compiled. */
KP_FN int kd_tagged(const kp_ctx *c, kp_u32 slot) { return c->tagged >> slot & 1; }
/* Tagged buffers are zero before a launch. */
KP_FN kp_u32 kd_epoch(const kp_ctx *c) { return c->iteration + 1; }

/* Between two looks: says what this lane waits for. 1: the run is being aborted. */
KP_FN int kd_tagged_idle(kp_ctx *c) {
    kp_hint hint = {KP_HINT_RUN, KP_WHAT_TAGGED, kd_epoch(c), 0, 0, 0};
    kp_yield(c, hint);
    return kp_abort_poll(c);
}

/* Until the vector at `at` of thread `who` of the lane is of this epoch: one thread looks, so that a long wait does not
 * load the second-level cache. 0: aborted. */
KX_OUTLINED int kd_tagged_wait(const kd_vec *at, kp_u32 who, kp_u32 epoch) {
    kd_waits_for(KP_WHAT_TAGGED, epoch);
    KP_ROLLED
    for (;;) {
        int there = 1;
        if (kd_lane_thread() == who) there = kx_ld128_whole(at).w[3] == epoch;
        if (kx_all(there)) return 1;
        if (kd_turn()) return 0;
    }
}

/* Units `unit`, unit + stride, …, N of them and below n: their vectors, each brought until it is of this iteration. All
 * threads of a lane together. Where much is missing, one thread waits for one vector, and then all look again; where
 * little is, those that miss something look at once. 0: aborted. */
template <int N>
KP_FN int kd_tagged_take(kp_ctx *c, const kd_vec *row, kp_u32 unit, kp_u32 stride, kp_u32 n,
                         kd_vec (&v)[N][KP_TAGGED_VECS]) {
    enum { FEW = 4 };
    kp_u32 epoch = kd_epoch(c);
    const kd_vec *from = row + unit * KP_TAGGED_VECS;
#pragma unroll
    for (kp_u32 j = 0; j < N; j++) {
#pragma unroll
        for (int k = 0; k < KP_TAGGED_VECS; k++) v[j][k].w[3] = unit + j * stride < n ? ~epoch : epoch;
    }
    KP_ROLLED
    for (;;) {
        const kd_vec *missing = 0;
#pragma unroll
        for (kp_u32 j = 0; j < N; j++) {
#pragma unroll
            for (kp_u32 k = 0; k < KP_TAGGED_VECS; k++) {
                if (j * stride < n && v[j][k].w[3] != epoch)
                    v[j][k] = kx_ld128_whole(from + j * stride * KP_TAGGED_VECS + k);
            }
        }
#pragma unroll
        for (kp_u32 j = 0; j < N; j++) {
#pragma unroll
            for (int k = 0; k < KP_TAGGED_VECS; k++) {
                if (v[j][k].w[3] != epoch) missing = from + j * stride * KP_TAGGED_VECS + k;
            }
        }
        kp_u32 who = kx_ballot(missing != 0);
        if (!who) return 1;
        if (kx_popc(who) <= FEW ? kd_tagged_idle(c) : !kd_tagged_wait(missing, KD_WARP - 1 - kx_clz(who), epoch))
            return 0;
    }
}

/* All threads of the role: columns [lo, hi), whole units, each handed to put(column − lo, its first 8, its last 8). */
template <class Put> KP_FN void kd_tagged_fetch(kp_ctx *c, const void *from, kp_u32 lo, kp_u32 hi, Put put) {
    enum { AT_ONCE = 4 }; /* 8,192 columns by four lanes; with more, registers spill */
    const kd_vec *row = (const kd_vec *)from + lo / KP_TAGGED_COLS * KP_TAGGED_VECS;
    kp_u32 n = (hi - lo) / KP_TAGGED_COLS, all = kd_threads(c);
    KP_ROLLED
    for (kp_u32 base = 0; base < n; base += AT_ONCE * all) {
        kp_u32 unit = base + kd_thread(c);
        kd_vec v[AT_ONCE][KP_TAGGED_VECS];
        if (!kd_tagged_take<AT_ONCE>(c, row, unit, all, n, v)) return;
#pragma unroll
        for (kp_u32 j = 0; j < AT_ONCE; j++) { /* the first test is for the compiler, where n is a constant */
            kd_vec a = {v[j][0].w[0], v[j][0].w[1], v[j][0].w[2], v[j][1].w[0]};
            kd_vec b = {v[j][1].w[1], v[j][1].w[2], v[j][2].w[0], v[j][2].w[1]};
            if (j * all < n && unit + j * all < n) put((unit + j * all) * KP_TAGGED_COLS, a, b);
        }
    }
}

/* A unit's address, in the row of a slot's buffer. */
KP_FN kd_vec *kd_tagged_unit(const kp_ctx *c, kp_u32 slot, kp_u32 column) {
    return (kd_vec *)kb_buffer(c, slot) + column / KP_TAGGED_COLS * KP_TAGGED_VECS;
}

/* All threads of a lane: eight have a unit between them, two columns each; unit is null where there is none. */
KP_FN void kd_tagged_put(kp_ctx *c, kd_vec *unit, kp_u32 pair) {
    kp_u32 me = kd_lane_thread(), part = me % 8;
    kd_vec v;
#pragma unroll
    for (kp_u32 i = 0; i < 3; i++) v.w[i] = kx_shfl(pair, (me & ~7u) + (part < 2 ? part * 3 + i : i < 2 ? 6 + i : 7));
    v.w[3] = kd_epoch(c);
    if (part < KP_TAGGED_VECS && unit) kx_st128_whole(unit + part, v);
}

/* All threads of the role: columns 0 to width − 1 of a task. unit(column): its unit, or null; value(column): its bits.
 */
template <class Unit, class Value> KP_FN void kd_tagged_store(kp_ctx *c, kp_u32 width, Unit unit, Value value) {
    KP_ROLLED
    for (kp_u32 at = 2 * c->lane * KD_WARP; at < width; at += 2 * kd_threads(c)) {
        kp_u32 j = at + 2 * kd_lane_thread();
        kp_u32 pair = j < width ? (kp_u32)value(j) | (kp_u32)value(j + 1) << 16 : 0;
        kd_tagged_put(c, j < width ? unit(j) : 0, pair);
    }
}

/* The same band by band of 16 columns, as the consumer's lanes have them ready. */
template <class Unit, class Value> KP_FN void kd_tagged_store_bands(kp_ctx *c, kp_u32 bands, Unit unit, Value value) {
    static_assert(KP_TAGGED_COLS == 16, "a band is a unit");
    kp_u32 t = kd_lane_thread();
    KP_ROLLED
    for (kp_u32 b = 0; b < bands; b++) {
        if (!kd_wait_bands(c, b + 1)) return;
        kp_u32 j = b * KP_TAGGED_COLS + t % 8 * 2, pair = 0;
        if (t < 8) pair = (kp_u32)value(j) | (kp_u32)value(j + 1) << 16;
        kd_tagged_put(c, t < 8 ? unit(j) : 0, pair);
    }
    kd_bands_over(c);
}

/* Two columns, `column` even, of a row: the vector that holds them, to be asked for again until kd_tagged_there() */
KP_FN kd_vec kd_tagged_vec(const kp_ctx *c, kp_u32 slot, kp_u32 column) {
    return kx_ld128_whole(kd_tagged_unit(c, slot, column) + column % KP_TAGGED_COLS / 2 / 3);
}
KP_FN int kd_tagged_there(const kp_ctx *c, kd_vec v) { return v.w[3] == kd_epoch(c); }
KP_FN kp_u32 kd_tagged_pair(kd_vec v, kp_u32 column) {
    kp_u32 i = column % KP_TAGGED_COLS / 2 % 3;
    return i == 0 ? v.w[0] : i == 1 ? v.w[1] : v.w[2];
}

/* kd_fetch and kd_store for the buffer in a slot, tagged or not. */
KP_FN void kd_fetch_slot(kp_ctx *c, kd_act *to, kp_u32 slot, kp_u32 cols, kp_u32 lo, kp_u32 hi, kp_u32 logit_rows) {
    if (!kd_tagged(c, slot)) {
        kd_fetch(c, to, kb_buffer(c, slot), cols, lo, hi, logit_rows);
        return;
    }
    kd_tagged_fetch(c, kb_buffer(c, slot), lo, hi, [=](kp_u32 at, kd_vec a, kd_vec b) {
        *(kd_vec *)(to + at) = a;
        *(kd_vec *)(to + at + 8) = b;
    });
}
KP_FN void kd_store_slot(kp_ctx *c, const kd_act *from, kp_u32 slot, kp_u32 cols, kp_u32 lo, kp_u32 hi,
                         kp_u32 logit_rows) {
    if (!kd_tagged(c, slot)) {
        kd_store(c, from, kb_buffer(c, slot), cols, lo, hi, logit_rows);
        return;
    }
    kd_tagged_store(
        c, hi - lo, [=](kp_u32 j) { return kd_tagged_unit(c, slot, lo + j); }, [=](kp_u32 j) { return from[j]; });
}

#endif
