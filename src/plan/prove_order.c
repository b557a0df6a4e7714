/* SPDX-License-Identifier: Apache-2.0 */
/* Order: one pass through all tasks in an order that the protocol's waits allow, with vector clocks. If the pass comes
 * to its end there is no cycle among waits; if it does not, what is left holds one. docs/proof.md §2 and §3. */
#include "plan/prove_internal.h"

#include "core/mem.h"

#include <string.h>

/* Places stay far below 2^31: signed numbers compare faster on old vector units. */
static void join(uint32_t *restrict to, const uint32_t *restrict from, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) to[i] = (int32_t)to[i] > (int32_t)from[i] ? to[i] : from[i];
}

static void run_later(prover *v, uint32_t worker) {
    prove_worker *w = &v->workers[worker];
    if (w->running) return;
    w->running = true;
    w->next_run = KP_NONE;
    if (v->run_last == KP_NONE) {
        v->run_first = worker;
    } else {
        v->workers[v->run_last].next_run = worker;
    }
    v->run_last = worker;
}

static uint32_t *take_clock(prover *v) {
    if (!v->n_free) return prove_array(v, v->n_workers, sizeof(uint32_t));
    uint32_t *clock = v->free_clocks[--v->n_free];
    memset(clock, 0, v->n_workers * sizeof *clock);
    return clock;
}

static void give_clock(prover *v, uint32_t *clock) {
    if (v->n_free == v->cap_free) {
        uint32_t cap = v->cap_free ? v->cap_free * 2 : 64;
        uint32_t **more = mem_realloc(v->free_clocks, cap * sizeof *more);
        if (!more) {
            v->nomem = true;
            return;
        }
        v->free_clocks = more;
        v->cap_free = cap;
    }
    v->free_clocks[v->n_free++] = clock;
}

/* The grid-wide op that a task is of; NULL: it is of none. */
static prove_grid *grid_of(prover *v, uint32_t rank, const kp_task *k) {
    if (!v->ranks[rank].p->instances[k->instance].op->grid_wide) return NULL;
    for (uint32_t i = 0; i < v->n_grids; i++) {
        if (v->grids[i].rank == rank && v->grids[i].instance == k->instance) return &v->grids[i];
    }
    return NULL;
}

/* What a launcher knows that is past this event. A wait that an earlier wait of this queue repeats adds nothing. */
static void see_event(prover *v, prove_worker *w, uint32_t event) {
    prove_event *e = &v->events[event];
    if (e->weak) return; /* nothing but that its tagged data will come */
    bool known = false;
    for (int i = 0; i < PROVE_JOINED; i++) known = known || w->joined[i] == event + 1;
    if (!known && e->clock) {
        join(w->clock, e->clock, v->n_workers);
        memmove(w->joined + 1, w->joined, sizeof w->joined - sizeof w->joined[0]);
        w->joined[0] = event + 1;
    }
    if (--e->waits_left == 0 && e->clock) {
        give_clock(v, e->clock);
        e->clock = NULL;
    }
}

/* The pages of the task's spans were released. A storer's release says that its task, and all before it in the queue,
 * are stored. False: one was not yet. */
static bool pages_free(const prove_worker *w, const kp_task *k, uint32_t *stored) {
    for (uint32_t s = 0; s < k->n_spans; s++) {
        for (uint32_t i = 0; i < k->span[s].n_pages; i++) {
            uint32_t page = k->span[s].first_page + i, owner = w->page_owner[page];
            if (!owner) continue;
            bool ran = w->page_role[page] < KP_CONSUMER ? w->started >= owner : w->done >= owner;
            if (!ran) return false;
            if (w->page_role[page] == KP_STORER && owner > *stored) *stored = owner;
        }
    }
    return true;
}

static void claim_pages(prove_worker *w, const kp_task *k, uint32_t place) {
    for (uint32_t s = 0; s < k->n_spans; s++) {
        for (uint32_t i = 0; i < k->span[s].n_pages; i++) {
            w->page_owner[k->span[s].first_page + i] = place + 1;
            w->page_role[k->span[s].first_page + i] = (uint8_t)k->span[s].release_role;
        }
    }
}

/* The first event of the task that has still to come; KP_NONE: none. */
static uint32_t missing_event(const prover *v, const prove_worker *w, const kp_task *k) {
    const prove_rank *r = &v->ranks[w->rank];
    for (uint32_t i = 0; i < k->n_waits; i++) {
        uint32_t event = r->event[r->p->waits[k->wait_first + i]];
        if (v->events[event].left) return event;
    }
    return KP_NONE;
}

