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

static void breach(tiler *t, const char *what) {
    if (!t->problem) t->problem = what;
}

void *tiler_params(tiler *t, size_t bytes) {
    if (bytes > TILER_PARAMS_BYTES || t->params_given) {
        breach(t, "tiler_params: called twice or for more than 256 bytes");
        return NULL;
    }
    t->params_given = true;
    t->params_bytes = (uint32_t)bytes;
    return t->params_now;
}

const void *tiler_params_of(const tiler *t) { return t->params_given ? t->params_now : NULL; }

static void put_scratch(tiler *t, scratch s) {
    if (!grow((void **)&t->scratches, t->n_scratches, &t->cap_scratches, sizeof *t->scratches)) {
        t->nomem = true;
        return;
    }
    s.instance = t->instance;
    t->scratches[t->n_scratches++] = s;
}

void tiler_scratch(tiler *t, const char *name, uint64_t bytes, uint64_t units) {
    put_scratch(t, (scratch){.name = name, .bytes = bytes, .units = units});
}

void tiler_scratch_monotonic(tiler *t, const char *name, uint64_t bytes, uint64_t units) {
    put_scratch(t, (scratch){.name = name, .bytes = bytes, .units = units, .monotonic = true});
}

int tiler_scratch_of(const tiler *t, int i) {
    uint32_t at = t->first_scratch + (uint32_t)i;
    return at < t->n_scratches ? SCRATCH_BASE + (int)at : 0;
}

void tiler_units(tiler *t, int tensor, uint64_t units) {
    if (tensor <= 0) return;
    if (t->units[tensor] && t->units[tensor] != units) breach(t, "tiler_units: another op counts the cache otherwise");
    t->units[tensor] = units;
}

/* Room for task `task`. */
static bool task_room(tiler *t, uint32_t task) {
    uint32_t cap = t->cap_tasks, cap_costs = cap, cap_regions = cap;
    bool ok = grow((void **)&t->tasks, task, &cap, sizeof *t->tasks) &&
              grow((void **)&t->costs, task, &cap_costs, sizeof *t->costs) &&
              grow((void **)&t->regions, task, &cap_regions, sizeof *t->regions);
    if (!ok) {
        t->nomem = true;
        return false;
    }
    t->cap_tasks = cap;
    t->costs[task] = (plan_cost){0};
    t->regions[task] = (region_ask){0};
    return true;
}

void tiler_task(tiler *t, int phase, uint32_t lo, uint32_t hi, uint32_t aux) {
    if (phase < t->phase || phase >= op_n_phases(t->op->desc)) breach(t, "tiler_task: phases out of order");
    t->phase = phase;
    if (!task_room(t, t->n_tasks)) return;
    /* `body` holds the phase until bodies are numbered. */
    t->tasks[t->n_tasks++] =
        (kp_task){.instance = t->instance, .body = (uint32_t)phase, .lo = lo, .hi = hi, .aux = aux, .trigger = KP_NONE};
}

/* Columns of a tensor, or the units that its op declared. */
static int64_t tensor_units(const tiler *t, int tensor) {
    if (tensor >= SCRATCH_BASE) return (int64_t)t->scratches[tensor - SCRATCH_BASE].units;
    const graph_tensor *g = graph_tensor_at(t->g, tensor);
    if (t->units[tensor]) return (int64_t)t->units[tensor];
    return g->kind == TENSOR_STEP ? graph_elements(g) : g->rank > 1 ? graph_row_elements(g) : g->dim[0];
}

static void put_access(tiler *t, access a) {
    a.task = t->task;
    if (t->nomem || t->task == t->n_tasks) {
        breach(t, "tiler_read/tiler_write: only in task");
    } else if (!grow((void **)&t->accesses, t->n_accesses, &t->cap_accesses, sizeof *t->accesses)) {
        t->nomem = true;
    } else {
        t->accesses[t->n_accesses++] = a;
    }
}

static void tiler_access(tiler *t, access a) {
    if (a.tensor <= 0) return;
    if (a.lo < 0 || a.hi <= a.lo || a.hi > tensor_units(t, a.tensor)) {
        breach(t, "it reads or writes an empty range, or past the end of a tensor");
    } else {
        put_access(t, a);
    }
}

void tiler_read(tiler *t, int tensor, int64_t lo, int64_t hi) {
    tiler_access(t, (access){.tensor = tensor, .lo = lo, .hi = hi});
}

void tiler_write(tiler *t, int tensor, int64_t lo, int64_t hi) {
    tiler_access(t, (access){.tensor = tensor, .write = true, .lo = lo, .hi = hi});
}

