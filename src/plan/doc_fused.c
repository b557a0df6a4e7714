/* SPDX-License-Identifier: Apache-2.0 */
/* Fused candidates, found by the graph's shape and by the notes of a drawing. Deferred: the chain comes first. */
#include "plan/doc_parts.h"

#include <string.h>

typedef struct candidate {
    const char *labels, *why;
    int layer;
    uint64_t saved;
} candidate;

typedef struct finder {
    doc *d;
    candidate *found;
    uint32_t n, cap;
    int *readers; /* by tensor: how many ops read it */
} finder;

static void add(finder *f, const char *labels, const char *why, int layer, uint64_t saved) {
    if (f->n < f->cap) f->found[f->n++] = (candidate){labels, why, layer, saved};
}

/* Written by one op and read by the next: twice the bytes of one row. */
static uint64_t saved_bytes(const doc *d, int tensor) {
    const graph_tensor *t = graph_tensor_at(d->local, tensor);
    dtype type = t->dtype == DTYPE_ACT ? d->arch->act_dtype : t->dtype;
    return 2 * (uint64_t)graph_row_elements(t) * dtype_bytes(type);
}

/* The matrix product that makes input k, when nobody else reads it. */
static const doc_row *sole_matmul(const finder *f, const graph_op *op, int k) {
    const graph_tensor *t = op->in[k] ? graph_tensor_at(f->d->local, op->in[k]) : NULL;
    if (!t || t->producer < 0 || f->readers[op->in[k]] != 1) return NULL;
    const doc_row *r = &f->d->rows[t->producer];
    return r->op->desc->partial_kind ? r : NULL;
}

/* Several products of one input, all for this op. */
static void find_products(finder *f, const doc_row *r) {
    const graph_op *op = r->op;
    buf labels = {0};
    int n = 0, input = 0;
    uint64_t saved = 0;
    for (int k = 0; k < op->n_in; k++) {
        const doc_row *m = sole_matmul(f, op, k);
        if (!m || (n && m->op->in[0] != input)) continue;
        input = m->op->in[0];
        saved += saved_bytes(f->d, op->in[k]);
        buf_printf(&labels, "%s + ", m->label);
        n++;
    }
    buf_str(&labels, r->label);
    const char *text = doc_take(f->d, &labels);
    if (n < 2) return;
    add(f, text, "they multiply one input, and nothing but the last op reads what they make", op->layer, saved);
}

static void find_collective(finder *f, const doc_row *r) {
    const doc_row *m = r->op->desc->collective && r->op->n_in ? sole_matmul(f, r->op, 0) : NULL;
    if (!m) return;
    add(f, doc_text(f->d, "%s + %s", m->label, r->label),
        "the exchange could begin with the first columns that are ready", r->op->layer,
        saved_bytes(f->d, r->op->in[0]));
}

static void find_noted(finder *f, const doc_row *r) {
    if (r->from && strstr(r->from->notes, "fused-candidate"))
        add(f, r->label, "the drawing's note says so", r->op->layer, 0);
}

static void merge(finder *f) {
    doc *d = f->d;
    int *layers = doc_array(d, f->n, sizeof *layers);
    d->fused = doc_array(d, f->n, sizeof *d->fused);
    for (uint32_t i = 0; i < f->n && !d->nomem; i++) {
        const candidate *c = &f->found[i];
        if (!c->labels) continue;
        doc_fused *to = &d->fused[d->n_fused++];
        *to = (doc_fused){.why = c->why};
        const char *labels = c->labels;
        for (uint32_t k = i; k < f->n; k++) {
            candidate *other = &f->found[k];
            if (!other->labels || strcmp(other->labels, labels) != 0 || other->why != to->why) continue;
            layers[to->count++] = other->layer;
            to->saved_bytes += other->saved;
            other->labels = NULL;
        }
        buf b = {0};
        if (layers[0] >= 0) {
            buf_str(&b, "l{");
            doc_ranges(&b, layers, to->count);
            buf_str(&b, "}: ");
        }
        buf_str(&b, labels);
        to->ops = doc_take(d, &b);
    }
}

void doc_find_fused(doc *d) {
    finder f = {.d = d, .cap = 3 * d->n_rows};
    f.found = doc_array(d, f.cap, sizeof *f.found);
    f.readers = doc_array(d, (size_t)d->local->n_tensors, sizeof *f.readers);
    for (uint32_t i = 0; i < d->n_rows && !d->nomem; i++) {
        const graph_op *op = d->rows[i].op;
        for (int k = 0; k < op->n_in; k++) f.readers[op->in[k]]++;
    }
    for (uint32_t i = 0; i < d->n_rows && !d->nomem; i++) {
        find_products(&f, &d->rows[i]);
        find_collective(&f, &d->rows[i]);
        find_noted(&f, &d->rows[i]);
    }
    if (!d->nomem) merge(&f);
}
