/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/tiler_internal.h"

#include "core/mem.h"

#include <string.h>

const tile_env *tiler_env(const tiler *t) { return &t->env; }

/* Grows *p to hold one more of n; false when memory is short. */
static bool grow(void **p, uint32_t n, uint32_t *cap, size_t size) {
    if (n < *cap) return true;
    uint32_t next = *cap ? *cap * 2 : 256;
    void *q = mem_realloc(*p, (size_t)next * size);
    if (!q) return false;
    *p = q;
    *cap = next;
    return true;
}

static void breach(tiler *t, char *what) {
    if (!t->problem) t->problem = what;
}

void *tiler_params(tiler *t, size_t bytes) {
    if (bytes > TILER_PARAMS_BYTES || t->params_given) {
        breach(t, "tiler_params: called twice or for more than 256 bytes");
        return NULL;
    }
    t->params_given = true;
    t->params_bytes = (uint32_t)bytes;
    memset(t->params_now, 0, sizeof t->params_now);
    return t->params_now;
}

int tiler_scratch(tiler *t, const char *name, uint64_t bytes) {
    if (!grow((void **)&t->scratches, t->n_scratches, &t->cap_scratches, sizeof *t->scratches)) {
        t->nomem = true;
        return 0;
    }
    t->scratches[t->n_scratches] = (scratch){name, bytes, t->instance};
    return SCRATCH_BASE + (int)t->n_scratches++;
}

void tiler_task(tiler *t, int phase, uint32_t lo, uint32_t hi, uint32_t aux) {
    if (phase < t->phase || phase >= op_n_phases(t->op->desc)) breach(t, "tiler_task: phases out of order");
    t->phase = phase;
    uint32_t cap = t->cap_tasks, cap_costs = cap, cap_regions = cap;
    bool ok = grow((void **)&t->tasks, t->n_tasks, &cap, sizeof *t->tasks) &&
              grow((void **)&t->costs, t->n_tasks, &cap_costs, sizeof *t->costs) &&
              grow((void **)&t->regions, t->n_tasks, &cap_regions, sizeof *t->regions);
    if (!ok) {
        t->nomem = true;
        return;
    }
    t->cap_tasks = cap;
    t->costs[t->n_tasks] = (plan_cost){0};
    t->regions[t->n_tasks] = (region_ask){0};
    /* `body` holds the phase until bodies are numbered. */
    t->tasks[t->n_tasks++] =
        (kp_task){.instance = t->instance, .body = (uint32_t)phase, .lo = lo, .hi = hi, .aux = aux, .trigger = KP_NONE};
}

static void tiler_access(tiler *t, int tensor, int64_t lo, int64_t hi, bool write) {
    if (t->nomem || t->n_tasks == t->first_task || hi <= lo) {
        if (!t->nomem) breach(t, "tiler_read/tiler_write: before the first task, or an empty range");
        return;
    }
    if (!grow((void **)&t->accesses, t->n_accesses, &t->cap_accesses, sizeof *t->accesses)) {
        t->nomem = true;
        return;
    }
    t->accesses[t->n_accesses++] = (access){t->n_tasks - 1, tensor, write, lo, hi};
}

void tiler_read(tiler *t, int tensor, int64_t lo, int64_t hi) {
    if (tensor > 0) tiler_access(t, tensor, lo, hi, false);
}

void tiler_write(tiler *t, int tensor, int64_t lo, int64_t hi) {
    if (tensor > 0) tiler_access(t, tensor, lo, hi, true);
}

void tiler_region(tiler *t, int index, uint64_t bytes, enum kp_role release) {
    if (t->nomem || t->n_tasks == t->first_task) return;
    uint64_t capacity = (uint64_t)t->env.arch->page_bytes * t->env.arch->n_pages;
    if (index < 0 || index >= KP_REGIONS) {
        breach(t, "tiler_region: no such region index");
        return;
    }
    region_ask *r = &t->regions[t->n_tasks - 1];
    r->bytes[index] = bytes > capacity ? UINT32_MAX : (uint32_t)bytes;
    r->release[index] = (uint8_t)release;
}

void tiler_cost(tiler *t, uint64_t weight_bytes, uint64_t other_bytes, uint64_t flops) {
    if (t->nomem || t->n_tasks == t->first_task) return;
    t->costs[t->n_tasks - 1] = (plan_cost){weight_bytes, other_bytes, flops};
}

uint32_t tiler_tiles(const tiler *t, uint64_t n, uint32_t grain, uint32_t max_units) {
    uint64_t grains = (n + grain - 1) / grain, most = max_units / grain ? max_units / grain : 1;
    uint64_t tiles = (grains + most - 1) / most, workers = t->env.workers;
    if (!tiles) tiles = 1;
    tiles = (tiles + workers - 1) / workers * workers; /* whole rounds over the workers */
    return (uint32_t)(tiles < grains ? tiles : grains ? grains : 1);
}

