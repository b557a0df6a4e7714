/* SPDX-License-Identifier: Apache-2.0 */
/* Reasons of a refusal, and how they name tasks and events. */
#include "plan/prove_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void prove_reason(prover *v, const char *fmt, ...) {
    if (v->probing || v->reasons++ >= PROVE_REASONS) return;
    char text[2560];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    if (v->reasons == 1)
        error_put(v->err, KEEL_REFUSED, "%s not safe to run:", v->n > 1 ? "the plans are" : "the plan is");
    error_append(v->err, "  %s", text);
}

bool prove_enough(prover *v) {
    if (v->reasons < PROVE_REASONS) return false;
    v->reasons++;
    return true;
}

void *prove_array(prover *v, size_t count, size_t size) {
    void *p = arena_array(&v->arena, count ? count : 1, size);
    if (!p) v->nomem = true;
    return p;
}

static void put(prove_text *t, const char *fmt, ...) KEEL_PRINTF(2, 3);
static void put(prove_text *t, const char *fmt, ...) {
    size_t used = strlen(t->text);
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(t->text + used, sizeof t->text - used, fmt, args) < 0) t->text[used] = '\0';
    va_end(args);
}

prove_text prove_rank_text(const prover *v, uint32_t rank) {
    prove_text t = {""};
    if (v->n > 1) put(&t, "rank %u: ", v->ranks[rank].p->rank);
    return t;
}

static const char *phase_name(const plan *p, const kp_task *k) {
    return p->bodies[k->body].op->phases[p->bodies[k->body].phase].name;
}

prove_text prove_task_text(const prover *v, uint32_t rank, uint32_t task) {
    const prove_rank *r = &v->ranks[rank];
    const plan *p = r->p;
    const kp_task *k = &p->tasks[task];
    const char *phase = phase_name(p, k);
    prove_text t = {""};
    put(&t, "task %u (%.100s%s%s [%u, %u)", task, p->instances[k->instance].name, *phase ? "." : "", phase, k->lo,
        k->hi);
    if (k->aux) put(&t, " aux %u", k->aux);
    if (v->n > 1) put(&t, ", rank %u", p->rank);
    if (r->worker) put(&t, ", worker %u, place %u", r->worker[task] - r->first_worker, r->place[task]);
    put(&t, ")");
    return t;
}

prove_text prove_place_text(const prover *v, uint32_t worker, uint32_t place) {
    const prove_worker *w = &v->workers[worker];
    return prove_task_text(v, w->rank, v->ranks[w->rank].p->queue[w->first + place - 1]);
}

/* Of which op the tasks are that trigger it. */
prove_text prove_event_text(const prover *v, uint32_t event) {
    const prove_event *e = &v->events[event];
    const plan *p = v->ranks[e->rank].p;
    prove_text t = {""};
    const char *name = "no task";
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        if (p->tasks[i].trigger != e->event) continue;
        name = p->instances[p->tasks[i].instance].name;
        break;
    }
    put(&t, "event %u (%u task%s of %.100s)", e->event, e->tasks, e->tasks == 1 ? "" : "s", name);
    return t;
}

prove_text prove_waits_text(const prover *v, uint32_t rank, uint32_t task) {
    const prove_rank *r = &v->ranks[rank];
    const kp_task *k = &r->p->tasks[task];
    prove_text t = {""};
    put(&t, "it waits for ");
    for (uint32_t i = 0; i < k->n_waits && i < 3; i++)
        put(&t, "%s%s", i ? ", " : "", prove_event_text(v, r->event[r->p->waits[k->wait_first + i]]).text);
    if (k->n_waits > 3) put(&t, " and %d more", k->n_waits - 3);
    if (!k->n_waits) put(&t, "no event");
    return t;
}
