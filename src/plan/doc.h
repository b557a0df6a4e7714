/* SPDX-License-Identifier: Apache-2.0 */
/* The plan document: what an engineer who brings a model up has to know of its plan. doc_open() finds every fact once;
 * doc_markdown() and doc_json() only write them down. Same graph, plan and options: same bytes. */
#ifndef KEEL_PLAN_DOC_H
#define KEEL_PLAN_DOC_H

#include "graph/shard.h"
#include "plan/plan.h"

typedef struct doc_options {
    const char *model;    /* how a command line names the model: "--synth qwen3-8b", "/models/llama"; NULL: "MODEL" */
    bool drawn;           /* it is a drawing or a graph file, which takes no --layers and needs --weights to run */
    double bandwidth_tbs; /* of the floor, TB/s; 0: what was measured for the arch, if anything was */
} doc_options;

/* What a machine was measured to do. Zero: not measured. */
typedef struct doc_machine {
    const char *arch;
    double read_tbs;    /* bytes over time when nothing but weights is streamed */
    double hop_us;      /* a dependent phase: signal, poll, fetch, last sum */
    double poll_us;     /* a counter of another worker, read again until it is there */
    double exchange_us; /* a small exchange and sum between two ranks, inside the program */
    double smem_us;     /* a phase whose loader cannot run ahead, on top of the above */
    uint64_t align;     /* that bulk copies with a swizzle want of SMEM destinations; 0: none */
    const char *source;
} doc_machine;
/* All zero when nothing is known of the arch. */
const doc_machine *doc_machine_of(const char *arch);

typedef enum doc_status { DOC_REUSE, DOC_NEW_KERNEL } doc_status;
typedef enum doc_port { DOC_LEAF, DOC_COLLECTIVE, DOC_GRID_WIDE } doc_port;
/* "REUSE", "NEW KERNEL"; "leaf", "collective", "grid-wide". */
const char *doc_status_name(doc_status s);
const char *doc_port_name(doc_port p);

typedef enum doc_use { DOC_INPUT, DOC_WEIGHT, DOC_OUTPUT } doc_use;
typedef struct doc_operand {
    const char *slot; /* "x" */
    doc_use use;
    const graph_tensor *tensor; /* of the rank */
    const graph_tensor *global; /* NULL: it exists on ranks alone */
    placement place;            /* where the rank's activation stands to the global one */
    dtype dtype;                /* as stored under this plan */
    shard_slice slice;          /* weights */
} doc_operand;

/* An op of the rank's graph. */
typedef struct doc_row {
    const graph_op *op;
    const graph_op *from; /* in the global graph: itself, or the op that sharding made it from; NULL: unknown */
    const char *label;    /* the name without its layer */
    doc_operand *operands;
    uint32_t n_operands;
    doc_status status;
    doc_port port;
    const char *collective; /* "AR"; NULL without */
    const char *carrier;    /* the op that performs it: itself, or the one behind a partial output; "" without */
    uint32_t tasks[OP_PHASES];
    plan_cost cost;
    uint32_t fold; /* index into folds */
} doc_row;

/* Rows that are alike but for their layer. */
typedef struct doc_fold {
    const char *name; /* "l{0-35}.attn.q_proj" */
    uint32_t first;   /* row */
    uint32_t count;
} doc_fold;

/* Least and most. */
typedef struct doc_span {
    uint64_t least, most;
} doc_span;

typedef struct doc_region {
    bool used;
    doc_span bytes;
    const char *release; /* role */
    uint64_t align;      /* the largest power of two that divides every offset */
} doc_region;

/* Role bodies of one phase of an op, and everything that this plan asks of them. */
typedef struct doc_kernel {
    const op_desc *op;
    uint32_t phase;
    unsigned missing; /* roles: KP_ROLE_BIT */
    doc_port port;
    uint32_t instances, tasks;
    plan_cost sum;
    doc_span weight_bytes, other_bytes, flops; /* of a task */
    doc_span columns, aux, pages, waits;       /* of a task; columns: hi − lo */
    uint32_t triggering;                       /* tasks that add to an event */
    doc_region region[KP_REGIONS];
    uint32_t *folds, n_folds;
    uint8_t *seen; /* by fold, while collecting */
} doc_kernel;

