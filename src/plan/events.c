/* SPDX-License-Identifier: Apache-2.0 */
/* Dependencies → events. A phase's tasks are cut into groups such that every reader needs whole groups; a group is one
 * event. Waits that others imply are left out. docs/plan-format.md, "events". */
#include "plan/tiler_internal.h"

#include "core/mem.h"

#include <stdlib.h>
#include <string.h>

enum { DEPS = 24, GROUPS_A_WAIT = 8 };

/* Phase q needs phase p. */
typedef struct dep {
    uint32_t phase;
    uint32_t tasks;     /* how many tasks of q need some of p */
    uint32_t last_task; /* for counting */
    uint32_t reach;     /* all of them together need tasks [0, reach) of p: seen as they come, in ascending order */
    bool whole;         /* each of them needs all of p */
    bool ranks;         /* on every rank: no wait on this rank alone implies it */
    bool implied;
} dep;

/* Task `task` needs tasks [a, b) of phase `phase` (indices within the phase). */
typedef struct need {
    uint32_t task, phase, a, b;
} need;

typedef struct maker {
    tiler *t;
    plan *p;
    keel_error *err;
    uint32_t n_tensors;    /* graph tensors and scratches, by slot */
    uint32_t *write_first; /* [n_tensors + 1] into writes */
    uint32_t *writes;      /* access indices, by tensor, in task order */
    uint32_t *task_phase;  /* [n_tasks] */
    dep (*deps)[DEPS];
    uint8_t *n_deps;
    need *needs;
    uint32_t n_needs, cap_needs;
    uint8_t *on_ranks; /* by phase: tasks of other ranks wait for it */
    uint8_t *weak;     /* by phase: its tasks write tagged data alone, which its events do not order */
    uint32_t step_phase;
} maker;

static uint32_t tensor_slot(const maker *m, int tensor) {
    return tensor >= SCRATCH_BASE ? (uint32_t)(m->t->g->n_tensors + 1 + tensor - SCRATCH_BASE) : (uint32_t)tensor;
}

static const char *tensor_name(const maker *m, int tensor) {
    return tensor >= SCRATCH_BASE ? m->t->scratches[tensor - SCRATCH_BASE].name
                                  : graph_tensor_at(m->t->g, tensor)->name;
}

static const char *phase_name(const maker *m, uint32_t phase) {
    return m->p->instances[m->p->phases[phase].instance].name;
}

/* A tensor has one producing phase, whose tasks write it once, in ascending order; several where one of them does it
 * for all. `before` is the write that precedes `a`. */
static keel_status check_write(const maker *m, const access *before, const access *a) {
    const char *name = tensor_name(m, a->tensor);
    uint32_t p = m->task_phase[before->task], q = m->task_phase[a->task];
    if (p != q) {
        return error_set(m->err, KEEL_REFUSED, "%s: written by %s and by %s; a tensor has one producer", name,
                         phase_name(m, p), phase_name(m, q));
    }
    if (a->lo >= before->hi || (a->last && before->last && a->lo == before->lo && a->hi == before->hi)) return KEEL_OK;
    return error_set(
        m->err, KEEL_REFUSED,
        "%s: %s writes [%lld, %lld) in task %u and [%lld, %lld) in task %u; tiles must be disjoint and ascending", name,
        phase_name(m, q), (long long)before->lo, (long long)before->hi, before->task, (long long)a->lo,
        (long long)a->hi, a->task);
}

/* Sorts write accesses by tensor, keeping task order. */
static keel_status index_writes(maker *m) {
    const tiler *t = m->t;
    for (uint32_t i = 0; i < t->n_accesses; i++) {
        const access *a = &t->accesses[i];
        if (a->write && a->tensor != TILER_STATE) m->write_first[tensor_slot(m, a->tensor) + 1]++;
    }
    for (uint32_t s = 0; s < m->n_tensors; s++) m->write_first[s + 1] += m->write_first[s];
    uint32_t *fill = mem_alloc((size_t)(m->n_tensors + 1) * sizeof *fill);
    if (!fill) return KEEL_NOMEM_AT(m->err, "plan: events");
    memcpy(fill, m->write_first, (size_t)(m->n_tensors + 1) * sizeof *fill);
    keel_status s = KEEL_OK;
    for (uint32_t i = 0; i < t->n_accesses && s == KEEL_OK; i++) {
        const access *a = &t->accesses[i];
        if (!a->write || a->tensor == TILER_STATE) continue;
        uint32_t slot = tensor_slot(m, a->tensor), at = fill[slot]++;
        m->writes[at] = i;
        if (at > m->write_first[slot]) s = check_write(m, &t->accesses[m->writes[at - 1]], a);
    }
    mem_free(fill);
    return s;
}

