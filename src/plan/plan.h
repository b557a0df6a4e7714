/* SPDX-License-Identifier: Apache-2.0 */
/* The plan: what a rank executes. Made by plan_build() from a graph, a pure function: the same input gives the same
 * bytes. docs/plan-format.md describes the file. Immutable once built or read. */
#ifndef KEEL_PLAN_PLAN_H
#define KEEL_PLAN_PLAN_H

#include "core/buf.h"
#include "device/tagged.h"
#include "device/task.h"
#include "graph/graph.h"
#include "plan/arch.h"

typedef enum buffer_kind {
    BUFFER_ACTIVATION, /* in the activation arena at `offset`; may share bytes with buffers of other lifetimes */
    BUFFER_WEIGHT,     /* the checkpoint tensor `key` */
    BUFFER_CONST,      /* `offset` into the plan's constants */
    BUFFER_CACHE,      /* KV pages, kept over iterations and launches */
    BUFFER_STEP,       /* the step record */
    BUFFER_SCRATCH,    /* between the phases of one op; in the activation arena */
    BUFFER_TAGGED, /* an activation whose vectors carry their epoch (device/tagged.h); in the activation arena, alone */
    BUFFER_SYMMETRIC, /* an activation that other ranks read: `offset` into the symmetric arena, alike on all ranks */
    BUFFER_KINDS
} buffer_kind;
const char *buffer_kind_name(buffer_kind k);
/* Does its offset point into an arena (the symmetric one where it is symmetric)? */
static inline bool buffer_placed(buffer_kind k) {
    return k == BUFFER_ACTIVATION || k == BUFFER_SCRATCH || k == BUFFER_SYMMETRIC || k == BUFFER_TAGGED;
}

/* "loader"; "?" for a number that is no role. */
const char *role_name(uint32_t role);

typedef struct plan_buffer {
    const char *name, *key; /* key: weights, else "" */
    buffer_kind kind;
    dtype dtype;
    bool external; /* filled by the caller before a run */
    int32_t rows;  /* GRAPH_M or GRAPH_M_LOGIT where dim[0] counts rows, else 0 */
    int rank;
    int64_t dim[GRAPH_RANK]; /* rows of activations are m_max */
    shard_rule shard;        /* weights: which slice of the checkpoint's tensor this rank holds (graph/shard.h) */
    int32_t shard_dim;
    uint64_t bytes, offset;
    uint32_t first_phase, last_phase; /* lifetime: indices into phases */
} plan_buffer;

typedef struct plan_instance {
    const char *name;
    const op_desc *op;
    int32_t layer;
    uint32_t attr_first, n_attrs;         /* into the plan's attrs: what the graph set */
    uint32_t params_offset, params_bytes; /* into the plan's parameter bytes: made from the above, not in the file */
    uint32_t buffer[14];                  /* KP_BUFFERS; KP_NONE where nothing is bound */
} plan_instance;

/* A phase of an instance: tasks [first_task, first_task + n_tasks). Phases stand in execution order. */
typedef struct plan_phase {
    uint32_t instance, phase;
    uint32_t first_task, n_tasks;
} plan_phase;

typedef struct plan_event {
    uint32_t triggers; /* additions an iteration */
    uint32_t phase;    /* whose tasks trigger it */
    bool ranks;        /* its tasks trigger it on every rank: triggers counts all ranks' additions */
    bool weak;         /* its tasks write tagged buffers alone: the additions need not order them */
} plan_event;

/* Costs of a task for one live row. */
typedef struct plan_cost {
    uint64_t weight_bytes, other_bytes, flops;
} plan_cost;

/* Role bodies used: body index b runs phase `phase` of `op`. */
typedef struct plan_body {
    const op_desc *op;
    uint32_t phase;
} plan_body;

typedef struct plan {
    arena arena;
    const char *arch, *architecture;
    uint32_t workers, m_max, max_seq, page_tokens;
    uint32_t kv_splits; /* as asked; 0: the op chose */
    uint32_t page_bytes, n_pages;
    bool smem_short; /* while it is built: a task asks for more pages */
    uint32_t layer_first, n_layers;
    uint32_t tp, ep, rank; /* ranks, expert-parallel groups, which rank this is */
    bool vocab_parallel;
    uint64_t vocab, hidden, arena_bytes, symmetric_bytes;
    uint32_t logits; /* buffer of the logits; KP_NONE without */
    bool sampling;
    const char **levers;
    uint32_t n_levers;
    plan_instance *instances;
    uint32_t n_instances;
    graph_attr *attrs;
    uint32_t n_attrs;
    plan_phase *phases;
    uint32_t n_phases;
    plan_body *bodies;
    uint32_t n_bodies;
    kp_task *tasks;
    plan_cost *costs; /* by task; made from the ops, not in the file */
    uint32_t n_tasks;
    uint32_t *queue, *queue_first; /* [n_tasks], [workers + 1] */
    uint32_t *waits;
    uint32_t n_waits;
    plan_event *events;
    uint32_t n_events;
    plan_buffer *buffers;
    uint32_t n_buffers;
    uint8_t *params; /* made from the graph, not in the file */
    uint32_t params_bytes;
    uint8_t *consts;
    uint32_t consts_bytes;
} plan;

typedef struct plan_options {
    const char *arch;          /* "cpu" */
    uint32_t workers;          /* 0: the arch's default, or what the caller's machine has */
    uint32_t m_max;            /* 0: KP_M_MAX */
    uint32_t max_seq;          /* 0: min(max_position, 4096) */
    uint32_t page_tokens;      /* 0: 64 */
    uint32_t kv_splits;        /* 0: the op chooses */
    bool no_reuse;             /* every activation keeps a buffer of its own (test mode) */
    bool allow_absent;         /* plan even where bodies are missing; such a plan never runs */
    const char *const *levers; /* names from the lever table */
    uint32_t n_levers;
} plan_options;

/* g: of one rank. Fused ops take the place of chains of its ops where the arch has them (plan/lower.h). */
keel_status plan_build(const graph *g, const plan_options *options, plan **out, keel_error *err);
/* The rank's graph that stands in the plan, checked by its ops' shape rules: KEEL_REFUSED names what contradicts them.
 * The caller's. Constants point into p. */
keel_status plan_graph(const plan *p, graph **out, keel_error *err);
void plan_close(plan *p);

/* Is the plan of this rank's graph, lowered as the plan is: the same ops, attributes, tensors and constants? KEEL_USAGE
 * names the first difference. */
keel_status plan_fits(const plan *p, const graph *g, keel_error *err);

/* Names every body that is missing for a needed role on the plan's arch: KEEL_REFUSED with the list; KEEL_OK if
 * complete. */
keel_status plan_check_bodies(const plan *p, keel_error *err);

/* Sums over tasks, for one live row. */
plan_cost plan_total_cost(const plan *p);

/* The file: bytes in, bytes out. Reading checks every index and length, so that a plan of any origin can be shown and
 * bound without a fault; it does not prove anything. Unknown versions and ops are refused. */
keel_status plan_write(const plan *p, buf *out, keel_error *err);
keel_status plan_read(const char *file, const uint8_t *data, size_t bytes, plan **out, keel_error *err);
enum { PLAN_HASH_HEX = 65 };
/* SHA-256 of the file bytes: the plan's identity. */
keel_status plan_hash(const plan *p, char hex[PLAN_HASH_HEX], keel_error *err);

/* Views. */
void plan_show(const plan *p, buf *out);
keel_status plan_json(const plan *p, buf *out, keel_error *err);

#endif
