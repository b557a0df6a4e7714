/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/mutate_internal.h"

#include "core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct kind {
    const char *name;
    mutate_fn apply;
    const char *doc;
} kinds[] = {
#define X(name, function, doc) {name, function, doc},
    MUTATE_MAP(X)
#undef X
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *mutate_kind(size_t i, const char **doc) {
    if (i >= KINDS) return NULL;
    if (doc) *doc = kinds[i].doc;
    return kinds[i].name;
}

uint32_t mutate_draw(mutation *m, uint32_t n) { /* splitmix64, Steele et al. 2014 */
    uint64_t z = (m->random += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)(((z ^ (z >> 31)) >> 32) % (n ? n : 1));
}

bool mutate_say(mutation *m, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(m->what, MUTATE_WHAT_BYTES, fmt, args) < 0) m->what[0] = '\0';
    va_end(args);
    return true;
}

void *mutate_grow(mutation *m, const void *array, uint32_t n, uint32_t extra, size_t size) {
    void *copy = arena_array(&m->p->arena, (size_t)n + extra, size);
    if (!copy) {
        m->nomem = true;
    } else if (n) {
        memcpy(copy, array, n * size);
    }
    return copy;
}

const char *mutate_task_name(const mutation *m, uint32_t task) {
    return m->p->instances[m->p->tasks[task].instance].name;
}

uint32_t mutate_phase_of(const plan *p, uint32_t task) {
    uint32_t q = 0;
    while (task >= p->phases[q].first_task + p->phases[q].n_tasks) q++;
    return q;
}

static void drop_phase_record(plan *p, uint32_t q) {
    memmove(p->phases + q, p->phases + q + 1, (p->n_phases - q - 1) * sizeof *p->phases);
    p->n_phases--;
    uint32_t last = p->n_phases ? p->n_phases - 1 : 0;
    for (uint32_t e = 0; e < p->n_events; e++) {
        if (p->events[e].phase > q || p->events[e].phase > last) p->events[e].phase--;
    }
    for (uint32_t b = 0; b < p->n_buffers; b++) {
        if (p->buffers[b].first_phase > q || p->buffers[b].first_phase > last) p->buffers[b].first_phase--;
        if (p->buffers[b].last_phase >= q && p->buffers[b].last_phase > p->buffers[b].first_phase)
            p->buffers[b].last_phase--;
    }
}

static void drop_queue_entry(plan *p, uint32_t task) {
    uint32_t at = 0;
    while (p->queue[at] != task) at++;
    memmove(p->queue + at, p->queue + at + 1, (p->n_tasks - at - 1) * sizeof *p->queue);
    for (uint32_t w = 0; w <= p->workers; w++) {
        if (p->queue_first[w] > at) p->queue_first[w]--;
    }
    for (uint32_t i = 0; i + 1 < p->n_tasks; i++) {
        if (p->queue[i] > task) p->queue[i]--;
    }
}

void mutate_remove_task(mutation *m, uint32_t task) {
    plan *p = m->p;
    uint32_t q = mutate_phase_of(p, task), behind = p->n_tasks - task - 1;
    drop_queue_entry(p, task);
    memmove(p->tasks + task, p->tasks + task + 1, behind * sizeof *p->tasks);
    memmove(p->costs + task, p->costs + task + 1, behind * sizeof *p->costs);
    p->n_tasks--;
    p->phases[q].n_tasks--;
    for (uint32_t i = q + 1; i < p->n_phases; i++) p->phases[i].first_task--;
    if (!p->phases[q].n_tasks) drop_phase_record(p, q);
}

void mutate_forget_event(mutation *m, uint32_t event) {
    plan *p = m->p;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        kp_task *t = &p->tasks[i];
        for (uint32_t k = 0; k < t->n_waits;) {
            uint32_t *wait = p->waits + t->wait_first;
            if (wait[k] == event) {
                wait[k] = wait[--t->n_waits];
            } else {
                k++;
            }
        }
    }
}

static const struct kind *find_kind(const char *name, keel_error *err) {
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    }
    (void)error_set(err, KEEL_USAGE, "--kind %s: no such mutation; known:", name);
    for (size_t i = 0; i < KINDS; i++) error_append(err, "  %-18s  %s", kinds[i].name, kinds[i].doc);
    return NULL;
}

/* Through the file, the only complete copy there is. */
static keel_status plan_copy(const plan *p, plan **out, keel_error *err) {
    buf b = {0};
    keel_status s = plan_write(p, &b, err);
    if (s == KEEL_OK) s = plan_read("the plan to mutate", b.data, b.len, out, err);
    buf_free(&b);
    return s;
}

keel_status plan_mutate(const plan *p, const char *kind, uint64_t seed, plan **out, char what[MUTATE_WHAT_BYTES],
                        keel_error *err) {
    const struct kind *k = find_kind(kind, err);
    if (!k) return KEEL_USAGE;
    plan *copy;
    KEEL_TRY(plan_copy(p, &copy, err));
    mutation m = {.p = copy, .random = seed, .what = what};
    what[0] = '\0';
    if (k->apply(&m) && !m.nomem) {
        *out = copy;
        return KEEL_OK;
    }
    plan_close(copy);
    if (m.nomem) return KEEL_NOMEM_AT(err, "mutation");
    return error_set(err, KEEL_RANGE, "--kind %s --seed %llu: the plan has no place for it; try another kind or seed",
                     kind, (unsigned long long)seed);
}
