/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors and scratch: who writes which columns, and that everything read was written. What needs no order. */
#include "plan/prove_internal.h"

#include <stdlib.h>
#include <string.h>

/* One entry for each tensor id and each scratch of each rank; entry 0 of a rank, "none", stays empty. */
static void open_tensor(prover *v, uint32_t rank, uint32_t i) {
    const prove_rank *r = &v->ranks[rank];
    prove_tensor *t = &v->tensors[r->first_tensor + i];
    uint32_t n_graph = (uint32_t)r->g->n_tensors + 1, workers = r->p->workers;
    *t = (prove_tensor){.name = "none", .rank = rank, .buffer = KP_NONE, .first_use = KP_NONE, .pending = KP_NONE};
    if (!i) return;
    if (i < n_graph) {
        t->buffer = i - 1;
    } else {
        t->buffer = r->scratch_buffer[i - n_graph];
        t->monotonic = r->t.scratches[i - n_graph].monotonic;
    }
    const plan_buffer *b = &r->p->buffers[t->buffer];
    t->name = b->name;
    t->several = b->kind == BUFFER_SYMMETRIC && v->n > 1;
    t->first_worker = t->several ? 0 : r->first_worker;
    t->n_workers = t->several ? v->n_workers : workers;
    if (b->kind == BUFFER_WEIGHT || b->kind == BUFFER_CONST) return; /* nobody writes them */
    t->last = prove_array(v, t->n_workers, sizeof *t->last);
    t->least = prove_array(v, t->n_workers, sizeof *t->least);
    t->written = prove_array(v, workers, sizeof *t->written);
    t->touched = prove_array(v, t->n_workers / 64 + 1, sizeof *t->touched);
    t->seen = prove_array(v, t->n_workers / 64 + 1, sizeof *t->seen);
    if (!v->nomem) memset(t->least, 0x7f, t->n_workers * sizeof *t->least);
}

static void open_tensors(prover *v) {
    for (uint32_t r = 0; r < v->n; r++) {
        v->ranks[r].first_tensor = v->n_tensors;
        v->ranks[r].n_tensors = (uint32_t)v->ranks[r].g->n_tensors + 1 + v->ranks[r].t.n_scratches;
        v->n_tensors += v->ranks[r].n_tensors;
    }
    v->tensors = prove_array(v, v->n_tensors, sizeof *v->tensors);
    for (uint32_t r = 0; r < v->n; r++) {
        for (uint32_t i = 0; i < v->ranks[r].n_tensors && !v->nomem; i++) open_tensor(v, r, i);
        v->ranks[r].step_task = KP_NONE;
        v->ranks[r].state.used = prove_array(v, v->ranks[r].p->workers, sizeof(uint32_t));
        v->ranks[r].state.written = prove_array(v, v->ranks[r].p->workers, sizeof(uint32_t));
    }
}

/* Which of several writes is told by counts alone. */
static bool counts(const prove_rank *r, uint32_t task) {
    for (uint32_t i = r->t.access_first[task]; i < r->t.access_first[task + 1]; i++) {
        if (r->t.accesses[i].count) return true;
    }
    return false;
}

/* May a task write it at all? */
static bool writable(prover *v, uint32_t rank, const access *a, const prove_tensor *t) {
    const plan_buffer *b = prove_buffer(v, t);
    if (a->last && !counts(&v->ranks[rank], a->task)) {
        prove_reason(v, "%s writes %s as one of several tasks, and counts nowhere which of them is the last",
                     prove_task_text(v, rank, a->task).text, t->name);
        return false;
    }
    if (b->external || b->kind == BUFFER_WEIGHT || b->kind == BUFFER_CONST) {
        prove_reason(v, "%s writes %s, which is %s", prove_task_text(v, rank, a->task).text, t->name,
                     b->external ? "the caller's" : "a weight or a constant");
        return false;
    }
    if (!t->monotonic) return true;
    prove_reason(v, "%s writes %s, which is monotonic scratch: it only ever counts up and is never set again",
                 prove_task_text(v, rank, a->task).text, t->name);
    return false;
}