/* The launcher of worker `at` passes the events of its next task, if it can. */
static bool start_next(prover *v, uint32_t at) {
    prove_worker *w = &v->workers[at];
    const prove_rank *r = &v->ranks[w->rank];
    if (w->started == w->n || w->started >= w->done + KP_SLOTS || w->waiting) return false;
    uint32_t place = w->started, task = r->p->queue[w->first + place];
    uint32_t stored = place >= KP_SLOTS ? place - KP_SLOTS + 1 : 0;
    const kp_task *k = &r->p->tasks[task];
    if (!pages_free(w, k, &stored)) return false;
    uint32_t event = missing_event(v, w, k);
    if (event != KP_NONE) {
        w->waiting = true;
        w->next_waiter = v->events[event].waiters;
        v->events[event].waiters = at;
        return false;
    }
    claim_pages(w, k, place);
    for (uint32_t i = 0; i < k->n_waits; i++) see_event(v, w, r->event[r->p->waits[k->wait_first + i]]);
    if (w->clock[at] < stored) w->clock[at] = stored;
    if (w->started_clock)
        memcpy(w->started_clock + (size_t)(place % KP_SLOTS) * v->n_workers, w->clock, v->n_workers * sizeof *w->clock);
    v->sequence++;
    prove_touch(v, at, task);
    w->started++;
    return true;
}

static void trigger(prover *v, uint32_t at, uint32_t event, const uint32_t *clock, uint32_t done) {
    prove_event *e = &v->events[event];
    if (e->waits_left && !e->weak && !e->clock) e->clock = take_clock(v);
    if (e->waits_left && !e->weak && !v->nomem) {
        join(e->clock, clock, v->n_workers);
        if (e->clock[at] < done) e->clock[at] = done;
    }
    if (--e->left) return;
    while (e->waiters != KP_NONE) {
        prove_worker *w = &v->workers[e->waiters];
        w->waiting = false;
        run_later(v, e->waiters);
        e->waiters = w->next_waiter;
    }
}

/* The consumer of a grid-wide task has come to the barrier of its op. True: so have all. */
static bool grid_passed(prover *v, uint32_t at, prove_grid *grid) {
    prove_worker *w = &v->workers[at];
    if (!w->arrived) {
        w->arrived = true;
        if (--grid->left == 0) {
            for (uint32_t i = 0; i < v->n_workers; i++) {
                if (v->workers[i].rank == w->rank) run_later(v, i);
            }
        }
    }
    return grid->left == 0;
}

/* The oldest task in flight is computed, stored and signalled, if it can be. */
static bool finish_next(prover *v, uint32_t at) {
    prove_worker *w = &v->workers[at];
    const prove_rank *r = &v->ranks[w->rank];
    if (w->done == w->started) return false;
    const kp_task *k = &r->p->tasks[r->p->queue[w->first + w->done]];
    prove_grid *grid = grid_of(v, w->rank, k);
    if (grid && !grid_passed(v, at, grid)) return false;
    w->arrived = false;
    const uint32_t *clock =
        w->started_clock ? w->started_clock + (size_t)(w->done % KP_SLOTS) * v->n_workers : w->clock;
    w->done++;
    if (k->trigger != KP_NONE) trigger(v, at, r->event[k->trigger], clock, w->done);
    return true;
}

static void open_workers(prover *v) {
    for (uint32_t i = 0; i < v->n_workers && !v->nomem; i++) {
        prove_worker *w = &v->workers[i];
        uint32_t pages = v->ranks[w->rank].p->n_pages;
        w->clock = prove_array(v, v->n_workers, sizeof *w->clock);
        if (v->n_grids) w->started_clock = prove_array(v, (size_t)KP_SLOTS * v->n_workers, sizeof *w->clock);
        w->page_owner = prove_array(v, pages, sizeof *w->page_owner);
        w->page_role = prove_array(v, pages, sizeof *w->page_role);
        w->next_run = w->next_waiter = KP_NONE;
        run_later(v, i);
    }
}

static void run_all(prover *v) {
    while (v->run_first != KP_NONE && !v->nomem) {
        uint32_t at = v->run_first;
        prove_worker *w = &v->workers[at];
        v->run_first = w->next_run;
        if (v->run_first == KP_NONE) v->run_last = KP_NONE;
        w->running = false;
        while (!v->nomem && (finish_next(v, at) || start_next(v, at))) continue;
    }
}

bool prove_order(prover *v) {
    open_workers(v);
    run_all(v);
    v->checks += v->sequence;
    for (uint32_t i = 0; i < v->n_workers && !v->nomem; i++) {
        if (v->workers[i].done == v->workers[i].n) continue;
        prove_deadlock(v);
        return false;
    }
    return !v->nomem;
}

/* Events and workers as they were before the pass. */
static void rewind_all(prover *v) {
    for (uint32_t i = 0; i < v->n_events; i++) v->events[i].left = v->events[i].tasks, v->events[i].clock = NULL;
    for (uint32_t r = 0; r < v->n; r++) {
        const prove_rank *k = &v->ranks[r];
        for (uint32_t i = 0; i < k->p->n_tasks; i++) {
            const kp_task *t = &k->p->tasks[i];
            for (uint32_t j = 0; j < t->n_waits; j++) v->events[k->event[k->p->waits[t->wait_first + j]]].waits_left++;
        }
    }
    for (uint32_t i = 0; i < v->n_grids; i++) v->grids[i].left = v->grids[i].tasks;
    for (uint32_t i = 0; i < v->n_workers; i++)
        v->workers[i] = (prove_worker){.rank = v->workers[i].rank, .first = v->workers[i].first, .n = v->workers[i].n};
}

void prove_order_again(prover *v) {
    rewind_all(v);
    v->probing = true;
    open_workers(v);
    run_all(v);
    v->probing = false;
}
