/* SPDX-License-Identifier: Apache-2.0 */
/* From what ops say about each task (plan_describe) to cells. A cell is the largest piece of an arena that no access
 * divides, a unit of a KV cache, the step record, or the state. */
#include "oracle_internal.h"

#include <stdlib.h>
#include <string.h>

static uint64_t gcd(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Buffer of an access's tensor; KP_NONE for the state and for what the plan does not bind. */
static uint32_t buffer_of(const rank_model *r, int32_t tensor) {
    if (tensor == TILER_STATE) return KP_NONE;
    if (tensor < SCRATCH_BASE) return (uint32_t)tensor - 1;
    const scratch *s = &r->t.scratches[tensor - SCRATCH_BASE];
    const plan_instance *inst = &r->p->instances[s->instance];
    int slot = inst->op->max_in + inst->op->max_weights + inst->op->n_out;
    for (int32_t i = tensor - SCRATCH_BASE - 1; i >= 0 && r->t.scratches[i].instance == s->instance; i--) slot++;
    return slot < KP_BUFFERS ? inst->buffer[slot] : KP_NONE;
}

static uint64_t row_bytes(const plan_buffer *b) {
    uint64_t n = dtype_bytes(b->dtype);
    for (int i = 1; i < b->rank; i++) n *= (uint64_t)b->dim[i];
    return n;
}

/* Byte of a column (or of a scratch's unit) within a row. */
static uint64_t column_byte(const rank_model *r, const access *a, const plan_buffer *b, int64_t column) {
    if (a->tensor >= SCRATCH_BASE) {
        const scratch *s = &r->t.scratches[a->tensor - SCRATCH_BASE];
        return s->bytes * (uint64_t)column / s->units;
    }
    return (uint64_t)column * dtype_bytes(b->dtype);
}

static bool in_arena(const plan_buffer *b) { return buffer_placed(b->kind); }

static uint64_t find_granule(const rank_model *r, uint64_t granule) {
    for (uint32_t i = 0; i < r->t.n_accesses; i++) {
        const access *a = &r->t.accesses[i];
        uint32_t buffer = buffer_of(r, a->tensor);
        if (buffer == KP_NONE || !in_arena(&r->p->buffers[buffer])) continue;
        const plan_buffer *b = &r->p->buffers[buffer];
        granule = gcd(granule, column_byte(r, a, b, a->lo));
        granule = gcd(granule, column_byte(r, a, b, a->hi));
        granule = gcd(granule, b->offset);
        granule = gcd(granule, b->bytes);
        if (b->rank > 1) granule = gcd(granule, row_bytes(b));
    }
    return granule;
}

static keel_status describe(rank_model *r, keel_error *err) {
    KEEL_TRY(plan_graph(r->p, &r->g, err));
    tile_env env = plan_env(r->p);
    r->open = true;
    KEEL_TRY(tiler_open(&r->t, r->g, &env, err));
    return plan_describe(&r->t, r->p, err);
}

static uint32_t reserve(model *m, uint64_t n) {
    uint32_t first = m->n_cells;
    m->n_cells += (uint32_t)n;
    return first;
}

/* Cells of each buffer; of what nobody may write, none. */
static keel_status place_cells(model *m, rank_model *r, keel_error *err) {
    const plan *p = r->p;
    r->buffer_cell = arena_array(&m->memory, (size_t)p->n_buffers + 1, sizeof *r->buffer_cell);
    if (!r->buffer_cell) return KEEL_NOMEM_AT(err, "oracle");
    r->arena = reserve(m, p->arena_bytes / m->granule + 1);
    r->n_symmetric = (uint32_t)(p->symmetric_bytes / m->granule);
    r->symmetric = reserve(m, r->n_symmetric);
    r->step = reserve(m, 1);
    r->state = reserve(m, 1);
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const plan_buffer *b = &p->buffers[i];
        uint32_t first = b->kind == BUFFER_SYMMETRIC ? r->symmetric : r->arena;
        r->buffer_cell[i] = in_arena(b)               ? first + (uint32_t)(b->offset / m->granule)
                            : b->kind == BUFFER_STEP  ? r->step
                            : b->kind == BUFFER_CACHE ? reserve(m, r->t.units[i + 1] ? r->t.units[i + 1] : 1)
                                                      : KP_NONE;
    }
    return KEEL_OK;
}