static void count_writes(prover *v, uint32_t rank) {
    const prove_rank *r = &v->ranks[rank];
    for (uint32_t i = 0; i < r->t.n_accesses; i++) {
        const access *a = &r->t.accesses[i];
        if (a->write && a->tensor != TILER_STATE) v->tensors[prove_slot(r, a->tensor)].n_writes++;
    }
    for (uint32_t i = 0; i < r->n_tensors && !v->nomem; i++) {
        prove_tensor *t = &v->tensors[r->first_tensor + i];
        t->writes = t->n_writes ? prove_array(v, t->n_writes, sizeof *t->writes) : NULL;
        t->runs = t->n_writes ? prove_array(v, t->n_writes, sizeof *t->runs) : NULL;
        t->n_writes = 0;
    }
}

static void fill_writes(prover *v, uint32_t rank) {
    const prove_rank *r = &v->ranks[rank];
    for (uint32_t i = 0; i < r->t.n_accesses; i++) {
        const access *a = &r->t.accesses[i];
        if (!a->write || a->tensor == TILER_STATE) continue;
        prove_tensor *t = &v->tensors[prove_slot(r, a->tensor)];
        if (!writable(v, rank, a, t)) continue;
        t->writes[t->n_writes++] = (prove_write){a->lo, a->hi, a->task, a->last};
        uint32_t w = r->worker[a->task] - r->first_worker, place = r->place[a->task] + 1;
        if (t->written[w] < place) t->written[w] = place;
    }
}

static int compare_writes(const void *a, const void *b) {
    const prove_write *x = a, *y = b;
    return x->lo != y->lo ? x->lo < y->lo ? -1 : 1 : x->task != y->task ? x->task < y->task ? -1 : 1 : 0;
}

/* Two tasks write the same columns; or two ops the same tensor, where one would undo the other. */
static void check_writers(prover *v, prove_tensor *t, const prove_write *a, const prove_write *b) {
    const plan *p = v->ranks[t->rank].p;
    v->checks++;
    if (t->told || a->task == b->task) return;
    if (p->tasks[a->task].instance != p->tasks[b->task].instance) {
        t->told = true;
        prove_reason(v, "%s is written by two ops: %s and %s", t->name, prove_task_text(v, t->rank, a->task).text,
                     prove_task_text(v, t->rank, b->task).text);
    } else if (b->lo < a->hi && !(a->last && b->last && a->lo == b->lo && a->hi == b->hi)) {
        t->told = true;
        prove_reason(v, "race: %s and %s both write columns [%lld, %lld) of %s",
                     prove_task_text(v, t->rank, a->task).text, prove_task_text(v, t->rank, b->task).text,
                     (long long)b->lo, (long long)(b->hi < a->hi ? b->hi : a->hi), t->name);
    }
}

/* Appends [lo, hi), joined with the last where `joins`. */
static void put_write(prove_write *list, uint32_t *n, prove_write w, bool joins) {
    if (*n && joins && w.lo <= list[*n - 1].hi) {
        if (list[*n - 1].hi < w.hi) list[*n - 1].hi = w.hi;
    } else {
        list[(*n)++] = w;
    }
}

/* Ascending and disjoint: columns are written by one task in an iteration. Makes the runs. */
static void sort_writes(prover *v, prove_tensor *t) {
    bool sorted = true;
    uint32_t n = 0;
    for (uint32_t i = 1; i < t->n_writes; i++) sorted = sorted && t->writes[i - 1].lo <= t->writes[i].lo;
    if (!sorted) qsort(t->writes, t->n_writes, sizeof *t->writes, compare_writes);
    for (uint32_t i = 0; i < t->n_writes; i++) {
        const prove_write w = t->writes[i];
        if (n) check_writers(v, t, &t->writes[n - 1], &w);
        put_write(t->writes, &n, w, n && t->writes[n - 1].task == w.task);
    }
    t->n_writes = n;
    for (uint32_t i = 0; i < n; i++)
        put_write(t->runs, &t->n_runs, (prove_write){t->writes[i].lo, t->writes[i].hi, KP_NONE, false}, true);
}

