/* SPDX-License-Identifier: Apache-2.0 */
/* Mutations of where data lies: buffers, and SMEM pages and regions. */
#include "plan/mutate_internal.h"

#include <string.h>

enum { LINE = 64, TRIES = 64 };

/* A buffer in an arena, by chance; KP_NONE without. */
static uint32_t placed_buffer(mutation *m, bool symmetric) {
    const plan *p = m->p;
    uint32_t from = mutate_draw(m, p->n_buffers);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const plan_buffer *b = &p->buffers[(from + i) % p->n_buffers];
        if (buffer_placed(b->kind) && (b->kind == BUFFER_SYMMETRIC) == symmetric) return (from + i) % p->n_buffers;
    }
    return KP_NONE;
}

static uint64_t arena_of(const plan *p, const plan_buffer *b) {
    return b->kind == BUFFER_SYMMETRIC ? p->symmetric_bytes : p->arena_bytes;
}

static bool place_at(mutation *m, uint32_t buffer, uint64_t offset, const char *why) {
    plan_buffer *b = &m->p->buffers[buffer];
    uint64_t was = b->offset;
    b->offset = offset;
    return mutate_say(m, "buffer %u (%s): offset %llu -> %llu%s", buffer, b->name, (unsigned long long)was,
                      (unsigned long long)offset, why);
}

/* Onto another one of its arena: its offset, or the last that fits. */
static bool overlap(mutation *m, bool symmetric) {
    const plan *p = m->p;
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t a = placed_buffer(m, symmetric), b = placed_buffer(m, symmetric);
        if (a == KP_NONE || a == b) continue;
        uint64_t room = arena_of(p, &p->buffers[a]), offset = p->buffers[b].offset;
        if (p->buffers[a].bytes > room) continue;
        if (offset > room - p->buffers[a].bytes) offset = (room - p->buffers[a].bytes) / LINE * LINE;
        if (offset == p->buffers[a].offset) continue;
        return place_at(m, a, offset, ", onto another buffer");
    }
    return false;
}

static bool shift(mutation *m, bool symmetric) {
    const plan *p = m->p;
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t a = placed_buffer(m, symmetric);
        if (a == KP_NONE) return false;
        const plan_buffer *b = &p->buffers[a];
        uint64_t by = LINE * (1 + (uint64_t)mutate_draw(m, mutate_draw(m, 2) ? 4 : 64)), room = arena_of(p, b);
        bool down = mutate_draw(m, 2);
        if (down ? by > b->offset : by > room || b->bytes > room - by || b->offset > room - by - b->bytes) continue;
        return place_at(m, a, down ? b->offset - by : b->offset + by, "");
    }
    return false;
}

bool mutate_overlap_buffers(mutation *m) { return overlap(m, m->p->symmetric_bytes && mutate_draw(m, 3) == 0); }

bool mutate_shift_buffer(mutation *m) { return shift(m, m->p->symmetric_bytes && mutate_draw(m, 3) == 0); }

bool mutate_rezero_scratch(mutation *m) {
    const plan *p = m->p;
    for (int tries = 0; tries < 4 * TRIES; tries++) {
        uint32_t a = placed_buffer(m, false), b = placed_buffer(m, false);
        if (a == KP_NONE || a == b || p->buffers[a].kind != BUFFER_SCRATCH) continue;
        if (mutate_draw(m, 2)) { /* the other one comes to the scratch */
            uint32_t t = a;
            a = b;
            b = t;
        }
        uint64_t offset = p->buffers[b].offset;
        if (offset == p->buffers[a].offset || p->buffers[a].bytes > p->arena_bytes ||
            offset > p->arena_bytes - p->buffers[a].bytes)
            continue;
        return place_at(m, a, offset,
                        p->buffers[b].kind == BUFFER_SCRATCH ? ", onto a scratch" : ", a scratch onto another");
    }
    return false;
}

bool mutate_symmetric_offset(mutation *m) {
    if (m->p->tp < 2) return false;
    return mutate_draw(m, 2) ? overlap(m, true) : shift(m, true);
}

bool mutate_shrink_arena(mutation *m) {
    uint64_t was = m->p->arena_bytes, by = LINE * (1 + (uint64_t)mutate_draw(m, 64));
    if (by > was) return false;
    m->p->arena_bytes -= by;
    return mutate_say(m, "arena: %llu -> %llu bytes", (unsigned long long)was, (unsigned long long)m->p->arena_bytes);
}

