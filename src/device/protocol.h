/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol: how the roles of a worker, and the workers of a launch, hand work to each other. One text, compiled for
 * the device and for the CPU; it names no op. docs/protocol.md explains it and says why it is safe.
 *
 * It is written over these primitives alone, which the backend supplies before including this file
 * (src/exec/cpu_prim.h; later src/device/cuda_prim.cuh):
 *
 *   kp_load_acquire(p), kp_store_release(p, v), kp_add_release(p, v)      32-bit counters
 *   kp_load_acquire64(p), kp_store_release64(p, v)                        epoch-carrying words
 *   kp_bar_init(b, count), kp_bar_arrive(b), kp_bar_expect(b, bytes), kp_bar_test(b, parity)
 *       slot barriers with the semantics of the PTX mbarrier: a phase completes when `count` arrivals came and all
 *       expected bytes have landed; kp_bar_test(b, parity) is true once the phase of that parity has completed.
 *   kp_bulk_start(c, dst, src, bytes, b)    asynchronous copy that lands `bytes` on b; order among copies undefined
 *   kp_slot_fill(c, slot, q)    the controller: queue entry q's descriptor into the slot; copies land on slot->arrived
 *   kp_events_passed(c, t)      launcher lane 0, behind the task's events
 *   kp_count(p)                 a lane's own counter: its value, then one more
 *   kp_yield(c, hint)           lets others run; the hint says what is waited for
 *   kp_abort_poll(c)             true once the run is being aborted
 *   kp_dispatch(c)               runs the body of c->role for c->task (a table or a generated switch)
 *   kp_run_over(launch)          worker 0 alone, between iterations: was that the last one?
 *
 * A backend may say KP_OWN_WAIT_EVENTS and bring kp_wait_events() itself, KP_OWN_WAIT_BAR likewise, and KP_EARLY with
 * kp_dispatch_early(c): what a launcher body does before its events.
 *
 * Every wait polls the abort word and then returns 0, upon which the role leaves. Nothing here waits without bound.
 */
#ifndef KEEL_DEVICE_PROTOCOL_H
#define KEEL_DEVICE_PROTOCOL_H

#include "device/worker.h"

/* Planted faults, for tests that prove that the checkers see them. 0 in every product build. */
#ifndef KP_FAULT
#define KP_FAULT 0
#endif
#define KP_FAULT_RELEASE_BEFORE_CLAIM 1 /* the loader skips its claim, so releases may overtake it */
#define KP_FAULT_EARLY_RELEASE 2        /* pages are released before the body that reads them has run */
#define KP_FAULT_READ_BEFORE_DEPENDENCY 3
#define KP_FAULT_EXIT_AFTER_BARRIER 4 /* every worker decides for itself, after the border, whether to leave */
#define KP_FAULT_NO_JOIN 5            /* lane 0 releases and signals without waiting for its sister lane */
#define KP_FAULT_EARLY_COMPUTED 6     /* the consumer hands over before its body has run */
#define KP_FAULT_SPARSE_CLAIM 7    /* every other claim of an output page does not look: parity cannot tell 0 from 2 */
#define KP_FAULT_NO_LOADED_WAIT 8  /* the consumer does not wait for the copies, which then land on a later task */
#define KP_FAULT_NO_FINISHED 9     /* the consumer does not report as finished */
#define KP_FAULT_COUNTER_RESET 10  /* event counters are zeroed between iterations */
#define KP_FAULT_EXTRA_LANE 11     /* a barrier counts one lane more than there is */
#define KP_FAULT_STOP_IGNORED 12   /* only worker 0 obeys the stop bit of the go word */
#define KP_FAULT_NO_RELEASE 13     /* the consumer returns without releasing its pages */
#define KP_FAULT_UNCOUNTED_COPY 14 /* in a test's kb_bulk: the bytes of a copy are not announced to the barrier */
#define KP_FAULT_EARLY_TRIGGER 15  /* the event is triggered before the storer's body */
#define KP_FAULT_SLOT_OVERWRITTEN 16 /* the controller does not wait for the slot's last occupant */
#define KP_FAULT_LANE_SKIPS_READY 17 /* launcher lanes but the first do not wait for the events */
#define KP_FAULT_NO_DRAIN 18         /* the border is reached with tasks still in the ring */
#define KP_FAULT_LOCAL_SIGNAL 19     /* a trigger reaches the counter of its own rank alone */
#define KP_FAULT_RANK_ALONE 20       /* rank 0 does not wait for the other ranks at the border */
#define KP_FAULT_NO_POLL 21          /* the wait for a counter does not look at the abort word */

