/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's working state: what tile functions declared, before queues, events, pages and buffers exist. */
#ifndef KEEL_PLAN_TILER_INTERNAL_H
#define KEEL_PLAN_TILER_INTERNAL_H

#include "plan/plan.h"
#include "plan/tiler.h"

/* One read or write of a task. */
typedef struct access {
    uint32_t task;
    int32_t tensor; /* graph tensor id, or SCRATCH_BASE + scratch index, or TILER_STATE */
    bool write;
    bool ranks; /* a read of the tensor on every rank */
    bool count; /* additions to monotonic scratch */
    bool last;  /* a write by one of several tasks */
    int64_t lo, hi;
} access;

enum { SCRATCH_BASE = 1 << 28, TILER_STATE = 1 << 29, TILER_PARAMS_BYTES = 256 };

typedef struct scratch {
    const char *name;
    uint64_t bytes, units;
    uint32_t instance;
    bool monotonic; /* zero before the first iteration, never set again: shares bytes with nothing */
} scratch;

/* SMEM a task asked for, by region index. */
typedef struct region_ask {
    uint32_t bytes[KP_REGIONS];
    uint8_t release[KP_REGIONS];
} region_ask;

struct tiler {
    const graph *g;
    tile_env env;
    const graph_op *op; /* in hand */
    uint32_t instance, first_task;
    uint32_t task;          /* being described; n_tasks while params and tile run */
    uint32_t first_scratch; /* of the instance */
    int phase;
    kp_task *tasks;
    plan_cost *costs;
    region_ask *regions;
    uint32_t n_tasks, cap_tasks;
    access *accesses;
    uint32_t n_accesses, cap_accesses;
    uint32_t *access_first; /* [n_tasks + 1] in the end: accesses of a task are contiguous */
    scratch *scratches;
    uint32_t n_scratches, cap_scratches;
    uint64_t *units; /* by tensor: units of a cache; 0 = columns */
    buf params;
    struct param_at {
        uint32_t offset, bytes;
    } * param_at; /* by instance, into params */
    uint32_t params_bytes;
    uint8_t params_now[TILER_PARAMS_BYTES];
    bool params_given, nomem;
    const char *problem; /* first breach of the contract, static text */
};

/* For the graph and the environment set; frees with tiler_close(), whatever tiler_open() returned. */
keel_status tiler_open(tiler *t, const graph *g, const tile_env *env, keel_error *err);
void tiler_close(tiler *t);

/* Asks the ops about the tasks of an existing plan: fills accesses, regions, costs, scratches and params of t, as
 * plan_tile() would. g is the plan's graph (plan_graph()). KEEL_REFUSED names the task that its op does not have. */
keel_status plan_describe(tiler *t, const plan *p, keel_error *err);
/* What the plan is for. */
tile_env plan_env(const plan *p);
/* g as a plan like p holds it (plan/lower.h); *out NULL: as it is. */
keel_status plan_lowered(const plan *p, const graph *g, graph **out, keel_error *err);
/* Costs and parameters into p. */
keel_status plan_take_description(plan *p, const tiler *t, keel_error *err);
/* Costs and parameters of a plan that was read: plan_graph() and plan_describe(). */
keel_status plan_derive(plan *p, keel_error *err);

/* Sets of phases, one bit each: full[p] holds every phase all of whose tasks are finished before any task of p starts.
 */
typedef struct phase_sets {
    uint64_t *bits;
    uint32_t words;
} phase_sets;
static inline bool phase_set_has(const phase_sets *s, uint32_t p, uint32_t q) {
    return s->bits[(size_t)p * s->words + q / 64] >> (q % 64) & 1;
}

/* Tiles every op: fills instances, phases, bodies, tasks of p. */
keel_status plan_tile(tiler *t, plan *p, keel_error *err);
/* Events, waits and triggers from accesses; fills full (freed by the caller with mem_free(full->bits)). */
keel_status plan_make_events(tiler *t, plan *p, phase_sets *full, keel_error *err);
/* Which graph tensors' data shall carry their epoch: tagged[id] = 1. */
void plan_find_tagged(const tiler *t, const plan *p, uint8_t *tagged);
/* Which scratches no task reads, and which caches none but the tasks that write the same units: unread[slot] = 1. Slots
 * are those of the graph's tensors, by id, and behind them those of scratches. */
uint32_t plan_unread_slots(const tiler *t);
void plan_find_unread(const tiler *t, uint8_t *unread);
/* Of a task's accesses: does it write, for others to read in this iteration, nothing but tagged buffers? */
bool plan_writes_tagged(const tiler *t, const uint8_t *tagged, const uint8_t *unread, uint32_t task);
/* Queues: tasks in phase order, dealt over the workers. */
keel_status plan_make_queues(plan *p, keel_error *err);
/* SMEM pages along each queue. */
keel_status plan_make_pages(const tiler *t, plan *p, keel_error *err);
/* Buffers of tensors and scratch, with lifetimes and reuse. */
keel_status plan_make_buffers(const tiler *t, plan *p, const phase_sets *full, bool no_reuse, keel_error *err);

#endif
