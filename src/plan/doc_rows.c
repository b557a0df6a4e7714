/* SPDX-License-Identifier: Apache-2.0 */
/* The op table: a row for each op of the rank, beside the global op that it comes from. */
#include "plan/doc_parts.h"

#include "graph/place.h"

#include <stdio.h>
#include <string.h>

static const char *label_of(const graph_op *op) {
    char prefix[16];
    int bytes = snprintf(prefix, sizeof prefix, "l%d.", op->layer);
    return strncmp(op->name, prefix, (size_t)bytes) == 0 ? op->name + bytes : op->name;
}

/* The global op of the same name, or of the longest part of it that ends before a dot: what sharding adds is called
 * NAME.ar and the like. */
static const graph_op *global_op(const graph *global, const char *name) {
    for (size_t bytes = strlen(name); bytes;) {
        for (int i = 0; i < global->n_ops; i++) {
            const char *other = global->ops[i].name;
            if (strncmp(other, name, bytes) == 0 && !other[bytes]) return &global->ops[i];
        }
        do bytes--;
        while (bytes && name[bytes] != '.');
    }
    return NULL;
}

static const graph_tensor *tensor_named(const graph *g, const char *name) {
    for (int i = 1; i <= g->n_tensors; i++) {
        if (strcmp(graph_tensor_at(g, i)->name, name) == 0) return graph_tensor_at(g, i);
    }
    return NULL;
}

/* A fused op's operands are those of several ops of the global graph, and have their names. */
static const graph_tensor *global_operand(const doc *d, const doc_row *r, const doc_operand *o, int k) {
    const graph_op *from = r->from;
    const op_desc *desc = from ? from->desc : NULL;
    const char *slot = o->slot;
    doc_use use = o->use;
    if (!desc) return NULL;
    if (r->op->desc->chain.head && r->op->desc != desc) return tensor_named(d->global, o->tensor->name);
    if (use == DOC_OUTPUT) return k < from->n_out ? graph_tensor_at(d->global, from->out[k]) : NULL;
    for (int i = 0; use == DOC_INPUT && i < from->n_in; i++) {
        if (from->in[i] && desc->in_name[i] && strcmp(desc->in_name[i], slot) == 0)
            return graph_tensor_at(d->global, from->in[i]);
    }
    for (int i = 0; use == DOC_WEIGHT && i < from->n_weights; i++) {
        if (from->weight[i] && desc->weight_name[i] && strcmp(desc->weight_name[i], slot) == 0)
            return graph_tensor_at(d->global, from->weight[i]);
    }
    return NULL;
}

static void add_operand(doc *d, doc_row *r, doc_use use, const char *slot, int k, int id) {
    if (id <= 0) return;
    const graph_tensor *t = graph_tensor_at(d->local, id);
    if (!slot) slot = use == DOC_OUTPUT ? r->op->n_out > 1 ? doc_text(d, "out.%d", k) : "out" : doc_text(d, "%d", k);
    doc_operand *o = &r->operands[r->n_operands++];
    *o = (doc_operand){.slot = slot, .use = use, .tensor = t};
    o->global = global_operand(d, r, o, k);
    o->dtype = t->dtype == DTYPE_ACT ? d->arch->act_dtype : t->dtype;
    if (use == DOC_WEIGHT) o->slice = graph_weight_slice(d->local, t);
}

static void add_operands(doc *d, doc_row *r) {
    const graph_op *op = r->op;
    r->operands = doc_array(d, (size_t)(op->n_in + op->n_weights + op->n_out), sizeof *r->operands);
    if (!r->operands) return;
    for (int k = 0; k < op->n_in; k++) add_operand(d, r, DOC_INPUT, op->desc->in_name[k], k, op->in[k]);
    for (int k = 0; k < op->n_weights; k++) add_operand(d, r, DOC_WEIGHT, op->desc->weight_name[k], k, op->weight[k]);
    for (int k = 0; k < op->n_out; k++) add_operand(d, r, DOC_OUTPUT, NULL, k, op->out[k]);
}

