/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/cpu_worker.h"

#include "core/mem.h"
#include "exec/cpu_prim.h"
#include "exec/fiber.h"

#include "device/emit.h"
#include "device/protocol.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum { COPIES = 32, STACK_BYTES = 256 * 1024, MAX_LANES = 2, FIBERS = (int)KP_ROLES * MAX_LANES + 1 };

/* The scheduler's own bookkeeping (hints, the random state, "done") is shared by fibers of ONE OS thread and needs no
 * synchronisation; fibers are announced to ThreadSanitizer as unsynchronised threads, so it would report it. What roles
 * share stays instrumented. */
#define SCHEDULER_ONLY __attribute__((no_sanitize("thread")))

enum copy_state { COPY_FREE, COPY_TAKEN, COPY_POSTED };

typedef struct cpu_copy {
    void *dst;
    const void *src;
    kp_bar *bar;
    uint32_t bytes;
    uint32_t state; /* copy_state */
} cpu_copy;

struct cpu_worker;
typedef struct cpu_lane {
    fiber fiber;
    kp_ctx ctx;
    kp_hint hint;
    struct cpu_worker *worker;
    bool left; /* returned in good order or on abort */
} cpu_lane;

typedef struct cpu_worker {
    kp_worker w;
    struct cpu_engine *engine;
    fiber main; /* the worker thread's own: the scheduler */
    cpu_lane lane[FIBERS];
    int n_lanes; /* the copy agent is the last */
    cpu_copy copy[COPIES];
    uint32_t posted;     /* copies waiting for the agent */
    uint32_t lanes_left; /* orders what the fibers did before the end of the thread */
    uint64_t progress;
    uint32_t idle; /* looks in a row that found nothing to run; KP_NONE once the worker has left */
    uint32_t random;
    pthread_t thread;
    bool running;
} cpu_worker;

struct cpu_engine {
    const kp_launch *launch;
    cpu_config config;
    cpu_worker *workers;
    uint32_t n_workers;
    uint32_t spins;  /* polls before the thread offers its core */
    uint32_t yields; /* then how often it does so */
    long sleep_ns;   /* then it sleeps so long between looks */
    uint32_t n_left; /* workers that have left */
    bool started;
};

/* ---- what bodies and the protocol call ----------------------------------------------------------- */

SCHEDULER_ONLY void kp_yield(kp_ctx *c, kp_hint hint) {
    cpu_lane *lane = c->backend;
    lane->hint = hint;
    fiber_switch(&lane->fiber, &lane->worker->main);
    lane->hint.kind = KP_HINT_RUN;
}

void kp_dispatch(kp_ctx *c) {
    const cpu_lane *lane = c->backend;
    kb_body body = lane->worker->engine->config.bodies[c->task->body * KP_ROLES + c->role];
    if (body) body(c);
}

void kb_bulk(kp_ctx *c, void *dst, const void *src, kp_u32 bytes) {
    if (!bytes) return;
    cpu_lane *lane = c->backend;
    cpu_worker *w = lane->worker;
    kp_bar *bar = &c->slot->loaded;
    kp_bar_expect(bar, bytes);
    for (;;) {
        for (int i = 0; i < COPIES; i++) {
            uint32_t expected = COPY_FREE;
            cpu_copy *copy = &w->copy[i];
            if (!__atomic_compare_exchange_n(&copy->state, &expected, COPY_TAKEN, 0, __ATOMIC_ACQUIRE,
                                             __ATOMIC_RELAXED))
                continue;
            copy->dst = dst;
            copy->src = src;
            copy->bytes = bytes;
            copy->bar = bar;
            __atomic_store_n(&copy->state, COPY_POSTED, __ATOMIC_RELEASE);
            __atomic_fetch_add(&w->posted, 1, __ATOMIC_RELEASE);
            return;
        }
        if (kp_abort_poll(c)) return;
        kp_hint full = {KP_HINT_RUN, KP_WHAT_COPY, 0, 0, 0, 0};
        kp_yield(c, full);
    }
}

void kb_publish64(kp_u64 *p, kp_u64 v) { kp_store_release64(p, v); }

kp_u64 kb_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (kp_u64)t.tv_sec * 1000000000u + (kp_u64)t.tv_nsec;
}

/* ---- the copy agent: lands bulk copies, apart from the roles, in any order ------------------------ */

SCHEDULER_ONLY static uint32_t draw(cpu_worker *w) {
    w->random ^= w->random << 13;
    w->random ^= w->random >> 17;
    w->random ^= w->random << 5;
    return w->random;
}

static bool agent_land_one(cpu_worker *w, uint32_t from) {
    for (uint32_t i = 0; i < COPIES; i++) {
        cpu_copy *copy = &w->copy[(from + i) % COPIES];
        if (__atomic_load_n(&copy->state, __ATOMIC_ACQUIRE) != COPY_POSTED) continue;
        memcpy(copy->dst, copy->src, copy->bytes);
        kp_bar *bar = copy->bar;
        uint32_t bytes = copy->bytes;
        __atomic_store_n(&copy->state, COPY_FREE, __ATOMIC_RELEASE);
        kp_bar_land(bar, bytes);
        __atomic_fetch_sub(&w->posted, 1, __ATOMIC_RELEASE); /* last: the end of the thread acquires it */
        return true;
    }
    return false;
}

