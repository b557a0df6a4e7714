/* SPDX-License-Identifier: Apache-2.0 */
/* Events: each counts exactly the tasks that trigger it. And grid-wide ops: one task a worker. */
#include "plan/prove_internal.h"

#include <string.h>

/* Events over all ranks: one that counts all ranks' tasks stands once, for the rank that comes first. */
static void number_events(prover *v) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < v->n; r++) n += v->ranks[r].p->n_events;
    v->events = prove_array(v, n, sizeof *v->events);
    for (uint32_t r = 0; r < v->n && !v->nomem; r++) {
        prove_rank *k = &v->ranks[r];
        k->event = prove_array(v, k->p->n_events, sizeof *k->event);
        for (uint32_t e = 0; e < k->p->n_events && !v->nomem; e++) {
            if (r && k->p->events[e].ranks) {
                k->event[e] = v->ranks[0].event[e];
                continue;
            }
            k->event[e] = v->n_events;
            v->events[v->n_events++] =
                (prove_event){.rank = r, .event = e, .weak = k->p->events[e].weak, .waiters = KP_NONE};
        }
    }
}

static void count_tasks(prover *v) {
    for (uint32_t r = 0; r < v->n; r++) {
        const prove_rank *k = &v->ranks[r];
        for (uint32_t i = 0; i < k->p->n_tasks; i++) {
            const kp_task *t = &k->p->tasks[i];
            if (t->trigger != KP_NONE) v->events[k->event[t->trigger]].tasks++;
            for (uint32_t j = 0; j < t->n_waits; j++) v->events[k->event[k->p->waits[t->wait_first + j]]].waits_left++;
        }
    }
}

/* A waiter of event e; NULL text without. */
static prove_text waiter_text(const prover *v, uint32_t event) {
    for (uint32_t r = 0; r < v->n; r++) {
        const prove_rank *k = &v->ranks[r];
        for (uint32_t i = 0; i < k->p->n_tasks; i++) {
            const kp_task *t = &k->p->tasks[i];
            for (uint32_t j = 0; j < t->n_waits; j++) {
                if (k->event[k->p->waits[t->wait_first + j]] == event) return prove_task_text(v, r, i);
            }
        }
    }
    return (prove_text){"no task"};
}

void prove_events(prover *v) {
    number_events(v);
    if (v->nomem) return;
    count_tasks(v);
    for (uint32_t r = 0; r < v->n; r++) {
        const prove_rank *k = &v->ranks[r];
        for (uint32_t e = 0; e < k->p->n_events; e++) {
            prove_event *g = &v->events[k->event[e]];
            uint32_t asked = k->p->events[e].triggers;
            v->checks++;
            g->left = g->tasks;
            if (asked == g->tasks || prove_enough(v)) continue;
            prove_reason(v, "%s%s: it counts to %u, and %u task%s it in an iteration; %s, which waits for it, %s",
                         prove_rank_text(v, r).text, prove_event_text(v, k->event[e]).text, asked, g->tasks,
                         g->tasks == 1 ? " triggers" : "s trigger", waiter_text(v, k->event[e]).text,
                         asked > g->tasks ? "never starts: deadlock" : "starts too early: race");
        }
    }
}

/* Tasks of a grid-wide instance [first, first + n). */
static void check_grid(prover *v, uint32_t rank, uint32_t instance, uint32_t first, uint32_t n) {
    const prove_rank *k = &v->ranks[rank];
    const plan *p = k->p;
    const char *name = p->instances[instance].name;
    uint32_t workers = p->workers;
    uint8_t *index = prove_array(v, workers, 1), *on = prove_array(v, workers, 1);
    v->grids[v->n_grids++] = (prove_grid){rank, instance, n, n};
    if (v->nomem) return;
    if (n != workers || op_n_phases(p->instances[instance].op) != 1) {
        prove_reason(v, "%s%s: op %s is grid-wide, one task on each of the %u workers; it has %u",
                     prove_rank_text(v, rank).text, name, p->instances[instance].op->name, workers, n);
        return;
    }
    uint32_t resident = k->t.env.arch->workers;
    if (resident && workers > resident)
        prove_reason(v, "%s%s: op %s is grid-wide and needs all %u workers at once; %s has room for %u: deadlock",
                     prove_rank_text(v, rank).text, name, p->instances[instance].op->name, workers, p->arch, resident);
    for (uint32_t i = first; i < first + n; i++) {
        uint32_t w = k->worker[i] - k->first_worker, aux = p->tasks[i].aux;
        v->checks++;
        if (aux >= n || index[aux]++)
            prove_reason(v,
                         "%s: a grid-wide op has the indices 0 to %u once each; here %u stands twice or is too large",
                         prove_task_text(v, rank, i).text, n - 1, aux);
        if (on[w]++)
            prove_reason(v, "%s: worker %u has another task of this grid-wide op, which waits for this one: deadlock",
                         prove_task_text(v, rank, i).text, w);
    }
}

void prove_grids(prover *v) {
    uint32_t most = 0;
    for (uint32_t r = 0; r < v->n; r++) {
        for (uint32_t i = 0; i < v->ranks[r].p->n_instances; i++) most += v->ranks[r].p->instances[i].op->grid_wide;
    }
    v->grids = prove_array(v, most, sizeof *v->grids);
    for (uint32_t r = 0; r < v->n && most && !v->nomem; r++) {
        const plan *p = v->ranks[r].p;
        for (uint32_t i = 0, n; i < p->n_tasks; i += n) {
            uint32_t instance = p->tasks[i].instance;
            for (n = 1; i + n < p->n_tasks && p->tasks[i + n].instance == instance;) n++;
            if (p->instances[instance].op->grid_wide) check_grid(v, r, instance, i, n);
        }
    }
}
