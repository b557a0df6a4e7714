/* SPDX-License-Identifier: Apache-2.0 */
/* The explorer of the protocol (docs/proof-model.md). Every lane of every role is a coroutine that runs the real text
 * of device/protocol.h and stops before each primitive; the explorer decides which one goes on. Bulk copies land as
 * steps of their own. */
#ifndef KEEL_TESTS_MODEL_H
#define KEEL_TESTS_MODEL_H

#include "device/body.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

enum {
    MAX_RANKS = 2,
    MAX_WORKERS = 4, /* of all ranks */
    MAX_LANES = 2,
    LANES_A_WORKER = 1 + 4 * MAX_LANES,
    MAX_COROUTINES = MAX_WORKERS * LANES_A_WORKER,
    MAX_TASKS = 8, /* a worker */
    COPY_RING = 6, /* copies in flight a lane */
    PAGE_WORDS = 4,
    STACK_BYTES = 16 * 1024,
    ARENA_BYTES = 16 * 1024,
};

/* What a coroutine is about to do. AWAIT ops can be done only when what they wait for holds. */
enum op_kind {
    OP_AWAIT_BAR,     /* phase of parity `value` of a slot or page barrier is complete */
    OP_AWAIT_COUNTER, /* counter >= value */
    OP_AWAIT_GO,      /* go word >> 1 >= value */
    OP_ARRIVE,
    OP_BULK,  /* expect bytes, and a copy is under way */
    OP_ADD,   /* counter += value */
    OP_STORE, /* 32-bit word = value */
    OP_STORE64,
    OP_LOAD,    /* a word whose value is used, not awaited */
    OP_STOP,    /* reads the host's stop request: either answer, for good once it was yes */
    OP_READ,    /* plain read of `value` words of a page or buffer by a body */
    OP_WRITE,   /* plain write */
    OP_PLAIN,   /* a plain step with no word of its own (kp_run_over) */
    OP_FINISHED /* returned from kp_role_main */
};

typedef struct op {
    uint32_t kind, value;
    uint64_t value64;
    void *object;
    uint32_t *src; /* OP_BULK */
    kp_bar *bar;   /* OP_BULK */
} op;

typedef struct coroutine {
    jmp_buf at;
    kp_ctx ctx;
    op next;
    const void *granted; /* the word whose awaited value is there: the next poll of it sees it */
    uint64_t history;    /* hash of every value read so far: its local state is a function of these */
    uint32_t copies;     /* started so far */
    uint32_t ring;       /* its copies under way: world.copies[ring .. ring + COPY_RING) */
    uint32_t answer;     /* OP_STOP */
    char *low;           /* live part of the stack: [low, stack end) */
} coroutine;

/* A copy of one word under way. Lives in the arena: it is shared state. */
typedef struct copy {
    uint32_t *dst, *src;
    kp_bar *bar; /* null: free */
    uint16_t phase, number, co, uncounted;
} copy;

enum broken_plan {
    FORWARD_WAIT = 1, /* task 0 waits for the event of the last task of the queue */
    UNDERCOUNT,       /* events count one trigger too few */
};
typedef struct config {
    const char *name;
    uint32_t ranks, workers /* of all ranks together */, lanes, tasks, iterations;
    uint32_t in_pages, out_pages;
    uint32_t distance; /* task k waits for the event of the tasks k − distance of all workers, and reads their output */
    uint32_t stop;     /* 1: the host may ask to stop at any time */
    uint32_t dealt;    /* 1: task k is on worker k modulo workers alone; 0: every worker has one of each */
    uint32_t broken;   /* 0 or what is wrong with the plan */
} config;

enum finding_kind {
    FOUND_NOTHING,
    FOUND_DEADLOCK,
    FOUND_RACE,
    FOUND_ALIAS,
    FOUND_STALE,
    FOUND_VALUE,
    FOUND_HALF_EXIT,
    FOUND_LEFTOVER,
    FOUND_ORDER,
    FOUND_LIMIT
};
typedef struct finding {
    enum finding_kind kind;
    char text[512];
} finding;

