/* SPDX-License-Identifier: Apache-2.0 */
/* Mutations of what orders tasks: events and queues. */
#include "plan/mutate_internal.h"

#include <string.h>

/* A task with a wait, by chance; KP_NONE without. */
static uint32_t waiting_task(mutation *m) {
    const plan *p = m->p;
    uint32_t from = mutate_draw(m, p->n_tasks);
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        uint32_t task = (from + i) % p->n_tasks;
        if (p->tasks[task].n_waits) return task;
    }
    return KP_NONE;
}

/* A task with (or without) a trigger. */
static uint32_t triggering_task(mutation *m, bool triggers) {
    const plan *p = m->p;
    uint32_t from = mutate_draw(m, p->n_tasks);
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        uint32_t task = (from + i) % p->n_tasks;
        if ((p->tasks[task].trigger != KP_NONE) == triggers) return task;
    }
    return KP_NONE;
}

/* Another event than `event`, often a close one. */
static uint32_t other_event(mutation *m, uint32_t event) {
    uint32_t n = m->p->n_events, e;
    if (mutate_draw(m, 2)) {
        e = event + mutate_draw(m, 7);
        e = e >= 3 ? e - 3 : 0;
        if (e < n && e != event) return e;
    }
    e = mutate_draw(m, n - 1);
    return e < event ? e : e + 1;
}

bool mutate_drop_wait(mutation *m) {
    uint32_t task = waiting_task(m);
    if (task == KP_NONE) return false;
    kp_task *t = &m->p->tasks[task];
    uint32_t *wait = m->p->waits + t->wait_first, k = mutate_draw(m, t->n_waits), event = wait[k];
    wait[k] = wait[--t->n_waits];
    return mutate_say(m, "task %u (%s): no longer waits for event %u", task, mutate_task_name(m, task), event);
}

bool mutate_retarget_wait(mutation *m) {
    uint32_t task = waiting_task(m);
    if (task == KP_NONE || m->p->n_events < 2) return false;
    kp_task *t = &m->p->tasks[task];
    uint32_t *wait = m->p->waits + t->wait_first + mutate_draw(m, t->n_waits), event = *wait;
    *wait = other_event(m, event);
    return mutate_say(m, "task %u (%s): waits for event %u instead of %u", task, mutate_task_name(m, task), *wait,
                      event);
}

/* The task's waits once more at the end of the list, and `event` behind them. */
static bool append_wait(mutation *m, uint32_t task, uint32_t event) {
    plan *p = m->p;
    kp_task *t = &p->tasks[task];
    uint32_t *waits = mutate_grow(m, p->waits, p->n_waits, t->n_waits + 1u, sizeof *waits);
    if (!waits || t->n_waits == 0xffff) return false;
    memcpy(waits + p->n_waits, p->waits + t->wait_first, t->n_waits * sizeof *waits);
    waits[p->n_waits + t->n_waits] = event;
    p->waits = waits;
    t->wait_first = p->n_waits;
    t->n_waits++;
    p->n_waits += t->n_waits;
    return true;
}

bool mutate_duplicate_wait(mutation *m) {
    uint32_t task = waiting_task(m);
    if (task == KP_NONE) return false;
    const kp_task *t = &m->p->tasks[task];
    uint32_t event = m->p->waits[t->wait_first + mutate_draw(m, t->n_waits)];
    if (!append_wait(m, task, event)) return false;
    return mutate_say(m, "task %u (%s): waits for event %u twice", task, mutate_task_name(m, task), event);
}

bool mutate_add_wait(mutation *m) {
    if (!m->p->n_events) return false;
    uint32_t task = mutate_draw(m, m->p->n_tasks), event = mutate_draw(m, m->p->n_events);
    if (!append_wait(m, task, event)) return false;
    return mutate_say(m, "task %u (%s): also waits for event %u", task, mutate_task_name(m, task), event);
}

bool mutate_drop_trigger(mutation *m) {
    uint32_t task = triggering_task(m, true);
    if (task == KP_NONE) return false;
    uint32_t event = m->p->tasks[task].trigger;
    m->p->tasks[task].trigger = KP_NONE;
    return mutate_say(m, "task %u (%s): no longer triggers event %u", task, mutate_task_name(m, task), event);
}