/* Tasks of the producing phase that overlap [r->lo, r->hi): hull [*a, *b) of task indices within that phase. */
static keel_status overlap(maker *m, const access *r, uint32_t *a, uint32_t *b) {
    const tiler *t = m->t;
    uint32_t slot = tensor_slot(m, r->tensor), from = m->write_first[slot], to = m->write_first[slot + 1];
    uint32_t lo = from, hi = to;
    while (lo < hi) { /* first write that ends after r->lo: writes come in ascending order within a tensor */
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->accesses[m->writes[mid]].hi <= r->lo)
            lo = mid + 1;
        else
            hi = mid;
    }
    int64_t covered = r->lo;
    uint32_t i = lo, base = m->p->phases[m->task_phase[t->accesses[m->writes[from]].task]].first_task;
    for (; i < to && covered < r->hi; i++) {
        const access *w = &t->accesses[m->writes[i]];
        if (w->lo > covered) break;
        if (w->hi > covered) covered = w->hi;
    }
    while (i < to && t->accesses[m->writes[i]].lo < r->hi) i++; /* the others of which one writes */
    if (covered < r->hi) {
        return error_set(m->err, KEEL_REFUSED,
                         "%s: task %u of %s reads [%lld, %lld) but only up to %lld is written before",
                         tensor_name(m, r->tensor), r->task, phase_name(m, m->task_phase[r->task]), (long long)r->lo,
                         (long long)r->hi, (long long)covered);
    }
    *a = t->accesses[m->writes[lo]].task - base;
    *b = t->accesses[m->writes[i - 1]].task - base + 1;
    return KEEL_OK;
}

static keel_status add_need(maker *m, uint32_t task, uint32_t phase, uint32_t a, uint32_t b, bool ranks) {
    if (m->n_needs == m->cap_needs) {
        uint32_t cap = m->cap_needs ? m->cap_needs * 2 : 1024;
        need *p = mem_realloc(m->needs, (size_t)cap * sizeof *p);
        if (!p) return KEEL_NOMEM_AT(m->err, "plan: events");
        m->needs = p;
        m->cap_needs = cap;
    }
    m->needs[m->n_needs++] = (need){task, phase, a, b};
    uint32_t q = m->task_phase[task];
    dep *d = m->deps[q];
    uint32_t i = 0;
    while (i < m->n_deps[q] && d[i].phase != phase) i++;
    if (i == DEPS) return error_set(m->err, KEEL_REFUSED, "%s: depends on more than %d phases", phase_name(m, q), DEPS);
    if (i == m->n_deps[q]) {
        d[i] = (dep){.phase = phase, .last_task = KP_NONE, .whole = true};
        m->n_deps[q]++;
    }
    d[i].ranks |= ranks;
    m->on_ranks[phase] |= ranks;
    if (d[i].last_task != task) d[i].tasks++;
    d[i].last_task = task;
    if (a <= d[i].reach && b > d[i].reach) d[i].reach = b;
    if (a != 0 || b != m->p->phases[phase].n_tasks) d[i].whole = false;
    return KEEL_OK;
}

