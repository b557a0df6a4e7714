/* SPDX-License-Identifier: Apache-2.0 */
/* Where the pass over all tasks ended early: the shortest circle of waits. Every circle goes through the task that
 * holds up a queue, so the nodes of the search are workers. */
#include "plan/prove_internal.h"

/* The task in front of worker `from` waits for task `task` of worker `to`, or for what stands before it there. */
typedef struct link {
    uint32_t from, to, task;
    uint32_t event; /* KP_NONE: at the barrier of their op */
} link;

typedef struct search {
    prover *v;
    link *links; /* by `from` */
    uint32_t n_links, cap;
    uint32_t *first;       /* [n_workers + 1] into links */
    uint32_t *from, *mark; /* [n_workers] link by which a worker was reached; of which search */
    uint32_t *line;        /* [n_workers] */
    uint32_t *event_first; /* [n_events + 1] into triggers */
    struct trigger {
        uint32_t rank, task;
    } * triggers;
} search;

static bool stuck(const prove_worker *w) { return w->done < w->n; }

/* Place of the task that holds up the queue: not over the barrier of its op, or not past its events. */
static uint32_t front_task(const prover *v, uint32_t worker) {
    const prove_worker *w = &v->workers[worker];
    return v->ranks[w->rank].p->queue[w->first + w->done];
}

static void add_link(search *s, link l) {
    if (s->n_links < s->cap) s->links[s->n_links] = l;
    s->n_links++;
}

/* Who triggers which event. */
static void index_triggers(search *s) {
    prover *v = s->v;
    uint32_t n = 0;
    for (uint32_t e = 0; e < v->n_events; e++) s->event_first[e] = n, n += v->events[e].tasks;
    s->event_first[v->n_events] = n;
    s->triggers = prove_array(v, n, sizeof *s->triggers);
    uint32_t *next = prove_array(v, v->n_events, sizeof *next);
    for (uint32_t r = 0; r < v->n && !v->nomem; r++) {
        const prove_rank *k = &v->ranks[r];
        for (uint32_t i = 0; i < k->p->n_tasks; i++) {
            if (k->p->tasks[i].trigger == KP_NONE) continue;
            uint32_t event = k->event[k->p->tasks[i].trigger];
            s->triggers[s->event_first[event] + next[event]++] = (struct trigger){r, i};
        }
    }
}

/* Tasks that have still to trigger `event`. */
static void link_event(search *s, uint32_t from, uint32_t event) {
    const prover *v = s->v;
    for (uint32_t i = s->event_first[event]; i < s->event_first[event + 1]; i++) {
        const prove_rank *r = &v->ranks[s->triggers[i].rank];
        uint32_t task = s->triggers[i].task, worker = r->worker[task];
        if (r->place[task] >= v->workers[worker].done) add_link(s, (link){from, worker, task, event});
    }
}

static void link_grid(search *s, uint32_t from, uint32_t instance) {
    const prover *v = s->v;
    for (uint32_t i = 0; i < v->n_workers; i++) {
        const prove_worker *w = &v->workers[i];
        const plan *p = v->ranks[w->rank].p;
        if (w->rank != v->workers[from].rank) continue;
        if (w->arrived && p->tasks[front_task(v, i)].instance == instance) continue;
        for (uint32_t place = w->done; place < w->n; place++) {
            uint32_t task = p->queue[w->first + place];
            if (p->tasks[task].instance != instance) continue;
            add_link(s, (link){from, i, task, KP_NONE});
            break;
        }
    }
}

static void link_all(search *s) {
    const prover *v = s->v;
    s->n_links = 0;
    for (uint32_t i = 0; i < v->n_workers; i++) {
        const prove_worker *w = &v->workers[i];
        const prove_rank *r = &v->ranks[w->rank];
        s->first[i] = s->n_links;
        if (!stuck(w)) continue;
        const kp_task *k = &r->p->tasks[front_task(v, i)];
        if (w->started > w->done) {
            link_grid(s, i, k->instance);
            continue;
        }
        for (uint32_t j = 0; j < k->n_waits; j++) {
            uint32_t event = r->event[r->p->waits[k->wait_first + j]];
            if (v->events[event].left) link_event(s, i, event);
        }
    }
    s->first[v->n_workers] = s->n_links;
}