bool mutate_retarget_trigger(mutation *m) {
    uint32_t task = triggering_task(m, true);
    if (task == KP_NONE || m->p->n_events < 2) return false;
    uint32_t event = m->p->tasks[task].trigger, to = other_event(m, event);
    bool adjust = mutate_draw(m, 2); /* so that both events are complete, one too early */
    m->p->tasks[task].trigger = to;
    if (adjust) {
        m->p->events[event].triggers -= m->p->events[event].ranks ? m->p->tp : 1;
        m->p->events[to].triggers += m->p->events[to].ranks ? m->p->tp : 1;
    }
    return mutate_say(m, "task %u (%s): triggers event %u instead of %u%s", task, mutate_task_name(m, task), to, event,
                      adjust ? ", counts adjusted" : "");
}

bool mutate_add_trigger(mutation *m) {
    uint32_t task = triggering_task(m, false);
    if (task == KP_NONE || !m->p->n_events) return false;
    uint32_t event = mutate_draw(m, m->p->n_events);
    bool adjust = mutate_draw(m, 3) == 0;
    m->p->tasks[task].trigger = event;
    if (adjust) m->p->events[event].triggers++;
    return mutate_say(m, "task %u (%s): triggers event %u%s", task, mutate_task_name(m, task), event,
                      adjust ? ", which counts it" : "");
}

bool mutate_trigger_count(mutation *m) {
    if (!m->p->n_events) return false;
    uint32_t event = mutate_draw(m, m->p->n_events);
    plan_event *e = &m->p->events[event];
    uint32_t was = e->triggers;
    e->triggers = mutate_draw(m, 3) ? was - 1 : was + 1;
    return mutate_say(m, "event %u: triggers %u -> %u", event, was, e->triggers);
}

bool mutate_event_weak(mutation *m) {
    if (!m->p->n_events) return false;
    uint32_t event = mutate_draw(m, m->p->n_events);
    m->p->events[event].weak = !m->p->events[event].weak;
    return mutate_say(m, "event %u: %s", event, m->p->events[event].weak ? "weak" : "no longer weak");
}

bool mutate_event_phase(mutation *m) {
    if (!m->p->n_events || m->p->n_phases < 2) return false;
    uint32_t event = mutate_draw(m, m->p->n_events), was = m->p->events[event].phase;
    uint32_t to = mutate_draw(m, m->p->n_phases - 1);
    m->p->events[event].phase = to < was ? to : to + 1;
    return mutate_say(m, "event %u: says phase %u instead of %u", event, m->p->events[event].phase, was);
}

/* ---- queues ------------------------------------------------------------------------------------- */

static uint32_t queue_len(const plan *p, uint32_t w) { return p->queue_first[w + 1] - p->queue_first[w]; }

/* A queue of at least `least` tasks. */
static uint32_t some_queue(mutation *m, uint32_t least) {
    const plan *p = m->p;
    uint32_t from = mutate_draw(m, p->workers);
    for (uint32_t i = 0; i < p->workers; i++) {
        uint32_t w = (from + i) % p->workers;
        if (queue_len(p, w) >= least) return w;
    }
    return KP_NONE;
}

static void swap_places(plan *p, uint32_t a, uint32_t b) {
    uint32_t t = p->queue[a];
    p->queue[a] = p->queue[b];
    p->queue[b] = t;
}

bool mutate_swap_tasks(mutation *m) {
    plan *p = m->p;
    uint32_t w = some_queue(m, 2);
    if (w == KP_NONE) return false;
    uint32_t n = queue_len(p, w), a = mutate_draw(m, n - 1), b = a + 1;
    if (mutate_draw(m, 2)) b = a + 1 + mutate_draw(m, n - 1 - a);
    swap_places(p, p->queue_first[w] + a, p->queue_first[w] + b);
    return mutate_say(m, "worker %u: places %u and %u of its queue exchanged (now tasks %u and %u)", w, a, b,
                      p->queue[p->queue_first[w] + a], p->queue[p->queue_first[w] + b]);
}

bool mutate_swap_workers(mutation *m) {
    plan *p = m->p;
    uint32_t w = some_queue(m, 1);
    if (w == KP_NONE || p->workers < 2) return false;
    uint32_t a = p->queue_first[w] + mutate_draw(m, queue_len(p, w)),
             v = (w + 1 + mutate_draw(m, p->workers - 1)) % p->workers;
    if (!queue_len(p, v)) return false;
    uint32_t near = (a - p->queue_first[w]) + mutate_draw(m, 3);
    uint32_t at = mutate_draw(m, 2) && near < queue_len(p, v) ? near : mutate_draw(m, queue_len(p, v));
    swap_places(p, a, p->queue_first[v] + at);
    return mutate_say(m, "task %u of worker %u and task %u of worker %u exchanged", p->queue[p->queue_first[v] + at], w,
                      p->queue[a], v);
}

