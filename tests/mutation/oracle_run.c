/* SPDX-License-Identifier: Apache-2.0 */
/* One schedule of the real protocol text. Every lane of every role of all workers and ranks is a coroutine of this
 * thread; copies land through an agent of their own. The primitives carry vector clocks: a barrier's arrival, a
 * landing, an addition and a store release; a test that succeeds and a load acquire.
 *
 * A load of an event's counter acquires what was released up to the value it waits for and no more, whatever has come
 * since: another schedule could have looked earlier. So what is found hardly depends on the schedule. */
#include "oracle_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_BYTES = 32 * 1024, TABLE = 1 << 13, SWITCHES_MAX = 100 * 1000 * 1000 };

/* ---- state of a run ----------------------------------------------------------------------------- */

/* What a barrier or a counter has been released with. Clocks are indices into the pool; KP_NONE: nothing yet. */
typedef struct sync {
    uint32_t released; /* all so far */
    uint32_t phase;    /* barriers: at the end of the last complete phase */
    uint32_t last;     /* counters: newest node of the history */
} sync;

/* A counter right after an addition. */
typedef struct node {
    uint32_t value, clock, before;
} node;

typedef struct worker {
    kp_worker w;
    kp_bar *page_free;
    kp_u32 *claims;
    uint32_t cap_pages, rank, first_thread, smem_cell;
} worker;

typedef struct lane {
    coro co;
    kp_ctx ctx;
    kp_hint hint;
    worker *worker;
    uint32_t thread, priority;
} lane;

typedef struct copy {
    worker *worker;
    kp_bar *bar;
    uint32_t thread, task, iteration, region, bytes;
} copy;

enum copy_order { COPY_RANDOM, COPY_FIFO, COPY_LIFO };

/* How a schedule goes about it. */
typedef struct policy {
    uint32_t lanes, preempt; /* 1 of so many primitives lets others go first; 0: none */
    bool random;             /* anyone who can move; else the highest priority */
    uint32_t redraw;         /* 1 of so many picks draws the priorities again; 0: none */
    enum copy_order copies;
    uint32_t copies_first; /* of 8 picks that could land a copy, how many do */
} policy;

struct runner {
    oracle *o;
    coro main;
    lane *lanes;
    uint32_t n_lanes, cap_lanes;
    worker *workers;
    uint32_t n_workers, cap_workers;
    kp_launch *launches;
    kp_control *controls;
    kp_event **events;
    kp_control **control_table;
    kp_u8 **memory_table;
    uint32_t cap_ranks;
    kp_event *event_memory;
    uint32_t cap_events;
    sync *syncs;
    uint32_t n_syncs, cap_syncs;
    uint32_t *pool;
    uint32_t n_pool, cap_pool; /* clocks */
    node *nodes;
    uint32_t n_nodes, cap_nodes;
    copy *copies;
    uint32_t n_copies, cap_copies;
    struct {
        const void *counter;
        uint32_t sync, generation;
    } table[TABLE];
    uint32_t generation, random, switches, state_writes;
    uint32_t parity; /* which regions the loader fills in iteration 0 */
    policy policy;
    lane *now;
    bool harm, nomem;
    oracle_result *out;
};

static struct runner *R; /* of the run in hand: primitives get no context */

static uint32_t draw(void) {
    R->random ^= R->random << 13;
    R->random ^= R->random >> 17;
    R->random ^= R->random << 5;
    return R->random;
}

static void leave(void) { coro_switch(&R->now->co, &R->main); }

static void preempt(void) {
    if (!R->policy.preempt || draw() % R->policy.preempt) return;
    R->now->hint = (kp_hint){KP_HINT_RUN, 0, 0, 0, 0, 0};
    leave();
}

