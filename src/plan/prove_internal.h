/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the proof share. Workers, tensors and events have numbers over all ranks here; tasks, buffers and
 * graph tensors keep those of their rank. */
#ifndef KEEL_PLAN_PROVE_INTERNAL_H
#define KEEL_PLAN_PROVE_INTERNAL_H

#include "core/arena.h"
#include "core/error.h"
#include "plan/prove.h"
#include "plan/tiler_internal.h"

/* Columns (units) [lo, hi) of a tensor that a task writes. */
typedef struct prove_write {
    int64_t lo, hi;
    uint32_t task;
    bool last; /* by one of the tasks that say so */
} prove_write;

/* A read of a cache by `reader` that its writer has still to be seen behind. */
typedef struct prove_pending {
    uint32_t reader, writer, next;
} prove_pending;

/* A tensor of a rank's graph, or a scratch of one of its instances: what has columns or units of its own. Clocks over
 * it have a component for each worker that may touch it: those of its rank, or all where other ranks read it. */
typedef struct prove_tensor {
    const char *name;
    uint32_t rank, buffer;
    bool monotonic, told, several; /* several: ranks may touch it */
    int64_t units;
    prove_write *writes; /* [n_writes] ascending, disjoint */
    prove_write *runs;   /* [n_runs] the same, where adjacent ones are joined; task is none */
    uint32_t n_writes, n_runs;
    uint32_t first_worker, n_workers;
    uint32_t *last;     /* [n_workers] 1 + the last place that touches it */
    uint32_t *least;    /* [n_workers] what every task that touches it knows to be done, at its start */
    uint32_t *written;  /* [workers of its rank] 1 + the last place that writes it */
    uint64_t *touched;  /* bits, [n_workers]: this worker touched it before */
    uint64_t *seen;     /* bits, [n_workers]: this worker knows that all writes are done */
    uint32_t first_use; /* when, in the order of the pass; KP_NONE: never touched */
    uint32_t pending;   /* first of its list; KP_NONE: empty */
} prove_tensor;

/* The generation's state of a rank. */
typedef struct prove_state {
    uint32_t *used, *written; /* [workers of the rank] 1 + the last place */
} prove_state;

typedef struct prove_rank {
    const plan *p;
    graph *g;
    tiler t;
    bool described;
    uint32_t *worker, *place; /* by task: worker (over all ranks), place in its queue */
    uint32_t *event;          /* by event: number over all ranks */
    uint32_t first_worker, first_tensor, n_tensors;
    uint32_t *scratch_buffer; /* by scratch */
    uint32_t step_task;
    prove_state state;
} prove_rank;

/* An event; one that counts all ranks' tasks is one here. clock: join of the clocks of the tasks that triggered it. */
typedef struct prove_event {
    uint32_t rank, event;
    uint32_t left;       /* tasks that have still to trigger it */
    uint32_t waits_left; /* waits that have still to see it */
    uint32_t waiters;    /* first worker that stands before it; KP_NONE */
    uint32_t tasks;
    bool weak; /* orders nothing but data that carry their epoch */
    uint32_t *clock;
} prove_event;

/* Tasks [0, started) of its queue are past their events, [0, done) have signalled. */
enum { PROVE_JOINED = 8 };
typedef struct prove_worker {
    uint32_t rank, first, n;
    uint32_t started, done;
    uint32_t *clock;         /* [workers]: what its launcher knows to be done: places of each queue */
    uint32_t *started_clock; /* [KP_SLOTS][workers]: the same at the start of tasks in flight; NULL if not needed */
    uint32_t joined[PROVE_JOINED];  /* events + 1 last joined */
    uint32_t *page_owner;           /* [n_pages] 1 + place of the task that claimed it last; 0: none */
    uint8_t *page_role;             /* who releases it */
    uint32_t next_waiter, next_run; /* KP_NONE: last */
    bool waiting, running, arrived;
} prove_worker;

/* Tasks of a grid-wide instance: an in-op barrier over all of them. */
typedef struct prove_grid {
    uint32_t rank, instance, tasks, left;
} prove_grid;