void tiler_bounds(uint64_t n, uint32_t grain, uint32_t tiles, uint32_t i, uint32_t *lo, uint32_t *hi) {
    uint64_t grains = (n + grain - 1) / grain;
    uint64_t a = grains * i / tiles * grain, b = grains * (i + 1) / tiles * grain;
    *lo = (uint32_t)(a < n ? a : n);
    *hi = (uint32_t)(b < n ? b : n);
}

dtype tiler_dtype(const tiler *t, int tensor) {
    dtype d = graph_tensor_at(t->g, tensor)->dtype;
    return d == DTYPE_ACT ? t->env.arch->act_dtype : d;
}

static uint32_t body_number(plan *p, const op_desc *op, uint32_t phase) {
    for (uint32_t b = 0; b < p->n_bodies; b++) {
        if (p->bodies[b].op == op && p->bodies[b].phase == phase) return b;
    }
    p->bodies[p->n_bodies] = (plan_body){op, phase};
    return p->n_bodies++;
}

/* Phases and body numbers of the tasks that the op just declared. */
static void close_instance(tiler *t, plan *p) {
    for (uint32_t i = t->first_task; i < t->n_tasks; i++) {
        kp_task *task = &t->tasks[i];
        uint32_t phase = task->body;
        plan_phase *last = p->n_phases ? &p->phases[p->n_phases - 1] : NULL;
        if (!last || last->instance != t->instance || last->phase != phase) {
            last = &p->phases[p->n_phases++];
            *last = (plan_phase){t->instance, phase, i, 0};
        }
        last->n_tasks++;
        task->body = body_number(p, t->op->desc, phase);
    }
}

static keel_status tile_op(tiler *t, plan *p, uint32_t index, keel_error *err) {
    const graph_op *op = &t->g->ops[index];
    t->op = op;
    t->instance = index;
    t->first_task = t->n_tasks;
    t->phase = 0;
    t->params_given = false;
    t->params_bytes = 0;
    buf_align(&t->params, 16);
    KEEL_TRY(op->desc->tile(t, t->g, op, err));
    if (t->nomem) return KEEL_NOMEM_AT(err, op->name);
    if (t->n_tasks == t->first_task) breach(t, "tile: no task declared");
    if (t->problem)
        return error_set(err, KEEL_REFUSED, "%s: op %s breaks the tiler's contract: %s", op->name, op->desc->name,
                         t->problem);
    plan_instance *inst = &p->instances[index];
    *inst = (plan_instance){.name = arena_strdup(&p->arena, op->name), .op = op->desc, .layer = op->layer};
    if (t->params.len > UINT32_MAX - TILER_PARAMS_BYTES)
        return error_set(err, KEEL_RANGE, "%s: more parameters than a plan holds", op->name);
    inst->params_offset = (uint32_t)t->params.len;
    inst->params_bytes = t->params_bytes;
    buf_put(&t->params, t->params_now, t->params_bytes);
    if (t->params.failed || !inst->name) return KEEL_NOMEM_AT(err, op->name);
    close_instance(t, p);
    return KEEL_OK;
}

keel_status plan_tile(tiler *t, plan *p, keel_error *err) {
    uint32_t n = (uint32_t)t->g->n_ops;
    p->n_instances = n;
    p->instances = arena_array(&p->arena, n, sizeof *p->instances);
    p->phases = arena_array(&p->arena, (size_t)n * OP_PHASES, sizeof *p->phases);
    p->bodies = arena_array(&p->arena, (size_t)op_registry_count * OP_PHASES, sizeof *p->bodies);
    if (!p->instances || !p->phases || !p->bodies) return KEEL_NOMEM_AT(err, "plan");
    for (uint32_t i = 0; i < n; i++) KEEL_TRY(tile_op(t, p, i, err));
    p->n_tasks = t->n_tasks;
    p->tasks = arena_array(&p->arena, t->n_tasks, sizeof *p->tasks);
    p->costs = arena_array(&p->arena, t->n_tasks, sizeof *p->costs);
    p->params = arena_array(&p->arena, t->params.len + 1, 1);
    t->access_first = mem_calloc((size_t)t->n_tasks + 1, sizeof *t->access_first);
    if (!p->tasks || !p->costs || !p->params || !t->access_first) return KEEL_NOMEM_AT(err, "plan");
    memcpy(p->tasks, t->tasks, t->n_tasks * sizeof *p->tasks);
    memcpy(p->costs, t->costs, t->n_tasks * sizeof *p->costs);
    if (t->params.len) memcpy(p->params, t->params.data, t->params.len);
    p->params_bytes = (uint32_t)t->params.len;
    for (uint32_t i = 0; i < t->n_accesses; i++) t->access_first[t->accesses[i].task + 1]++;
    for (uint32_t i = 0; i < t->n_tasks; i++) t->access_first[i + 1] += t->access_first[i];
    return KEEL_OK;
}
