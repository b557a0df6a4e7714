/* SPDX-License-Identifier: Apache-2.0 */
/* One line a phase; a layer that is task for task like the one before it only adds to that one's line. */
#include "plan/plan_view.h"

#include "core/mem.h"

#include <stdio.h>
#include <string.h>

/* Consecutive phases of one layer. */
typedef struct run {
    uint32_t first, n;
    int32_t layer;
} run;

typedef struct phase_view {
    const plan *p;
    uint32_t *ordinal; /* of an event among those of its phase */
    uint32_t *events;  /* of a phase */
    uint64_t *triggers;
} phase_view;

static const plan_instance *instance_of(const plan *p, uint32_t phase) {
    return &p->instances[p->phases[phase].instance];
}

/* The name without its "l{layer}.". */
static const char *short_name(const plan_instance *n) {
    char prefix[16];
    int bytes = snprintf(prefix, sizeof prefix, "l%d.", n->layer);
    return strncmp(n->name, prefix, (size_t)bytes) == 0 ? n->name + bytes : n->name;
}

/* ---- when are two layers the same? -------------------------------------------------------------- */

static bool same_buffer(const plan *p, uint32_t a, uint32_t b) {
    if (a == KP_NONE || b == KP_NONE) return a == b;
    const plan_buffer *x = &p->buffers[a], *y = &p->buffers[b];
    return x->kind == y->kind && x->dtype == y->dtype && x->rank == y->rank &&
           memcmp(x->dim, y->dim, sizeof x->dim) == 0;
}

static bool same_instance(const plan *p, const plan_instance *a, const plan_instance *b) {
    if (a->op != b->op || strcmp(short_name(a), short_name(b)) != 0 || a->params_bytes != b->params_bytes) return false;
    if (a->params_bytes && memcmp(p->params + a->params_offset, p->params + b->params_offset, a->params_bytes) != 0)
        return false;
    for (int k = 0; k < KP_BUFFERS; k++) {
        if (!same_buffer(p, a->buffer[k], b->buffer[k])) return false;
    }
    return true;
}

/* Event a seen from phase q, event b seen from phase r: as far back and the same among its phase's, or the same one. */
static bool same_event(const phase_view *v, uint32_t a, uint32_t q, uint32_t b, uint32_t r) {
    if (a == b) return true;
    if (a == KP_NONE || b == KP_NONE) return false;
    const plan_event *x = &v->p->events[a], *y = &v->p->events[b];
    return x->triggers == y->triggers && x->ranks == y->ranks && x->weak == y->weak && v->ordinal[a] == v->ordinal[b] &&
           (int64_t)q - x->phase == (int64_t)r - y->phase;
}

static bool same_task(const phase_view *v, uint32_t a, uint32_t q, uint32_t b, uint32_t r) {
    const plan *p = v->p;
    const kp_task *x = &p->tasks[a], *y = &p->tasks[b];
    const plan_cost *c = &p->costs[a], *d = &p->costs[b];
    if (x->lo != y->lo || x->hi != y->hi || x->aux != y->aux || x->n_waits != y->n_waits) return false;
    if (x->n_spans != y->n_spans || x->n_regions != y->n_regions) return false;
    if (c->weight_bytes != d->weight_bytes || c->other_bytes != d->other_bytes || c->flops != d->flops) return false;
    for (uint32_t s = 0; s < x->n_spans; s++) { /* which pages is the queue's affair */
        if (x->span[s].n_pages != y->span[s].n_pages || x->span[s].release_role != y->span[s].release_role)
            return false;
    }
    for (uint32_t i = 0; i < x->n_waits; i++) {
        if (!same_event(v, p->waits[x->wait_first + i], q, p->waits[y->wait_first + i], r)) return false;
    }
    return same_event(v, x->trigger, q, y->trigger, r);
}

static bool same_phase(const phase_view *v, uint32_t q, uint32_t r) {
    const plan_phase *a = &v->p->phases[q], *b = &v->p->phases[r];
    if (a->phase != b->phase || a->n_tasks != b->n_tasks) return false;
    if (!same_instance(v->p, instance_of(v->p, q), instance_of(v->p, r))) return false;
    for (uint32_t i = 0; i < a->n_tasks; i++) {
        if (!same_task(v, a->first_task + i, q, b->first_task + i, r)) return false;
    }
    return true;
}