/* Who touches tensor `tensor` without knowing `place` tasks of worker `worker` done? Filled by a second pass. */
typedef struct prove_probe {
    uint32_t tensor, worker, place, task, rank, other;
} prove_probe;
enum { PROVE_REASONS = 20 };

typedef struct prover {
    arena arena;
    keel_error *err;
    bool nomem;
    uint32_t reasons;
    prove_rank *ranks;
    uint32_t n;
    prove_worker *workers;
    uint32_t n_workers;
    prove_tensor *tensors;
    uint32_t n_tensors;
    prove_event *events;
    uint32_t n_events;
    prove_grid *grids;
    uint32_t n_grids;
    prove_pending *pending;
    uint32_t n_pending, cap_pending;
    uint32_t **free_clocks;
    uint32_t n_free, cap_free;
    uint32_t run_first, run_last; /* workers that may go on */
    uint32_t sequence;            /* tasks started so far */
    prove_probe probes[PROVE_REASONS];
    uint32_t n_probes;
    bool probing; /* the second pass: no reasons, no checks */
    uint64_t checks;
} prover;

/* ---- reasons (prove_reason.c) --------------------------------------------------------------------- */

void prove_reason(prover *v, const char *fmt, ...) KEEL_PRINTF(2, 3);
/* As many as are shown? Then counts one more: for reasons that take long to tell. */
bool prove_enough(prover *v);
/* Zeroed, lives as long as the proof; NULL sets nomem. */
void *prove_array(prover *v, size_t count, size_t size);

typedef struct prove_text {
    char text[256];
} prove_text;
/* "task 57 (l0.attn.q_proj [0, 32), worker 3, place 12)"; names the rank where there are several. */
prove_text prove_task_text(const prover *v, uint32_t rank, uint32_t task);
/* The last task that worker `worker` has at a place below `place`. */
prove_text prove_place_text(const prover *v, uint32_t worker, uint32_t place);
/* "event 12 (3 tasks of l0.attn.q_proj)" */
prove_text prove_event_text(const prover *v, uint32_t event);
/* "rank 1: ", or nothing where there is one. */
prove_text prove_rank_text(const prover *v, uint32_t rank);
/* What `task` waits for: its events and its place. */
prove_text prove_waits_text(const prover *v, uint32_t rank, uint32_t task);

/* ---- parts; each adds its reasons ------------------------------------------------------------------ */

/* KEEL_REFUSED ends the proof: what comes next needs what they check. */
keel_status prove_shape(prover *v, uint32_t rank);
keel_status prove_describe(prover *v, uint32_t rank);
/* Same job? */
void prove_same_job(prover *v);
void prove_same_plans(prover *v);

void prove_events(prover *v);
/* Buffers whose data carry their epoch, and the events that need not order them. */
void prove_tagged(prover *v);
/* False: the order cannot be told, or what hangs on it. */
bool prove_smem(prover *v);
bool prove_data(prover *v);
void prove_grids(prover *v);
bool prove_order(prover *v); /* false: deadlock */
/* The pass again, for v->probes. */
void prove_order_again(prover *v);
/* Of the pass that prove_order() makes: task `task` of worker `worker` starts. */
void prove_touch(prover *v, uint32_t worker, uint32_t task);
void prove_deadlock(prover *v);
void prove_sharing(prover *v);

/* Number over all ranks of an access's tensor. */
static inline uint32_t prove_slot(const prove_rank *r, int tensor) {
    uint32_t at =
        tensor >= SCRATCH_BASE ? (uint32_t)r->g->n_tensors + (uint32_t)(tensor - SCRATCH_BASE) + 1 : (uint32_t)tensor;
    return r->first_tensor + at;
}

static inline const plan_buffer *prove_buffer(const prover *v, const prove_tensor *t) {
    return t->buffer == KP_NONE ? NULL : &v->ranks[t->rank].p->buffers[t->buffer];
}

static inline bool prove_bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }
static inline void prove_set(uint64_t *bits, uint32_t i) { bits[i / 64] |= 1ull << (i % 64); }

#endif