/* Up to where [lo, hi) is written, from lo on; `lo` itself: not even that. */
static int64_t written_to(const prove_tensor *t, int64_t lo) {
    uint32_t a = 0, b = t->n_runs;
    while (a < b) {
        uint32_t mid = a + (b - a) / 2;
        if (t->runs[mid].hi <= lo)
            a = mid + 1;
        else
            b = mid;
    }
    return a < t->n_runs && t->runs[a].lo <= lo ? t->runs[a].hi : lo;
}

static void check_read(prover *v, uint32_t rank, const access *a, prove_tensor *t) {
    const plan_buffer *b = prove_buffer(v, t);
    bool given = b->kind == BUFFER_WEIGHT || b->kind == BUFFER_CONST || b->kind == BUFFER_CACHE || b->external;
    v->checks++;
    if (given || t->told) return;
    int64_t to = written_to(t, a->lo);
    if (to >= a->hi) return;
    t->told = true;
    prove_reason(v, "%s reads columns [%lld, %lld) of %s%s; no task writes [%lld, %lld) of it",
                 prove_task_text(v, rank, a->task).text, (long long)a->lo, (long long)a->hi,
                 prove_rank_text(v, t->rank).text, t->name, (long long)to,
                 (long long)(t->n_runs && t->runs[0].lo > to && t->runs[0].lo < a->hi ? t->runs[0].lo : a->hi));
}

/* False: ranks read what only its own rank can. */
static bool check_reads(prover *v, uint32_t rank) {
    bool fine = true;
    const prove_rank *r = &v->ranks[rank];
    for (uint32_t i = 0; i < r->t.n_accesses; i++) {
        const access *a = &r->t.accesses[i];
        if (a->tensor == TILER_STATE) continue;
        uint32_t slot = prove_slot(r, a->tensor) - r->first_tensor;
        prove_tensor *t = &v->tensors[r->first_tensor + slot];
        if (a->count != t->monotonic) {
            if (!a->write)
                prove_reason(v, "%s %s %s, which is %s", prove_task_text(v, rank, a->task).text,
                             a->count ? "counts in" : "reads", t->name,
                             a->count ? "not monotonic scratch" : "monotonic scratch, whose counts mean nothing else");
            continue;
        }
        if (a->write || a->count) continue;
        if (a->ranks && r->p->tp > 1 && prove_buffer(v, t)->kind != BUFFER_SYMMETRIC) {
            prove_reason(v, "%s reads %s of other ranks, which is not in symmetric memory",
                         prove_task_text(v, rank, a->task).text, t->name);
            fine = false;
            continue;
        }
        for (uint32_t q = 0; q < v->n; q++) {
            if (q == rank || a->ranks) check_read(v, rank, a, &v->tensors[v->ranks[q].first_tensor + slot]);
        }
    }
    return fine;
}

/* Every column of every output is made, every unit of scratch is written, by somebody. */
static void check_whole(prover *v, const prove_tensor *t, const char *who) {
    v->checks++;
    if (t->monotonic || written_to(t, 0) >= t->units) return;
    prove_reason(v, "%s%s: no task of it writes [%lld, …) of %s", prove_rank_text(v, t->rank).text, who,
                 (long long)written_to(t, 0), t->name);
}

