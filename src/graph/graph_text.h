/* SPDX-License-Identifier: Apache-2.0 */
/* How graphs are spelled wherever they are written: numbers, shapes, slots and layers. */
#ifndef KEEL_GRAPH_GRAPH_TEXT_H
#define KEEL_GRAPH_GRAPH_TEXT_H

#include "core/buf.h"
#include "graph/graph.h"
#include "graph/op.h"

/* Bytes that any of the texts below takes at most, the zero included. */
enum { GRAPH_TEXT_BYTES = 32 };

/* The shortest decimal text that reads back as the same double ("1e-06", "16"). */
void graph_text_real(char out[GRAPH_TEXT_BYTES], double v);
/* The shortest decimal text that reads back as the same float. */
void graph_text_float(char out[GRAPH_TEXT_BYTES], float v);
/* "act", "bf16", "f8_e4m3". */
void graph_text_dtype(char out[GRAPH_TEXT_BYTES], dtype t);
/* The type of that name in any case; DTYPE_COUNT when unknown. */
dtype graph_dtype_named(const char *text, size_t bytes);
/* "M", "M_logit" or the number. */
void graph_text_dim(char out[GRAPH_TEXT_BYTES], int64_t dim);
/* "[M,1024]" and the type behind it. */
void graph_put_shape(buf *b, const graph_tensor *t);

/* A JSON string, quotes included (RFC 8259, 7). */
void graph_put_json(buf *b, const char *s);

/* What slot i of the op is called; "in2", "weight1" where its descriptor has no name. */
void graph_text_input(char out[GRAPH_TEXT_BYTES], const op_desc *desc, int i);
void graph_text_weight(char out[GRAPH_TEXT_BYTES], const op_desc *desc, int i);

/* The layer that a name begins with ("l12.attn" → 12), −1 without; *rest is what stands behind the prefix. */
int graph_name_layer(const char *name, const char **rest);
/* The dimension that a shard rule cuts unless it says otherwise: col and ep the first, row the last. */
int graph_usual_shard_dim(const graph_tensor *weight);
/* The attribute as the graph sets it; NULL when it does not. */
const graph_attr *graph_attr_set(const graph_op *op, const char *name);

#endif
