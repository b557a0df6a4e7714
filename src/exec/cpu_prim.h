/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives of device/protocol.h on the CPU, over the compiler's atomics. ThreadSanitizer understands every one of
 * them; there are no standalone fences. */
#ifndef KEEL_EXEC_CPU_PRIM_H
#define KEEL_EXEC_CPU_PRIM_H

#include "device/body.h"

KP_FN kp_u32 kp_load_acquire(const kp_u32 *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
KP_FN void kp_store_release(kp_u32 *p, kp_u32 v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
KP_FN void kp_add_release(kp_u32 *p, kp_u32 v) { __atomic_fetch_add(p, v, __ATOMIC_RELEASE); }
KP_FN kp_u64 kp_load_acquire64(const kp_u64 *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
KP_FN void kp_store_release64(kp_u64 *p, kp_u64 v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

KP_FN void kp_slot_fill(kp_ctx *c, kp_slot *slot, kp_u32 q) {
    slot->task = c->worker->launch->tasks[c->worker->launch->queue[q]];
}
KP_FN void kp_events_passed(kp_ctx *c, const kp_task *t) { (void)c, (void)t; }
KP_FN kp_u32 kp_count(kp_u32 *p) { return (*p)++; }

/* The whole barrier is one word (see kp_bar), so that a phase flips atomically with the last arrival or byte. */
KP_FN void kp_bar_update(kp_bar *b, kp_u32 bytes, kp_u32 arrivals) {
    kp_u64 old = __atomic_load_n(&b->word, __ATOMIC_RELAXED), next;
    do {
        kp_u32 pending = (kp_u32)old + bytes;
        kp_u32 missing = (kp_u32)(old >> 32 & 0xffff) - arrivals, phase = (kp_u32)(old >> 48);
        if (missing == 0 && pending == 0) {
            phase = (phase + 1) & 0xffff;
            missing = b->count;
        }
        next = (kp_u64)phase << 48 | (kp_u64)missing << 32 | pending;
    } while (!__atomic_compare_exchange_n(&b->word, &old, next, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

KP_FN void kp_bar_init(kp_bar *b, kp_u32 count) {
    b->count = count;
    b->word = (kp_u64)count << 32;
}
KP_FN void kp_bar_arrive(kp_bar *b) { kp_bar_update(b, 0, 1); }
KP_FN void kp_bar_expect(kp_bar *b, kp_u32 bytes) { kp_bar_update(b, bytes, 0); }
KP_FN void kp_bar_land(kp_bar *b, kp_u32 bytes) { kp_bar_update(b, 0u - bytes, 0); }
KP_FN int kp_bar_test(const kp_bar *b, kp_u32 parity) {
    return ((kp_u32)(__atomic_load_n(&b->word, __ATOMIC_ACQUIRE) >> 48) & 1) != parity;
}

KP_FN int kp_abort_poll(const kp_ctx *c) {
    return __atomic_load_n(&c->worker->launch->control->abort, __ATOMIC_ACQUIRE) != 0;
}
KP_FN int kp_run_over(const kp_launch *l) { return l->state->finished != 0; }

/* In cpu_worker.c. */
void kp_yield(kp_ctx *c, kp_hint hint);
void kp_dispatch(kp_ctx *c);

#endif
