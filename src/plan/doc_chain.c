/* SPDX-License-Identifier: Apache-2.0 */
/* The longest chain of phases that wait for one another, and the floor. */
#include "plan/doc_parts.h"

static int layer_of(const doc *d, uint32_t phase) { return d->rows[d->p->phases[phase].instance].op->layer; }

/* depth[q]: hops before phase q may start; from[q]: the phase that it waits for last. */
static uint32_t find_depths(const doc *d, uint32_t *depth, uint32_t *from) {
    const plan *p = d->p;
    uint32_t deepest = 0;
    for (uint32_t q = 0; q < p->n_phases; q++) {
        const plan_phase *h = &p->phases[q];
        from[q] = KP_NONE;
        for (uint32_t i = h->first_task; i < h->first_task + h->n_tasks; i++) {
            const kp_task *t = &p->tasks[i];
            for (uint32_t w = 0; w < t->n_waits; w++) {
                uint32_t on = p->events[p->waits[t->wait_first + w]].phase;
                if (on >= q || (from[q] != KP_NONE && depth[on] < depth[q])) continue;
                depth[q] = depth[on] + 1;
                from[q] = on;
            }
        }
        if (depth[q] > depth[deepest]) deepest = q;
    }
    return deepest;
}

static void put_label(doc *d, buf *b, uint32_t phase) {
    const plan_phase *h = &d->p->phases[phase];
    const doc_row *r = &d->rows[h->instance];
    const char *name = r->op->desc->phases[h->phase].name;
    buf_printf(b, "%s%s%s%s", b->len ? " → " : "", r->label, *name ? "." : "", name);
}

static void name_chain(doc *d) {
    doc_chain *c = &d->chain;
    buf head = {0}, layer = {0}, tail = {0};
    int shown = layer_of(d, c->phases[c->n_phases / 2]);
    bool inside = false;
    for (uint32_t i = 0; i < c->n_phases; i++) {
        int at = layer_of(d, c->phases[i]);
        inside |= at >= 0;
        if (at < 0) {
            put_label(d, inside ? &tail : &head, c->phases[i]);
        } else if (at == shown) {
            put_label(d, &layer, c->phases[i]);
            c->layer_hops++;
        }
    }
    c->head = doc_take(d, &head);
    c->layer = doc_take(d, &layer);
    c->tail = doc_take(d, &tail);
}

void doc_find_chain(doc *d) {
    const plan *p = d->p;
    doc_chain *c = &d->chain;
    uint32_t *depth = doc_array(d, p->n_phases, sizeof *depth), *from = doc_array(d, p->n_phases, sizeof *from);
    if (d->nomem) return;
    uint32_t q = find_depths(d, depth, from);
    c->n_phases = depth[q] + 1;
    c->phases = doc_array(d, c->n_phases, sizeof *c->phases);
    for (uint32_t i = c->n_phases; i-- && !d->nomem; q = from[q]) {
        const plan_phase *h = &p->phases[q];
        uint32_t most = 1;
        for (uint32_t t = h->first_task; t < h->first_task + h->n_tasks; t++) {
            if (p->tasks[t].n_waits > most) most = p->tasks[t].n_waits;
        }
        c->polls += most - 1;
        c->phases[i] = q;
    }
    if (!d->nomem) name_chain(d);
}

/* ---- the floor ---------------------------------------------------------------------------------- */

static double ms_of(uint64_t bytes, double tbs) { return tbs > 0 ? (double)bytes / tbs / 1e9 : 0; }

void doc_find_floor(doc *d, const doc_options *o) {
    const plan *p = d->p;
    doc_floor *f = &d->floor;
    f->tbs = o->bandwidth_tbs > 0 ? o->bandwidth_tbs : d->machine.read_tbs;
    f->source = o->bandwidth_tbs > 0 ? "as given" : d->machine.source;
    f->cost = plan_total_cost(p);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const plan_buffer *b = &p->buffers[i];
        if (b->kind == BUFFER_CACHE) f->kv_bytes += (uint64_t)b->dim[0] * (uint64_t)b->dim[1] * dtype_bytes(b->dtype);
    }
    f->ms = ms_of(f->cost.weight_bytes, f->tbs);
    const uint32_t wanted[DOC_CONTEXTS] = {64, 1024, p->max_seq};
    for (int i = 0; i < DOC_CONTEXTS; i++) {
        uint32_t n = wanted[i];
        if (n > p->max_seq || (f->n_contexts && n <= f->context[f->n_contexts - 1].positions)) continue;
        f->context[f->n_contexts++] = (struct doc_context){n, ms_of(f->cost.weight_bytes + n * f->kv_bytes, f->tbs)};
    }
    for (uint32_t i = 0; i < d->n_rows; i++) f->collectives += d->rows[i].op->desc->collective != NULL;
    f->hops = d->chain.n_phases - 1;
}