static keel_status need_of_read(maker *m, const access *r) {
    uint32_t slot = tensor_slot(m, r->tensor), q = m->task_phase[r->task];
    if (m->write_first[slot] == m->write_first[slot + 1]) {
        if (r->tensor >= SCRATCH_BASE)
            return error_set(m->err, KEEL_REFUSED, "%s: read but never written", tensor_name(m, r->tensor));
        const graph_tensor *g = graph_tensor_at(m->t->g, r->tensor);
        if (g->kind == TENSOR_ACTIVATION && !g->external) {
            return error_set(m->err, KEEL_REFUSED, "%s: %s reads it before anything writes it", g->name,
                             phase_name(m, q));
        }
        return KEEL_OK;
    }
    uint32_t producer = m->task_phase[m->t->accesses[m->writes[m->write_first[slot]]].task];
    if (producer > q) {
        return error_set(m->err, KEEL_REFUSED, "%s: %s reads it before %s writes it", tensor_name(m, r->tensor),
                         phase_name(m, q), phase_name(m, producer));
    }
    uint32_t a = 0, b = 0;
    KEEL_TRY(overlap(m, r, &a, &b));
    if (producer != q) return add_need(m, r->task, producer, a, b, r->ranks && m->p->tp > 1);
    uint32_t own = r->task - m->p->phases[q].first_task;
    if (a == own && b == own + 1) return KEEL_OK; /* its own units: KV pages that it appends to and reads */
    return error_set(m->err, KEEL_REFUSED,
                     "%s: task %u of %s reads [%lld, %lld), which another task of the same phase writes",
                     tensor_name(m, r->tensor), r->task, phase_name(m, q), (long long)r->lo, (long long)r->hi);
}

static keel_status collect_needs(maker *m) {
    const tiler *t = m->t;
    for (uint32_t task = 0; task < t->n_tasks; task++) {
        if (m->step_phase != KP_NONE && m->task_phase[task] > m->step_phase)
            KEEL_TRY(add_need(m, task, m->step_phase, 0, m->p->phases[m->step_phase].n_tasks, false));
        for (uint32_t i = t->access_first[task]; i < t->access_first[task + 1]; i++) {
            const access *a = &t->accesses[i];
            if (!a->write && !a->count && a->tensor != TILER_STATE) KEEL_TRY(need_of_read(m, a));
        }
    }
    return KEEL_OK;
}

static void set_union(uint64_t *to, const uint64_t *from, uint32_t words) {
    for (uint32_t w = 0; w < words; w++) to[w] |= from[w];
}

/* full(q): every task of q starts after all tasks of these phases. done(q): when all tasks of q are finished, so are
 * all of these. done(q) = {q} ∪ full(q) ∪ done(p) for every p all of whose tasks q's tasks need, taken together full(q)
 * ∋ done(p) for every p that each task of q needs whole, and full(p) for every p that each task of q needs some of */
static keel_status make_full(maker *m, phase_sets *full) {
    uint32_t words = full->words;
    uint64_t *done = mem_calloc((size_t)m->p->n_phases * words, sizeof *done);
    if (!done) return KEEL_NOMEM_AT(m->err, "plan: events");
    for (uint32_t q = 0; q < m->p->n_phases; q++) {
        uint64_t *full_q = full->bits + (size_t)q * words, *done_q = done + (size_t)q * words;
        done_q[q / 64] |= 1ull << (q % 64);
        for (uint32_t i = 0; i < m->n_deps[q]; i++) {
            const dep *d = &m->deps[q][i];
            if (m->weak[d->phase]) continue;
            if (d->reach == m->p->phases[d->phase].n_tasks) set_union(done_q, done + (size_t)d->phase * words, words);
            if (d->tasks != m->p->phases[q].n_tasks) continue;
            set_union(full_q, full->bits + (size_t)d->phase * words, words);
            if (d->whole) set_union(full_q, done + (size_t)d->phase * words, words);
        }
        set_union(done_q, full_q, words);
    }
    mem_free(done);
    return KEEL_OK;
}

static void mark_implied(maker *m, const phase_sets *full) {
    for (uint32_t q = 0; q < m->p->n_phases; q++) {
        for (uint32_t i = 0; i < m->n_deps[q]; i++) {
            dep *d = &m->deps[q][i];
            for (uint32_t j = 0; j < m->n_deps[q] && !d->implied && !d->ranks; j++) {
                const dep *r = &m->deps[q][j];
                d->implied = j != i && !m->weak[d->phase] && !m->weak[r->phase] &&
                             r->tasks == m->p->phases[q].n_tasks && phase_set_has(full, r->phase, d->phase);
            }
        }
    }
}

static bool need_implied(const maker *m, const need *n) {
    uint32_t q = m->task_phase[n->task];
    for (uint32_t i = 0; i < m->n_deps[q]; i++) {
        if (m->deps[q][i].phase == n->phase) return m->deps[q][i].implied;
    }
    return false;
}

