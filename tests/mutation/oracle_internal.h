/* SPDX-License-Identifier: Apache-2.0 */
/* oracle_model.c: what tasks touch, in cells. oracle_shadow.c: vector clocks and what was done to each cell.
 * oracle_run.c: the protocol on coroutines. oracle.c: memory and schedules. */
#ifndef KEEL_TESTS_MUTATION_ORACLE_INTERNAL_H
#define KEEL_TESTS_MUTATION_ORACLE_INTERNAL_H

#include "device/worker.h"
#include "mutation/coro.h"
#include "mutation/oracle.h"
#include "plan/tiler_internal.h"

enum { ORACLE_ITERATIONS = 3, ORACLE_LANES = 2, SMEM_LINE = 64 };

/* ---- model -------------------------------------------------------------------------------------- */

/* What a read must see: anything; this iteration's; the caller's; of any iteration, or from before the run, but only
 * the same instance's (KV pages); nothing, counters that nobody may set. */
enum check { CHECK_NONE, CHECK_ITERATION, CHECK_EXTERNAL, CHECK_CACHE, CHECK_COUNT };

/* An access of a task: `rows` runs of `n` cells, each `stride` cells after the one before. Tag of cell first + i:
 * tag + i. */
typedef struct range {
    uint32_t first, n, rows, stride;
    uint64_t tag;
    bool write;
    uint8_t check;
} range;

typedef struct task_model {
    uint32_t first, n_ranges;          /* into rank_model.ranges */
    uint32_t region_first[KP_REGIONS]; /* SMEM cells */
    uint32_t region_cells[KP_REGIONS]; /* 0: not asked for */
    uint8_t region_release[KP_REGIONS];
    bool writes_state;
    const char *outside; /* what it touches that it does not have; NULL */
} task_model;

typedef struct rank_model {
    const plan *p;
    graph *g;
    tiler t;
    bool open; /* t is */
    task_model *tasks;
    kp_task *launched; /* the plan's, with their number in `aux`, which the protocol does not look at */
    range *ranges;
    uint32_t n_ranges, cap_ranges;
    range *externals; /* what the caller has filled before the run */
    uint32_t n_externals;
    uint32_t *buffer_cell;                  /* [n_buffers] the first cell of it; KP_NONE: constant for the run */
    uint32_t arena, symmetric, n_symmetric; /* first cell; cells */
    uint32_t step, state;                   /* cells */
    uint64_t *smem_cut;                     /* [n_cuts] bytes at which SMEM is cut into cells */
    uint32_t n_cuts;
    uint32_t *triggers;
    kp_u8 *event_ranks;
    kp_u32 *meetings; /* [n_instances] arrivals at the barrier inside a grid-wide op */
} rank_model;

typedef struct model {
    rank_model *ranks;
    uint32_t n_ranks, n_cells;
    uint64_t granule; /* bytes of an arena's cell */
    arena memory;
} model;

keel_status model_open(model *m, const plan *const *ranks, uint32_t n, keel_error *err);
void model_close(model *m);

/* ---- clocks and cells --------------------------------------------------------------------------- */

typedef struct cell {
    uint64_t tag;
    uint32_t generation;      /* of the run; anything else: untouched */
    uint32_t iteration;       /* of the tag */
    uint32_t writer, written; /* thread + 1 (0: nobody) and its clock */
    uint32_t writer_task;
    uint32_t reads; /* first of the list; 0: none */
} cell;

typedef struct read_node {
    uint32_t thread, clock, task, next;
} read_node;

typedef struct shadow {
    uint32_t generation, n_threads, width; /* width: of a clock, padded */
    uint32_t *clock;                       /* [n_threads][width] */
    cell *cells;                           /* global, then SMEM */
    uint32_t n_cells, cap_cells, cap_clock;
    read_node *reads;
    uint32_t n_reads, cap_reads;
} shadow;

/* False when there is no memory. */
bool shadow_begin(shadow *s, uint32_t n_threads, uint32_t n_cells);
void shadow_free(shadow *s);
static inline uint32_t *shadow_clock(const shadow *s, uint32_t thread) { return s->clock + (size_t)thread * s->width; }
static inline void clock_join(uint32_t *to, const uint32_t *from, uint32_t width) {
    for (uint32_t i = 0; i < width; i++) to[i] = to[i] > from[i] ? to[i] : from[i];
}

/* One access of one cell by thread, for `task` (for messages). KP_NONE: in order with all before; else the task whose
 * access it races with. */
uint32_t shadow_read(shadow *s, uint32_t at, uint32_t thread, uint32_t task);
uint32_t shadow_write(shadow *s, uint32_t at, uint32_t thread, uint32_t task, uint64_t tag, uint32_t iteration);
static inline bool shadow_written(const shadow *s, uint32_t at) {
    return s->cells[at].generation == s->generation && s->cells[at].writer;
}

/* ---- a run -------------------------------------------------------------------------------------- */

struct oracle {
    model m;
    shadow s;
    struct runner *runner;
    enum oracle_blindness blind;
};

struct runner *runner_open(void);
void runner_close(struct runner *r);
/* One schedule. out->verdict and out->what. KEEL_NOMEM. */
keel_status runner_run(oracle *o, uint32_t schedule, oracle_result *out, keel_error *err);

#endif
