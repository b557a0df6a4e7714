/* SPDX-License-Identifier: Apache-2.0 */
/* What a task touches, looked at when it starts: is all that it needs done, by what its launcher knows? docs/proof.md
 * §4.
 */
#include "plan/prove_internal.h"

#include "core/mem.h"

enum { BLOCK = 32 };

/* A task at its start. */
typedef struct toucher {
    prover *v;
    uint32_t rank, worker, task, place;
    const uint32_t *clock;
} toucher;

/* Is task `task` of rank `rank` done before this one starts? */
static bool knows(const toucher *c, uint32_t rank, uint32_t task) {
    const prove_rank *r = &c->v->ranks[rank];
    return c->clock[r->worker[task]] > r->place[task];
}

/* "it knows worker 3 done up to task 9 (…); it waits for …" */
static void tell_race(const toucher *c, const prove_tensor *t, const char *what, int64_t lo, int64_t hi, uint32_t rank,
                      uint32_t other, const char *does) {
    prover *v = c->v;
    const prove_rank *r = &v->ranks[rank];
    uint32_t worker = r->worker[other], known = c->clock[worker];
    prove_reason(v,
                 "race: %s %s [%lld, %lld) of %s, which %s %s, and nothing orders them: %s; of that worker's queue it "
                 "knows %s%s done",
                 prove_task_text(v, c->rank, c->task).text, what, (long long)lo, (long long)hi, t->name,
                 prove_task_text(v, rank, other).text, does, prove_waits_text(v, c->rank, c->task).text,
                 known ? "no more than " : "nothing", known ? prove_place_text(v, worker, known).text : "");
}

/* The step record, which every task reads. */
static void check_step(const toucher *c) {
    const prove_rank *r = &c->v->ranks[c->rank];
    if (r->step_task == KP_NONE || r->step_task == c->task) return;
    c->v->checks++;
    if (knows(c, c->rank, r->step_task)) return;
    const prove_tensor *t = &c->v->tensors[prove_slot(r, r->g->step)];
    if (t->told) return;
    ((prove_tensor *)(uintptr_t)t)->told = true;
    tell_race(c, t, "reads", 0, t->units, c->rank, r->step_task, "writes");
}

/* Writes that touch [lo, hi): from *first on, as long as they begin below hi. */
static uint32_t first_write(const prove_tensor *t, int64_t lo) {
    uint32_t a = 0, b = t->n_writes;
    while (a < b) {
        uint32_t mid = a + (b - a) / 2;
        if (t->writes[mid].hi <= lo)
            a = mid + 1;
        else
            b = mid;
    }
    return a;
}

/* Does the reader know all writes done? Once it does it always will. */
static bool seen_all(const toucher *c, prove_tensor *t) {
    const prove_rank *r = &c->v->ranks[t->rank];
    uint32_t bit = c->worker - t->first_worker;
    if (prove_bit(t->seen, bit)) return true;
    const uint32_t *clock = c->clock + r->first_worker;
    for (uint32_t i = 0, n = r->p->workers; i < n;) {
        int missing = 0;
        for (uint32_t end = n - i > BLOCK ? i + BLOCK : n; i < end; i++)
            missing |= (int32_t)t->written[i] > (int32_t)clock[i];
        if (missing) return false;
    }
    prove_set(t->seen, bit);
    return true;
}

static void check_read(const toucher *c, prove_tensor *t, const access *a) {
    c->v->checks++;
    if (t->told || seen_all(c, t)) return;
    for (uint32_t i = first_write(t, a->lo); i < t->n_writes && t->writes[i].lo < a->hi; i++) {
        c->v->checks++;
        if (knows(c, t->rank, t->writes[i].task)) continue;
        t->told = true;
        tell_race(c, t, "reads", a->lo, a->hi, t->rank, t->writes[i].task, "writes");
        return;
    }
}

/* Tagged data are waited for by themselves; the plan must say so, or this wait would stand in no cycle. */
static void check_tagged(const toucher *c, prove_tensor *t, const access *a) {
    const plan *p = c->v->ranks[c->rank].p;
    const kp_task *k = &p->tasks[c->task];
    for (uint32_t i = first_write(t, a->lo); i < t->n_writes && t->writes[i].lo < a->hi && !t->told; i++) {
        uint32_t writer = t->writes[i].task;
        bool waits = writer == c->task || knows(c, t->rank, writer);
        for (uint32_t w = 0; w < k->n_waits && !waits; w++)
            waits = p->waits[k->wait_first + w] == p->tasks[writer].trigger;
        c->v->checks++;
        if (waits) continue;
        t->told = true;
        tell_race(c, t, "reads", a->lo, a->hi, t->rank, writer, "writes");
    }
}

static bool started(const prover *v, uint32_t rank, uint32_t task) {
    const prove_rank *r = &v->ranks[rank];
    return v->workers[r->worker[task]].started > r->place[task];
}

static void add_pending(prover *v, prove_tensor *t, uint32_t reader, uint32_t writer) {
    if (v->n_pending == v->cap_pending) {
        uint32_t cap = v->cap_pending ? v->cap_pending * 2 : 64;
        prove_pending *more = mem_realloc(v->pending, cap * sizeof *more);
        if (!more) {
            v->nomem = true;
            return;
        }
        v->pending = more;
        v->cap_pending = cap;
    }
    v->pending[v->n_pending] = (prove_pending){reader, writer, t->pending};
    t->pending = v->n_pending++;
}