bool mutate_lifetime(mutation *m) {
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t buffer = mutate_draw(m, m->p->n_buffers), phase = mutate_draw(m, m->p->n_phases);
        plan_buffer *b = &m->p->buffers[buffer];
        uint32_t first = b->first_phase, last = b->last_phase;
        bool begins = phase <= last && (phase < first || mutate_draw(m, 2));
        if (phase == (begins ? first : last)) continue;
        *(begins ? &b->first_phase : &b->last_phase) = phase;
        return mutate_say(m, "buffer %u (%s): lifetime phases %u to %u -> %u to %u", buffer, b->name, first, last,
                          b->first_phase, b->last_phase);
    }
    return false;
}

bool mutate_buffer_kind(mutation *m) {
    uint32_t buffer = mutate_draw(m, m->p->n_buffers);
    plan_buffer *b = &m->p->buffers[buffer];
    buffer_kind was = b->kind;
    if (was == BUFFER_ACTIVATION && mutate_draw(m, 2)) {
        b->external = !b->external;
        return mutate_say(m, "buffer %u (%s): %s", buffer, b->name,
                          b->external ? "the caller fills it" : "the caller no longer fills it");
    }
    b->kind = (buffer_kind)((was + 1 + mutate_draw(m, BUFFER_KINDS - 1)) % BUFFER_KINDS);
    if (mutate_draw(m, 2)) b->bytes = 0; /* then what its shape takes as that kind, so that reading may let it pass */
    if (!b->bytes) {
        b->bytes = dtype_bytes(b->dtype);
        for (int i = 0; i < b->rank; i++) b->bytes *= (uint64_t)b->dim[i];
        if (!buffer_placed(b->kind)) b->offset = 0;
    }
    return mutate_say(m, "buffer %u (%s): %s -> %s", buffer, b->name, buffer_kind_name(was), buffer_kind_name(b->kind));
}

static bool same_shape(const plan_buffer *a, const plan_buffer *b) {
    return a->dtype == b->dtype && a->rank == b->rank && a->rows == b->rows &&
           memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

bool mutate_swap_binding(mutation *m) {
    plan *p = m->p;
    for (int tries = 0; tries < 8 * TRIES; tries++) {
        uint32_t i = mutate_draw(m, p->n_instances), slot = mutate_draw(m, KP_BUFFERS);
        uint32_t was = p->instances[i].buffer[slot], to = mutate_draw(m, p->n_buffers);
        if (was == KP_NONE || to == was || !same_shape(&p->buffers[was], &p->buffers[to])) continue;
        p->instances[i].buffer[slot] = to;
        return mutate_say(m, "%s: slot %u bound to buffer %u (%s) instead of %u (%s)", p->instances[i].name, slot, to,
                          p->buffers[to].name, was, p->buffers[was].name);
    }
    return false;
}

/* ---- SMEM --------------------------------------------------------------------------------------- */

/* A task with at least `least` spans. */
static uint32_t span_task(mutation *m, uint32_t least) {
    const plan *p = m->p;
    uint32_t from = mutate_draw(m, p->n_tasks);
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        uint32_t task = (from + i) % p->n_tasks;
        if (p->tasks[task].n_spans >= least) return task;
    }
    return KP_NONE;
}

static void drop_span(kp_task *t, uint32_t s) {
    for (uint32_t i = s; i + 1 < t->n_spans; i++) t->span[i] = t->span[i + 1];
    t->span[--t->n_spans] = (kp_span){0, 0, 0};
}

bool mutate_shrink_span(mutation *m) {
    uint32_t task = span_task(m, 1);
    if (task == KP_NONE) return false;
    kp_task *t = &m->p->tasks[task];
    uint32_t s = mutate_draw(m, t->n_spans);
    kp_span was = t->span[s];
    if (was.n_pages > 1) {
        t->span[s].n_pages--;
        if (mutate_draw(m, 3) == 0) t->span[s].first_page++; /* the first one instead */
    } else {
        drop_span(t, s);
    }
    return mutate_say(m, "task %u (%s): span of pages [%u, +%u) has one page less", task, mutate_task_name(m, task),
                      was.first_page, was.n_pages);
}