static bool same_run(const phase_view *v, run a, run b) {
    if (a.n != b.n || a.layer < 0 || b.layer < 0) return false;
    for (uint32_t i = 0; i < a.n; i++) {
        if (!same_phase(v, a.first + i, b.first + i)) return false;
    }
    return true;
}

/* ---- the table ---------------------------------------------------------------------------------- */

static void put_phase(const phase_view *v, uint32_t q, int width, buf *out) {
    const plan *p = v->p;
    const plan_phase *h = &p->phases[q];
    const plan_instance *n = instance_of(p, q);
    const char *phase = n->op->phases[h->phase].name;
    uint64_t waits = 0, weights = 0;
    for (uint32_t i = h->first_task; i < h->first_task + h->n_tasks; i++) {
        waits += p->tasks[i].n_waits;
        weights += p->costs[i].weight_bytes;
    }
    char bytes[VIEW_BYTES], layer[16] = "", op[48];
    if (n->layer >= 0) snprintf(layer, sizeof layer, "%d", n->layer);
    snprintf(op, sizeof op, "%s%s%s", n->op->name, *phase ? "." : "", phase);
    buf_printf(out, "%7u %5s  %-*s  %-22s %6u %6llu %6u %8llu  %9s\n", q, layer, width, n->name, op, h->n_tasks,
               (unsigned long long)waits, v->events[q], (unsigned long long)v->triggers[q], view_bytes(weights, bytes));
}

static run run_at(const plan *p, uint32_t first) {
    run r = {first, 1, instance_of(p, first)->layer};
    while (first + r.n < p->n_phases && instance_of(p, first + r.n)->layer == r.layer) r.n++;
    return r;
}

static void put_runs(const phase_view *v, int width, buf *out) {
    const plan *p = v->p;
    for (uint32_t q = 0; q < p->n_phases && !out->failed;) {
        run r = run_at(p, q), last = r;
        for (uint32_t i = 0; i < r.n; i++) put_phase(v, q + i, width, out);
        q += r.n;
        while (q < p->n_phases) {
            run next = run_at(p, q);
            if (!same_run(v, last, next)) break;
            last = next;
            q += next.n;
        }
        if (last.first == r.first) continue;
        buf_printf(out, "%7u-%u: layer", r.first + r.n, q - 1);
        if (last.first == r.first + r.n)
            buf_printf(out, " %d: the same tasks, waits and costs as layer %d\n", last.layer, r.layer);
        else
            buf_printf(out, "s %d-%d: each the same tasks, waits and costs as layer %d\n",
                       run_at(p, r.first + r.n).layer, last.layer, r.layer);
    }
}

void view_phases(const plan *p, buf *out) {
    phase_view v = {.p = p};
    v.ordinal = mem_calloc(p->n_events, sizeof *v.ordinal);
    v.events = mem_calloc(p->n_phases, sizeof *v.events);
    v.triggers = mem_calloc(p->n_phases, sizeof *v.triggers);
    if (v.ordinal && v.events && v.triggers) {
        for (uint32_t e = 0; e < p->n_events; e++) {
            v.ordinal[e] = v.events[p->events[e].phase]++;
            v.triggers[p->events[e].phase] += p->events[e].triggers;
        }
        size_t width = 8;
        for (uint32_t i = 0; i < p->n_instances; i++) {
            size_t n = strlen(p->instances[i].name);
            if (n > width) width = n < 40 ? n : 40;
        }
        buf_printf(out, "\n%7s %5s  %-*s  %-22s %6s %6s %6s %8s  %9s\n", "phase", "layer", (int)width, "instance", "op",
                   "tasks", "waits", "events", "triggers", "weights");
        put_runs(&v, (int)width, out);
    } else {
        out->failed = true;
    }
    mem_free(v.ordinal), mem_free(v.events), mem_free(v.triggers);
}