/* A cache keeps what earlier iterations wrote: a unit may be read before or after the task that writes it, but in some
 * order; the task that writes it may read it too. */
static void check_cache_read(const toucher *c, prove_tensor *t, const access *a) {
    for (uint32_t i = first_write(t, a->lo); i < t->n_writes && t->writes[i].lo < a->hi; i++) {
        uint32_t writer = t->writes[i].task;
        c->v->checks++;
        if (writer == c->task || knows(c, t->rank, writer)) continue;
        if (!started(c->v, t->rank, writer)) {
            add_pending(c->v, t, c->task, writer);
        } else if (!t->told) {
            t->told = true;
            tell_race(c, t, "reads", a->lo, a->hi, t->rank, writer, "writes");
        }
    }
}

static void check_cache_write(const toucher *c, prove_tensor *t, const access *a) {
    for (uint32_t i = t->pending; i != KP_NONE; i = c->v->pending[i].next) {
        const prove_pending *n = &c->v->pending[i];
        c->v->checks++;
        if (n->writer != c->task || knows(c, t->rank, n->reader) || t->told) continue;
        t->told = true;
        tell_race(c, t, "writes", a->lo, a->hi, t->rank, n->reader, "reads");
    }
}

/* For the sharing of bytes: who touches it, and what the first of each worker knows then (later ones know more). */
static void note_use(const toucher *c, prove_tensor *t) {
    prover *v = c->v;
    uint32_t at = c->worker - t->first_worker;
    if (t->first_use == KP_NONE) t->first_use = v->sequence;
    t->last[at] = c->place + 1;
    if (prove_bit(t->touched, at)) return;
    prove_set(t->touched, at);
    const uint32_t *restrict clock = c->clock + t->first_worker;
    uint32_t *restrict least = t->least;
    for (uint32_t i = 0, n = t->n_workers; i < n; i++)
        least[i] = (int32_t)least[i] < (int32_t)clock[i] ? least[i] : clock[i];
}

static void note_probe(const toucher *c, uint32_t tensor) {
    for (uint32_t i = 0; i < c->v->n_probes; i++) {
        prove_probe *p = &c->v->probes[i];
        if (p->tensor == tensor && p->task == KP_NONE && c->clock[p->worker] < p->place)
            p->task = c->task, p->rank = c->rank;
    }
}

static void touch(const toucher *c, uint32_t tensor, const access *a) {
    prover *v = c->v;
    prove_tensor *t = &v->tensors[tensor];
    buffer_kind kind = prove_buffer(v, t)->kind;
    if (kind == BUFFER_WEIGHT || kind == BUFFER_CONST) return;
    if (v->probing) {
        note_probe(c, tensor);
        return;
    }
    if (kind == BUFFER_CACHE) {
        if (a->write)
            check_cache_write(c, t, a);
        else
            check_cache_read(c, t, a);
    } else if (kind == BUFFER_TAGGED && !a->write) {
        check_tagged(c, t, a);
    } else if (!a->write && !a->count && t->n_writes) {
        check_read(c, t, a);
    }
    if (buffer_placed(kind)) note_use(c, t);
}

/* The state of the generation: a write is ordered with every other use, a read with every write. */
static void check_state(const toucher *c, bool write) {
    prover *v = c->v;
    const prove_rank *r = &v->ranks[c->rank];
    const uint32_t *before = write ? r->state.used : r->state.written, *clock = c->clock + r->first_worker;
    uint32_t own = c->worker - r->first_worker;
    for (uint32_t i = 0; i < r->p->workers; i++) {
        v->checks++;
        if (before[i] <= clock[i] || (i == own && before[i] == c->place + 1)) continue;
        if (prove_enough(v)) break;
        prove_text other = prove_place_text(v, r->first_worker + i, before[i]);
        prove_reason(v, "race: %s %s the state of the generation, which %s uses, and nothing orders them: %s",
                     prove_task_text(v, c->rank, c->task).text, write ? "writes" : "reads", other.text,
                     prove_waits_text(v, c->rank, c->task).text);
        break;
    }
    if (write) r->state.written[own] = c->place + 1;
    r->state.used[own] = c->place + 1;
}

void prove_touch(prover *v, uint32_t worker, uint32_t task) {
    const prove_worker *w = &v->workers[worker];
    const prove_rank *r = &v->ranks[w->rank];
    toucher c = {v, w->rank, worker, task, w->started, w->clock};
    if (!v->probing) check_step(&c);
    for (uint32_t i = r->t.access_first[task]; i < r->t.access_first[task + 1]; i++) {
        const access *a = &r->t.accesses[i];
        if (a->tensor == TILER_STATE) {
            if (!v->probing) check_state(&c, a->write);
            continue;
        }
        uint32_t slot = prove_slot(r, a->tensor) - r->first_tensor;
        for (uint32_t q = 0; q < v->n; q++) {
            if (q == w->rank || a->ranks) touch(&c, v->ranks[q].first_tensor + slot, a);
        }
    }
}