SCHEDULER_ONLY static void agent_main(void *argument) {
    cpu_lane *lane = argument;
    cpu_worker *w = lane->worker;
    bool shuffled = w->engine->config.seed != 0;
    for (;;) {
        if (agent_land_one(w, shuffled ? draw(w) : 0) && !shuffled) continue;
        kp_hint idle = {KP_HINT_AGENT, KP_WHAT_COPY, 0, 0, 0, 0};
        kp_yield(&lane->ctx, idle);
    }
}

/* ---- the scheduler ------------------------------------------------------------------------------- */

/* A look without synchronisation: the lane itself loads again, with acquire, when it runs. */
SCHEDULER_ONLY static bool lane_may_run(const cpu_lane *lane) {
    const kp_hint *h = &lane->hint;
    switch ((enum kp_hint_kind)h->kind) {
    case KP_HINT_RUN:
        return true;
    case KP_HINT_BAR:
        return ((uint32_t)(__atomic_load_n(&h->bar->word, __ATOMIC_RELAXED) >> 48) & 1) != h->target;
    case KP_HINT_COUNTER:
        return (int32_t)(__atomic_load_n(h->count, __ATOMIC_RELAXED) - h->target) >= 0;
    case KP_HINT_GO:
        return __atomic_load_n(h->go, __ATOMIC_RELAXED) >> 1 >= h->target;
    case KP_HINT_AGENT:
        return __atomic_load_n(&lane->worker->posted, __ATOMIC_RELAXED) != 0;
    }
    return true;
}

/* Nothing to run: spin a little, then offer the core, then sleep, so that more workers than cores still advance. */
static void worker_idle(const cpu_worker *w, uint32_t idle) {
    if (idle < w->engine->spins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    } else if (idle < w->engine->spins + w->engine->yields) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){0, w->engine->sleep_ns}, NULL);
    }
}

SCHEDULER_ONLY static void worker_schedule(cpu_worker *w) {
    const uint32_t *abort_word = &w->engine->launch->control->abort;
    int roles = w->n_lanes - 1, left = 0;
    uint32_t idle = 0;
    while (left < roles) {
        bool ran = false, aborting = __atomic_load_n(abort_word, __ATOMIC_RELAXED) != 0;
        int first = w->engine->config.seed ? (int)(draw(w) % (uint32_t)w->n_lanes) : 0;
        for (int i = 0; i < w->n_lanes; i++) {
            cpu_lane *lane = &w->lane[(first + i) % w->n_lanes];
            bool agent = lane == &w->lane[w->n_lanes - 1];
            if (lane->fiber.done || (!lane_may_run(lane) && (!aborting || agent))) continue;
            fiber_switch(&w->main, &lane->fiber);
            ran = true;
            if (lane->fiber.done) left++;
        }
        if (ran) __atomic_store_n(&w->progress, w->progress + 1, __ATOMIC_RELAXED);
        idle = ran ? 0 : idle + 1;
        __atomic_store_n(&w->idle, idle, __ATOMIC_RELAXED);
        if (!ran) worker_idle(w, idle);
    }
}

static void lane_main(void *argument) {
    cpu_lane *lane = argument;
    kp_role_main(&lane->ctx);
    lane->left = !kp_abort_poll(&lane->ctx);
    __atomic_fetch_add(&lane->worker->lanes_left, 1, __ATOMIC_RELEASE);
}

