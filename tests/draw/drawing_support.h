/* SPDX-License-Identifier: Apache-2.0 */
/* Two graphs, field by field and number by number. */
#ifndef KEEL_TESTS_GRAPH_DRAWING_SUPPORT_H
#define KEEL_TESTS_GRAPH_DRAWING_SUPPORT_H

#include "graph/graph.h"
#include "graph/op.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The first difference, into out; "" when there is none. */
static inline void differ(char *out, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static inline void differ(char *out, size_t cap, const char *fmt, ...) {
    if (out[0]) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(out, cap, fmt, args);
    va_end(args);
}

static inline void compare_tensors(const graph *a, const graph *b, char *out, size_t cap) {
    if (a->n_tensors != b->n_tensors) differ(out, cap, "%d tensors, %d", a->n_tensors, b->n_tensors);
    for (int i = 1; i <= a->n_tensors && !out[0]; i++) {
        const graph_tensor *x = graph_tensor_at(a, i), *y = graph_tensor_at(b, i);
        if (strcmp(x->name, y->name) != 0) differ(out, cap, "tensor %d is %s, %s", i, x->name, y->name);
        if (x->kind != y->kind || x->dtype != y->dtype || x->rank != y->rank || x->producer != y->producer ||
            x->external != y->external || x->place != y->place) {
            differ(out, cap, "%s: kind, dtype, rank or producer", x->name);
        }
        if (memcmp(x->dim, y->dim, sizeof x->dim) != 0) differ(out, cap, "%s: dimensions", x->name);
        if (!x->key != !y->key || (x->key && strcmp(x->key, y->key) != 0)) differ(out, cap, "%s: key", x->name);
        if (x->shard != y->shard || x->shard_dim != y->shard_dim) differ(out, cap, "%s: shard rule", x->name);
        if (!x->data != !y->data) differ(out, cap, "%s: values", x->name);
        if (!out[0] && x->data && memcmp(x->data, y->data, (size_t)x->dim[0] * sizeof *x->data) != 0) {
            differ(out, cap, "%s: values", x->name);
        }
    }
}

static inline void compare_ops(const graph *a, const graph *b, char *out, size_t cap) {
    if (a->n_ops != b->n_ops) differ(out, cap, "%d ops, %d", a->n_ops, b->n_ops);
    for (int i = 0; i < a->n_ops && !out[0]; i++) {
        const graph_op *x = &a->ops[i], *y = &b->ops[i];
        if (strcmp(x->name, y->name) != 0) differ(out, cap, "op %d is %s, %s", i, x->name, y->name);
        if (x->desc != y->desc || x->layer != y->layer) differ(out, cap, "%s: kind or layer", x->name);
        if (x->n_in != y->n_in || x->n_weights != y->n_weights || x->n_out != y->n_out ||
            memcmp(x->in, y->in, sizeof x->in) != 0 || memcmp(x->weight, y->weight, sizeof x->weight) != 0 ||
            memcmp(x->out, y->out, sizeof x->out) != 0) {
            differ(out, cap, "%s: tensors", x->name);
        }
        if (strcmp(x->notes, y->notes) != 0) differ(out, cap, "%s: notes \"%s\", \"%s\"", x->name, x->notes, y->notes);
        if (x->n_attrs != y->n_attrs) differ(out, cap, "%s: %d attributes, %d", x->name, x->n_attrs, y->n_attrs);
        for (int k = 0; k < x->n_attrs && !out[0]; k++) {
            double v = graph_attr_of(y, x->attr[k].name);
            if (memcmp(&v, &x->attr[k].value, sizeof v) != 0) differ(out, cap, "%s: %s", x->name, x->attr[k].name);
        }
    }
}

static inline const char *graph_difference(const graph *a, const graph *b, char *out, size_t cap) {
    out[0] = '\0';
    if (strcmp(a->architecture, b->architecture) != 0) differ(out, cap, "architecture");
    compare_ops(a, b, out, cap);
    compare_tensors(a, b, out, cap);
    if (a->n_layers != b->n_layers || a->layer_first != b->layer_first) {
        differ(out, cap, "layers %d from %d, %d from %d", a->n_layers, a->layer_first, b->n_layers, b->layer_first);
    }
    if (a->vocab != b->vocab || a->hidden != b->hidden || a->max_position != b->max_position) {
        differ(out, cap, "vocab %" PRId64 ", %" PRId64 "; hidden %" PRId64 ", %" PRId64 "; positions", a->vocab,
               b->vocab, a->hidden, b->hidden);
    }
    if (a->step != b->step || a->logits != b->logits || a->sampling != b->sampling) differ(out, cap, "tail");
    if (a->tp != b->tp || a->ep != b->ep || a->rank != b->rank || a->vocab_parallel != b->vocab_parallel) {
        differ(out, cap, "rank");
    }
    return out;
}

#endif
