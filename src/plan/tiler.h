/* SPDX-License-Identifier: Apache-2.0 */
/* What an op's three planning functions talk to. The planner makes queues, events, pages and buffers from what each
 * task touches; the proof asks `task` again about plans of any origin. All three are pure.
 *
 * params (may be NULL), once an instance:
 *     linear_params *p = tiler_params(t, sizeof *p);            typed parameters, zeroed
 *     tiler_scratch(t, "partial", bytes, units);                buffers between the op's own phases
 *     tiler_units(t, op->in[4], units);                         a KV cache is counted in units of the op's choice
 * tile, once an instance: which tasks there are
 *     tiler_task(t, phase, lo, hi, aux);
 * task, for each task: what it touches
 *     tiler_read(t, op->in[0], 0, K);                           columns (elements of a row), or units
 *     tiler_write(t, op->out[0], lo, hi);
 *     tiler_region(t, REGION_X, bytes, KP_CONSUMER);            SMEM, released by that role
 *     tiler_cost(t, weight_bytes, other_bytes, flops);
 *     tiler_refuse(t, "why") where lo, hi or aux are none that this op has
 *
 * A range outside the tensor is refused for the op. Every task implicitly reads the step record. Reads of weights and
 * constants need not be declared. */
#ifndef KEEL_PLAN_TILER_H
#define KEEL_PLAN_TILER_H

#include "graph/graph.h"
#include "plan/arch.h"

typedef struct tiler tiler;

/* A tile of an op. */
typedef struct op_task {
    uint32_t phase, lo, hi, aux;
} op_task;

/* What the plan is for. */
typedef struct tile_env {
    const arch_desc *arch;
    uint32_t workers;
    uint32_t m_max;       /* rows a pass may carry */
    uint32_t max_seq;     /* positions of the KV cache */
    uint32_t page_tokens; /* tokens a KV page */
    uint32_t kv_splits;   /* 0: the op chooses */
    uint32_t world, rank; /* 1, 0 without tensor parallelism */
    uint32_t n_pages;     /* of SMEM, arch->page_bytes each */
} tile_env;
const tile_env *tiler_env(const tiler *t);

/* In params: the zeroed parameter struct of this instance (at most 256 bytes); NULL when memory is short (then return
 * NOMEM). */
void *tiler_params(tiler *t, size_t bytes);
/* In params: a buffer between the op's own phases, of `units` units. Bound after the outputs, in call order. */
void tiler_scratch(tiler *t, const char *name, uint64_t bytes, uint64_t units);
/* The same, but zero before the first iteration and never set again: counters of a barrier inside the op. */
void tiler_scratch_monotonic(tiler *t, const char *name, uint64_t bytes, uint64_t units);
/* In params: how many units reads and writes of a cache are counted in. */
void tiler_units(tiler *t, int tensor, uint64_t units);

/* In tile and task: what params filled; NULL without. */
const void *tiler_params_of(const tiler *t);
/* In task: tensor id of the op's i-th scratch. */
int tiler_scratch_of(const tiler *t, int i);

/* In tile: one more task. */
void tiler_task(tiler *t, int phase, uint32_t lo, uint32_t hi, uint32_t aux);

/* In task. Tensor 0 (left out) is fine. */
void tiler_read(tiler *t, int tensor, int64_t lo, int64_t hi);
void tiler_write(tiler *t, int tensor, int64_t lo, int64_t hi);
/* Written by one of the tasks that say so of the same range: by the last of them, as counts of the op's own
 * (tiler_count) tell it. What they hand to each other before lies in scratch of which each writes a part. */
void tiler_write_last(tiler *t, int tensor, int64_t lo, int64_t hi);
/* Of the tensor on every rank: the tensor lies in symmetric memory. */
void tiler_read_ranks(tiler *t, int tensor, int64_t lo, int64_t hi);
/* Atomic additions to monotonic scratch, and waiting for its counts: the only way to touch it, in no order. */
void tiler_count(tiler *t, int tensor, int64_t lo, int64_t hi);
/* The generation's state (kp_state). */
void tiler_state(tiler *t, bool write);
void tiler_refuse(tiler *t, const char *why);
/* Region `index` (0 … KP_REGIONS−1) of the task, 64-byte aligned; release: KP_CONSUMER or KP_STORER. */
void tiler_region(tiler *t, int index, uint64_t bytes, enum kp_role release);
/* Of the task, for one row at position 0: bytes of weights read, other global bytes, floating-point operations.
 * What grows with the context, reading the KV cache, is counted by its bytes a position instead. */
void tiler_cost(tiler *t, uint64_t weight_bytes, uint64_t other_bytes, uint64_t flops);

/* How many tiles of at least `grain` units (each but the last a multiple of it) n units are cut into, so that they
 * spread evenly over the workers and none exceeds max_units: ceil sizes, never 0. */
uint32_t tiler_tiles(const tiler *t, uint64_t n, uint32_t grain, uint32_t max_units);
/* Bounds of tile i of `tiles`. */
void tiler_bounds(uint64_t n, uint32_t grain, uint32_t tiles, uint32_t i, uint32_t *lo, uint32_t *hi);

/* Element type that a tensor has under this plan (DTYPE_ACT resolved). */
dtype tiler_dtype(const tiler *t, int tensor);

#endif