/* Marks in cut[task + 1 …] where groups of a phase begin; group_of[task] becomes the event. One group where readers
 * would have to wait for too many. */
static keel_status make_groups(maker *m, uint32_t *event_of) {
    plan *p = m->p;
    uint32_t n = p->n_tasks, events = 0;
    uint8_t *cut = mem_calloc((size_t)n + 1, 1), *read = mem_calloc(p->n_phases, 1),
            *merge = mem_calloc(p->n_phases, 1);
    uint32_t *cuts_before = mem_calloc((size_t)n + 1, sizeof *cuts_before);
    keel_status s = cut && read && merge && cuts_before ? KEEL_OK : KEEL_NOMEM_AT(m->err, "plan: events");
    for (uint32_t i = 0; s == KEEL_OK && i < m->n_needs; i++) {
        const need *d = &m->needs[i];
        if (need_implied(m, d)) continue;
        uint32_t base = p->phases[d->phase].first_task;
        read[d->phase] = 1;
        cut[base + d->a] = cut[base + d->b] = 1;
    }
    for (uint32_t i = 0; s == KEEL_OK && i < n; i++) cuts_before[i + 1] = cuts_before[i] + cut[i];
    for (uint32_t i = 0; s == KEEL_OK && i < m->n_needs; i++) {
        const need *d = &m->needs[i];
        uint32_t base = p->phases[d->phase].first_task;
        if (!need_implied(m, d) && cuts_before[base + d->b] - cuts_before[base + d->a] > GROUPS_A_WAIT)
            merge[d->phase] = 1;
    }
    for (uint32_t q = 0; s == KEEL_OK && q < p->n_phases; q++) {
        const plan_phase *ph = &p->phases[q];
        for (uint32_t i = ph->first_task; i < ph->first_task + ph->n_tasks; i++) {
            bool begins = i == ph->first_task || (cut[i] && !merge[q]);
            if (read[q] && begins) events++;
            event_of[i] = read[q] ? events - 1 : KP_NONE;
        }
    }
    p->n_events = events;
    mem_free(cut), mem_free(read), mem_free(merge), mem_free(cuts_before);
    return s;
}

static keel_status fill_events(maker *m, const uint32_t *event_of) {
    plan *p = m->p;
    p->events = arena_array(&p->arena, p->n_events ? p->n_events : 1, sizeof *p->events);
    if (!p->events) return KEEL_NOMEM_AT(m->err, "plan: events");
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        p->tasks[i].trigger = event_of[i];
        if (event_of[i] == KP_NONE) continue;
        plan_event *e = &p->events[event_of[i]];
        e->phase = m->task_phase[i];
        e->ranks = m->on_ranks[e->phase] != 0;
        e->weak = m->weak[e->phase];
        e->triggers += e->ranks ? p->tp : 1;
    }
    return KEEL_OK;
}

/* The events of a task's needs, each once, in ascending order. Needs are in task order. */
static keel_status fill_waits(maker *m, const uint32_t *event_of) {
    plan *p = m->p;
    buf waits = {0};
    uint32_t n = 0, total = 0;
    keel_status s = KEEL_OK;
    for (uint32_t task = 0; task < p->n_tasks && s == KEEL_OK; task++) {
        uint32_t first = total;
        for (; n < m->n_needs && m->needs[n].task == task; n++) {
            const need *d = &m->needs[n];
            uint32_t base = p->phases[d->phase].first_task;
            if (need_implied(m, d)) continue;
            for (uint32_t e = event_of[base + d->a]; e <= event_of[base + d->b - 1]; e++) {
                bool seen = false;
                for (uint32_t k = first; k < total && !waits.failed; k++)
                    seen = seen || ((uint32_t *)(void *)waits.data)[k] == e;
                if (seen) continue;
                buf_put(&waits, &e, sizeof e);
                total++;
            }
        }
        p->tasks[task].wait_first = first;
        p->tasks[task].n_waits = (kp_u16)(total - first);
        if (total - first > 0xffff)
            s = error_set(m->err, KEEL_REFUSED, "%s: more than 65535 waits", phase_name(m, m->task_phase[task]));
    }
    p->n_waits = total;
    p->waits = arena_array(&p->arena, (size_t)total + 1, sizeof *p->waits);
    if (s == KEEL_OK && (waits.failed || !p->waits)) s = KEEL_NOMEM_AT(m->err, "plan: waits");
    if (s == KEEL_OK && total) memcpy(p->waits, waits.data, total * sizeof *p->waits);
    buf_free(&waits);
    return s;
}