void tiler_write_last(tiler *t, int tensor, int64_t lo, int64_t hi) {
    tiler_access(t, (access){.tensor = tensor, .write = true, .last = true, .lo = lo, .hi = hi});
}

void tiler_read_ranks(tiler *t, int tensor, int64_t lo, int64_t hi) {
    tiler_access(t, (access){.tensor = tensor, .ranks = true, .lo = lo, .hi = hi});
}

void tiler_count(tiler *t, int tensor, int64_t lo, int64_t hi) {
    tiler_access(t, (access){.tensor = tensor, .count = true, .lo = lo, .hi = hi});
}

void tiler_state(tiler *t, bool write) { put_access(t, (access){.tensor = TILER_STATE, .write = write, .hi = 1}); }

void tiler_refuse(tiler *t, const char *why) { breach(t, why); }

void tiler_region(tiler *t, int index, uint64_t bytes, enum kp_role release) {
    if (t->nomem || t->task == t->n_tasks) return;
    uint64_t capacity = (uint64_t)t->env.arch->page_bytes * t->env.n_pages;
    if (index < 0 || index >= KP_REGIONS) {
        breach(t, "tiler_region: no such region index");
        return;
    }
    region_ask *r = &t->regions[t->task];
    r->bytes[index] = bytes > capacity ? UINT32_MAX : (uint32_t)bytes;
    r->release[index] = (uint8_t)release;
}