/* The run ends here: a coroutine that finds harm is not resumed. */
static void harm(oracle_verdict verdict, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void harm(oracle_verdict verdict, const char *fmt, ...) {
    va_list args;
    if (R->harm) return;
    R->harm = true;
    R->out->verdict = verdict;
    va_start(args, fmt);
    vsnprintf(R->out->what, sizeof R->out->what, fmt, args);
    va_end(args);
}

/* Grows *p to `need` elements; what is new is zero. */
static bool room(void **p, uint32_t *cap, uint32_t need, size_t size) {
    if (need <= *cap) return true;
    uint32_t next = *cap ? *cap : 64;
    while (next < need) next *= 2;
    void *q = realloc(*p, (size_t)next * size);
    if (!q) {
        R->nomem = true;
        return false;
    }
    memset((char *)q + *cap * size, 0, (next - *cap) * size);
    *p = q;
    *cap = next;
    return true;
}

/* ---- clocks of barriers and counters ------------------------------------------------------------ */

static uint32_t *pooled(uint32_t i) { return R->pool + (size_t)i * R->o->s.width; }

static uint32_t pool_copy(const uint32_t *clock) {
    uint32_t width = R->o->s.width, cap = R->cap_pool;
    if (R->n_pool == cap) {
        uint32_t next = cap ? 2 * cap : 1024;
        uint32_t *more = realloc(R->pool, (size_t)next * width * sizeof *more);
        if (!more) abort();
        bool inside = clock >= R->pool && clock < R->pool + (size_t)cap * width;
        if (inside) clock = more + (clock - R->pool);
        R->pool = more;
        R->cap_pool = next;
    }
    memcpy(pooled(R->n_pool), clock, width * sizeof *clock);
    return R->n_pool++;
}

static void release_to(sync *s, uint32_t thread) {
    uint32_t *clock = shadow_clock(&R->o->s, thread);
    if (s->released == KP_NONE) {
        s->released = pool_copy(clock);
    } else {
        clock_join(pooled(s->released), clock, R->o->s.width);
    }
    clock[thread]++;
}

static void acquire_from(uint32_t clock, uint32_t thread) {
    if (clock != KP_NONE) clock_join(shadow_clock(&R->o->s, thread), pooled(clock), R->o->s.width);
}

static uint32_t new_sync(void) {
    if (!room((void **)&R->syncs, &R->cap_syncs, R->n_syncs + 1, sizeof *R->syncs)) abort();
    R->syncs[R->n_syncs] = (sync){KP_NONE, KP_NONE, KP_NONE};
    return R->n_syncs++;
}

static sync *counter_sync(const void *counter) {
    uint32_t at = (uint32_t)((uintptr_t)counter >> 2) * 2654435761u >> 19;
    while (R->table[at].generation == R->generation && R->table[at].counter != counter) at = (at + 1) % TABLE;
    if (R->table[at].generation != R->generation) {
        R->table[at].generation = R->generation;
        R->table[at].counter = counter;
        R->table[at].sync = new_sync();
    }
    return &R->syncs[R->table[at].sync];
}

/* ---- the primitives of device/protocol.h -------------------------------------------------------- */

/* Of one of this rank's events, the count that the lane in hand waits for. */
static bool event_target(const kp_u32 *p, kp_u32 *target) {
    const kp_launch *l = R->now->worker->w.launch;
    const rank_model *r = &R->o->m.ranks[R->now->worker->rank];
    const char *first = (const char *)l->events, *at = (const char *)p;
    if (at < first || at >= first + r->p->n_events * sizeof(kp_event)) return false;
    *target = l->triggers[(size_t)(at - first) / sizeof(kp_event)] * (R->now->ctx.iteration + 1);
    return true;
}

KP_FN kp_u32 kp_load_acquire(const kp_u32 *p) {
    kp_u32 target;
    preempt();
    sync *s = counter_sync(p);
    if (!event_target(p, &target)) {
        acquire_from(s->released, R->now->thread);
        return *p;
    }
    if ((kp_i32)(*p - target) < 0) return *p;
    uint32_t at = s->last;
    while (at != KP_NONE && (kp_i32)(R->nodes[at].value - target) > 0) at = R->nodes[at].before;
    if (at != KP_NONE) acquire_from(R->nodes[at].clock, R->now->thread);
    return *p;
}

KP_FN void kp_store_release(kp_u32 *p, kp_u32 v) {
    preempt();
    sync *s = counter_sync(p);
    s->released = KP_NONE; /* a store begins a release sequence of its own */
    release_to(s, R->now->thread);
    *p = v;
}

KP_FN void kp_add_release(kp_u32 *p, kp_u32 v) {
    preempt();
    sync *s = counter_sync(p);
    release_to(s, R->now->thread);
    *p += v;
    if (!room((void **)&R->nodes, &R->cap_nodes, R->n_nodes + 1, sizeof *R->nodes)) abort();
    R->nodes[R->n_nodes] = (node){*p, pool_copy(pooled(s->released)), s->last};
    s->last = R->n_nodes++;
}

KP_FN kp_u64 kp_load_acquire64(const kp_u64 *p) {
    preempt();
    acquire_from(counter_sync(p)->released, R->now->thread);
    return *p;
}

KP_FN void kp_store_release64(kp_u64 *p, kp_u64 v) {
    preempt();
    sync *s = counter_sync(p);
    s->released = KP_NONE;
    release_to(s, R->now->thread);
    *p = v;
}

/* The word is laid out as worker.h says; `pad` holds the barrier's clocks. */
static void bar_update(kp_bar *b, kp_u32 bytes, kp_u32 arrivals) {
    kp_u32 pending = (kp_u32)b->word + bytes, missing = (kp_u32)(b->word >> 32 & 0xffff) - arrivals;
    kp_u32 phase = (kp_u32)(b->word >> 48);
    if (missing == 0 && pending == 0) {
        phase = (phase + 1) & 0xffff;
        missing = b->count;
        sync *s = &R->syncs[b->pad];
        if (s->released != KP_NONE) {
            uint32_t clock = pool_copy(pooled(s->released));
            s->phase = clock;
        }
    }
    b->word = (kp_u64)phase << 48 | (kp_u64)(missing & 0xffff) << 32 | pending;
}

KP_FN void kp_bar_init(kp_bar *b, kp_u32 count) {
    b->count = count;
    b->word = (kp_u64)count << 32;
    b->pad = new_sync();
}

KP_FN void kp_bar_arrive(kp_bar *b) {
    preempt();
    release_to(&R->syncs[b->pad], R->now->thread);
    bar_update(b, 0, 1);
}

KP_FN void kp_bar_expect(kp_bar *b, kp_u32 bytes) { bar_update(b, bytes, 0); }

KP_FN int kp_bar_test(const kp_bar *b, kp_u32 parity) {
    preempt();
    if (((kp_u32)(b->word >> 48) & 1) == parity) return 0;
    acquire_from(R->syncs[b->pad].phase, R->now->thread);
    return 1;
}

KP_FN int kp_abort_poll(const kp_ctx *c) {
    (void)c;
    return 0;
}

KP_FN void kp_yield(kp_ctx *c, kp_hint hint) {
    (void)c;
    R->now->hint = hint;
    leave();
    R->now->hint.kind = KP_HINT_RUN;
}

/* The state, which tells whether the run is over, is read by whoever asks. */
KP_FN int kp_run_over(const kp_launch *l) {
    const rank_model *r = &R->o->m.ranks[l->rank];
    (void)shadow_read(&R->o->s, r->state, R->now->thread, KP_NONE);
    return R->now->ctx.iteration + 1 >= ORACLE_ITERATIONS;
}

KP_FN void kp_slot_fill(kp_ctx *c, kp_slot *slot, kp_u32 q) {
    slot->task = c->worker->launch->tasks[c->worker->launch->queue[q]];
}
KP_FN void kp_events_passed(kp_ctx *c, const kp_task *t) { (void)c, (void)t; }
KP_FN kp_u32 kp_count(kp_u32 *p) { return (*p)++; }

static void kp_dispatch(kp_ctx *c);
#include "device/protocol.h"

/* ---- recorders in place of bodies --------------------------------------------------------------- */

static const char *task_name(const rank_model *r, uint32_t task) {
    return task < r->p->n_tasks ? r->p->instances[r->p->tasks[task].instance].name : "another rank, or the border";
}

static const char *tag_name(const rank_model *r, uint64_t tag) {
    uint64_t buffer = (tag >> 32) - 1;
    return buffer < r->p->n_buffers ? r->p->buffers[buffer].name : "?";
}

static uint32_t task_index(const kp_ctx *c) { return c->task->aux; } /* see model_tables() */

static void report_race(const rank_model *r, const char *does, const range *a, uint32_t task, uint32_t other) {
    if (R->o->blind == ORACLE_BLIND_GLOBAL) return;
    harm(ORACLE_RACE, "rank %u: task %u (%s) %s %s, and task %u (%s) touches it too; nothing orders them", r->p->rank,
         task, task_name(r, task), does,
         a->check == CHECK_CACHE  ? "KV pages"
         : a->check == CHECK_NONE ? "the state"
                                  : tag_name(r, a->tag),
         other, task_name(r, other));
}

static void check_cell(const rank_model *r, const range *a, uint32_t at, uint64_t tag, uint32_t task,
                       uint32_t iteration) {
    const cell *c = &R->o->s.cells[at];
    if (a->check == CHECK_NONE || R->o->blind == ORACLE_BLIND_TAGS) return;
    if (a->check == CHECK_COUNT) {
        if (c->writer)
            harm(ORACLE_VALUE, "rank %u: task %u (%s) counts in %s, which task %u (%s) has set", r->p->rank, task,
                 task_name(r, task), tag_name(r, tag), c->writer_task, task_name(r, c->writer_task));
    } else if (a->check == CHECK_CACHE) {
        if (c->writer && c->tag != tag)
            harm(ORACLE_VALUE, "rank %u: task %u (%s) reads KV pages that task %u (%s) has written", r->p->rank, task,
                 task_name(r, task), c->writer_task, task_name(r, c->writer_task));
    } else if (a->check == CHECK_ITERATION && !c->writer) {
        harm(ORACLE_UNWRITTEN, "rank %u: task %u (%s) reads %s, which nobody has written", r->p->rank, task,
             task_name(r, task), tag_name(r, tag));
    } else if (c->tag != tag) {
        harm(ORACLE_VALUE, "rank %u: task %u (%s) reads %s, where task %u (%s) has written %s", r->p->rank, task,
             task_name(r, task), tag_name(r, tag), c->writer_task, task_name(r, c->writer_task), tag_name(r, c->tag));
    } else if (a->check == CHECK_ITERATION && c->iteration != iteration) {
        harm(ORACLE_UNWRITTEN, "rank %u: task %u (%s) reads %s of iteration %u in iteration %u", r->p->rank, task,
             task_name(r, task), tag_name(r, tag), c->iteration, iteration);
    }
}

static void record_range(const rank_model *r, const range *a, uint32_t task, uint32_t iteration) {
    shadow *s = &R->o->s;
    uint32_t thread = R->now->thread;
    for (uint32_t row = 0; row < a->rows && !R->harm; row++) {
        for (uint32_t i = 0; i < a->n && !R->harm; i++) {
            uint32_t in = row * a->stride + i, other;
            if (a->write) {
                other = shadow_write(s, a->first + in, thread, task, a->tag + in, iteration);
                if (other != KP_NONE) report_race(r, "writes", a, task, other);
            } else {
                other = shadow_read(s, a->first + in, thread, task);
                if (other != KP_NONE) report_race(r, "reads", a, task, other);
                check_cell(r, a, a->first + in, a->tag + in, task, iteration);
            }
        }
    }
}

/* All that the task touches of buffers, at the first moment and at the last at which it may. */
static void record_buffers(const rank_model *r, uint32_t task, uint32_t iteration) {
    const task_model *t = &r->tasks[task];
    for (uint32_t k = t->first; k < t->first + t->n_ranges && !R->harm; k++)
        record_range(r, &r->ranges[k], task, iteration);
}

static uint64_t region_tag(uint32_t task, uint32_t region) { return ((uint64_t)task + 1) << 32 | region << 28; }

static void record_region(const worker *w, const task_model *t, uint32_t thread, uint32_t task, uint32_t iteration,
                          uint32_t region, bool write) {
    shadow *s = &R->o->s;
    const rank_model *r = &R->o->m.ranks[w->rank];
    for (uint32_t i = 0; i < t->region_cells[region] && !R->harm; i++) {
        uint32_t at = w->smem_cell + t->region_first[region] + i, other;
        uint64_t tag = region_tag(task, region) + i;
        if (write) {
            other = shadow_write(s, at, thread, task, tag, iteration);
        } else {
            other = shadow_read(s, at, thread, task);
            const cell *c = &s->cells[at];
            if (other == KP_NONE && (c->tag != tag || c->iteration != iteration) && R->o->blind != ORACLE_BLIND_TAGS)
                harm(ORACLE_VALUE, "rank %u, worker %u: task %u (%s) has lost region %u to task %u (%s)", r->p->rank,
                     w->w.index, task, task_name(r, task), region, c->writer_task, task_name(r, c->writer_task));
        }
        if (other != KP_NONE && R->o->blind != ORACLE_BLIND_SMEM) {
            harm(ORACLE_SMEM,
                 "rank %u, worker %u: region %u of task %u (%s) and what task %u (%s) has there; nothing "
                 "orders them",
                 r->p->rank, w->w.index, region, task, task_name(r, task), other, task_name(r, other));
        }
    }
}

/* A copy into the whole region. */
static void post_copy(kp_ctx *c, const task_model *t, uint32_t task, uint32_t region) {
    worker *w = R->now->worker;
    if (!room((void **)&R->copies, &R->cap_copies, R->n_copies + 1, sizeof *R->copies)) abort();
    uint32_t slot = (uint32_t)(c->slot - w->w.slot);
    copy k = {.worker = w,
              .bar = &c->slot->loaded,
              .thread = w->first_thread + 1 + (KP_ROLES - 1) * R->policy.lanes + slot * KP_REGIONS + region,
              .task = task,
              .iteration = c->iteration,
              .region = region,
              .bytes = t->region_cells[region] * SMEM_LINE};
    kp_bar_expect(k.bar, k.bytes);
    uint32_t *clock = shadow_clock(&R->o->s, k.thread), *own = shadow_clock(&R->o->s, R->now->thread);
    clock_join(clock, own, R->o->s.width);
    own[R->now->thread]++;
    R->copies[R->n_copies++] = k;
}

/* Each region is filled by copies: half of them by the loader, the others by the launcher, in turn. */
static void start_copies(kp_ctx *c, const task_model *t, uint32_t task) {
    for (uint32_t i = 0; i < KP_REGIONS; i++) {
        bool loaders = (i + c->iteration + R->parity) % 2 == 0;
        if (!t->region_cells[i] || loaders != (c->role == KP_LOADER)) continue;
        if (t->region_release[i] == KP_CONSUMER || t->region_release[i] == KP_STORER) {
            post_copy(c, t, task, i);
        } else if (t->region_release[i] == KP_LAUNCHER || loaders) { /* gone before anyone else comes */
            record_region(R->now->worker, t, R->now->thread, task, c->iteration, i, true);
        }
    }
}

static void use_regions(kp_ctx *c, const task_model *t, uint32_t task) {
    for (uint32_t i = 0; i < KP_REGIONS; i++) {
        bool storers = t->region_release[i] == KP_STORER;
        if (!t->region_cells[i] || (!storers && (c->role == KP_STORER || t->region_release[i] != KP_CONSUMER)))
            continue;
        record_region(R->now->worker, t, R->now->thread, task, c->iteration, i, false);
        if (c->role == KP_CONSUMER) record_region(R->now->worker, t, R->now->thread, task, c->iteration, i, true);
    }
}

/* The barrier inside a grid-wide op: consumers of as many tasks as there are workers meet, once an iteration. */
static void meet(kp_ctx *c, const rank_model *r, uint32_t task) {
    uint32_t instance = r->p->tasks[task].instance;
    kp_u32 *count = &r->meetings[instance], all = r->p->workers * (c->iteration + 1);
    if (!r->p->instances[instance].op->grid_wide) return;
    kp_add_release(count, 1);
    (void)kp_wait_counter(c, count, all, KP_WHAT_JOIN);
    if (*count != all && R->o->blind != ORACLE_BLIND_TAGS)
        harm(ORACLE_VALUE, "rank %u: task %u (%s): %u tasks have met where %u should", r->p->rank, task,
             task_name(r, task), *count, all);
}

/* One lane speaks for all: shares of lanes are disjoint, which is the body's affair. */
static void kp_dispatch(kp_ctx *c) {
    const rank_model *r = &R->o->m.ranks[R->now->worker->rank];
    uint32_t task = task_index(c);
    const task_model *t = &r->tasks[task];
    if (task % R->policy.lanes != c->lane) return;
    if (t->outside && R->o->blind != ORACLE_BLIND_BOUNDS)
        harm(ORACLE_BOUNDS, "rank %u: task %u (%s): %s", r->p->rank, task, task_name(r, task), t->outside);
    if (c->role == KP_LOADER || c->role == KP_LAUNCHER) start_copies(c, t, task);
    if (c->role == KP_CONSUMER) meet(c, r, task);
    if (c->role == KP_CONSUMER || c->role == KP_STORER) use_regions(c, t, task);
    if (c->role == KP_LAUNCHER || c->role == KP_STORER) record_buffers(r, task, c->iteration);
    if (c->role == KP_STORER && t->writes_state && c->iteration == ORACLE_ITERATIONS - 1) R->state_writes++;
    if (R->harm || R->nomem) leave();
}

static void land_copy(uint32_t i) {
    copy k = R->copies[i];
    memmove(R->copies + i, R->copies + i + 1, (R->n_copies - i - 1) * sizeof k);
    R->n_copies--;
    const task_model *t = &R->o->m.ranks[k.worker->rank].tasks[k.task];
    record_region(k.worker, t, k.thread, k.task, k.iteration, k.region, true);
    release_to(&R->syncs[k.bar->pad], k.thread);
    bar_update(k.bar, 0u - k.bytes, 0);
}

/* ---- the scheduler ------------------------------------------------------------------------------ */

static bool can_move(const lane *l) {
    const kp_hint *h = &l->hint;
    if (l->co.done) return false;
    switch (h->kind) {
    case KP_HINT_BAR:
        return ((uint32_t)(h->bar->word >> 48) & 1) != h->target;
    case KP_HINT_COUNTER:
        return (int32_t)(*h->count - h->target) >= 0;
    case KP_HINT_GO:
        return *h->go >> 1 >= h->target;
    default:
        return true;
    }
}

static policy schedule_policy(uint32_t schedule) {
    static const policy policies[] = {
        {.lanes = 1, .preempt = 4, .random = true, .copies = COPY_RANDOM, .copies_first = 4},
        {.lanes = 1, .copies = COPY_LIFO, .redraw = 0}, /* workers run far ahead of each other; copies last */
        {.lanes = 2, .preempt = 8, .random = true, .copies = COPY_LIFO, .copies_first = 1},
        {.lanes = 1,
         .copies = COPY_FIFO,
         .copies_first = 8,
         .redraw = 64}, /* a role lags, another every now and then */
        {.lanes = 1, .preempt = 2, .redraw = 32, .copies = COPY_RANDOM, .copies_first = 2},
        {.lanes = 2, .copies = COPY_RANDOM, .copies_first = 1, .redraw = 16},
    };
    return policies[schedule % (sizeof policies / sizeof *policies)];
}

/* By worker, by role, or each for itself. */
static void draw_priorities(uint32_t way) {
    uint32_t salt = draw();
    for (uint32_t i = 0; i < R->n_lanes; i++) {
        lane *l = &R->lanes[i];
        uint32_t of = way == 1 ? (uint32_t)(l->worker - R->workers) : way == 3 ? l->ctx.role : i;
        l->priority = ((of + 1) * 2654435761u ^ salt) * 2246822519u;
    }
}

static lane *pick(void) {
    lane *best = NULL;
    uint32_t from = draw() % R->n_lanes;
    for (uint32_t i = 0; i < R->n_lanes; i++) {
        lane *l = &R->lanes[from + i < R->n_lanes ? from + i : from + i - R->n_lanes];
        if (!can_move(l)) continue;
        if (R->policy.random) return l;
        if (!best || l->priority > best->priority) best = l;
    }
    return best;
}

static uint32_t pick_copy(void) {
    if (R->policy.copies == COPY_FIFO) return 0;
    return R->policy.copies == COPY_LIFO ? R->n_copies - 1 : draw() % R->n_copies;
}

static void report_stuck(void) {
    const lane *stuck = NULL;
    for (uint32_t i = 0; i < R->n_lanes; i++) { /* whoever waits for an event or a page tells most */
        const lane *l = &R->lanes[i];
        if (l->co.done) continue;
        if (!stuck || (l->hint.what >= KP_WHAT_PAGE && stuck->hint.what < KP_WHAT_PAGE)) stuck = l;
    }
    if (!stuck || R->o->blind == ORACLE_BLIND_STUCK) return;
    const rank_model *r = &R->o->m.ranks[stuck->worker->rank];
    bool has = stuck->ctx.task != NULL;
    harm(ORACLE_DEADLOCK, "rank %u, worker %u: the %s is stuck at task %u (%s), iteration %u, waiting for %s %u",
         r->p->rank, stuck->worker->w.index, role_name(stuck->ctx.role), has ? task_index(&stuck->ctx) : KP_NONE,
         has ? task_name(r, task_index(&stuck->ctx)) : "none", stuck->ctx.iteration,
         stuck->hint.what >= KP_WHAT_EVENT  ? "event"
         : stuck->hint.what >= KP_WHAT_PAGE ? "page"
                                            : "the protocol's wait",
         stuck->hint.what & 0x0fffffff);
}

static void schedule_all(uint32_t way) {
    for (;;) {
        if (R->n_copies && draw() % 8 < R->policy.copies_first) land_copy(pick_copy());
        if (R->policy.redraw && draw() % R->policy.redraw == 0) draw_priorities(way);
        lane *l = R->harm || R->nomem ? NULL : pick();
        if (!l && R->n_copies && !R->harm) {
            land_copy(pick_copy());
            continue;
        }
        if (!l) break;
        R->now = l;
        R->switches++;
        coro_switch(&R->main, &l->co);
        if (R->switches > SWITCHES_MAX) break;
    }
    uint32_t left = 0;
    for (uint32_t i = 0; i < R->n_lanes; i++) left += !R->lanes[i].co.done;
    if (left && !R->harm && !R->nomem) report_stuck();
}

/* ---- setting up --------------------------------------------------------------------------------- */

static void lane_main(void *argument) {
    lane *l = argument;
    kp_role_main(&l->ctx);
}

static bool grow_lanes(uint32_t need) {
    uint32_t had = R->cap_lanes;
    if (need <= had) return true;
    for (uint32_t i = 0; i < had; i++) coro_destroy(&R->lanes[i].co); /* they hold their own addresses */
    if (!room((void **)&R->lanes, &R->cap_lanes, need, sizeof *R->lanes)) return false;
    for (uint32_t i = 0; i < R->cap_lanes; i++) {
        if (!coro_create(&R->lanes[i].co, STACK_BYTES, &R->main)) return false;
    }
    return true;
}

static void add_lane(worker *w, uint32_t role, uint32_t number) {
    lane *l = &R->lanes[R->n_lanes++];
    l->worker = w;
    l->thread = w->first_thread + (role == KP_CONTROLLER ? 0 : 1 + (role - 1) * R->policy.lanes + number);
    l->ctx = (kp_ctx){.worker = &w->w, .role = role, .lane = number, .backend = l};
    l->hint = (kp_hint){KP_HINT_RUN, 0, 0, 0, 0, 0};
    coro_start(&l->co, lane_main, l);
}

static bool worker_begin(worker *w, uint32_t rank, uint32_t index, uint32_t *threads, uint32_t *cells) {
    const plan *p = R->o->m.ranks[rank].p;
    uint32_t cap = w->cap_pages;
    if (!room((void **)&w->page_free, &cap, p->n_pages, sizeof *w->page_free)) return false;
    if (!room((void **)&w->claims, &w->cap_pages, p->n_pages, sizeof *w->claims)) return false;
    kp_u32 lanes = R->policy.lanes;
    w->w = (kp_worker){.index = index,
                       .lanes = {1, lanes, lanes, lanes, lanes},
                       .n_pages = p->n_pages,
                       .page_bytes = p->page_bytes,
                       .page_free = w->page_free,
                       .claims = w->claims,
                       .launch = &R->launches[rank]};
    w->rank = rank;
    w->first_thread = *threads;
    w->smem_cell = *cells;
    *threads += 1 + (KP_ROLES - 1) * lanes + KP_SLOTS * KP_REGIONS;
    *cells += R->o->m.ranks[rank].n_cuts;
    return true;
}

static bool launches_begin(const model *m) {
    uint32_t n = m->n_ranks, n_events = 0, cap[5];
    for (int i = 0; i < 5; i++) cap[i] = R->cap_ranks;
    for (uint32_t k = 0; k < n; k++) n_events += m->ranks[k].p->n_events + 1;
    bool ok = room((void **)&R->launches, &cap[0], n, sizeof *R->launches) &&
              room((void **)&R->controls, &cap[1], n, sizeof *R->controls) &&
              room((void **)&R->events, &cap[2], n, sizeof *R->events) &&
              room((void **)&R->control_table, &cap[3], n, sizeof *R->control_table) &&
              room((void **)&R->memory_table, &cap[4], n, sizeof *R->memory_table) &&
              room((void **)&R->event_memory, &R->cap_events, n_events, sizeof *R->event_memory);
    if (!ok) return false;
    R->cap_ranks = cap[0];
    memset(R->event_memory, 0, n_events * sizeof *R->event_memory);
    n_events = 0;
    for (uint32_t k = 0; k < n; k++) {
        const rank_model *r = &m->ranks[k];
        R->events[k] = R->event_memory + n_events;
        n_events += r->p->n_events + 1;
        memset(r->meetings, 0, r->p->n_instances * sizeof *r->meetings);
        R->controls[k] = (kp_control){0};
        R->control_table[k] = &R->controls[k];
        R->launches[k] = (kp_launch){.n_workers = r->p->workers,
                                     .tasks = r->launched,
                                     .queue = r->p->queue,
                                     .queue_first = r->p->queue_first,
                                     .waits = r->p->waits,
                                     .triggers = r->triggers,
                                     .events = R->events[k],
                                     .control = &R->controls[k],
                                     .world = n,
                                     .rank = k,
                                     .event_ranks = r->event_ranks,
                                     .rank_events = n > 1 ? R->events : NULL,
                                     .rank_control = n > 1 ? R->control_table : NULL,
                                     .rank_memory = n > 1 ? R->memory_table : NULL};
    }
    return true;
}

static void mark_externals(const model *m) {
    shadow *s = &R->o->s;
    for (uint32_t k = 0; k < m->n_ranks; k++) {
        for (uint32_t e = 0; e < m->ranks[k].n_externals; e++) {
            const range *x = &m->ranks[k].externals[e];
            for (uint32_t i = 0; i < x->n; i++)
                s->cells[x->first + i] = (cell){.generation = s->generation, .tag = x->tag + i};
        }
    }
}

static bool run_begin(uint32_t schedule) {
    const model *m = &R->o->m;
    uint32_t n_workers = 0, threads = 0, cells = m->n_cells, width = R->o->s.width;
    R->policy = schedule_policy(schedule);
    R->random = (schedule + 1) * 2654435761u | 1;
    R->parity = schedule & 1;
    R->n_syncs = R->n_pool = R->n_nodes = R->n_copies = R->n_lanes = 0;
    R->state_writes = 0;
    R->harm = R->nomem = false;
    R->generation++;
    for (uint32_t k = 0; k < m->n_ranks; k++) n_workers += m->ranks[k].p->workers;
    if (!room((void **)&R->workers, &R->cap_workers, n_workers, sizeof *R->workers) || !launches_begin(m)) return false;
    R->n_workers = 0;
    for (uint32_t k = 0; k < m->n_ranks; k++) {
        for (uint32_t i = 0; i < m->ranks[k].p->workers; i++) {
            if (!worker_begin(&R->workers[R->n_workers++], k, i, &threads, &cells)) return false;
        }
    }
    if (!shadow_begin(&R->o->s, threads, cells)) return false;
    if (R->o->s.width != width) { /* the pool is cut otherwise now */
        free(R->pool);
        R->pool = NULL;
        R->cap_pool = 0;
    }
    mark_externals(m);
    if (!grow_lanes(n_workers * (1 + (KP_ROLES - 1) * R->policy.lanes))) return false;
    for (uint32_t i = 0; i < R->n_workers; i++) {
        kp_worker_init(&R->workers[i].w);
        add_lane(&R->workers[i], KP_CONTROLLER, 0);
        for (uint32_t role = KP_LOADER; role < KP_ROLES; role++) {
            for (uint32_t l = 0; l < R->policy.lanes; l++) add_lane(&R->workers[i], role, l);
        }
    }
    return true;
}

keel_status runner_run(oracle *o, uint32_t schedule, oracle_result *out, keel_error *err) {
    uint32_t way = schedule % 6;
    R = o->runner;
    R->o = o;
    R->out = out;
    coro_self(&R->main);
    if (!run_begin(schedule)) return KEEL_NOMEM_AT(err, "oracle");
    draw_priorities(way);
    schedule_all(way);
    out->switches += R->switches;
    R->switches = 0;
    out->state_writes = R->state_writes;
    return R->nomem ? KEEL_NOMEM_AT(err, "oracle") : KEEL_OK;
}

struct runner *runner_open(void) {
    return calloc(1, sizeof(struct runner));
}

void runner_close(struct runner *r) {
    if (!r) return;
    for (uint32_t i = 0; i < r->cap_lanes; i++) coro_destroy(&r->lanes[i].co);
    for (uint32_t i = 0; i < r->cap_workers; i++) free(r->workers[i].page_free), free(r->workers[i].claims);
    free(r->lanes), free(r->workers), free(r->launches), free(r->controls), free(r->events), free(r->control_table);
    free(r->memory_table), free(r->event_memory), free(r->syncs), free(r->pool), free(r->nodes), free(r->copies);
    free(r);
}
