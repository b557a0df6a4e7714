/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"

#include "core/mem.h"
#include "graph/op.h"

#include <assert.h>
#include <string.h>

const char *placement_name(placement p) { return p == PLACE_WHOLE ? "whole" : p == PLACE_SHARD ? "shard" : "partial"; }

const char *shard_name(shard_rule s) {
    switch (s) {
    case SHARD_REP:
        return "rep";
    case SHARD_COL:
        return "col";
    case SHARD_ROW:
        return "row";
    case SHARD_EP:
        return "ep";
    }
    return "?";
}

double graph_attr_of(const graph_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++) {
        if (strcmp(op->attr[i].name, name) == 0) return op->attr[i].value;
    }
    for (int i = 0; i < OP_ATTRS && op->desc->attrs[i].name; i++) {
        if (strcmp(op->desc->attrs[i].name, name) == 0) return op->desc->attrs[i].fallback;
    }
    assert(false && "an attribute that the op does not declare");
    return 0;
}

int64_t graph_row_elements(const graph_tensor *t) {
    int64_t n = 1;
    for (int i = 1; i < t->rank; i++) n *= t->dim[i];
    return n;
}

int64_t graph_elements(const graph_tensor *t) { return (t->rank ? t->dim[0] : 1) * graph_row_elements(t); }

void graph_close(graph *g) {
    if (!g) return;
    mem_free(g->tensors);
    mem_free(g->ops);
    arena_free(&g->arena);
    mem_free(g);
}