typedef struct world {
    config cfg;
    coroutine co[MAX_COROUTINES];
    uint32_t n_co;
    coroutine *now; /* running, or null */
    jmp_buf explorer;
    size_t arena_used;
    kp_worker *worker[MAX_WORKERS];
    kp_event *events[MAX_RANKS];
    kp_control *control[MAX_RANKS];
    kp_state *state; /* of rank 0; the others decide nothing */
    copy *copies;    /* [n_copies], the end of the arena; a ring for each lane that may start copies */
    uint32_t n_copies;
    uint32_t *weight; /* [PAGE_WORDS], constant */
    uint32_t *output; /* [iteration modulo 2][workers][tasks][lanes] */
    kp_launch launch[MAX_RANKS];
    kp_task tasks[MAX_TASKS];
    kp_u32 queue[MAX_WORKERS * MAX_TASKS], queue_first[MAX_WORKERS + 1];
    kp_u32 waits[MAX_TASKS], triggers[MAX_TASKS];
    kp_u8 event_ranks[MAX_TASKS];
    finding found;
    uint32_t abort; /* 0, or the host has aborted the run: 1: lanes leave at the next wait, 2: at the next that does not
                       hold */
    bool certify;   /* clocks are kept */
    uint32_t lenient; /* 1: races and overtaken waits are passed over, to see what they lead to; 2: wrong values too */
} world;

extern world mc;
extern unsigned char mc_arena[ARENA_BYTES];

static inline bool mc_shared(const void *p) {
    return (const unsigned char *)p >= mc_arena && (const unsigned char *)p < mc_arena + mc.arena_used;
}
static inline uint64_t mc_mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

/* world.c */
void world_open(const config *cfg,
                bool certify); /* everything at its beginning, each coroutine before its first primitive */
bool world_has_task(uint32_t worker, uint32_t task);
bool world_enabled(const op *o);
void world_step(uint32_t co, uint32_t answer); /* what it is about to do, and on to its next primitive */
void world_land(copy *c);
bool world_over(void); /* all coroutines finished and all copies landed */
void world_check_end(void);
void world_check_stuck(void);
void world_found(enum finding_kind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *world_name(const void *object, char text[64]);
const char *world_lane_name(uint32_t co, char text[64]);
extern const char *const finding_name[];

char *world_stack_end(uint32_t co);

static inline uint32_t mc_bar_phase(const kp_bar *b) { return (uint32_t)(b->word >> 48); }
static inline uint32_t mc_bar_missing(const kp_bar *b) { return (uint32_t)(b->word >> 32) & 0xffff; }
static inline uint32_t mc_bar_bytes(const kp_bar *b) { return (uint32_t)b->word; }

/* Called by the text under test (text.c), in a coroutine. */
void mc_point(op o);
uint32_t mc_load(const kp_u32 *p);
uint64_t mc_load64(const kp_u64 *p);
int mc_bar_test(kp_bar *b, kp_u32 parity);
void mc_yield(kp_hint hint);
void mc_text_init(kp_worker *w);
void mc_text_main(kp_ctx *c);
uint32_t mc_text_fault(void); /* KP_FAULT of the text */

/* What bodies expect to find. */
uint32_t mc_weight_value(uint32_t word);
uint32_t *mc_output(uint32_t worker, uint32_t task, uint32_t lane, uint32_t iteration);
uint32_t mc_output_value(uint32_t worker, uint32_t task, uint32_t lane, uint32_t iteration);

/* order.c: the order of events, by vector clocks */
void order_open(void);
void order_op(uint32_t co, const op *o);
void order_landing(const copy *c);
void order_access(const void *p, size_t bytes, bool write);
void order_end(void);
uint64_t order_hash(void);
uint32_t order_events(void);
uint64_t order_ideals(uint64_t limit); /* how many states the order has; 0: more than limit */

/* search.c: every interleaving, state by state */
typedef struct search_result {
    uint64_t states, steps, ends, deepest;
    bool complete;
} search_result;
search_result search_run(const config *cfg, uint64_t max_states, uint32_t lenient);

/* seen.c: a set of 128-bit keys */
typedef struct seen_set {
    uint64_t (*key)[2];
    uint64_t mask, used;
} seen_set;
bool seen_open(seen_set *s);
int seen_add(seen_set *s, const uint64_t key[2]); /* 1 new, 0 there already, −1 out of memory */
void seen_close(seen_set *s);

#endif