void tiler_cost(tiler *t, uint64_t weight_bytes, uint64_t other_bytes, uint64_t flops) {
    if (t->nomem || t->task == t->n_tasks) return;
    t->costs[t->task] = (plan_cost){weight_bytes, other_bytes, flops};
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

keel_status tiler_open(tiler *t, const graph *g, const tile_env *env, keel_error *err) {
    *t = (tiler){.g = g, .env = *env};
    t->units = mem_calloc((size_t)g->n_tensors + 1, sizeof *t->units);
    t->param_at = mem_calloc((size_t)g->n_ops + 1, sizeof *t->param_at);
    return t->units && t->param_at ? KEEL_OK : KEEL_NOMEM_AT(err, "plan");
}

void tiler_close(tiler *t) {
    mem_free(t->tasks), mem_free(t->costs), mem_free(t->regions), mem_free(t->accesses), mem_free(t->access_first);
    mem_free(t->scratches), mem_free(t->units), mem_free(t->param_at);
    buf_free(&t->params);
}

/* Parameters and scratch of instance `index`. */
static keel_status open_instance(tiler *t, uint32_t index, keel_error *err) {
    const graph_op *op = &t->g->ops[index];
    t->op = op;
    t->instance = index;
    t->first_task = t->task = t->n_tasks;
    t->first_scratch = t->n_scratches;
    t->phase = 0;
    t->params_given = false;
    t->params_bytes = 0;
    memset(t->params_now, 0, sizeof t->params_now);
    if (op->desc->params) KEEL_TRY(op->desc->params(t, t->g, op, err));
    if (t->nomem) return KEEL_NOMEM_AT(err, op->name);
    buf_align(&t->params, 16);
    if (t->params.len > UINT32_MAX - TILER_PARAMS_BYTES)
        return error_set(err, KEEL_RANGE, "%s: more parameters than a plan holds", op->name);
    t->param_at[index] = (struct param_at){(uint32_t)t->params.len, t->params_bytes};
    buf_put(&t->params, t->params_now, t->params_bytes);
    return t->params.failed ? KEEL_NOMEM_AT(err, op->name) : KEEL_OK;
}

/* What the tasks [first, first + n) touch. */
static keel_status describe_tasks(tiler *t, const kp_task *tasks, const plan_body *bodies, uint32_t first, uint32_t n,
                                  keel_error *err) {
    for (uint32_t i = first; i < first + n; i++) {
        const kp_task *k = &tasks[i];
        op_task task = {bodies ? bodies[k->body].phase : k->body, k->lo, k->hi, k->aux};
        t->task = i;
        t->op->desc->task(t, t->g, t->op, &task);
        if (t->nomem) return KEEL_NOMEM_AT(err, t->op->name);
        if (t->problem)
            return error_set(err, KEEL_REFUSED, "%s: task %u (%s, lo %u, hi %u, aux %u): %s", t->op->name, i,
                             t->op->desc->name, k->lo, k->hi, k->aux, t->problem);
    }
    t->task = t->n_tasks;
    return KEEL_OK;
}

static keel_status tile_op(tiler *t, plan *p, uint32_t index, keel_error *err) {
    KEEL_TRY(open_instance(t, index, err));
    const graph_op *op = t->op;
    op->desc->tile(t, t->g, op);
    if (t->nomem) return KEEL_NOMEM_AT(err, op->name);
    if (t->n_tasks == t->first_task) breach(t, "tile: no task declared");
    if (t->problem)
        return error_set(err, KEEL_REFUSED, "%s: op %s breaks the tiler's contract: %s", op->name, op->desc->name,
                         t->problem);
    KEEL_TRY(describe_tasks(t, t->tasks, NULL, t->first_task, t->n_tasks - t->first_task, err));
    plan_instance *inst = &p->instances[index];
    *inst = (plan_instance){.name = arena_strdup(&p->arena, op->name), .op = op->desc, .layer = op->layer};
    inst->attr_first = p->n_attrs;
    inst->n_attrs = (uint32_t)op->n_attrs;
    for (int i = 0; i < op->n_attrs; i++) p->attrs[p->n_attrs++] = op->attr[i];
    if (!inst->name) return KEEL_NOMEM_AT(err, op->name);
    inst->params_offset = t->param_at[index].offset;
    inst->params_bytes = t->param_at[index].bytes;
    close_instance(t, p);
    return KEEL_OK;
}

static keel_status index_accesses(tiler *t, keel_error *err) {
    t->access_first = mem_calloc((size_t)t->n_tasks + 1, sizeof *t->access_first);
    if (!t->access_first) return KEEL_NOMEM_AT(err, "plan");
    for (uint32_t i = 0; i < t->n_accesses; i++) t->access_first[t->accesses[i].task + 1]++;
    for (uint32_t i = 0; i < t->n_tasks; i++) t->access_first[i + 1] += t->access_first[i];
    return KEEL_OK;
}

keel_status plan_take_description(plan *p, const tiler *t, keel_error *err) {
    p->costs = arena_array(&p->arena, t->n_tasks, sizeof *p->costs);
    p->params = arena_array(&p->arena, t->params.len + 1, 1);
    if (!p->costs || !p->params) return KEEL_NOMEM_AT(err, "plan");
    memcpy(p->costs, t->costs, t->n_tasks * sizeof *p->costs);
    if (t->params.len) memcpy(p->params, t->params.data, t->params.len);
    p->params_bytes = (uint32_t)t->params.len;
    return KEEL_OK;
}

keel_status plan_tile(tiler *t, plan *p, keel_error *err) {
    uint32_t n = (uint32_t)t->g->n_ops;
    p->n_instances = n;
    p->instances = arena_array(&p->arena, n, sizeof *p->instances);
    p->phases = arena_array(&p->arena, (size_t)n * OP_PHASES, sizeof *p->phases);
    p->bodies = arena_array(&p->arena, (size_t)op_registry_count * OP_PHASES, sizeof *p->bodies);
    p->attrs = arena_array(&p->arena, (size_t)n * GRAPH_ATTRS, sizeof *p->attrs);
    if (!p->instances || !p->phases || !p->bodies || !p->attrs) return KEEL_NOMEM_AT(err, "plan");
    for (uint32_t i = 0; i < n; i++) KEEL_TRY(tile_op(t, p, i, err));
    p->n_tasks = t->n_tasks;
    p->tasks = arena_array(&p->arena, t->n_tasks, sizeof *p->tasks);
    if (!p->tasks) return KEEL_NOMEM_AT(err, "plan");
    memcpy(p->tasks, t->tasks, t->n_tasks * sizeof *p->tasks);
    KEEL_TRY(plan_take_description(p, t, err));
    return index_accesses(t, err);
}

keel_status plan_describe(tiler *t, const plan *p, keel_error *err) {
    if (p->n_tasks && !task_room(t, 0)) return KEEL_NOMEM_AT(err, "plan");
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        if (!task_room(t, i)) return KEEL_NOMEM_AT(err, "plan");
        t->tasks[i] = p->tasks[i];
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < p->n_instances; i++) {
        t->n_tasks = next; /* so that params and tile functions cannot touch a task */
        KEEL_TRY(open_instance(t, i, err));
        uint32_t first = next;
        while (next < p->n_tasks && p->tasks[next].instance == i) next++;
        t->n_tasks = p->n_tasks;
        KEEL_TRY(describe_tasks(t, t->tasks, p->bodies, first, next - first, err));
    }
    t->n_tasks = p->n_tasks;
    if (next < p->n_tasks)
        return error_set(err, KEEL_REFUSED, "task %u stands apart from the other tasks of its instance", next);
    return index_accesses(t, err);
}
