/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/op.h"

#include <assert.h>
#include <string.h>

const op_desc *op_find(const char *name) {
    for (unsigned i = 0; i < op_registry_count; i++) {
        if (strcmp(op_registry[i]->name, name) == 0) return op_registry[i];
    }
    return NULL;
}

double op_attr_meant(const graph_op *op, const op_attr *a) {
    double value = graph_attr_of(op, a->name);
    return value == a->fallback && a->meaning ? a->meaning(op) : value;
}

unsigned op_code(const op_desc *op) {
    unsigned i = 0;
    while (i < op_registry_count && op_registry[i] != op) i++;
    assert(i < op_registry_count);
    return i;
}

int op_n_phases(const op_desc *op) {
    int n = 0;
    while (n < OP_PHASES && op->phases[n].name) n++;
    return n;
}

bool op_is_scale(const op_desc *op, int slot) {
    for (int i = 0; i < op->max_weights && slot; i++) {
        if (op->scale[i] == slot) return true;
    }
    return false;
}