bool mutate_move_task(mutation *m) {
    plan *p = m->p;
    if (p->workers < 2) return false;
    uint32_t from = mutate_draw(m, p->n_tasks), task = p->queue[from], w = 0;
    while (from >= p->queue_first[w + 1]) w++;
    uint32_t v = (w + 1 + mutate_draw(m, p->workers - 1)) % p->workers;
    uint32_t place = mutate_draw(m, queue_len(p, v) + 1), near = from - p->queue_first[w];
    if (mutate_draw(m, 2) && near <= queue_len(p, v)) place = near;
    memmove(p->queue + from, p->queue + from + 1, (p->n_tasks - from - 1) * sizeof *p->queue);
    for (uint32_t i = w + 1; i <= p->workers; i++) p->queue_first[i]--;
    uint32_t to = p->queue_first[v] + place;
    memmove(p->queue + to + 1, p->queue + to, (p->n_tasks - 1 - to) * sizeof *p->queue);
    p->queue[to] = task;
    for (uint32_t i = v + 1; i <= p->workers; i++) p->queue_first[i]++;
    return mutate_say(m, "task %u (%s): from worker %u to place %u of worker %u", task, mutate_task_name(m, task), w,
                      place, v);
}

/* ---- ranks -------------------------------------------------------------------------------------- */

static bool collective(const plan *p, uint32_t phase) {
    return p->instances[p->phases[phase].instance].op->collective != NULL;
}

/* The n-th phase of a collective, counted round from a random one. */
static uint32_t some_collective(mutation *m, uint32_t not_instance) {
    const plan *p = m->p;
    uint32_t from = mutate_draw(m, p->n_phases);
    for (uint32_t i = 0; i < p->n_phases; i++) {
        uint32_t q = (from + i) % p->n_phases;
        if (collective(p, q) && p->phases[q].instance != not_instance) return q;
    }
    return KP_NONE;
}

bool mutate_skip_collective(mutation *m) {
    plan *p = m->p;
    uint32_t q = p->tp > 1 ? some_collective(m, KP_NONE) : KP_NONE;
    if (q == KP_NONE || p->n_phases < 2) return false;
    const char *name = p->instances[p->phases[q].instance].name;
    uint32_t first = p->phases[q].first_task, n = p->phases[q].n_tasks;
    bool forget = mutate_draw(m, 2);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t event = p->tasks[first].trigger;
        if (forget && event != KP_NONE) mutate_forget_event(m, event);
        mutate_remove_task(m, first);
    }
    return mutate_say(m, "rank %u: %s left out%s", p->rank, name, forget ? ", and the waits for it" : "");
}

/* Tasks of the one stand in the queues where those of the other stood; each in its own order. */
bool mutate_reorder_collective(mutation *m) {
    plan *p = m->p;
    uint32_t a = p->tp > 1 ? some_collective(m, KP_NONE) : KP_NONE;
    uint32_t b = a != KP_NONE ? some_collective(m, p->phases[a].instance) : KP_NONE;
    if (b == KP_NONE) return false;
    const plan_phase *x = &p->phases[a], *y = &p->phases[b];
    uint32_t n = x->n_tasks < y->n_tasks ? x->n_tasks : y->n_tasks;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = 0, other = 0;
        while (p->queue[at] != x->first_task + i) at++;
        while (p->queue[other] != y->first_task + i) other++;
        swap_places(p, at, other);
    }
    return mutate_say(m, "rank %u: %s and %s have changed places in the queues", p->rank,
                      p->instances[x->instance].name, p->instances[y->instance].name);
}

bool mutate_rank_event(mutation *m) {
    plan *p = m->p;
    if (p->tp < 2 || !p->n_events) return false;
    uint32_t from = mutate_draw(m, p->n_events), want = mutate_draw(m, 4) != 0, event = from;
    for (uint32_t i = 0; i < p->n_events; i++) {
        event = (from + i) % p->n_events;
        if (p->events[event].ranks == (want != 0)) break;
    }
    plan_event *e = &p->events[event];
    uint32_t was = e->triggers;
    bool adjust = mutate_draw(m, 2);
    e->ranks = !e->ranks;
    if (adjust) e->triggers = e->ranks ? was * p->tp : was / p->tp;
    return mutate_say(m, "rank %u: event %u is %s, triggers %u -> %u", p->rank, event,
                      e->ranks ? "of all ranks" : "its own", was, e->triggers);
}
