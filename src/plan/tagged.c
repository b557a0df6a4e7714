/* SPDX-License-Identifier: Apache-2.0 */
/* The mechanism of an edge: a counter, whose additions order what was written, or data that carry their epoch. */
#include "plan/tiler_internal.h"

#include <string.h>

/* A row that an op makes and other ops of this rank read. */
static bool may_be_tagged(const tiler *t, int id) {
    const graph_tensor *g = graph_tensor_at(t->g, id);
    return g->kind == TENSOR_ACTIVATION && !g->external && id != t->g->logits && g->producer >= 0 && g->rank == 2 &&
           g->dim[0] == GRAPH_M && g->dim[1] % KP_TAGGED_COLS == 0 && g->dtype == DTYPE_ACT;
}

void plan_find_tagged(const tiler *t, const plan *p, uint8_t *tagged) {
    if (!t->env.arch->tags || p->m_max != 1 || p->tp > 1) return;
    for (int id = 1; id <= t->g->n_tensors; id++) tagged[id] = may_be_tagged(t, id);
    for (int i = 0; i < t->g->n_ops; i++) {
        const graph_op *op = &t->g->ops[i];
        const op_desc *d = op->desc;
        bool can = !d->tags || d->tags(t->params.data + t->param_at[i].offset);
        for (int k = 0; k < op->n_in; k++) {
            if (op->in[k] > 0 && !(can && d->tagged_in >> k & 1)) tagged[op->in[k]] = 0;
        }
        for (int k = 0; k < op->n_out; k++) {
            if (!(can && d->tagged_out >> k & 1)) tagged[op->out[k]] = 0;
        }
    }
}

static uint32_t slot_of(const tiler *t, int32_t tensor) {
    return tensor < SCRATCH_BASE ? (uint32_t)tensor : (uint32_t)t->g->n_tensors + 1 + (uint32_t)(tensor - SCRATCH_BASE);
}

uint32_t plan_unread_slots(const tiler *t) { return (uint32_t)t->g->n_tensors + 1 + t->n_scratches; }

/* Units of a cache that the task itself writes. */
static bool reads_own(const tiler *t, const access *a) {
    if (a->tensor >= SCRATCH_BASE) return false;
    for (uint32_t i = t->access_first[a->task]; i < t->access_first[a->task + 1]; i++) {
        const access *w = &t->accesses[i];
        if (w->write && w->tensor == a->tensor && w->lo <= a->lo && w->hi >= a->hi) return true;
    }
    return false;
}

void plan_find_unread(const tiler *t, uint8_t *unread) {
    for (int id = 0; id <= t->g->n_tensors; id++) unread[id] = graph_tensor_at(t->g, id)->kind == TENSOR_CACHE;
    memset(unread + t->g->n_tensors + 1, 1, t->n_scratches);
    for (uint32_t i = 0; i < t->n_accesses; i++) {
        const access *a = &t->accesses[i];
        if (a->tensor == TILER_STATE || a->write || a->count || !unread[slot_of(t, a->tensor)]) continue;
        unread[slot_of(t, a->tensor)] = reads_own(t, a);
    }
}

/* A cache that no other task reads is for later iterations, which the border orders, and for the task itself. Scratch
 * that no task reads is what tasks of a phase hand to each other, in the order of the op's own counts. */
bool plan_writes_tagged(const tiler *t, const uint8_t *tagged, const uint8_t *unread, uint32_t task) {
    for (uint32_t i = t->access_first[task]; i < t->access_first[task + 1]; i++) {
        const access *a = &t->accesses[i];
        if (!a->write && !a->count) continue;
        if (a->tensor == TILER_STATE) return false;
        if (!unread[slot_of(t, a->tensor)] && (a->tensor >= SCRATCH_BASE || !tagged[a->tensor])) return false;
    }
    return true;
}