/* Who claims pages, in queue order: the loader, or, where it streams weights through a ring of its own and must not
 * wait for pages, the launcher. */
#ifndef KP_CLAIM_ROLE
#define KP_CLAIM_ROLE 1 /* KP_LOADER */
#endif

/* One more task of the event in hand is through. A backend with tagged data need not order these (docs/proof.md §2). */
#ifndef KP_SIGNAL
#define KP_SIGNAL(c, count) kp_add_release(count, 1)
#endif

/* Does the storer's body of the task in hand look itself for what the consumer has ready, before all of it is? */
#ifndef KP_STORES_EARLY
#define KP_STORES_EARLY(c) 0
#endif

/* A backend that traces keeps the moment. */
#ifndef KP_MARK
#define KP_MARK(c, mark) ((void)0)
#endif

/* ---- waits -------------------------------------------------------------------------------------- */

#ifndef KP_OWN_WAIT_BAR
KP_FN int kp_wait_bar(kp_ctx *c, kp_bar *bar, kp_u32 parity, kp_u32 what) {
    while (!kp_bar_test(bar, parity)) {
        kp_hint hint = {KP_HINT_BAR, what, parity, 0, bar, 0};
        if (kp_abort_poll(c)) return 0;
        kp_yield(c, hint);
    }
    return 1;
}
#endif

/* Satisfied when count ≥ target; the difference is taken modulo 2^32. */
KP_FN int kp_wait_counter(kp_ctx *c, kp_u32 *count, kp_u32 target, kp_u32 what) {
    while ((kp_i32)(kp_load_acquire(count) - target) < 0) {
        kp_hint hint = {KP_HINT_COUNTER, what, target, 0, 0, count};
#if KP_FAULT != KP_FAULT_NO_POLL
        if (kp_abort_poll(c)) return 0;
#endif
        kp_yield(c, hint);
    }
    return 1;
}

/* ---- pieces of a role --------------------------------------------------------------------------- */

/* The k-th claim of a page (counted over the whole run) waits for its (k−1)-th release. A page's claims all come from
 * the same loader lane in queue order, and the k-th release follows the k-th claim, so the lane never observes the
 * barrier two phases late: parity cannot alias (docs/protocol.md). */
KP_FN int kp_claim(kp_ctx *c, const kp_task *t) {
    kp_worker *w = c->worker;
    KP_ROLLED
    for (kp_u32 s = 0; s < t->n_spans; s++) {
        KP_ROLLED
        for (kp_u32 i = 0; i < t->span[s].n_pages; i++) {
            kp_u32 page = t->span[s].first_page + i;
            if (page % KP_LANES(c, KP_CLAIM_ROLE) != c->lane) continue;
            kp_u32 claims = kp_count(&w->claims[page]);
#if KP_FAULT == KP_FAULT_SPARSE_CLAIM
            if ((claims & 1) && t->span[s].release_role == KP_STORER) continue;
#endif
#if KP_FAULT != KP_FAULT_RELEASE_BEFORE_CLAIM
            if (!kp_wait_bar(c, &w->page_free[page], (claims + 1) & 1, KP_WHAT_PAGE + page)) return 0;
#else
            (void)claims;
#endif
        }
    }
    return 1;
}

KP_FN void kp_release(kp_ctx *c, const kp_task *t) {
    KP_ROLLED
    for (kp_u32 s = 0; s < t->n_spans; s++) {
        if (t->span[s].release_role != c->role) continue;
        KP_ROLLED
        for (kp_u32 i = 0; i < t->span[s].n_pages; i++) kp_bar_arrive(&c->worker->page_free[t->span[s].first_page + i]);
    }
}

