/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's working state: what tile functions declared, before queues, events, pages and buffers exist. */
#ifndef KEEL_PLAN_TILER_INTERNAL_H
#define KEEL_PLAN_TILER_INTERNAL_H

#include "plan/plan.h"
#include "plan/tiler.h"

/* One read or write of a task. */
typedef struct access {
    uint32_t task;
    int32_t tensor; /* graph tensor id, or SCRATCH_BASE + scratch index */
    bool write;
    int64_t lo, hi;
} access;

enum { SCRATCH_BASE = 1 << 28, TILER_PARAMS_BYTES = 256 };

typedef struct scratch {
    const char *name;
    uint64_t bytes;
    uint32_t instance;
} scratch;

/* SMEM a task asked for, by region index. */
typedef struct region_ask {
    uint32_t bytes[KP_REGIONS];
    uint8_t release[KP_REGIONS];
} region_ask;

struct tiler {
    const graph *g;
    tile_env env;
    const graph_op *op; /* being tiled */
    uint32_t instance, first_task;
    int phase;
    kp_task *tasks;
    plan_cost *costs;
    region_ask *regions;
    uint32_t n_tasks, cap_tasks;
    access *accesses;
    uint32_t n_accesses, cap_accesses;
    uint32_t *access_first; /* [n_tasks + 1] after tiling: accesses of a task are contiguous */
    scratch *scratches;
    uint32_t n_scratches, cap_scratches;
    buf params;
    uint32_t params_offset, params_bytes;
    uint8_t params_now[TILER_PARAMS_BYTES];
    bool params_given, nomem;
    char *problem; /* first contract breach of a tile function, static text */
};

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
/* Queues: tasks in phase order, dealt over the workers. */
keel_status plan_make_queues(plan *p, keel_error *err);
/* SMEM pages along each queue. */
keel_status plan_make_pages(const tiler *t, plan *p, keel_error *err);
/* Buffers of tensors and scratch, with lifetimes and reuse. */
keel_status plan_make_buffers(const tiler *t, plan *p, const phase_sets *full, bool no_reuse, keel_error *err);

#endif
