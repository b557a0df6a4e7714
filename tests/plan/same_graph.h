/* SPDX-License-Identifier: Apache-2.0 */
/* Two graphs, field by field. What a plan does not keep is left out: the notes of a drawing, the model's largest
 * position, and placements, which follow from the weights' rules. */
#ifndef KEEL_TESTS_SAME_GRAPH_H
#define KEEL_TESTS_SAME_GRAPH_H

#include "graph/op.h"

#include <stdio.h>
#include <string.h>

static char same_graph_text[256];
#define DIFFERENT(...) return snprintf(same_graph_text, sizeof same_graph_text, __VA_ARGS__), same_graph_text

static const char *tensor_difference(const graph_tensor *a, const graph_tensor *b) {
    if (strcmp(a->name, b->name) != 0) DIFFERENT("tensor %s is %s", a->name, b->name);
    if (a->kind != b->kind || a->dtype != b->dtype || a->rank != b->rank || a->external != b->external)
        DIFFERENT("tensor %s: kind %d %d, dtype %s %s, rank %d %d, external %d %d", a->name, a->kind, b->kind,
                  dtype_name(a->dtype), dtype_name(b->dtype), a->rank, b->rank, a->external, b->external);
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i])
            DIFFERENT("tensor %s: dim %d: %lld %lld", a->name, i, (long long)a->dim[i], (long long)b->dim[i]);
    }
    if (!a->key != !b->key || (a->key && strcmp(a->key, b->key) != 0)) DIFFERENT("tensor %s: key", a->name);
    if (a->shard != b->shard || a->shard_dim != b->shard_dim) DIFFERENT("tensor %s: shard rule", a->name);
    if (a->producer != b->producer) DIFFERENT("tensor %s: producer %d %d", a->name, a->producer, b->producer);
    if (a->kind == TENSOR_CONST && memcmp(a->data, b->data, (size_t)a->dim[0] * sizeof *a->data) != 0)
        DIFFERENT("tensor %s: data", a->name);
    return "";
}

static const char *op_difference(const graph_op *a, const graph_op *b) {
    if (strcmp(a->name, b->name) != 0 || a->desc != b->desc || a->layer != b->layer)
        DIFFERENT("op %s is %s, a %s, in layer %d, not %d", a->name, b->name, b->desc->name, b->layer, a->layer);
    if (a->n_in != b->n_in || a->n_weights != b->n_weights || a->n_out != b->n_out || a->n_attrs != b->n_attrs)
        DIFFERENT("op %s: %d %d inputs, %d %d weights, %d %d outputs, %d %d attributes", a->name, a->n_in, b->n_in,
                  a->n_weights, b->n_weights, a->n_out, b->n_out, a->n_attrs, b->n_attrs);
    if (memcmp(a->in, b->in, sizeof a->in) != 0) DIFFERENT("op %s: inputs", a->name);
    if (memcmp(a->weight, b->weight, sizeof a->weight) != 0) DIFFERENT("op %s: weights", a->name);
    if (memcmp(a->out, b->out, sizeof a->out) != 0) DIFFERENT("op %s: outputs", a->name);
    for (int i = 0; i < a->n_attrs; i++) {
        if (strcmp(a->attr[i].name, b->attr[i].name) != 0 || a->attr[i].value != b->attr[i].value)
            DIFFERENT("op %s: attribute %s", a->name, a->attr[i].name);
    }
    return "";
}

/* "" when they are equal, else what differs first. */
static const char *graph_difference(const graph *a, const graph *b) {
    if (a->n_tensors != b->n_tensors || a->n_ops != b->n_ops)
        DIFFERENT("%d %d tensors, %d %d ops", a->n_tensors, b->n_tensors, a->n_ops, b->n_ops);
    const char *found = "";
    for (int i = 1; i <= a->n_tensors && !*found; i++) found = tensor_difference(&a->tensors[i], &b->tensors[i]);
    for (int i = 0; i < a->n_ops && !*found; i++) found = op_difference(&a->ops[i], &b->ops[i]);
    if (*found) return found;
    if (strcmp(a->architecture, b->architecture) != 0)
        DIFFERENT("architecture %s %s", a->architecture, b->architecture);
    if (a->n_layers != b->n_layers || a->layer_first != b->layer_first || a->vocab != b->vocab ||
        a->hidden != b->hidden || a->step != b->step || a->logits != b->logits || a->sampling != b->sampling)
        DIFFERENT("layers, vocabulary, width, step record, logits or tail");
    if (a->tp != b->tp || a->ep != b->ep || a->rank != b->rank || a->vocab_parallel != b->vocab_parallel)
        DIFFERENT("ranks: %u %u, %u %u, %u %u", a->tp, b->tp, a->ep, b->ep, a->rank, b->rank);
    return "";
}

#endif