/* Breadth first from `start` back to it: how many links; 0: no way. Ends where it would be `most` or more. */
static uint32_t circle(search *s, uint32_t start, uint32_t most, uint32_t *last) {
    uint32_t head = 0, tail = 0, depth = 1, level_end = 1;
    s->line[tail++] = start;
    for (uint32_t i = 0; i < s->v->n_workers; i++) s->mark[i] = 0;
    while (head < tail && depth < most) {
        uint32_t w = s->line[head++];
        for (uint32_t l = s->first[w]; l < s->first[w + 1]; l++) {
            uint32_t to = s->links[l].to;
            if (to == start) {
                *last = l;
                return depth;
            }
            if (s->mark[to]) continue;
            s->mark[to] = 1;
            s->from[to] = l;
            s->line[tail++] = to;
        }
        if (head == level_end) level_end = tail, depth++;
    }
    return 0;
}

static void tell_link(buf *out, const prover *v, const link *l) {
    uint32_t rank = v->workers[l->from].rank, to_rank = v->workers[l->to].rank;
    uint32_t front = front_task(v, l->from), ahead = front_task(v, l->to);
    buf_printf(out, "%s waits for ", prove_task_text(v, rank, front).text);
    if (l->event == KP_NONE) {
        buf_printf(out, "%s at the barrier of their op; ", prove_task_text(v, to_rank, l->task).text);
    } else {
        buf_printf(out, "%s, which %s triggers; ", prove_event_text(v, l->event).text,
                   prove_task_text(v, to_rank, l->task).text);
    }
    if (l->task == ahead && to_rank == v->workers[l->to].rank) return;
    buf_printf(out, "that stands in its queue behind %s; ", prove_task_text(v, to_rank, ahead).text);
}

static void tell_circle(search *s, uint32_t start, uint32_t n, uint32_t last) {
    enum { SHOWN = 6 };
    prover *v = s->v;
    buf out = {0};
    const link *chain[SHOWN];
    uint32_t kept = 0;
    for (uint32_t l = last, i = n; i-- > 0; l = s->from[s->links[l].from]) {
        if (i < SHOWN) chain[i] = &s->links[l], kept = kept > i + 1 ? kept : i + 1;
        if (s->links[l].from == start) break;
    }
    for (uint32_t i = 0; i < kept; i++) tell_link(&out, v, chain[i]);
    if (out.failed || !out.data) {
        v->nomem = true;
    } else {
        out.data[out.len - 2] = '\0';
        prove_reason(v, "deadlock, a circle of %u wait%s: %s%s", n, n == 1 ? "" : "s", (char *)out.data,
                     n > SHOWN ? "; and so on back to the first" : "");
    }
    buf_free(&out);
}

void prove_deadlock(prover *v) {
    enum { STARTS = 256 };
    search s = {.v = v};
    s.first = prove_array(v, (size_t)v->n_workers + 1, sizeof *s.first);
    s.from = prove_array(v, v->n_workers, sizeof *s.from);
    s.mark = prove_array(v, v->n_workers, sizeof *s.mark);
    s.line = prove_array(v, (size_t)v->n_workers + 1, sizeof *s.line);
    s.event_first = prove_array(v, (size_t)v->n_events + 1, sizeof *s.event_first);
    if (!v->nomem) index_triggers(&s);
    if (v->nomem) return;
    link_all(&s);
    s.cap = s.n_links;
    s.links = prove_array(v, s.n_links, sizeof *s.links);
    if (v->nomem) return;
    link_all(&s);
    uint32_t best = KP_NONE, start = 0, last = 0, starts = 0;
    for (uint32_t i = 0; i < v->n_workers && starts < STARTS; i++) {
        if (!stuck(&v->workers[i])) continue;
        starts++;
        uint32_t n = circle(&s, i, best, &last);
        if (n) best = n, start = i;
    }
    if (best == KP_NONE) {
        prove_reason(v, "deadlock: some tasks can never start");
        return;
    }
    (void)circle(&s, start, KP_NONE, &last);
    tell_circle(&s, start, best, last);
}