static keel_status maker_open(maker *m) {
    plan *p = m->p;
    m->n_tensors = (uint32_t)m->t->g->n_tensors + 1 + m->t->n_scratches;
    m->write_first = mem_calloc((size_t)m->n_tensors + 2, sizeof *m->write_first);
    m->writes = mem_calloc((size_t)m->t->n_accesses + 1, sizeof *m->writes);
    m->task_phase = mem_calloc((size_t)p->n_tasks + 1, sizeof *m->task_phase);
    m->deps = mem_calloc(p->n_phases, sizeof *m->deps);
    m->n_deps = mem_calloc(p->n_phases, 1);
    m->on_ranks = mem_calloc(p->n_phases, 1);
    m->weak = mem_calloc(p->n_phases, 1);
    if (!m->write_first || !m->writes || !m->task_phase || !m->deps || !m->n_deps || !m->on_ranks || !m->weak)
        return KEEL_NOMEM_AT(m->err, "plan: events");
    m->step_phase = KP_NONE;
    for (uint32_t q = 0; q < p->n_phases; q++) {
        const graph_op *op = &m->t->g->ops[p->phases[q].instance];
        if (op->n_out && graph_tensor_at(m->t->g, op->out[0])->kind == TENSOR_STEP) m->step_phase = q;
        for (uint32_t i = 0; i < p->phases[q].n_tasks; i++) m->task_phase[p->phases[q].first_task + i] = q;
    }
    return KEEL_OK;
}

/* An edge from a weak phase holds by its data, and says nothing of anything else. */
static keel_status find_weak(maker *m) {
    uint8_t *tagged = mem_calloc((size_t)m->t->g->n_tensors + 1, 1), *unread = mem_calloc(plan_unread_slots(m->t), 1);
    keel_status s = tagged && unread ? KEEL_OK : KEEL_NOMEM_AT(m->err, "plan: events");
    if (s == KEEL_OK) {
        plan_find_tagged(m->t, m->p, tagged);
        plan_find_unread(m->t, unread);
    }
    for (uint32_t q = 0; q < m->p->n_phases && s == KEEL_OK; q++) {
        const plan_phase *ph = &m->p->phases[q];
        m->weak[q] = 1;
        for (uint32_t i = 0; i < ph->n_tasks && m->weak[q]; i++)
            m->weak[q] = plan_writes_tagged(m->t, tagged, unread, ph->first_task + i);
    }
    mem_free(tagged), mem_free(unread);
    return s;
}

keel_status plan_make_events(tiler *t, plan *p, phase_sets *full, keel_error *err) {
    maker m = {.t = t, .p = p, .err = err};
    keel_status s = maker_open(&m);
    full->words = (p->n_phases + 63) / 64;
    full->bits = mem_calloc((size_t)p->n_phases * full->words, sizeof *full->bits);
    uint32_t *event_of = mem_calloc((size_t)p->n_tasks + 1, sizeof *event_of);
    if (s == KEEL_OK && (!full->bits || !event_of)) s = KEEL_NOMEM_AT(err, "plan: events");
    if (s == KEEL_OK) s = index_writes(&m);
    if (s == KEEL_OK) s = collect_needs(&m);
    if (s == KEEL_OK) s = find_weak(&m);
    if (s == KEEL_OK) s = make_full(&m, full);
    if (s == KEEL_OK) {
        mark_implied(&m, full);
        s = make_groups(&m, event_of);
    }
    if (s == KEEL_OK) s = fill_events(&m, event_of);
    if (s == KEEL_OK) s = fill_waits(&m, event_of);
    mem_free(event_of), mem_free(m.write_first), mem_free(m.writes), mem_free(m.task_phase);
    mem_free(m.deps), mem_free(m.n_deps), mem_free(m.needs), mem_free(m.on_ranks), mem_free(m.weak);
    return s;
}
