/* SPDX-License-Identifier: Apache-2.0 */
/* What an op's tile function talks to. It declares parameters, scratch and tasks; the planner makes queues, events,
 * pages and buffers from what each task reads and writes.
 *
 *   linear_params *p = tiler_params(t, sizeof *p);            once: the op's typed parameters, same bytes on every rank
 *   for each tile:
 *       tiler_task(t, phase, lo, hi, aux);
 *       tiler_read(t, op->in[0], 0, K);                       columns (elements of a row, or units of the op's choice)
 *       tiler_write(t, op->out[0], lo, hi);
 *       tiler_region(t, REGION_X, bytes, KP_CONSUMER);        SMEM, released by that role
 *       tiler_cost(t, weight_bytes, other_bytes, flops);
 *
 * Every task implicitly reads the step record. Reads and writes of weights and constants need not be declared. A read
 * of a cache or scratch that the same op wrote uses the same units as the write. */
#ifndef KEEL_PLAN_TILER_H
#define KEEL_PLAN_TILER_H

#include "graph/graph.h"
#include "plan/arch.h"

typedef struct tiler tiler;

/* What the plan is for. */
typedef struct tile_env {
    const arch_desc *arch;
    uint32_t workers;
    uint32_t m_max;       /* rows a pass may carry */
    uint32_t max_seq;     /* positions of the KV cache */
    uint32_t page_tokens; /* tokens a KV page */
    uint32_t kv_splits;   /* 0: the op chooses */
} tile_env;
const tile_env *tiler_env(const tiler *t);

/* Zeroed parameter struct of this op instance (at most 256 bytes); NULL when memory is short (then return NOMEM). */
void *tiler_params(tiler *t, size_t bytes);
/* A buffer between the op's own phases; returns its tensor id. Bound after the outputs, in call order. */
int tiler_scratch(tiler *t, const char *name, uint64_t bytes);

void tiler_task(tiler *t, int phase, uint32_t lo, uint32_t hi, uint32_t aux);
void tiler_read(tiler *t, int tensor, int64_t lo, int64_t hi);
void tiler_write(tiler *t, int tensor, int64_t lo, int64_t hi);
/* Region `index` (0 … KP_REGIONS−1) of the current task, 64-byte aligned; release: KP_CONSUMER or KP_STORER. */
void tiler_region(tiler *t, int index, uint64_t bytes, enum kp_role release);
/* Of the current task, for one row at position 0: bytes of weights read, other global bytes, floating-point operations.
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
