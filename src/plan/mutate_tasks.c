/* SPDX-License-Identifier: Apache-2.0 */
/* Mutations of which tasks there are and what they do. */
#include "plan/mutate_internal.h"

#include <string.h>

bool mutate_drop_task(mutation *m) {
    plan *p = m->p;
    if (p->n_tasks < 2) return false;
    uint32_t task = mutate_draw(m, p->n_tasks), event = p->tasks[task].trigger;
    bool adjust = event != KP_NONE && mutate_draw(m, 3) != 0; /* so that nobody waits for it */
    (void)mutate_say(m, "task %u (%s, lo %u, hi %u, aux %u): left out%s", task, mutate_task_name(m, task),
                     p->tasks[task].lo, p->tasks[task].hi, p->tasks[task].aux,
                     adjust ? ", its event counts one less" : "");
    if (adjust) p->events[event].triggers -= p->events[event].ranks ? p->tp : 1;
    if (adjust && !p->events[event].triggers) mutate_forget_event(m, event);
    mutate_remove_task(m, task);
    return true;
}

/* A second copy of `task` behind it, at queue entry `at`. */
static bool insert_copy(mutation *m, uint32_t task, uint32_t worker, uint32_t at) {
    plan *p = m->p;
    kp_task *tasks = mutate_grow(m, p->tasks, p->n_tasks, 1, sizeof *tasks);
    plan_cost *costs = mutate_grow(m, p->costs, p->n_tasks, 1, sizeof *costs);
    uint32_t *queue = mutate_grow(m, p->queue, p->n_tasks, 1, sizeof *queue);
    if (!tasks || !costs || !queue) return false;
    memmove(tasks + task + 1, tasks + task, (p->n_tasks - task) * sizeof *tasks);
    memmove(costs + task + 1, costs + task, (p->n_tasks - task) * sizeof *costs);
    for (uint32_t i = 0; i < p->n_tasks; i++) queue[i] += queue[i] > task;
    memmove(queue + at + 1, queue + at, (p->n_tasks - at) * sizeof *queue);
    queue[at] = task + 1;
    for (uint32_t w = worker + 1; w <= p->workers; w++) p->queue_first[w]++;
    uint32_t q = mutate_phase_of(p, task);
    p->phases[q].n_tasks++;
    for (uint32_t i = q + 1; i < p->n_phases; i++) p->phases[i].first_task++;
    p->tasks = tasks, p->costs = costs, p->queue = queue;
    p->n_tasks++;
    return true;
}

bool mutate_duplicate_task(mutation *m) {
    plan *p = m->p;
    uint32_t from = mutate_draw(m, p->n_tasks), task = p->queue[from], worker = 0, at;
    while (from >= p->queue_first[worker + 1]) worker++;
    at = from + 1; /* right behind it, or at the same place of another worker */
    if (p->workers > 1 && mutate_draw(m, 2)) {
        uint32_t place = from - p->queue_first[worker];
        worker = (worker + 1 + mutate_draw(m, p->workers - 1)) % p->workers;
        at = p->queue_first[worker] + place;
        if (at > p->queue_first[worker + 1]) at = p->queue_first[worker + 1];
    }
    if (!insert_copy(m, task, worker, at)) return false;
    uint32_t event = p->tasks[task].trigger, how = mutate_draw(m, 3);
    if (event != KP_NONE && how == 1) p->events[event].triggers += p->events[event].ranks ? p->tp : 1;
    if (how == 2) p->tasks[task + 1].trigger = KP_NONE;
    return mutate_say(m, "task %u (%s): runs twice, also as task %u on worker %u%s", task, mutate_task_name(m, task),
                      task + 1, worker,
                      how == 1   ? ", and its event counts both"
                      : how == 2 ? ", which triggers nothing"
                                 : "");
}