/* Moves span s to page `to`; its regions too if `carry`. */
static bool move_span(mutation *m, uint32_t task, uint32_t s, uint32_t to, bool carry) {
    const plan *p = m->p;
    kp_task *t = &m->p->tasks[task];
    kp_span was = t->span[s];
    if (to == was.first_page || to + was.n_pages > p->n_pages) return false;
    for (uint32_t r = 0; carry && r < t->n_regions; r++) {
        uint32_t page = t->region_offset[r] / p->page_bytes;
        if (page >= was.first_page && page < (uint32_t)was.first_page + was.n_pages)
            t->region_offset[r] = t->region_offset[r] - was.first_page * p->page_bytes + to * p->page_bytes;
    }
    t->span[s].first_page = (kp_u16)to;
    return mutate_say(m, "task %u (%s): span of pages [%u, +%u) goes to page %u, its regions %s", task,
                      mutate_task_name(m, task), was.first_page, was.n_pages, to, carry ? "with it" : "stay");
}

static bool move_some_span(mutation *m, bool carry) {
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t task = span_task(m, 1);
        if (task == KP_NONE) return false;
        uint32_t s = mutate_draw(m, m->p->tasks[task].n_spans);
        if (move_span(m, task, s, mutate_draw(m, m->p->n_pages), carry)) return true;
    }
    return false;
}

bool mutate_move_span(mutation *m) { return move_some_span(m, true); }

bool mutate_alias_page(mutation *m) { return move_some_span(m, false); }

bool mutate_overlap_spans(mutation *m) {
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t task = span_task(m, 2);
        if (task == KP_NONE) return false;
        kp_task *t = &m->p->tasks[task];
        uint32_t a = mutate_draw(m, t->n_spans), b = (a + 1) % t->n_spans;
        uint32_t to = t->span[b].first_page + mutate_draw(m, t->span[b].n_pages);
        if (move_span(m, task, a, to, mutate_draw(m, 2))) return true;
    }
    return false;
}

bool mutate_shift_region(mutation *m) {
    plan *p = m->p;
    uint32_t smem = p->n_pages * p->page_bytes;
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t task = span_task(m, 1);
        if (task == KP_NONE) return false;
        kp_task *t = &p->tasks[task];
        if (!t->n_regions) continue;
        uint32_t r = mutate_draw(m, t->n_regions), was = t->region_offset[r];
        uint32_t by = mutate_draw(m, 2) ? LINE * (1 + mutate_draw(m, 16)) : p->page_bytes * (1 + mutate_draw(m, 3));
        uint32_t to = mutate_draw(m, 2) ? was + by : was - by;
        if (to > smem) continue;
        t->region_offset[r] = to;
        return mutate_say(m, "task %u (%s): region %u at byte %u of SMEM instead of %u", task,
                          mutate_task_name(m, task), r, to, was);
    }
    return false;
}

bool mutate_drop_region(mutation *m) {
    uint32_t task = span_task(m, 1);
    if (task == KP_NONE || !m->p->tasks[task].n_regions) return false;
    kp_task *t = &m->p->tasks[task];
    t->region_offset[--t->n_regions] = 0;
    return mutate_say(m, "task %u (%s): no region %u", task, mutate_task_name(m, task), t->n_regions);
}

bool mutate_release_role(mutation *m) {
    static const uint32_t roles[] = {KP_CONTROLLER, KP_LOADER, KP_LAUNCHER, KP_CONSUMER, KP_STORER};
    uint32_t task = span_task(m, 1);
    if (task == KP_NONE) return false;
    kp_task *t = &m->p->tasks[task];
    kp_span *span = &t->span[mutate_draw(m, t->n_spans)];
    uint32_t was = span->release_role, to = mutate_draw(m, 8) ? 1 + mutate_draw(m, 4) : 0;
    if (roles[to] == was) to = to == KP_STORER ? KP_CONSUMER : to + 1;
    span->release_role = roles[to];
    return mutate_say(m, "task %u (%s): pages [%u, +%u) released by the %s, not the %s", task,
                      mutate_task_name(m, task), span->first_page, span->n_pages, role_name(roles[to]), role_name(was));
}