/* All lanes of the role have come this far. Lane-parallel work must be joined before one lane speaks for all. */
KP_FN int kp_join(kp_ctx *c, kp_slot *slot, kp_u32 parity) {
    if (KP_LANES(c, c->role) == 1) return 1;
    kp_bar_arrive(&slot->join[c->role]);
#if KP_FAULT == KP_FAULT_NO_JOIN
    (void)parity;
    return 1;
#else
    return kp_wait_bar(c, &slot->join[c->role], parity, KP_WHAT_JOIN);
#endif
}

/* The end of a role's work on a task: what it owns goes back, once, after all its lanes are through. */
KP_FN int kp_release_joined(kp_ctx *c, kp_slot *slot, const kp_task *t, kp_u32 parity) {
    if (!kp_join(c, slot, parity)) return 0;
#if KP_FAULT != KP_FAULT_EARLY_RELEASE
    if (c->lane == 0) kp_release(c, t);
#else
    (void)t;
#endif
    return 1;
}

#ifndef KP_OWN_WAIT_EVENTS
KP_FN int kp_wait_events(kp_ctx *c, const kp_task *t) {
    const kp_launch *l = c->worker->launch;
#if KP_FAULT == KP_FAULT_READ_BEFORE_DEPENDENCY
    return 1;
#endif
    for (kp_u32 i = 0; i < t->n_waits; i++) {
        kp_u32 event = l->waits[t->wait_first + i], target = l->triggers[event] * (c->iteration + 1);
        if (!kp_wait_counter(c, &l->events[event].count, target, KP_WHAT_EVENT + event)) return 0;
    }
    return 1;
}
#endif

