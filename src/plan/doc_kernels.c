/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan asks of every role body, which ones are missing, and which registered ops it never routes to. */
#include "plan/doc_parts.h"

static uint64_t task_pages(const kp_task *t) {
    uint64_t n = 0;
    for (uint32_t s = 0; s < t->n_spans; s++) n += t->span[s].n_pages;
    return n;
}

static void add_regions(doc_kernel *k, const kp_task *t, const region_ask *ask) {
    for (int r = 0; r < KP_REGIONS; r++) {
        if (!ask->bytes[r]) continue;
        doc_region *g = &k->region[r];
        doc_span_add(&g->bytes, ask->bytes[r], !g->used);
        uint64_t at = t->region_offset[r], align = at ? at & (~at + 1) : 1ull << 30;
        if (!g->used || align < g->align) g->align = align;
        g->release = role_name(ask->release[r]);
        g->used = true;
    }
}

static void add_task(doc *d, doc_kernel *k, uint32_t i, const region_ask *ask) {
    const kp_task *t = &d->p->tasks[i];
    const plan_cost *c = &d->p->costs[i];
    bool first = k->tasks++ == 0;
    k->sum.weight_bytes += c->weight_bytes;
    k->sum.other_bytes += c->other_bytes;
    k->sum.flops += c->flops;
    doc_span_add(&k->weight_bytes, c->weight_bytes, first);
    doc_span_add(&k->other_bytes, c->other_bytes, first);
    doc_span_add(&k->flops, c->flops, first);
    doc_span_add(&k->columns, t->hi - (uint64_t)t->lo, first);
    doc_span_add(&k->aux, t->aux, first);
    doc_span_add(&k->pages, task_pages(t), first);
    doc_span_add(&k->waits, t->n_waits, first);
    k->triggering += t->trigger != KP_NONE;
    add_regions(k, t, ask);
}

static void add_phase(doc *d, const tiler *t, uint32_t q) {
    const plan_phase *h = &d->p->phases[q];
    doc_kernel *k = &d->kernels[d->p->tasks[h->first_task].body];
    uint32_t fold = d->rows[h->instance].fold;
    k->instances++;
    if (!k->seen[fold]) {
        k->seen[fold] = 1;
        k->folds[k->n_folds++] = fold;
    }
    for (uint32_t i = h->first_task; i < h->first_task + h->n_tasks; i++) add_task(d, k, i, &t->regions[i]);
}

static void add_work(doc *d, uint32_t q) {
    const plan *p = d->p;
    const plan_phase *h = &p->phases[q];
    uint32_t fold = d->rows[h->instance].fold, at = 0;
    while (at < d->n_work && (d->work[at].fold != fold || d->work[at].phase != h->phase)) at++;
    doc_work *w = &d->work[at];
    if (at == d->n_work) *w = (doc_work){.fold = fold, .phase = h->phase}, d->n_work++;
    w->tasks = h->n_tasks;
    for (uint32_t i = h->first_task; i < h->first_task + h->n_tasks; i++) {
        bool first = !w->n_phases && i == h->first_task;
        doc_span_add(&w->weight_bytes, p->costs[i].weight_bytes, first);
        doc_span_add(&w->other_bytes, p->costs[i].other_bytes, first);
        doc_span_add(&w->flops, p->costs[i].flops, first);
        doc_span_add(&w->pages, task_pages(&p->tasks[i]), first);
    }
    w->n_phases++;
}

static void find_unrouted(doc *d) {
    d->unrouted = doc_array(d, op_registry_count, sizeof(op_desc *));
    for (unsigned i = 0; i < op_registry_count && d->unrouted; i++) {
        bool routed = false;
        for (uint32_t r = 0; r < d->n_rows; r++) routed |= d->rows[r].op->desc == op_registry[i];
        if (!routed) d->unrouted[d->n_unrouted++] = op_registry[i];
    }
}

void doc_find_kernels(doc *d, const tiler *t) {
    const plan *p = d->p;
    d->n_kernels = p->n_bodies;
    d->kernels = doc_array(d, p->n_bodies, sizeof *d->kernels);
    d->work = doc_array(d, p->n_phases, sizeof *d->work);
    for (uint32_t b = 0; b < p->n_bodies && !d->nomem; b++) {
        doc_kernel *k = &d->kernels[b];
        k->op = p->bodies[b].op;
        k->phase = p->bodies[b].phase;
        k->missing = arch_missing_roles(d->arch, k->op, (int)k->phase);
        k->port = doc_port_of(k->op);
        k->folds = doc_array(d, d->n_folds, sizeof *k->folds);
        k->seen = doc_array(d, d->n_folds, 1);
    }
    for (uint32_t q = 0; q < p->n_phases && !d->nomem; q++) {
        add_phase(d, t, q);
        add_work(d, q);
    }
    if (!d->nomem) find_unrouted(d);
}