/* What becomes of an op that has no output: its scratch is read, or it writes the state, in one task. */
static void check_effect(prover *v, uint32_t rank, uint32_t instance, uint32_t first, uint32_t end) {
    const prove_rank *r = &v->ranks[rank];
    const graph_op *op = &r->g->ops[instance];
    uint32_t states = 0;
    bool read = false;
    for (uint32_t i = r->t.access_first[first]; i < r->t.access_first[end]; i++) {
        const access *a = &r->t.accesses[i];
        states += a->tensor == TILER_STATE && a->write;
        read = read || (a->tensor >= SCRATCH_BASE && a->tensor != TILER_STATE && !a->write);
    }
    v->checks++;
    if (states > 1)
        prove_reason(v, "%s%s: %u of its tasks write the state of the generation; one must",
                     prove_rank_text(v, rank).text, op->name, states);
    if (first == end || (!op->n_out && !states && !read))
        prove_reason(v, "%s%s: %s", prove_rank_text(v, rank).text, op->name,
                     first == end ? "it has no task" : "the task that ends it is not there: nothing comes of it");
}

static void check_instances(prover *v, uint32_t rank) {
    const prove_rank *r = &v->ranks[rank];
    const plan *p = r->p;
    uint32_t next = 0, next_scratch = 0;
    for (uint32_t i = 0; i < p->n_instances; i++) {
        uint32_t first = next;
        const graph_op *op = &r->g->ops[i];
        while (next < p->n_tasks && p->tasks[next].instance == i) next++;
        check_effect(v, rank, i, first, next);
        for (int k = 0; k < op->n_out; k++) check_whole(v, &v->tensors[prove_slot(r, op->out[k])], op->name);
        for (; next_scratch < r->t.n_scratches && r->t.scratches[next_scratch].instance == i; next_scratch++)
            check_whole(v, &v->tensors[prove_slot(r, SCRATCH_BASE + (int)next_scratch)], op->name);
    }
}

/* One task writes the step record, which all others read. */
static void find_step(prover *v, uint32_t rank) {
    prove_rank *r = &v->ranks[rank];
    uint32_t records = 0;
    for (uint32_t i = 0; i < r->p->n_buffers; i++) records += r->p->buffers[i].kind == BUFFER_STEP;
    const prove_tensor *t = r->g->step ? &v->tensors[prove_slot(r, r->g->step)] : NULL;
    v->checks++;
    if (records == 1 && t && t->n_writes == 1) {
        r->step_task = t->writes[0].task;
    } else {
        prove_reason(v, "%sthe step record must be one, written by one task; there are %u, %u tasks write it",
                     prove_rank_text(v, rank).text, records, t ? t->n_writes : 0);
    }
}

/* Columns of a row, or the units that its op counts in. */
static int64_t units_of(const prove_rank *r, uint32_t i) {
    if (i > (uint32_t)r->g->n_tensors) return (int64_t)r->t.scratches[i - (uint32_t)r->g->n_tensors - 1].units;
    const graph_tensor *g = graph_tensor_at(r->g, (int)i);
    if (r->t.units[i]) return (int64_t)r->t.units[i];
    return g->kind == TENSOR_STEP ? graph_elements(g) : g->rank > 1 ? graph_row_elements(g) : g->dim[0];
}

bool prove_data(prover *v) {
    bool fine = true;
    open_tensors(v);
    for (uint32_t r = 0; r < v->n && !v->nomem; r++) {
        const prove_rank *k = &v->ranks[r];
        for (uint32_t i = 1; i < k->n_tensors; i++) v->tensors[k->first_tensor + i].units = units_of(k, i);
        count_writes(v, r);
        if (v->nomem) return false;
        fill_writes(v, r);
        for (uint32_t i = 0; i < k->n_tensors; i++) sort_writes(v, &v->tensors[k->first_tensor + i]);
    }
    for (uint32_t r = 0; r < v->n && !v->nomem; r++) {
        fine = check_reads(v, r) && fine;
        check_instances(v, r);
        find_step(v, r);
    }
    return fine && !v->nomem;
}