/* A task's results are there: adds to its event, on every rank where tasks of other ranks wait for it. */
KP_FN void kp_signal(kp_ctx *c, kp_u32 event) {
    const kp_launch *l = c->worker->launch;
#if KP_FAULT == KP_FAULT_LOCAL_SIGNAL
    if (1) {
#else
    if (l->world <= 1 || !l->event_ranks[event]) {
#endif
        KP_SIGNAL(c, &l->events[event].count);
        return;
    }
    KP_ROLLED
    for (kp_u32 i = 0; i < l->world; i++) {
        kp_u32 rank = (l->rank + i) % l->world; /* its own first, and not all ranks at one */
        kp_add_release(&l->rank_events[rank][event].count, 1);
    }
}

/* ---- the roles ---------------------------------------------------------------------------------- */

KP_FN int kp_loader_step(kp_ctx *c, kp_slot *slot, kp_u32 parity) {
#if KP_CLAIM_ROLE == 1 /* KP_LOADER, as the preprocessor sees it */
    if (!kp_claim(c, kp_slot_task(slot))) return 0;
    kp_bar_arrive(&slot->claimed);
    if (!kp_wait_bar(c, &slot->claimed, parity, KP_WHAT_CLAIMED)) return 0;
    kp_dispatch(c);
    kp_bar_arrive(&slot->loaded);
#else /* what the body streams has barriers of its own, and is more than the ring holds: the consumer starts meanwhile \
       */
    kp_bar_arrive(&slot->loaded);
    KP_MARK(c, KP_MARK_LOADER_BEGINS);
    kp_dispatch(c);
    KP_MARK(c, KP_MARK_LOADER_DONE);
#endif
    return kp_release_joined(c, slot, kp_slot_task(slot), parity);
}

KP_FN int kp_launcher_step(kp_ctx *c, kp_slot *slot, kp_u32 parity) {
#if KP_CLAIM_ROLE == 2 /* KP_LAUNCHER */
    if (!kp_claim(c, kp_slot_task(slot))) return 0;
    kp_bar_arrive(&slot->claimed);
#endif
    if (!kp_wait_bar(c, &slot->claimed, parity, KP_WHAT_CLAIMED)) return 0;
#ifdef KP_EARLY
    kp_dispatch_early(c);
#endif
    KP_MARK(c, KP_MARK_CLAIMED);
    if (c->lane == 0) {
        if (!kp_wait_events(c, kp_slot_task(slot))) return 0;
        kp_events_passed(c, kp_slot_task(slot));
        kp_bar_arrive(&slot->ready);
        KP_MARK(c, KP_MARK_EVENTS);
#if KP_FAULT != KP_FAULT_LANE_SKIPS_READY
    } else if (!kp_wait_bar(c, &slot->ready, parity, KP_WHAT_READY)) {
        return 0;
#endif
    }
    kp_dispatch(c);
    kp_bar_arrive(&slot->loaded);
    KP_MARK(c, KP_MARK_FETCHED);
    return kp_release_joined(c, slot, kp_slot_task(slot), parity);
}

KP_FN int kp_consumer_step(kp_ctx *c, kp_slot *slot, kp_u32 parity) {
#if KP_FAULT == KP_FAULT_NO_LOADED_WAIT
    if (!kp_wait_bar(c, &slot->claimed, parity, KP_WHAT_CLAIMED)) return 0;
#else
    if (!kp_wait_bar(c, &slot->loaded, parity, KP_WHAT_LOADED)) return 0;
#endif
    KP_MARK(c, KP_MARK_LOADED);
#if KP_FAULT == KP_FAULT_EARLY_RELEASE
    if (c->lane == 0) kp_release(c, kp_slot_task(slot));
#endif
#if KP_FAULT == KP_FAULT_EARLY_COMPUTED
    kp_bar_arrive(&slot->computed);
    kp_dispatch(c);
#else
    kp_dispatch(c);
    kp_bar_arrive(&slot->computed);
#endif
    KP_MARK(c, KP_MARK_COMPUTED);
#if KP_FAULT == KP_FAULT_NO_RELEASE
    return kp_join(c, slot, parity);
#endif
    return kp_release_joined(c, slot, kp_slot_task(slot), parity);
}

KP_FN int kp_storer_step(kp_ctx *c, kp_slot *slot, kp_u32 parity) {
    const kp_task *t = kp_slot_task(slot);
    if (!KP_STORES_EARLY(c) && !kp_wait_bar(c, &slot->computed, parity, KP_WHAT_COMPUTED)) return 0;
    KP_MARK(c, KP_MARK_STORER_BEGINS);
#if KP_FAULT == KP_FAULT_EARLY_TRIGGER
    if (c->lane == 0 && t->trigger != KP_NONE) kp_signal(c, t->trigger);
#endif
    kp_dispatch(c);
    if (KP_STORES_EARLY(c) && !kp_wait_bar(c, &slot->computed, parity, KP_WHAT_COMPUTED)) return 0;
    if (!kp_join(c, slot, parity)) return 0;
    if (c->lane != 0) return 1;
    KP_MARK(c, KP_MARK_STORED);
#if KP_FAULT != KP_FAULT_EARLY_TRIGGER
    if (t->trigger != KP_NONE) kp_signal(c, t->trigger); /* others wait for this; for the pages only this worker does */
#endif
    KP_MARK(c, KP_MARK_SIGNALLED);
    kp_release(c, t);
    return 1;
}

KP_FN int kp_role_step(kp_ctx *c, kp_slot *slot, kp_u32 parity) {
    switch (c->role) {
    case KP_LOADER:
        return kp_loader_step(c, slot, parity);
    case KP_LAUNCHER:
        return kp_launcher_step(c, slot, parity);
    case KP_CONSUMER:
        return kp_consumer_step(c, slot, parity);
    default:
        return kp_storer_step(c, slot, parity);
    }
}

/* Loader, launcher, consumer and storer, every lane: take what the controller publishes, until TERMINATE. */
KP_FN void kp_role_loop(kp_ctx *c) {
    kp_worker *w = c->worker;
    KP_ROLLED
    for (kp_u32 seq = 0;; seq++) {
        kp_slot *slot = &w->slot[seq % KP_SLOTS];
        kp_u32 parity = (seq / KP_SLOTS) & 1;
        if (!kp_wait_bar(c, &slot->arrived, parity, KP_WHAT_ARRIVED)) return;
        if (slot->terminate) return;
        c->slot = slot;
        c->task = kp_slot_task(slot);
        c->iteration = slot->iteration;
        c->parity = parity;
        if (!kp_role_step(c, slot, parity)) return;
#if KP_FAULT == KP_FAULT_NO_FINISHED
        if (c->role == KP_CONSUMER) continue;
#endif
        kp_bar_arrive(&slot->finished);
    }
}

/* ---- the controller ----------------------------------------------------------------------------- */

/* Slot seq % KP_SLOTS is free once the task KP_SLOTS before was finished by every lane of every role. */
KP_FN kp_slot *kp_slot_take(kp_ctx *c, kp_u32 seq) {
    kp_slot *slot = &c->worker->slot[seq % KP_SLOTS];
#if KP_FAULT == KP_FAULT_SLOT_OVERWRITTEN
    return slot;
#endif
    if (seq < KP_SLOTS) return slot;
    kp_u32 parity = ((seq / KP_SLOTS) - 1) & 1;
    return kp_wait_bar(c, &slot->finished, parity, KP_WHAT_FINISHED) ? slot : (kp_slot *)0;
}

/* Waits until every published task is finished. */
KP_FN int kp_drain(kp_ctx *c, kp_u32 seq) {
    KP_ROLLED
    for (kp_u32 back = seq < KP_SLOTS ? seq : KP_SLOTS; back > 0; back--) {
        kp_u32 s = seq - back;
        kp_bar *finished = &c->worker->slot[s % KP_SLOTS].finished;
        if (!kp_wait_bar(c, finished, (s / KP_SLOTS) & 1, KP_WHAT_FINISHED)) return 0;
    }
    return 1;
}

/* Worker 0, after all workers of its rank have arrived; stop: the host asked for it. Rank 0 waits for all ranks and
 * decides for all of them, so that the border stands between an iteration of any rank and the next one of any other. */
KP_FN int kp_border_decide(kp_ctx *c, kp_u32 iteration, int stop) {
    const kp_launch *l = c->worker->launch;
    kp_u64 go = (kp_u64)(iteration + 1) << 1;
    if (l->world <= 1) {
        kp_store_release64(&l->control->go, go | (kp_run_over(l) || stop));
        return 1;
    }
    kp_u32 *arrived = &l->rank_control[0]->ranks_arrived;
    kp_add_release(arrived, 1);
    if (l->rank != 0) return 1;
#if KP_FAULT != KP_FAULT_RANK_ALONE
    if (!kp_wait_counter(c, arrived, l->world * (iteration + 1), KP_WHAT_BORDER)) return 0;
#endif
    go |= kp_run_over(l) || stop;
    for (kp_u32 r = 0; r < l->world; r++) kp_store_release64(&l->rank_control[r]->go, go);
    return 1;
}

/* The border between iterations: all workers arrive, worker 0 decides and publishes (iteration + 1) << 1 | stop in one
 * word, so that every worker leaves at the same iteration. 0: aborted, 1: go on, 2: leave. */
KP_FN int kp_border(kp_ctx *c, kp_u32 iteration, int stop) {
    kp_worker *w = c->worker;
    kp_control *ctl = w->launch->control;
    kp_u32 all = w->launch->n_workers * (iteration + 1);
    kp_add_release(&ctl->arrived, 1);
#if KP_FAULT == KP_FAULT_EXIT_AFTER_BARRIER
    if (!kp_wait_counter(c, &ctl->arrived, all, KP_WHAT_BORDER)) return 0;
    return kp_run_over(w->launch) ? 2 : 1;
#endif
    if (w->index == 0) {
        if (!kp_wait_counter(c, &ctl->arrived, all, KP_WHAT_BORDER)) return 0;
        if (!kp_border_decide(c, iteration, stop)) return 0;
    }
    kp_u64 go;
    while (((go = kp_load_acquire64(&ctl->go)) >> 1) < iteration + 1) {
        kp_hint hint = {KP_HINT_GO, KP_WHAT_GO, iteration + 1, &ctl->go, 0, 0};
        if (kp_abort_poll(c)) return 0;
        kp_yield(c, hint);
    }
#if KP_FAULT == KP_FAULT_STOP_IGNORED
    if (w->index != 0) return 1;
#endif
    return (go & 1) ? 2 : 1;
}

/* q: the queue's entry; KP_NONE: the end. */
KP_FN int kp_publish(kp_ctx *c, kp_u32 seq, kp_u32 iteration, kp_u32 q) {
    kp_slot *slot = kp_slot_take(c, seq);
    if (!slot) return 0;
    slot->terminate = q == KP_NONE;
    slot->iteration = iteration;
    if (q != KP_NONE) kp_slot_fill(c, slot, q);
    kp_bar_arrive(&slot->arrived);
    return 1;
}

KP_FN void kp_controller_loop(kp_ctx *c) {
    kp_worker *w = c->worker;
    const kp_launch *l = w->launch;
    kp_u32 first = l->queue_first[w->index], last = l->queue_first[w->index + 1];
    kp_u32 seq = 0;
    int border = 1;
    KP_ROLLED
    for (kp_u32 iteration = 0; border == 1; iteration++) {
        c->iteration = iteration;
        KP_ROLLED
        for (kp_u32 q = first; q < last; q++) {
            if (!kp_publish(c, seq, iteration, q)) return;
            seq++;
        }
        /* all is published: nobody waits for this look at the host's word */
        int stop = w->index == 0 && kp_load_acquire(&l->control->stop_request);
#if KP_FAULT != KP_FAULT_NO_DRAIN
        if (!kp_drain(c, seq)) return;
#endif
        border = kp_border(c, iteration, stop);
        if (!border) return;
#if KP_FAULT == KP_FAULT_COUNTER_RESET
        for (kp_u32 q = first; q < last && w->index == 0; q++)
            if (l->tasks[l->queue[q]].trigger != KP_NONE)
                kp_store_release(&l->events[l->tasks[l->queue[q]].trigger].count, 0);
#endif
    }
    (void)kp_publish(c, seq, 0, KP_NONE);
}

/* Entry of every lane of every role. The controller is lane 0 alone. */
KP_FN void kp_role_main(kp_ctx *c) {
    if (c->role != KP_CONTROLLER) {
        kp_role_loop(c);
    } else if (c->lane == 0) {
        kp_controller_loop(c);
    }
}

/* Before any role starts, one thread a worker. */
KP_FN void kp_worker_init(kp_worker *w) {
    const kp_u32 *lanes = w->lanes;
    kp_u32 all = lanes[KP_LOADER] + lanes[KP_LAUNCHER] + lanes[KP_CONSUMER] + lanes[KP_STORER];
    for (kp_u32 s = 0; s < KP_SLOTS; s++) {
        kp_slot *slot = &w->slot[s];
        kp_bar_init(&slot->arrived, 1);
        kp_bar_init(&slot->claimed, lanes[KP_CLAIM_ROLE]);
        kp_bar_init(&slot->ready, 1);
        kp_bar_init(&slot->loaded, lanes[KP_LOADER] + lanes[KP_LAUNCHER]);
#if KP_FAULT == KP_FAULT_EXTRA_LANE
        kp_bar_init(&slot->computed, lanes[KP_CONSUMER] + 1);
#else
        kp_bar_init(&slot->computed, lanes[KP_CONSUMER]);
#endif
        kp_bar_init(&slot->finished, all);
        for (kp_u32 r = 0; r < KP_ROLES; r++) kp_bar_init(&slot->join[r], lanes[r]);
    }
    for (kp_u32 p = 0; p < w->n_pages; p++) {
        kp_bar_init(&w->page_free[p], 1);
        w->claims[p] = 0;
    }
}

#endif
