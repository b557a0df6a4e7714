/* SPDX-License-Identifier: Apache-2.0 */
/* How a model file makes a graph. Errors stick: after the first one every call returns 0 and build_finish() reports
 * it, so that a builder reads like the model and checks nothing. */
#ifndef KEEL_GRAPH_BUILD_H
#define KEEL_GRAPH_BUILD_H

#include "graph/graph.h"

typedef struct weight_spec {
    const char *key;         /* checkpoint name; NULL: no weight (or the end of the list) */
    int64_t dim[GRAPH_RANK]; /* zero-terminated */
    shard_rule shard;
    int shard_dim;
} weight_spec;

/* One op. Lists end at the first zero; a hole (an optional input or weight left out) is BUILD_NONE / {.key = ""}. Holes
 * at the end of a list do not count; whether a hole in the middle may be one is for the op's shape rule to say. */
enum { BUILD_NONE = -1 };
typedef struct op_spec {
    const char *kind; /* op name: "linear" */
    const char *name; /* "attn.q_proj"; layer ops get the prefix "l{i}." */
    int in[GRAPH_IN];
    weight_spec weight[GRAPH_WEIGHTS];
    graph_attr attr[GRAPH_ATTRS];
    const char *notes;                 /* NULL: none */
    bool typed;                        /* weights are stored as the next line says; else as build.weight_dtype does */
    dtype weight_dtype[GRAPH_WEIGHTS]; /* by slot */
} op_spec;

struct names;
typedef struct build {
    graph *g;
    int layer; /* set by the builder before a layer's ops; −1 for head and tail */
    dtype weight_dtype;
    const char *file; /* for messages */
    keel_status status;
    keel_error *err;
    struct names *names; /* private: what is named so far, until build_finish() */
} build;

/* Starts a graph with the step record (op and tensor "step"). file is borrowed until build_finish(), which must follow
 * whatever this returns. */
keel_status build_begin(build *b, const char *file, const char *architecture, dtype weight_dtype, keel_error *err);
/* Adds the op, runs its shape rule; returns the first output's id (the others follow it). The output is named after the
 * op, several are NAME.0, NAME.1 … Names are unique, and get the prefix "l{layer}." inside a layer. The same key used
 * twice is one tensor (a tied head) and must have one shape, one dtype and one shard rule. */
int build_op(build *b, op_spec spec);
/* data is copied. */
int build_const(build *b, const char *name, const float *data, int64_t n);
/* An activation [M][cols] that the caller fills before a run: for test mode. */
int build_input(build *b, const char *name, int64_t cols);
/* A KV cache: [kv_heads][head_dim] a token. */
int build_cache(build *b, const char *name, int64_t kv_heads, int64_t head_dim);
/* A formatted string that lives as long as the graph. Returns "" after an error. */
const char *build_text(build *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void build_fail(build *b, keel_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Ends the chain: logits [M_LOGIT][vocab] → the next token. sample: the sampling op instead of argmax. */
void build_tail(build *b, int logits, bool sample);
/* Hands the graph over, or frees it and returns the first error. */
keel_status build_finish(build *b, graph **out);

#endif
