/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle_internal.h"

#include <stdlib.h>
#include <string.h>

bool shadow_begin(shadow *s, uint32_t n_threads, uint32_t n_cells) {
    uint32_t width = (n_threads + 7) / 8 * 8;
    if (s->cap_clock < n_threads * width) {
        free(s->clock);
        s->cap_clock = n_threads * width;
        s->clock = aligned_alloc(64, ((size_t)s->cap_clock * sizeof *s->clock + 63) / 64 * 64);
    }
    if (s->cap_cells < n_cells) {
        free(s->cells);
        s->cap_cells = n_cells;
        s->cells = calloc(n_cells, sizeof *s->cells);
        s->generation = 0;
    }
    if (!s->reads) {
        s->cap_reads = 1 << 12;
        s->reads = malloc(s->cap_reads * sizeof *s->reads);
    }
    if (!s->clock || !s->cells || !s->reads) return false;
    s->n_threads = n_threads, s->width = width, s->n_cells = n_cells;
    s->n_reads = 1; /* 0 ends a list */
    s->generation++;
    memset(s->clock, 0, (size_t)n_threads * width * sizeof *s->clock);
    for (uint32_t t = 0; t < n_threads; t++) shadow_clock(s, t)[t] = 1;
    return true;
}

void shadow_free(shadow *s) {
    free(s->clock), free(s->cells), free(s->reads);
    *s = (shadow){0};
}

static cell *touch(shadow *s, uint32_t at) {
    cell *c = &s->cells[at];
    if (c->generation != s->generation) *c = (cell){.generation = s->generation};
    return c;
}

static bool write_is_before(const cell *c, const uint32_t *clock) {
    return !c->writer || clock[c->writer - 1] >= c->written;
}

uint32_t shadow_read(shadow *s, uint32_t at, uint32_t thread, uint32_t task) {
    cell *c = touch(s, at);
    const uint32_t *clock = shadow_clock(s, thread);
    uint32_t race = write_is_before(c, clock) ? KP_NONE : c->writer_task;
    uint32_t *link = &c->reads, spare = 0;
    while (*link) { /* reads that are before this one need not be kept: what is after this is after them */
        read_node *n = &s->reads[*link];
        if (clock[n->thread] >= n->clock) {
            spare = *link;
            *link = n->next;
        } else {
            link = &n->next;
        }
    }
    if (!spare) {
        if (s->n_reads == s->cap_reads) {
            read_node *more = realloc(s->reads, 2 * (size_t)s->cap_reads * sizeof *more);
            if (!more) abort();
            s->reads = more;
            s->cap_reads *= 2;
        }
        spare = s->n_reads++;
    }
    s->reads[spare] = (read_node){thread, clock[thread], task, c->reads};
    c->reads = spare;
    return race;
}

uint32_t shadow_write(shadow *s, uint32_t at, uint32_t thread, uint32_t task, uint64_t tag, uint32_t iteration) {
    cell *c = touch(s, at);
    const uint32_t *clock = shadow_clock(s, thread);
    uint32_t race = write_is_before(c, clock) ? KP_NONE : c->writer_task;
    for (uint32_t i = c->reads; i && race == KP_NONE; i = s->reads[i].next) {
        const read_node *n = &s->reads[i];
        if (clock[n->thread] < n->clock) race = n->task;
    }
    c->reads = 0;
    c->tag = tag;
    c->iteration = iteration;
    c->writer = thread + 1;
    c->written = clock[thread];
    c->writer_task = task;
    return race;
}