bool mutate_resize_tile(mutation *m) {
    plan *p = m->p;
    uint32_t task = mutate_draw(m, p->n_tasks), way = mutate_draw(m, 5), by = mutate_draw(m, 2) ? 1 : 8;
    kp_task *t = &p->tasks[task], was = *t;
    bool down = mutate_draw(m, 2);
    if (way == 4) {
        t->aux = down ? was.aux - 1 : was.aux + 1;
    } else if (way >= 2) {
        t->hi = down ? was.hi - by : was.hi + by;
    } else if (way == 1) {
        t->lo = down ? was.lo - by : was.lo + by;
    } else { /* the whole tile: another one of its phase */
        const plan_phase *q = &p->phases[mutate_phase_of(p, task)];
        const kp_task *other = &p->tasks[q->first_task + mutate_draw(m, q->n_tasks)];
        if (other == t) t->hi = was.hi - by;
        if (other != t) t->lo = other->lo, t->hi = other->hi, t->aux = other->aux;
    }
    if (t->lo == was.lo && t->hi == was.hi && t->aux == was.aux) return false;
    return mutate_say(m, "task %u (%s): lo %u, hi %u, aux %u -> lo %u, hi %u, aux %u", task, mutate_task_name(m, task),
                      was.lo, was.hi, was.aux, t->lo, t->hi, t->aux);
}

bool mutate_drop_body(mutation *m) {
    plan *p = m->p;
    uint32_t task = mutate_draw(m, p->n_tasks), was = p->tasks[task].body;
    uint32_t to = mutate_draw(m, 2) ? KP_NONE : (was + 1 + mutate_draw(m, p->n_bodies)) % (p->n_bodies + 1);
    p->tasks[task].body = to;
    if (to == KP_NONE) return mutate_say(m, "task %u (%s): no body", task, mutate_task_name(m, task));
    return mutate_say(m, "task %u (%s): body %u instead of %u", task, mutate_task_name(m, task), to, was);
}

bool mutate_drop_phase(mutation *m) {
    plan *p = m->p;
    if (p->n_phases < 2) return false;
    uint32_t q = mutate_draw(m, p->n_phases), first = p->phases[q].first_task, n = p->phases[q].n_tasks;
    uint32_t instance = p->phases[q].instance;
    const char *phase = p->instances[instance].op->phases[p->phases[q].phase].name;
    for (uint32_t i = 0; i < n; i++) {
        if (p->tasks[first].trigger != KP_NONE) mutate_forget_event(m, p->tasks[first].trigger);
        mutate_remove_task(m, first);
    }
    return mutate_say(m, "%s%s%s: left out (%u tasks), and the waits for it", p->instances[instance].name,
                      *phase ? "." : "", phase, n);
}

bool mutate_header(mutation *m) {
    plan *p = m->p;
    struct field {
        const char *name;
        uint32_t *value, to;
    } fields[] = {{"n_pages", &p->n_pages, p->n_pages - 1 - mutate_draw(m, p->n_pages / 2 + 1)},
                  {"page_bytes", &p->page_bytes, p->page_bytes / 2},
                  {"kv_splits", &p->kv_splits, p->kv_splits + 1 - 2 * mutate_draw(m, 2)},
                  {"kv_splits", &p->kv_splits, 1 + mutate_draw(m, 4)},
                  {"max_seq", &p->max_seq, mutate_draw(m, 2) ? p->max_seq / 2 : p->max_seq + p->page_tokens},
                  {"max_seq", &p->max_seq, p->max_seq - 1 - mutate_draw(m, p->page_tokens)},
                  {"m_max", &p->m_max, p->m_max + 1 - 2 * mutate_draw(m, 2)},
                  {"rank", &p->rank, p->rank ? p->rank - 1 : p->tp - 1}};
    const struct field *f = &fields[mutate_draw(m, sizeof fields / sizeof *fields)];
    uint32_t was = *f->value;
    if (f->to == was) return false;
    *f->value = f->to;
    return mutate_say(m, "header: %s %u -> %u", f->name, was, f->to);
}