/* What this op owes its peers: itself a collective, or one reads what it makes; else what a drawing's note says. */
static void find_collective(doc *d, doc_row *r) {
    const graph_op *op = r->op;
    r->carrier = "";
    if (op->desc->collective) {
        r->collective = op->desc->collective;
        r->carrier = op->name;
        return;
    }
    for (int i = (int)(op - d->local->ops) + 1; i < d->local->n_ops && op->n_out; i++) {
        const graph_op *reader = &d->local->ops[i];
        if (!reader->desc->collective || reader->in[0] != op->out[0]) continue; /* input 0 is what it exchanges */
        r->collective = reader->desc->collective;
        r->carrier = reader->name;
        return;
    }
    const char *note = r->from ? strstr(r->from->notes, "collective=") : NULL;
    if (note) r->collective = doc_text(d, "%.*s", (int)strcspn(note + 11, " "), note + 11);
}

/* What each activation is of the global one, by the ops' own rules. */
static void find_places(doc *d) {
    placement *place = doc_array(d, (size_t)d->local->n_tensors, sizeof *place);
    for (uint32_t i = 0; i < d->n_rows && place && d->local->tp > 1; i++) {
        doc_row *r = &d->rows[i];
        op_places places = {0};
        for (int k = 0; k < r->op->n_in; k++) places.in[k] = place[r->op->in[k]];
        for (int k = 0; k < r->op->n_weights; k++)
            places.weight[k] = r->op->weight[k] ? graph_tensor_at(d->local, r->op->weight[k])->shard : SHARD_REP;
        (void)place_op(r->op, &places); /* whether it is right is graph_check_placement()'s to say */
        for (int k = 0; k < r->op->n_out; k++) place[r->op->out[k]] = places.out[k];
        for (uint32_t k = 0; k < r->n_operands; k++)
            r->operands[k].place = place[r->operands[k].tensor - d->local->tensors];
    }
}

static void fill_row(doc *d, uint32_t i) {
    doc_row *r = &d->rows[i];
    r->op = &d->local->ops[i];
    r->from = global_op(d->global, r->op->name);
    r->label = label_of(r->op);
    r->port = doc_port_of(r->op->desc);
    add_operands(d, r);
    find_collective(d, r);
}

static void add_work(doc *d) {
    const plan *p = d->p;
    for (uint32_t q = 0; q < p->n_phases; q++) {
        const plan_phase *h = &p->phases[q];
        doc_row *r = &d->rows[h->instance];
        r->tasks[h->phase] += h->n_tasks;
        if (arch_missing_roles(d->arch, r->op->desc, (int)h->phase)) r->status = DOC_NEW_KERNEL;
        for (uint32_t i = h->first_task; i < h->first_task + h->n_tasks; i++) {
            r->cost.weight_bytes += p->costs[i].weight_bytes;
            r->cost.other_bytes += p->costs[i].other_bytes;
            r->cost.flops += p->costs[i].flops;
        }
    }
}

/* ---- rows that are alike ------------------------------------------------------------------------ */

/* Equal, where a component ".3." of the one key is the one's layer and of the other the other's. */
static bool same_key(const char *a, int layer_a, const char *b, int layer_b) {
    if (!a || !b) return a == b;
    char la[16], lb[16];
    size_t na = (size_t)snprintf(la, sizeof la, ".%d.", layer_a), nb = (size_t)snprintf(lb, sizeof lb, ".%d.", layer_b);
    while (*a && *b) {
        if (strncmp(a, la, na) == 0 && strncmp(b, lb, nb) == 0)
            a += na - 1, b += nb - 1;
        else if (*a++ != *b++)
            return false;
    }
    return *a == *b;
}