static uint64_t tag_of(uint32_t buffer, uint64_t cell_in_buffer) {
    return ((uint64_t)buffer + 1) << 32 | cell_in_buffer;
}

static range access_range(const model *m, const rank_model *r, const access *a, uint32_t buffer) {
    const plan_buffer *b = &r->p->buffers[buffer];
    uint32_t first = r->buffer_cell[buffer];
    if (b->kind == BUFFER_CACHE)
        return (range){.first = first + (uint32_t)a->lo,
                       .n = (uint32_t)(a->hi - a->lo),
                       .rows = 1,
                       .tag = tag_of(r->p->tasks[a->task].instance, (uint64_t)a->lo),
                       .write = a->write,
                       .check = CHECK_CACHE};
    if (b->kind == BUFFER_STEP)
        return (range){
            .first = first, .n = 1, .rows = 1, .tag = tag_of(buffer, 0), .write = a->write, .check = CHECK_ITERATION};
    uint64_t lo = column_byte(r, a, b, a->lo) / m->granule, hi = column_byte(r, a, b, a->hi) / m->granule;
    bool rows = a->tensor < SCRATCH_BASE && b->rank > 1;
    return (range){.first = first + (uint32_t)lo,
                   .n = (uint32_t)(hi - lo),
                   .rows = rows ? (uint32_t)b->dim[0] : 1,
                   .stride = rows ? (uint32_t)(row_bytes(b) / m->granule) : 0,
                   .tag = tag_of(buffer, lo),
                   .write = a->write,
                   .check = a->count      ? CHECK_COUNT
                            : b->external ? CHECK_EXTERNAL
                                          : CHECK_ITERATION};
}

static keel_status put_range(model *m, rank_model *r, range add, keel_error *err) {
    if (r->n_ranges == r->cap_ranges) {
        uint32_t cap = r->cap_ranges ? 2 * r->cap_ranges : 512;
        range *more = arena_array(&m->memory, cap, sizeof *more);
        if (!more) return KEEL_NOMEM_AT(err, "oracle");
        if (r->n_ranges) memcpy(more, r->ranges, r->n_ranges * sizeof *more);
        r->ranges = more;
        r->cap_ranges = cap;
    }
    r->ranges[r->n_ranges++] = add;
    return KEEL_OK;
}

/* The same range on every rank: at the same offset of its symmetric arena. */
static keel_status put_on_ranks(model *m, rank_model *r, task_model *t, uint32_t buffer, range own, keel_error *err) {
    const plan_buffer *b = &r->p->buffers[buffer];
    if (b->kind != BUFFER_SYMMETRIC) {
        t->outside = "reads a buffer of other ranks that is not in symmetric memory";
        return KEEL_OK;
    }
    for (uint32_t k = 0; k < m->n_ranks; k++) {
        const rank_model *other = &m->ranks[k];
        range there = own;
        there.first = own.first - r->symmetric + other->symmetric;
        if (own.first - r->symmetric + own.n + (own.rows - 1) * own.stride > other->n_symmetric) {
            t->outside = "reads past the end of another rank's symmetric memory";
            return KEEL_OK;
        }
        KEEL_TRY(put_range(m, r, there, err));
    }
    return KEEL_OK;
}

