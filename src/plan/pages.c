/* SPDX-License-Identifier: Apache-2.0 */
/* Queues over the workers, and SMEM pages along each queue. */
#include "plan/tiler_internal.h"

#include "core/mem.h"

/* The workers of a phase's tasks: round-robin from *cursor on, in their order or by their aux. */
static void deal_phase(const plan *p, const plan_phase *ph, uint32_t *cursor, uint32_t *worker_of) {
    bool by_aux = p->instances[ph->instance].op->phases[ph->phase].by_aux;
    uint32_t aux = 0, left = ph->n_tasks;
    while (left) {
        for (uint32_t i = ph->first_task; i < ph->first_task + ph->n_tasks; i++) {
            if (by_aux && p->tasks[i].aux != aux) continue;
            worker_of[i] = (*cursor)++ % p->workers;
            left--;
        }
        aux++;
    }
}

/* Tasks in phase order, dealt round-robin with one cursor through all phases. A queue lists its tasks in phase order,
 * so a task only ever waits for events of tasks that no queue holds behind it. */
keel_status plan_make_queues(plan *p, keel_error *err) {
    p->queue = arena_array(&p->arena, (size_t)p->n_tasks + 1, sizeof *p->queue);
    p->queue_first = arena_array(&p->arena, (size_t)p->workers + 1, sizeof *p->queue_first);
    uint32_t *worker_of = mem_calloc((size_t)p->n_tasks + 1, sizeof *worker_of);
    if (!p->queue || !p->queue_first || !worker_of) {
        mem_free(worker_of);
        return KEEL_NOMEM_AT(err, "plan: queues");
    }
    uint32_t cursor = 0;
    for (uint32_t i = 0; i < p->n_phases; i++) deal_phase(p, &p->phases[i], &cursor, worker_of);
    for (uint32_t i = 0; i < p->n_tasks; i++) p->queue_first[worker_of[i] + 1]++;
    for (uint32_t w = 0; w < p->workers; w++) p->queue_first[w + 1] += p->queue_first[w];
    for (uint32_t i = 0; i < p->n_tasks; i++) p->queue[p->queue_first[worker_of[i]]++] = i;
    for (uint32_t w = p->workers; w > 0; w--) p->queue_first[w] = p->queue_first[w - 1];
    p->queue_first[0] = 0;
    mem_free(worker_of);
    return KEEL_OK;
}

enum { REGION_ALIGN = 64 };

/* Regions of one releasing role share a span, packed in index order; region_offset is relative to the span until
 * placed. */
static uint32_t span_bytes(const region_ask *ask, uint32_t role, uint32_t offset[KP_REGIONS]) {
    uint64_t at = 0;
    for (int r = 0; r < KP_REGIONS; r++) {
        if (!ask->bytes[r] || ask->release[r] != role) continue;
        offset[r] = (uint32_t)at;
        at += ((uint64_t)ask->bytes[r] + REGION_ALIGN - 1) / REGION_ALIGN * REGION_ALIGN;
    }
    return at > UINT32_MAX ? UINT32_MAX : (uint32_t)at;
}

static bool span_hits(const kp_task *t, uint32_t first, uint32_t n) {
    for (uint32_t s = 0; s < t->n_spans; s++) {
        if (first < (uint32_t)t->span[s].first_page + t->span[s].n_pages && t->span[s].first_page < first + n)
            return true;
    }
    return false;
}

/* The next pages after the cursor, going round, that no other span of the task holds. False when there are none. */
static bool span_place(const plan *p, const kp_task *t, uint32_t n, uint32_t *cursor, uint32_t *first) {
    for (uint32_t tries = 0; tries < p->n_pages; tries++) {
        uint32_t at = (*cursor + tries) % p->n_pages;
        if (at + n > p->n_pages || span_hits(t, at, n)) continue;
        *first = at;
        *cursor = (at + n) % p->n_pages;
        return true;
    }
    return false;
}

/* Places all spans of a task after the cursor; false, with nothing changed but the task, when one finds no room. */
static bool place_spans(const plan *p, kp_task *k, const region_ask *ask, uint32_t *cursor, uint32_t *short_bytes) {
    static const uint32_t roles[KP_SPANS] = {KP_CONSUMER, KP_STORER, KP_LAUNCHER};
    uint32_t at = *cursor;
    k->n_spans = 0;
    for (int i = 0; i < KP_SPANS; i++) {
        uint32_t bytes = span_bytes(ask, roles[i], k->region_offset), first = 0;
        if (!bytes) continue;
        *short_bytes = bytes;
        uint32_t n = (uint32_t)(((uint64_t)bytes + p->page_bytes - 1) / p->page_bytes);
        if (n > p->n_pages || !span_place(p, k, n, &at, &first)) return false;
        k->span[k->n_spans++] = (kp_span){(kp_u16)first, (kp_u16)n, roles[i]};
        for (int r = 0; r < KP_REGIONS; r++) {
            if (ask->bytes[r] && ask->release[r] == roles[i]) k->region_offset[r] += first * p->page_bytes;
        }
    }
    *cursor = at;
    return true;
}

/* After the cursor, so that tasks in flight find pages of their own; else from page 0, where whatever fits at all fits.
 */
static keel_status task_pages(const tiler *t, plan *p, uint32_t task, uint32_t *cursor, keel_error *err) {
    kp_task *k = &p->tasks[task];
    const region_ask *ask = &t->regions[task];
    uint32_t zero = 0, bytes = 0;
    for (int r = 0; r < KP_REGIONS; r++) {
        if (ask->bytes[r]) k->n_regions = (kp_u8)(r + 1);
    }
    if (place_spans(p, k, ask, cursor, &bytes)) return KEEL_OK;
    if (place_spans(p, k, ask, &zero, &bytes)) {
        *cursor = zero;
        return KEEL_OK;
    }
    p->smem_short = true;
    return error_set(err, KEEL_REFUSED,
                     "%s: a task needs %u bytes of SMEM beside its other regions; a worker of %s has %u pages of %u "
                     "bytes; plan a smaller --batch",
                     p->instances[k->instance].name, bytes, p->arch, p->n_pages, p->page_bytes);
}

keel_status plan_make_pages(const tiler *t, plan *p, keel_error *err) {
    for (uint32_t w = 0; w < p->workers; w++) {
        uint32_t cursor = 0;
        for (uint32_t i = p->queue_first[w]; i < p->queue_first[w + 1]; i++)
            KEEL_TRY(task_pages(t, p, p->queue[i], &cursor, err));
    }
    return KEEL_OK;
}