static bool same_shape(const graph_tensor *a, const graph_tensor *b) {
    if (!a || !b) return a == b;
    return a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank && a->shard == b->shard &&
           a->shard_dim == b->shard_dim && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static bool same_row(const doc_row *a, const doc_row *b) {
    if ((a->op->layer < 0) != (b->op->layer < 0) || strcmp(a->label, b->label) != 0 || a->op->desc != b->op->desc ||
        a->n_operands != b->n_operands || !a->from != !b->from || !a->collective != !b->collective)
        return false;
    if (a->from && a->from->desc != b->from->desc) return false;
    if (memcmp(a->tasks, b->tasks, sizeof a->tasks) != 0 || memcmp(&a->cost, &b->cost, sizeof a->cost) != 0)
        return false;
    for (uint32_t k = 0; k < a->n_operands; k++) {
        const doc_operand *x = &a->operands[k], *y = &b->operands[k];
        if (x->use != y->use || strcmp(x->slot, y->slot) != 0 || !same_shape(x->tensor, y->tensor) ||
            !same_shape(x->global, y->global) || !same_key(x->tensor->key, a->op->layer, y->tensor->key, b->op->layer))
            return false;
    }
    return true;
}

static void name_folds(doc *d) {
    int *layers = doc_array(d, d->n_rows, sizeof *layers);
    for (uint32_t f = 0; f < d->n_folds && layers; f++) {
        const doc_row *first = &d->rows[d->folds[f].first];
        uint32_t n = 0;
        for (uint32_t i = 0; i < d->n_rows; i++) {
            if (d->rows[i].fold == f) layers[n++] = d->rows[i].op->layer;
        }
        d->folds[f].name = first->op->name;
        if (n == 1) continue;
        buf b = {0};
        buf_str(&b, "l{");
        doc_ranges(&b, layers, n);
        buf_printf(&b, "}.%s", first->label);
        d->folds[f].name = doc_take(d, &b);
    }
}

static void fold_rows(doc *d) {
    d->folds = doc_array(d, d->n_rows, sizeof *d->folds);
    for (uint32_t i = 0; i < d->n_rows && d->folds; i++) {
        uint32_t f = 0;
        while (f < d->n_folds && (d->rows[i].op->layer < 0 || !same_row(&d->rows[d->folds[f].first], &d->rows[i]))) f++;
        if (f == d->n_folds) d->folds[d->n_folds++] = (doc_fold){.first = i};
        d->folds[f].count++;
        d->rows[i].fold = f;
    }
    if (!d->nomem) name_folds(d);
}

/* Two layers are of one kind when their rows fold together. */
doc_layers doc_count_layers(doc *d) {
    doc_layers l = {0};
    uint8_t *seen = doc_array(d, d->n_rows, 1);
    for (uint32_t i = 0; i < d->n_rows && seen; i++) {
        int layer = d->rows[i].op->layer;
        if (layer < 0 || seen[i]) continue;
        uint32_t kinds = 0;
        for (uint32_t k = i; k < d->n_rows; k++) { /* the first row of every other layer that folds with this one */
            if (d->rows[k].fold != d->rows[i].fold) continue;
            bool same = true;
            for (uint32_t r = 0; same && i + r < d->n_rows && k + r < d->n_rows; r++) {
                const doc_row *a = &d->rows[i + r], *b = &d->rows[k + r];
                if (a->op->layer != layer && b->op->layer != d->rows[k].op->layer) break;
                same = a->fold == b->fold;
            }
            for (uint32_t r = k; same && r < d->n_rows && d->rows[r].op->layer == d->rows[k].op->layer; r++)
                seen[r] = 1;
            kinds += same;
        }
        l.kinds++;
        if (kinds > l.common) l.common = kinds, l.first = layer;
    }
    return l;
}

void doc_find_rows(doc *d) {
    d->n_rows = (uint32_t)d->local->n_ops;
    d->rows = doc_array(d, d->n_rows, sizeof *d->rows);
    for (uint32_t i = 0; i < d->n_rows && !d->nomem; i++) fill_row(d, i);
    if (d->nomem) return;
    find_places(d);
    add_work(d);
    fold_rows(d);
}
