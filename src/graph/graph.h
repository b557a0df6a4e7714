/* SPDX-License-Identifier: Apache-2.0 */
/* The model: ops and tensors, with GLOBAL shapes (a rank's own in what graph/shard.h makes), weight keys and shard
 * rules. The order of ops is an execution order (a tensor's producer stands before its readers). Immutable once built.
 */
#ifndef KEEL_GRAPH_GRAPH_H
#define KEEL_GRAPH_GRAPH_H

#include "core/arena.h"
#include "core/dtype.h"
#include "core/error.h"

enum { GRAPH_RANK = 4, GRAPH_IN = 8, GRAPH_OUT = 4, GRAPH_WEIGHTS = 10, GRAPH_ATTRS = 16 };

/* Symbolic first dimension: the rows of a pass, and the rows of a pass whose logits are wanted. */
enum { GRAPH_M = -1, GRAPH_M_LOGIT = -2 };

typedef enum tensor_kind {
    TENSOR_ACTIVATION, /* written by one op, read by later ones */
    TENSOR_WEIGHT,     /* from the checkpoint, by key */
    TENSOR_CONST,      /* computed at build time, kept in the plan (rotary frequencies) */
    TENSOR_CACHE,      /* survives iterations: the KV pages */
    TENSOR_STEP,       /* the step record that step_begin writes */
} tensor_kind;

/* What tensor parallelism does to a weight (SPEC: col, row, rep, ep(dim)). The only place a shard rule stands. */
typedef enum shard_rule { SHARD_REP, SHARD_COL, SHARD_ROW, SHARD_EP } shard_rule;
const char *shard_name(shard_rule s);

/* Where a rank's activation stands to the global tensor: all of it; this rank's columns; a full-width summand. */
typedef enum placement { PLACE_WHOLE, PLACE_SHARD, PLACE_PARTIAL } placement;
const char *placement_name(placement p);

typedef struct graph_tensor {
    const char *name; /* "l0.attn.q" */
    tensor_kind kind;
    dtype dtype;
    int rank;
    int64_t dim[GRAPH_RANK]; /* row-major; dim[0] may be GRAPH_M or GRAPH_M_LOGIT */
    const char *key;         /* weights: the checkpoint's name */
    shard_rule shard;
    int shard_dim;
    const float *data; /* constants: dim[0] values, owned by the graph */
    int producer;      /* op index, −1 without */
    bool external;     /* an activation that the caller fills before each run (test mode) */
    placement place;   /* of activations of a rank's graph (graph/shard.h) */
} graph_tensor;

typedef struct graph_attr {
    const char *name;
    double value;
} graph_attr;

struct op_desc;
typedef struct graph_op {
    const struct op_desc *desc;
    const char *name; /* "l0.attn.q_proj" */
    int layer;        /* −1 for head and tail */
    int n_in, n_weights, n_out;
    int in[GRAPH_IN], weight[GRAPH_WEIGHTS], out[GRAPH_OUT]; /* tensor ids; 0 = left out (optional) */
    int n_attrs;
    graph_attr attr[GRAPH_ATTRS];
    const char *notes; /* free notes of a drawing, kept as they are, one space between two; "" without */
} graph_op;

/* Tensor ids and op indices: tensors 1 … n_tensors (0 is "none"), ops 0 … n_ops − 1. */
typedef struct graph {
    arena arena;
    graph_tensor *tensors;
    int n_tensors, cap_tensors;
    graph_op *ops;
    int n_ops, cap_ops;
    const char *architecture; /* "Qwen3ForCausalLM" */
    int n_layers;             /* layers in this slice */
    int layer_first;          /* first layer of the slice */
    int64_t vocab, hidden, max_position;
    int step;              /* tensor id of the step record */
    int logits;            /* tensor id [M_LOGIT][vocab] */
    bool sampling;         /* the tail samples; otherwise it takes the argmax */
    uint32_t tp, ep, rank; /* a rank's graph: shapes are local. The global graph: 1, 1, 0 */
    bool vocab_parallel;   /* the head is cut over the ranks */
} graph;

static inline const graph_tensor *graph_tensor_at(const graph *g, int id) { return &g->tensors[id]; }
/* Value of an attribute; the op's declared default where the graph does not set it. */
double graph_attr_of(const graph_op *op, const char *name);
/* Elements of one row: product of dim[1..]. */
int64_t graph_row_elements(const graph_tensor *t);
/* All elements of a tensor without a symbolic dimension. */
int64_t graph_elements(const graph_tensor *t);
/* Frees everything; NULL is fine. */
void graph_close(graph *g);

#endif
