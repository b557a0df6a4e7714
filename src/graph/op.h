/* SPDX-License-Identifier: Apache-2.0 */
/* What an op is: one descriptor, defined in its folder as `const op_desc keel_op_NAME`, listed in ops/ops.def. Nothing
 * outside the folder knows more of an op than this. */
#ifndef KEEL_GRAPH_OP_H
#define KEEL_GRAPH_OP_H

#include "device/body.h"
#include "graph/graph.h"

enum { OP_PHASES = 4, OP_ATTRS = 16 };

typedef struct op_attr {
    const char *name; /* NULL ends the table */
    bool required;
    double fallback; /* value when not set */
    const char *doc; /* meaning, unit */
    bool per_rank;   /* counts what is sharded when input 0 is: a rank has 1/W of it (q_heads) */
    /* What the fallback stands for where the op tells it; NULL: itself. */
    double (*meaning)(const graph_op *op);
} op_attr;

/* One launchable step of an op. Most ops have one; attention has append, split and merge, argmax partial and reduce. */
typedef struct op_phase {
    const char *name;      /* NULL ends the table; "" when the op has one phase */
    bool ring;             /* a phase of archs with a ring to stream through; others are not owed a body */
    unsigned needs;        /* KP_ROLE_BIT mask: roles without whose body the phase would be wrong */
    kb_body cpu[KP_ROLES]; /* bodies; a role outside `needs` may stay NULL and then only keeps the protocol */
    bool gpu_only;         /* plans for the CPU have no task of it */
    bool by_bands;         /* GPU, where its output is a tagged row: stored band by band, as the consumer goes on */
    bool by_aux;           /* dealt to workers by ascending aux: tasks of aux 0 always have work, others seldom */
} op_phase;

/* Placements of an op's inputs and rules of its weights, by slot; where nothing is bound: whole, rep. */
typedef struct op_places {
    placement in[GRAPH_IN];
    shard_rule weight[GRAPH_WEIGHTS];
    placement out[GRAPH_OUT]; /* to be set */
} op_places;

struct tiler;
struct op_task;
struct tile_env;
/* The piece of a chain that a fused op stands for, found by its shape (plan/lower.h): a `head` whose output nobody
 * reads but `members` ops of kind `member`, which have no other input, and what these make, which nobody reads but one
 * `tail`, as its first inputs, in this order. The fused op has the head's inputs, attributes and weights, then weight 0
 * of each member, then weight 1 of each, then the block scales of weight 0 of each; it makes what the members make, or,
 * with takes_tail, what the tail makes. */
typedef struct op_chain {
    const char *head, *member, *tail; /* kinds; head NULL: no fused op; tail NULL: one member, whoever reads it */
    int members;
    bool takes_tail;
    bool takes_bias;    /* members may have a weight 1 */
    const char *suffix; /* of the op's name: HEAD.suffix */
    /* Does a plan of that kind hold it? op: the fused one, its ids those of g. */
    bool (*fits)(const struct tile_env *env, const graph *g, const graph_op *op);
} op_chain;

typedef struct op_desc {
    const char *name;
    const char *summary; /* the formula, one line */
    op_attr attrs[OP_ATTRS];
    int min_in, max_in, min_weights, max_weights, n_out;
    /* What stands in each slot, by position: drawings, documents and messages use these names. One for every slot. */
    const char *in_name[GRAPH_IN], *weight_name[GRAPH_WEIGHTS];
    /* By weight slot: the slot of its block scales where it may be F8E4M3 (graph/shape.h, shape_scaled); 0: never. */
    uint8_t scale[GRAPH_WEIGHTS];
    op_phase phases[OP_PHASES + 1];
    /* Checks inputs, weights and attributes (KEEL_FORMAT with op->name and what was expected) and sets kind, dtype,
     * rank and dims of every output in out[0 … n_out). */
    keel_status (*infer)(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err);
    /* Sets places->out from the rest; NULL when that is fine, else what is wrong with it, static text. A NULL function:
     * everything must be whole. */
    const char *(*place)(const graph_op *op, op_places *places);
    const char *partial_kind; /* the op that makes the summand when its weight is row-sharded: "linear" */
    bool grid_wide;    /* one task a worker, aux 0 … workers − 1; their consumers meet in a barrier of the op's */
    unsigned streamed; /* weight slots, a bit each, that stream in tiles where the arch has a ring for it */
    /* Slots, a bit each, whose rows its GPU bodies can read and write as data that carry their epoch. */
    unsigned tagged_in, tagged_out;
    bool (*tags)(const void *params); /* can they with these parameters? NULL: with all */
    const char *collective; /* "AR", "RS", "AG", "EP": reads other ranks' tensors; NULL: works on its own rank */
    /* Parameters and scratch; which tasks; what one task touches. See plan/tiler.h. Pure. */
    keel_status (*params)(struct tiler *t, const graph *g, const graph_op *op, keel_error *err);
    void (*tile)(struct tiler *t, const graph *g, const graph_op *op);
    void (*task)(struct tiler *t, const graph *g, const graph_op *op, const struct op_task *k);
    op_chain chain;
    /* Gate before the op enters a graph: cosine and max|Δ|/max|ref| against the reference. Exact where both are 1, 0.
     */
    double min_cosine, max_rel_error;
} op_desc;

/* ops/ops.def, in order; the index is the opcode. */
extern const op_desc *const op_registry[];
extern const unsigned op_registry_count;
/* NULL when unknown. */
const op_desc *op_find(const char *name);
/* What an attribute comes to: as set, or its fallback, or what that stands for. */
double op_attr_meant(const graph_op *op, const op_attr *a);
/* Index in the registry. */
unsigned op_code(const op_desc *op);
int op_n_phases(const op_desc *op);
/* Whether the weight slot holds the block scales of another one. */
bool op_is_scale(const op_desc *op, int slot);

#endif