static keel_status put_access(model *m, rank_model *r, task_model *t, const access *a, bool *writes_step,
                              keel_error *err) {
    if (a->tensor == TILER_STATE) {
        t->writes_state |= a->write;
        return put_range(m, r, (range){.first = r->state, .n = 1, .rows = 1, .write = a->write}, err);
    }
    uint32_t buffer = buffer_of(r, a->tensor);
    if (buffer == KP_NONE || buffer >= r->p->n_buffers) {
        t->outside = "uses scratch that the plan does not bind";
        return KEEL_OK;
    }
    if (r->buffer_cell[buffer] == KP_NONE) {
        if (a->write) t->outside = "writes a weight or a constant";
        return KEEL_OK;
    }
    const plan_buffer *b = &r->p->buffers[buffer];
    if (a->tensor >= SCRATCH_BASE && (!in_arena(b) || b->bytes < r->t.scratches[a->tensor - SCRATCH_BASE].bytes)) {
        t->outside = "its scratch is too small, or no scratch";
        return KEEL_OK;
    }
    *writes_step |= b->kind == BUFFER_STEP && a->write;
    range own = access_range(m, r, a, buffer);
    return a->ranks && m->n_ranks > 1 ? put_on_ranks(m, r, t, buffer, own, err) : put_range(m, r, own, err);
}

static uint64_t region_end(const kp_task *k, const region_ask *ask, int i) {
    return ((uint64_t)k->region_offset[i] + ask->bytes[i] + SMEM_LINE - 1) / SMEM_LINE * SMEM_LINE;
}

static int compare_bytes(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* SMEM is cut where regions begin and end, whole lines of it: a piece is a cell. */
static keel_status cut_smem(model *m, rank_model *r, keel_error *err) {
    uint32_t n = 0;
    r->smem_cut = arena_array(&m->memory, (size_t)r->p->n_tasks * 2 * KP_REGIONS + 1, sizeof *r->smem_cut);
    if (!r->smem_cut) return KEEL_NOMEM_AT(err, "oracle");
    for (uint32_t t = 0; t < r->p->n_tasks; t++) {
        for (int i = 0; i < KP_REGIONS; i++) {
            if (!r->t.regions[t].bytes[i]) continue;
            r->smem_cut[n++] = r->p->tasks[t].region_offset[i];
            r->smem_cut[n++] = region_end(&r->p->tasks[t], &r->t.regions[t], i);
        }
    }
    qsort(r->smem_cut, n, sizeof *r->smem_cut, compare_bytes);
    for (uint32_t i = 0; i < n; i++) {
        if (!r->n_cuts || r->smem_cut[r->n_cuts - 1] != r->smem_cut[i]) r->smem_cut[r->n_cuts++] = r->smem_cut[i];
    }
    return KEEL_OK;
}

static uint32_t cut_at(const rank_model *r, uint64_t byte) {
    const uint64_t *at = bsearch(&byte, r->smem_cut, r->n_cuts, sizeof byte, compare_bytes);
    return (uint32_t)(at - r->smem_cut);
}

/* Regions: within SMEM, and each page of them within a span that the task claims. */
static void put_regions(const rank_model *r, uint32_t task, task_model *t) {
    const kp_task *k = &r->p->tasks[task];
    const region_ask *ask = &r->t.regions[task];
    uint64_t page = r->p->page_bytes, smem = page * r->p->n_pages;
    for (int i = 0; i < KP_REGIONS; i++) {
        if (!ask->bytes[i]) continue;
        uint64_t from = k->region_offset[i], to = from + ask->bytes[i];
        t->region_first[i] = cut_at(r, from);
        t->region_cells[i] = cut_at(r, region_end(k, ask, i)) - t->region_first[i];
        t->region_release[i] = ask->release[i];
        if (to > smem) t->outside = "a region passes the end of SMEM";
        for (uint64_t at = from / page; at <= (to - 1) / page; at++) {
            bool claimed = false;
            for (uint32_t s = 0; s < k->n_spans; s++) {
                claimed = claimed ||
                          (at >= k->span[s].first_page && at < (uint64_t)k->span[s].first_page + k->span[s].n_pages);
            }
            if (!claimed && to <= smem) t->outside = "a region lies on a page that the task does not claim";
        }
    }
}

static keel_status model_tasks(model *m, rank_model *r, keel_error *err) {
    const plan *p = r->p;
    uint32_t step = KP_NONE;
    for (uint32_t i = 0; i < p->n_buffers; i++) step = p->buffers[i].kind == BUFFER_STEP ? i : step;
    r->tasks = arena_array(&m->memory, (size_t)p->n_tasks + 1, sizeof *r->tasks);
    if (!r->tasks) return KEEL_NOMEM_AT(err, "oracle");
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        task_model *t = &r->tasks[i];
        bool writes_step = false;
        t->first = r->n_ranges;
        for (uint32_t k = r->t.access_first[i]; k < r->t.access_first[i + 1]; k++)
            KEEL_TRY(put_access(m, r, t, &r->t.accesses[k], &writes_step, err));
        if (step != KP_NONE && !writes_step) {
            range reads = {.first = r->step, .n = 1, .rows = 1, .tag = tag_of(step, 0), .check = CHECK_ITERATION};
            KEEL_TRY(put_range(m, r, reads, err));
        }
        t->n_ranges = r->n_ranges - t->first;
        put_regions(r, i, t);
    }
    return KEEL_OK;
}