/* Phases of one fold: what a task of it moves. */
typedef struct doc_work {
    uint32_t fold, phase, n_phases; /* n_phases: over all layers */
    uint32_t tasks;                 /* of one of them */
    doc_span weight_bytes, other_bytes, flops, pages;
} doc_work;

/* Ops that one kernel could do, to be looked at only when the chain is green. */
typedef struct doc_fused {
    const char *ops; /* "l{0-35}: mlp.gate_proj + mlp.up_proj + mlp.act" */
    const char *why;
    uint32_t count;
    uint64_t saved_bytes; /* intermediate activations of one row, that would not leave the worker */
} doc_fused;

/* The longest chain of phases that wait for one another. */
typedef struct doc_chain {
    uint32_t *phases, n_phases;
    uint32_t polls;                  /* waits beyond the first of the most waiting task, over the chain */
    const char *head, *layer, *tail; /* labels, joined by arrows: before the layers, in one of them, behind them */
    uint32_t layer_hops;
} doc_chain;

enum { DOC_CONTEXTS = 3 };
typedef struct doc_floor {
    double tbs;         /* 0: unknown */
    const char *source; /* of tbs */
    plan_cost cost;
    uint64_t kv_bytes; /* a position, all layers */
    double ms;         /* weights alone */
    struct doc_context {
        uint32_t positions;
        double ms; /* weights and KV */
    } context[DOC_CONTEXTS];
    uint32_t n_contexts;
    uint32_t collectives, hops;
} doc_floor;

typedef struct doc_risk {
    const char *rule;         /* "dependency-hops" */
    const char *what, *where; /* sentences with the computed numbers; ops and phases */
    const char *why, *todo;   /* reason and its source; remedy */
    bool blocks;              /* nothing runs before it is dealt with */
    double us;                /* a step, at most; 0: no figure for this machine */
    double rank;              /* as us, at some bandwidth where none is known */
} doc_risk;

typedef struct doc_command {
    const char *text;
    bool planned; /* a verb of the specification that this build does not have */
} doc_command;
enum { DOC_STEPS = 6, DOC_COMMANDS = 6 };
/* M0 … M5 */
typedef struct doc_step {
    const char *name, *title, *scope, *exit;
    const char *collapsed; /* why there is nothing to do; NULL: there is */
    doc_command command[DOC_COMMANDS];
    uint32_t n_commands;
} doc_step;

typedef struct doc {
    arena arena;
    bool nomem; /* sticks */
    const plan *p;
    const arch_desc *arch;
    doc_machine machine;
    const char *model;
    bool drawn;
    const graph *global; /* borrowed */
    graph *local;        /* as it stands in the plan */
    char hash[PLAN_HASH_HEX];
    bool complete;
    uint32_t *worker_of; /* by task */
    doc_row *rows;
    uint32_t n_rows;
    doc_fold *folds;
    uint32_t n_folds;
    doc_kernel *kernels;
    uint32_t n_kernels;
    const op_desc **unrouted; /* registered, not in this graph */
    uint32_t n_unrouted;
    doc_work *work;
    uint32_t n_work;
    doc_fused *fused;
    uint32_t n_fused;
    doc_chain chain;
    doc_floor floor;
    doc_risk *risks; /* the worst first */
    uint32_t n_risks, cap_risks;
    doc_step steps[DOC_STEPS];
} doc;

/* global: what p was made from, with global shapes; both are borrowed until doc_close(). */
keel_status doc_open(const graph *global, const plan *p, const doc_options *o, doc **out, keel_error *err);
void doc_close(doc *d);
void doc_markdown(const doc *d, buf *out);
keel_status doc_json(const doc *d, buf *out, keel_error *err);

#endif