static void *worker_main(void *argument) {
    cpu_worker *w = argument;
    fiber_self(&w->main);
    for (int i = 0; i < w->n_lanes; i++) fiber_rewind(&w->lane[i].fiber, &w->main);
    worker_schedule(w);
    (void)__atomic_load_n(&w->lanes_left, __ATOMIC_ACQUIRE);
    (void)__atomic_load_n(&w->posted, __ATOMIC_ACQUIRE);
    __atomic_store_n(&w->idle, KP_NONE, __ATOMIC_RELAXED);
    __atomic_fetch_add(&w->engine->n_left, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* ---- life of an engine --------------------------------------------------------------------------- */

uint32_t cpu_cores(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? (uint32_t)n : 1;
}

static bool worker_open(cpu_engine *e, uint32_t index) {
    cpu_worker *w = &e->workers[index];
    uint32_t lanes = e->config.lanes;
    w->engine = e;
    w->w = (kp_worker){.index = index, .n_pages = e->config.n_pages, .page_bytes = e->config.page_bytes};
    for (uint32_t role = 0; role < KP_ROLES; role++) w->w.lanes[role] = lanes;
    w->w.launch = e->launch;
    w->w.smem = mem_aligned(4096, (size_t)e->config.n_pages * e->config.page_bytes);
    w->w.page_free = mem_calloc(e->config.n_pages, sizeof *w->w.page_free);
    w->w.claims = mem_calloc(e->config.n_pages, sizeof *w->w.claims);
    if (!w->w.smem || !w->w.page_free || !w->w.claims) return false;
    for (uint32_t role = 0; role <= KP_ROLES; role++) { /* the last, beyond the roles, is the copy agent */
        bool agent = role == KP_ROLES;
        for (uint32_t l = 0; l < (agent ? 1 : lanes); l++) {
            cpu_lane *lane = &w->lane[w->n_lanes++];
            lane->worker = w;
            lane->ctx = (kp_ctx){.worker = &w->w, .role = role, .lane = l, .backend = lane};
            if (!fiber_create(&lane->fiber, STACK_BYTES, agent ? agent_main : lane_main, lane, &w->main)) return false;
        }
    }
    return true;
}

keel_status cpu_engine_open(const kp_launch *launch, const cpu_config *config, cpu_engine **out, keel_error *err) {
    cpu_engine *e = mem_calloc(1, sizeof *e);
    if (!e) return KEEL_NOMEM_AT(err, "CPU engine");
    e->launch = launch;
    e->config = *config;
    if (!e->config.lanes) e->config.lanes = 1;
    if (e->config.lanes > MAX_LANES) e->config.lanes = MAX_LANES;
    e->workers = mem_calloc(launch->n_workers, sizeof *e->workers);
    long cores = (long)cpu_cores();
    e->spins = (long)launch->n_workers <= cores ? 4000 : 16;
    /* Thousands of workers on a few cores would spend them on waking up: the more of them, the longer they sleep. */
    long crowd = (long)launch->n_workers / (4 * cores);
    e->yields = crowd > 1 ? 1 : 64;
    e->sleep_ns = 30000 * (crowd < 1 ? 1 : crowd > 100 ? 100 : crowd);
    bool ok = e->workers != NULL;
    for (; ok && e->n_workers < launch->n_workers; e->n_workers++) ok = worker_open(e, e->n_workers);
    if (!ok) {
        cpu_engine_close(e);
        return KEEL_NOMEM_AT(err, "CPU engine: SMEM and stacks of the workers");
    }
    *out = e;
    return KEEL_OK;
}

keel_status cpu_engine_start(cpu_engine *e, keel_error *err) {
    e->n_left = 0;
    e->started = true;
    for (uint32_t i = 0; i < e->n_workers; i++) {
        cpu_worker *w = &e->workers[i];
        kp_worker_init(&w->w);
        w->posted = 0;
        w->lanes_left = 0;
        w->progress = 0;
        w->idle = 0;
        w->random = (e->config.seed + 1) * 2654435761u + i * 40503u + 1;
        memset(w->copy, 0, sizeof w->copy);
        for (int l = 0; l < w->n_lanes; l++) {
            w->lane[l].hint = (kp_hint){0};
            w->lane[l].left = false;
        }
    }
    for (uint32_t i = 0; i < e->n_workers; i++) {
        cpu_worker *w = &e->workers[i];
        w->running = pthread_create(&w->thread, NULL, worker_main, w) == 0;
        if (w->running) continue;
        __atomic_store_n(&e->launch->control->abort, 1, __ATOMIC_RELEASE);
        cpu_engine_join(e);
        return error_set(err, KEEL_NOMEM, "worker %u: the system refuses another thread; use fewer --workers", i);
    }
    return KEEL_OK;
}

uint64_t cpu_engine_progress(const cpu_engine *e) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < e->n_workers; i++) sum += __atomic_load_n(&e->workers[i].progress, __ATOMIC_RELAXED);
    return sum;
}

bool cpu_engine_idle(const cpu_engine *e) {
    enum { SLEEPS = 50 };
    for (uint32_t i = 0; i < e->n_workers; i++) {
        if (__atomic_load_n(&e->workers[i].idle, __ATOMIC_RELAXED) < e->spins + e->yields + SLEEPS) return false;
    }
    return true;
}

bool cpu_engine_done(const cpu_engine *e) { return __atomic_load_n(&e->n_left, __ATOMIC_ACQUIRE) == e->n_workers; }

void cpu_engine_join(cpu_engine *e) {
    for (uint32_t i = 0; i < e->n_workers; i++) {
        if (e->workers[i].running) pthread_join(e->workers[i].thread, NULL);
        e->workers[i].running = false;
    }
}

bool cpu_engine_stuck(const cpu_engine *e, uint32_t worker, uint32_t role, uint32_t lane, kp_hint *hint, kp_ctx *at) {
    const cpu_lane *l = &e->workers[worker].lane[role * e->config.lanes + lane];
    *hint = l->hint;
    *at = l->ctx;
    return !l->left;
}

void cpu_engine_close(cpu_engine *e) {
    if (!e) return;
    if (e->started) cpu_engine_join(e);
    for (uint32_t i = 0; e->workers && i < e->launch->n_workers; i++) {
        cpu_worker *w = &e->workers[i];
        for (int l = 0; l < w->n_lanes; l++) fiber_destroy(&w->lane[l].fiber);
        mem_free(w->w.smem);
        mem_free(w->w.page_free);
        mem_free(w->w.claims);
    }
    mem_free(e->workers);
    mem_free(e);
}