static keel_status model_tables(model *m, rank_model *r, keel_error *err) {
    const plan *p = r->p;
    r->triggers = arena_array(&m->memory, (size_t)p->n_events + 1, sizeof *r->triggers);
    r->event_ranks = arena_array(&m->memory, (size_t)p->n_events + 1, 1);
    r->externals = arena_array(&m->memory, (size_t)p->n_buffers + 1, sizeof *r->externals);
    r->launched = arena_array(&m->memory, (size_t)p->n_tasks + 1, sizeof *r->launched);
    r->meetings = arena_array(&m->memory, (size_t)p->n_instances + 1, sizeof *r->meetings);
    if (!r->meetings || !r->triggers || !r->event_ranks || !r->externals || !r->launched)
        return KEEL_NOMEM_AT(err, "oracle");
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        r->launched[i] = p->tasks[i];
        r->launched[i].aux = i;
    }
    for (uint32_t e = 0; e < p->n_events; e++) {
        r->triggers[e] = p->events[e].triggers;
        r->event_ranks[e] = p->events[e].ranks;
    }
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const plan_buffer *b = &p->buffers[i];
        if (!b->external || !in_arena(b)) continue;
        r->externals[r->n_externals++] =
            (range){.first = r->buffer_cell[i], .n = (uint32_t)(b->bytes / m->granule), .rows = 1, .tag = tag_of(i, 0)};
    }
    return KEEL_OK;
}

keel_status model_open(model *m, const plan *const *ranks, uint32_t n, keel_error *err) {
    *m = (model){.n_ranks = n, .granule = 64};
    m->ranks = arena_array(&m->memory, n, sizeof *m->ranks);
    if (!m->ranks) return KEEL_NOMEM_AT(err, "oracle");
    for (uint32_t k = 0; k < n; k++) {
        m->ranks[k].p = ranks[k];
        KEEL_TRY(describe(&m->ranks[k], err));
        m->granule = find_granule(&m->ranks[k], m->granule);
    }
    for (uint32_t k = 0; k < n; k++) KEEL_TRY(place_cells(m, &m->ranks[k], err));
    for (uint32_t k = 0; k < n; k++) {
        KEEL_TRY(cut_smem(m, &m->ranks[k], err));
        KEEL_TRY(model_tasks(m, &m->ranks[k], err));
        KEEL_TRY(model_tables(m, &m->ranks[k], err));
    }
    return KEEL_OK;
}

void model_close(model *m) {
    for (uint32_t k = 0; m->ranks && k < m->n_ranks; k++) {
        if (m->ranks[k].open) tiler_close(&m->ranks[k].t);
        graph_close(m->ranks[k].g);
    }
    arena_free(&m->memory);
    *m = (model){0};
}
