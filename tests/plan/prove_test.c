/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* The proof: it accepts what the planner makes, and names what is broken, break by break. */
#include "graph/op.h"

/* toy.h's registry under another name: this test has more ops. */
#define op_registry toy_registry
#define op_registry_count toy_registry_count
#include "plan/toy.h"
#undef op_registry
#undef op_registry_count

#include "core/mem.h"
#include "plan/prove.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { RANDOM_GRAPHS = 400 };

/* ---- ops of this test ---------------------------------------------------------------------------- */

/* "gather": grid-wide, one task a worker, with counters of its own. Attribute "fault": 1: a task sets the counters;
 * 2: it reads them; 3: it counts in its output. */
static keel_status grid_params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    KEEL_TRY(toy_start(t, g, op, toy_cols(g, op->out[0]), err));
    tiler_scratch_monotonic(t, "barrier", 64, 1);
    return KEEL_OK;
}

static void grid_tile(tiler *t, const graph *g, const graph_op *op) {
    uint32_t workers = tiler_env(t)->workers, cols = (uint32_t)toy_cols(g, op->out[0]);
    for (uint32_t i = 0; i < workers; i++) tiler_task(t, 0, cols * i / workers, cols * (i + 1) / workers, i);
}

static void grid_task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    int fault = (int)graph_attr_of(op, "fault"), counters = tiler_scratch_of(t, 0);
    tiler_read(t, op->in[0], 0, toy_cols(g, op->in[0]));
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_count(t, counters, 0, 1);
    if (fault == 1 && k->aux == 0) tiler_write(t, counters, 0, 1);
    if (fault == 2) tiler_read(t, counters, 0, 1);
    if (fault == 3) tiler_count(t, op->out[0], k->lo, k->hi);
    tiler_region(t, 0, 64, KP_CONSUMER);
}

static const op_desc toy_gather = {
    .name = "gather",
    .attrs = {{"fault", false, 0, "which"}, {"tiles", false, 1, "tasks"}, {"cols", false, 0, "columns"}},
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .phases = {{.name = "", TOY_BODIES}},
    .grid_wide = true,
    .infer = toy_infer_rows,
    .params = grid_params,
    .tile = grid_tile,
    .task = grid_task};

/* "look": reads a cache that another op appends to; aux is the unit. */
static void look_task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    tiler_read(t, op->in[0], k->lo, k->hi);
    tiler_read(t, op->in[1], 0, 1);
    tiler_write(t, op->out[0], k->lo, k->hi);
}

static const op_desc toy_look = {.name = "look",
                                 .attrs = TOY_ATTRS,
                                 .min_in = 2,
                                 .max_in = 2,
                                 .n_out = 1,
                                 .phases = {{.name = "", TOY_BODIES}},
                                 .infer = toy_infer_rows,
                                 .params = toy_params_map,
                                 .tile = toy_tile_map,
                                 .task = look_task};

/* "pick": writes the state of the generation; reads it where attribute "pages" is set. */
static void pick_task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    tiler_read(t, op->in[0], 0, toy_cols(g, op->in[0]));
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_state(t, graph_attr_of(op, "pages") == 0);
}

static const op_desc toy_pick_op = {.name = "pick",
                                    .attrs = TOY_ATTRS,
                                    .min_in = 1,
                                    .max_in = 1,
                                    .n_out = 1,
                                    .phases = {{.name = "", TOY_BODIES}},
                                    .infer = toy_infer_rows,
                                    .params = toy_params_map,
                                    .tile = toy_tile_map,
                                    .task = pick_task};

const op_desc *const op_registry[] = {&toy_step,   &toy_embed,  &toy_map,  &toy_fork,    &toy_split,
                                      &toy_argmax, &toy_gather, &toy_look, &toy_pick_op, NULL};
const unsigned op_registry_count = 9;

/* ---- accepted and refused ------------------------------------------------------------------------ */

static keel_status prove(const plan *p, proof *found, keel_error *err) { return plan_prove(&p, 1, found, err); }

static void accepted(const plan *p, const char *what) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (prove(p, NULL, &err) != KEEL_OK) fail_msg("%s: %s", what, err.detail);
}

static void refused(const plan *p, const char *what, const char *words) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = prove(p, NULL, &err);
    if (s != KEEL_REFUSED || !strstr(err.detail, words))
        fail_msg("%s: status %d, and not \"%s\" in: %s", what, (int)s, words, err.detail);
    if (getenv("KEEL_SHOW")) print_message("%s:\n%s\n\n", what, err.detail);
}

static void random_graphs_are_accepted(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= RANDOM_GRAPHS; seed++) {
        uint64_t r = seed * 977;
        char what[64];
        graph *g = toy_any(seed);
        for (int reuse = 0; reuse < 2; reuse++) {
            plan *p = toy_plan(g, &(plan_options){.workers = 1 + toy_random(&r, 9),
                                                  .m_max = 1 + toy_random(&r, 16),
                                                  .max_seq = 256,
                                                  .no_reuse = !reuse});
            assert_non_null(p);
            snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
            accepted(p, what);
            plan_close(p);
        }
        graph_close(g);
    }
}

static void plans_of_the_corpus_are_accepted(void **state) {
    (void)state;
    for (int i = 0; i < TOY_SEEDS; i++) {
        plan *p = toy_seed(i);
        accepted(p, "corpus");
        plan_close(p);
    }
}

/* ---- one break each ------------------------------------------------------------------------------- */

static uint32_t instance(const plan *p, const char *name) {
    for (uint32_t i = 0; i < p->n_instances; i++) {
        if (strcmp(p->instances[i].name, name) == 0) return i;
    }
    fail_msg("no op %s", name);
    return 0;
}

/* The nth task of an op. */
static kp_task *task_of(plan *p, const char *name, uint32_t nth) {
    uint32_t it = instance(p, name);
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        if (p->tasks[i].instance == it && nth-- == 0) return &p->tasks[i];
    }
    fail_msg("no such task of %s", name);
    return NULL;
}

static uint32_t number(const plan *p, const kp_task *t) { return (uint32_t)(t - p->tasks); }

static plan_buffer *buffer_of(plan *p, const char *name) {
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (strcmp(p->buffers[i].name, name) == 0) return &p->buffers[i];
    }
    fail_msg("no buffer %s", name);
    return NULL;
}

static uint32_t place_in_queue(const plan *p, uint32_t task) {
    uint32_t i = 0;
    while (p->queue[i] != task) i++;
    return i;
}

static void counts_too_far(plan *p) { p->events[2].triggers++; }
static void counts_short(plan *p) {
    for (uint32_t e = 0; e < p->n_events; e++) {
        if (p->events[e].triggers > 1) {
            p->events[e].triggers--;
            return;
        }
    }
}
static void trigger_dropped(plan *p) { task_of(p, "embed", 1)->trigger = KP_NONE; }
static void trigger_retargeted(plan *p) { task_of(p, "embed", 1)->trigger = task_of(p, "l0.norm", 0)->trigger; }
static void wait_dropped(plan *p) { task_of(p, "l0.attn", 0)->n_waits = 0; }
static void wait_retargeted(plan *p) {
    kp_task *t = task_of(p, "l1.proj", 0);
    for (uint32_t i = 0; i < t->n_waits; i++) p->waits[t->wait_first + i] = task_of(p, "embed", 0)->trigger;
}
static void all_waits_dropped(plan *p) {
    for (uint32_t i = 0; i < p->n_tasks; i++) p->tasks[i].n_waits = 0;
}
/* The first task waits for the last event: all others wait for it. */
static void waits_for_later(plan *p) {
    p->waits[p->n_waits] = task_of(p, "head", 0)->trigger; /* there is room for one more */
    p->tasks[0].wait_first = p->n_waits++;
    p->tasks[0].n_waits = 1;
}
static void swapped(plan *p) {
    uint32_t a = p->queue_first[0], b = p->queue_first[1] - 1, t = p->queue[a];
    p->queue[a] = p->queue[b], p->queue[b] = t;
}
static void queued_twice(plan *p) { p->queue[1] = p->queue[0]; }
static void spans_overlap(plan *p) {
    kp_task *t = task_of(p, "l0.norm", 0);
    t->span[1].first_page = t->span[0].first_page;
}
static void no_release(plan *p) { task_of(p, "l0.norm", 0)->span[0].release_role = 7; }
static void span_lost(plan *p) {
    kp_task *t = task_of(p, "l0.norm", 0);
    t->n_spans = 1;
    t->span[1] = (kp_span){0};
}
static void region_out(plan *p) {
    kp_task *t = task_of(p, "l0.norm", 0);
    t->region_offset[0] = (t->span[0].first_page + t->span[0].n_pages) * p->page_bytes - 64;
}
static void region_gone(plan *p) {
    kp_task *t = task_of(p, "l0.norm", 0);
    t->n_regions = 1;
    t->region_offset[1] = 0;
}
static void regions_overlap(plan *p) { /* the consumer's region into the storer's pages: there it lives long enough */
    kp_task *t = task_of(p, "l0.norm", 0);
    t->region_offset[0] = t->region_offset[1];
}
static void released_early(plan *p) { task_of(p, "l0.norm", 0)->span[1].release_role = KP_CONSUMER; }
static void released_at_once(plan *p) { task_of(p, "l0.norm", 0)->span[0].release_role = KP_LOADER; }
static void pages_too_many(plan *p) { p->n_pages += 4, p->page_bytes /= 2; }
static void buffers_overlap(plan *p) { buffer_of(p, "l0.proj")->offset = buffer_of(p, "l0.norm")->offset; }
static void buffer_shifted(plan *p) { buffer_of(p, "l0.proj")->offset = buffer_of(p, "l0.norm")->offset + 64; }
static void buffer_outside(plan *p) { buffer_of(p, "l0.proj")->offset = p->arena_bytes; }
static void tile_too_short(plan *p) { task_of(p, "l0.add", 1)->hi--; }
static void tile_too_long(plan *p) { task_of(p, "l0.add", 1)->hi++; }
static void tile_outside(plan *p) { task_of(p, "l0.add", 2)->hi += 8; }
static void tile_twice(plan *p) {
    const kp_task *a = task_of(p, "l0.add", 0);
    kp_task *b = task_of(p, "l0.add", 1);
    b->lo = a->lo, b->hi = a->hi, b->aux = a->aux;
}
static void scratch_unbound(plan *p) { p->instances[instance(p, "l0.attn")].buffer[3] = KP_NONE; }
static void scratch_small(plan *p) {
    plan_buffer *b = buffer_of(p, "l0.attn.partial");
    b->bytes = 64;
    b->dim[0] = 64;
}
static void slot_too_many(plan *p) { p->instances[instance(p, "l0.attn")].buffer[9] = 0; }
static void input_later(plan *p) {
    p->instances[instance(p, "l0.norm")].buffer[0] = p->instances[instance(p, "l1.norm")].buffer[0];
}
static void cache_of_another(plan *p) {
    p->instances[instance(p, "l1.attn")].buffer[1] = p->instances[instance(p, "l0.attn")].buffer[1];
}
static void parameters_differ(plan *p) { p->params[p->instances[instance(p, "l0.proj")].params_offset]++; }
static void merge_split(plan *p) { task_of(p, "l0.attn", 0)->body = task_of(p, "l0.attn", 3)->body; }
static void becomes_cache(plan *p) { buffer_of(p, "l0.proj")->kind = BUFFER_CACHE; }
static void becomes_external(plan *p) { buffer_of(p, "l0.proj")->external = true; }
static void another_rank(plan *p) { p->tp = 2; }
static void step_not_waited_for(plan *p) {
    assert_int_equal(place_in_queue(p, number(p, task_of(p, "embed", 2))),
                     1); /* next in the queue: that is not enough */
    task_of(p, "embed", 2)->n_waits = 0;
}
/* The task that ends it is taken out of the plan. */
static void tail_lost(plan *p) {
    uint32_t last = p->n_tasks - 1, n = 0, w = 0;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        while (i == p->queue_first[w + 1]) w++;
        if (p->queue[i] == last)
            for (uint32_t k = w + 1; k <= p->workers; k++) p->queue_first[k]--;
        else
            p->queue[n++] = p->queue[i];
        if (p->queue[i] == last) continue;
    }
    p->n_tasks--;
    if (--p->phases[p->n_phases - 1].n_tasks == 0) p->n_phases--;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (p->buffers[i].last_phase >= p->n_phases) p->buffers[i].last_phase = p->n_phases - 1;
    }
}

static const struct fault {
    const char *name;
    void (*break_it)(plan *p);
    const char *words;
} faults[] = {
    {"counts too far", counts_too_far, "never starts: deadlock"},
    {"counts short", counts_short, "starts too early: race"},
    {"trigger dropped", trigger_dropped, "never starts: deadlock"},
    {"trigger retargeted", trigger_retargeted, "starts too early: race"},
    {"wait dropped", wait_dropped, "reads"},
    {"wait retargeted", wait_retargeted, "race: task"},
    {"all waits dropped", all_waits_dropped, "reads [0, "},
    {"waits for later", waits_for_later, "deadlock, a circle of"},
    {"swapped", swapped, "deadlock, a circle of"},
    {"queued twice", queued_twice, "exactly once"},
    {"spans overlap", spans_overlap, "share pages; it would claim a page a second time"},
    {"no release", no_release, "released by"},
    {"span lost", span_lost, "does not lie in one span of its pages"},
    {"region out", region_out, "does not lie in one span of its pages"},
    {"region gone", region_gone, "is not there"},
    {"regions overlap", regions_overlap, "its regions 0 and 1 share bytes"},
    {"released early", released_early, "lies in pages that are released before"},
    {"released at once", released_at_once, "lies in pages that are released before"},
    {"pages too many", pages_too_many, "68 SMEM pages a worker; cpu has 64"},
    {"buffers overlap", buffers_overlap, "share bytes of an arena and are in use at once"},
    {"buffer shifted", buffer_shifted, "share bytes of an arena and are in use at once"},
    {"buffer outside", buffer_outside, "offset"},
    {"tile too short", tile_too_short, "reads columns [0, 8) of l0.add; no task writes [4, 8) of it"},
    {"tile too long", tile_too_long, "both write columns"},
    {"tile outside", tile_outside, "past the end of a tensor"},
    {"tile twice", tile_twice, "both write columns"},
    {"scratch unbound", scratch_unbound, "must hold its scratch partial"},
    {"scratch small", scratch_small, "must hold its scratch partial of 768 bytes"},
    {"slot too many", slot_too_many, "has no such slot"},
    {"input later", input_later, "before any op has made it"},
    {"cache of another", cache_of_another, "cache is written by two ops"},
    {"parameters differ", parameters_differ, "l0.proj: its parameters are not those"},
    {"merge for split", merge_split, "not this phase's"},
    {"becomes cache", becomes_cache, "plan"},
    {"becomes external", becomes_external, "l0.proj"},
    {"another rank", another_rank, "at W = 2"},
    {"step not waited for", step_not_waited_for, "of step, which task 0"},
    {"tail lost", tail_lost, "the task that ends it is not there"},
};

static plan *decoder(uint32_t workers) {
    graph *g = toy_decoder(2, 8, 3);
    plan *p = toy_plan(g, &(plan_options){.workers = workers, .max_seq = 64});
    graph_close(g);
    return p;
}

static void breaks_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        plan *p = decoder(3);
        accepted(p, faults[i].name);
        faults[i].break_it(p);
        refused(p, faults[i].name, faults[i].words);
        plan_close(p);
    }
}

/* Tasks, buffers, events and the chain, word for word. */
static void reasons_name_everything(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    plan *p = decoder(3);
    uint32_t norm = number(p, task_of(p, "l0.norm", 0)), first = number(p, task_of(p, "embed", 0));
    p->tasks[norm].n_waits = 0;
    assert_int_equal(prove(p, NULL, &err), KEEL_REFUSED);
    char words[256];
    snprintf(words, sizeof words,
             "race: task %u (l0.norm [0, 8), worker %u, place %u) reads [0, 8) of embed, which task", norm, norm % 3,
             norm / 3);
    if (!strstr(err.detail, words)) fail_msg("%s is not in %s", words, err.detail);
    snprintf(words, sizeof words, "task %u (embed [0, 2), worker %u, place %u) writes", first, first % 3, first / 3);
    if (!strstr(err.detail, words)) fail_msg("%s is not in %s", words, err.detail);
    assert_non_null(strstr(err.detail, "it waits for no event"));
    plan_close(p);
}

/* What several breaks have in common is one reason each. */
static void all_reasons_are_given(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    plan *p = decoder(3);
    regions_overlap(p);
    buffers_overlap(p);
    tile_too_short(p);
    wait_dropped(p);
    assert_int_equal(prove(p, NULL, &err), KEEL_REFUSED);
    static const char *const words[] = {"its regions 0 and 1", "no task", "l0.attn.part", "share bytes of an arena"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strstr(err.detail, words[i])) fail_msg("%s is not in %s", words[i], err.detail);
    }
    plan_close(p);
}

/* Event triggers that the planner would never make, and that order just the same. */
static void more_order_than_needed_is_fine(void **state) {
    (void)state;
    plan *p = decoder(3);
    kp_task *t = task_of(p, "l1.proj", 1);
    p->waits[p->n_waits] = task_of(p, "embed", 0)->trigger;
    t->wait_first = p->n_waits++;
    t->n_waits = 1;
    refused(p, "no longer waits for the norm", "race");
    plan_close(p);
    p = decoder(3);
    uint32_t *waits = calloc(p->n_waits + 2, sizeof *waits);
    t = task_of(p, "l1.proj", 1);
    memcpy(waits, p->waits + t->wait_first, t->n_waits * sizeof *waits);
    waits[t->n_waits] = waits[0]; /* the same once more */
    waits[t->n_waits + 1] = task_of(p, "embed", 0)->trigger;
    t->wait_first = p->n_waits;
    p->n_waits += t->n_waits + 2u;
    uint32_t *all = arena_array(&p->arena, p->n_waits, sizeof *all);
    memcpy(all, p->waits, t->wait_first * sizeof *all);
    memcpy(all + t->wait_first, waits, (t->n_waits + 2) * sizeof *all);
    t->n_waits = (kp_u16)(t->n_waits + 2);
    p->waits = all;
    accepted(p, "waits twice");
    free(waits);
    p->instances[instance(p, "l0.attn")].buffer[3] = p->instances[instance(p, "l1.attn")].buffer[3];
    accepted(p, "the scratch of another layer, which uses it later");
    plan_close(p);
}

/* ---- the queue orders launchers, and storers, but no storer before the next launcher -------------- */

/* Every task on worker 0, no event at all but the step's: what the ring alone orders. */
static plan *in_one_queue(int n_maps) {
    build b;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "Queue", DTYPE_F32, &err);
    int x = toy_op(&b, "embed", "x", 0, 0, 8, 1, 0), first = x;
    for (int i = 0; i < n_maps; i++) x = toy_op(&b, "embed", build_text(&b, "y%d", i), 0, 0, 8, 1, 0);
    toy_op(&b, "map", "z", first, x, 0, 1, 0);
    assert_int_equal(build_finish(&b, &g), KEEL_OK);
    plan *p = toy_plan(g, &(plan_options){.workers = 1, .max_seq = 64});
    graph_close(g);
    return p;
}

/* z reads x. With three tasks in between, x has left the ring of four slots when z enters it; with two it may not. */
static void the_ring_orders_what_left_it(void **state) {
    (void)state;
    for (int between = 0; between < 6; between++) {
        plan *p = in_one_queue(between);
        kp_task *z = task_of(p, "z", 0);
        uint32_t n = 0; /* only the event of the one just before, so that x is not waited for */
        for (uint32_t i = 0; i < z->n_waits; i++) {
            if (p->waits[z->wait_first + i] != task_of(p, "x", 0)->trigger)
                p->waits[z->wait_first + n++] = p->waits[z->wait_first + i];
        }
        z->n_waits = (kp_u16)n;
        if (between) {
            accepted(p, "what it waits for is stored after x"); /* storers keep the order of the queue */
        } else {
            refused(p, "nothing orders it", "reads [0, 8) of x");
        }
        z->n_waits = 0;
        keel_error err = KEEL_ERROR_INITIALIZER;
        assert_int_equal(prove(p, NULL, &err), KEEL_REFUSED);
        assert_int_equal(strstr(err.detail, " of x, which task 1 ") != NULL, between < KP_SLOTS - 1);
        plan_close(p);
    }
}

/* ---- caches, state -------------------------------------------------------------------------------- */

static plan *with_tail(const char *kind, double fault) {
    build b;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "Tail", DTYPE_F32, &err);
    int x = toy_op(&b, "embed", "x", 0, 0, 12, 3, 0);
    if (kind[0] == 'l') {
        int cache = build_cache(&b, "kv", 1, 4), y = toy_op(&b, "split", "attn", x, cache, 0, 3, 0);
        (void)build_op(&b, (op_spec){.kind = kind, .name = "it", .in = {y, cache}, .attr = {{"tiles", 3}}});
    } else {
        int y = build_op(&b, (op_spec){.kind = kind, .name = "it", .in = {x}, .attr = {{"fault", fault}}});
        x = build_op(&b, (op_spec){.kind = kind, .name = "again", .in = {y}, .attr = {{"fault", fault}}});
        (void)toy_op(&b, "map", "end", x, 0, 0, 3, -1);
    }
    assert_int_equal(build_finish(&b, &g), KEEL_OK);
    plan *p = NULL;
    toy_log_reset();
    if (plan_build(g, &(plan_options){.workers = 3, .max_seq = 64}, &p, &err) != KEEL_OK)
        print_message("%s\n", err.detail);
    toy_logging = false;
    graph_close(g);
    return p;
}

/* Two ops that use the state, the second behind the first or not. Bits of `reads`: the first, the second only reads it.
 */
static plan *two_uses(bool chained, int reads, int tiles) {
    build b;
    graph *g = NULL;
    plan *p = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "State", DTYPE_F32, &err);
    int x = toy_op(&b, "embed", "x", 0, 0, 12, 1, 0);
    toy_pages = reads & 1;
    int y = toy_op(&b, "pick", "first", x, 0, 0, tiles, 0);
    toy_pages = reads >> 1;
    (void)toy_op(&b, "pick", "second", chained ? y : x, 0, 0, 1, 0);
    toy_pages = 0;
    assert_int_equal(build_finish(&b, &g), KEEL_OK);
    assert_int_equal(plan_build(g, &(plan_options){.workers = 3, .max_seq = 64}, &p, &err), KEEL_OK);
    graph_close(g);
    return p;
}

static void uses_of_the_state_are_ordered(void **state) {
    (void)state;
    for (int reads = 0; reads < 4; reads++) {
        plan *p = two_uses(true, reads, 1);
        accepted(p, "one after the other");
        plan_close(p);
        p = two_uses(false, reads, 1);
        if (reads == 3)
            accepted(p, "both read it");
        else
            refused(p, "two at once", "the state of the generation, which task");
        plan_close(p);
    }
    plan *p = two_uses(true, 0, 2);
    refused(p, "twice", "first: 2 of its tasks write the state of the generation; one must");
    plan_close(p);
}

static void move_in_front(plan *p, kp_task *t, const kp_task *before) {
    uint32_t from = place_in_queue(p, number(p, t)), to = place_in_queue(p, number(p, before)), task = p->queue[from];
    assert_true(to < from);
    memmove(p->queue + to + 1, p->queue + to, (from - to) * sizeof *p->queue);
    p->queue[to] = task;
}

static void units_of_a_cache_are_ordered(void **state) {
    (void)state;
    for (int early = 0; early < 2; early++) {
        plan *p = with_tail("look", 0);
        assert_non_null(p);
        accepted(p, "reads the cache behind the op that appends");
        kp_task *t = task_of(p, "it", 1);
        const kp_task *before = early ? &p->tasks[0] : task_of(p, "x", 0);
        for (uint32_t i = 0; i < t->n_waits; i++) p->waits[t->wait_first + i] = before->trigger;
        if (early) move_in_front(p, t, task_of(p, "x", 2));
        refused(p, "reads it at any time",
                early ? "writes [0, 1) of kv, which task 9" : "reads [0, 1) of kv, which task");
        plan_close(p);
    }
}

/* ---- who shares bytes ------------------------------------------------------------------------------ */

static plan *planned(build *b, uint32_t workers) {
    graph *g = NULL;
    plan *p = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(build_finish(b, &g), KEEL_OK);
    plan_options o = {.workers = workers, .max_seq = 64, .no_reuse = true};
    if (plan_build(g, &o, &p, &err) != KEEL_OK) fail_msg("%s", err.detail);
    graph_close(g);
    accepted(p, "as planned");
    return p;
}

/* z lies where x does. Its task on worker 0 comes behind y, which reads x; the one on worker 1 only behind u. */
static void the_second_to_touch_is_seen(void **state) {
    (void)state;
    build b;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "Share", DTYPE_F32, &err);
    int x = toy_op(&b, "embed", "x", 0, 0, 8, 1, 0), u = toy_op(&b, "map", "u", x, 0, 0, 1, -1);
    (void)toy_op(&b, "embed", "filler", 0, 0, 8, 1, 0);
    (void)toy_op(&b, "map", "z", toy_op(&b, "map", "y", x, u, 0, 1, -1), 0, 0, 2, -1);
    plan *p = planned(&b, 2);
    buffer_of(p, "z")->offset = buffer_of(p, "x")->offset;
    accepted(p, "both behind y");
    kp_task *t = task_of(p, "z", 0);
    assert_int_equal(t->n_waits, 1);
    p->waits[t->wait_first] = task_of(p, "u", 0)->trigger;
    refused(p, "one behind u", "x and z share bytes");
    plan_close(p);
}

/* Each worker reads x twice, in y; z's first task knows the first half of y, z lies where x does. */
static void the_last_to_touch_is_seen(void **state) {
    (void)state;
    build b;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "Share", DTYPE_F32, &err);
    int x = toy_op(&b, "embed", "x", 0, 0, 8, 1, 0), y = toy_op(&b, "map", "y", x, 0, 0, 4, -1);
    (void)toy_op(&b, "map", "z", y, 0, 0, 2, 0);
    plan *p = planned(&b, 2);
    buffer_of(p, "z")->offset = buffer_of(p, "x")->offset;
    refused(p, "half of y", "x and z share bytes");
    plan_close(p);
}

/* w lies where x does, which is fine, and z across both: fine with x, which is done, not with w, which reads it. */
static void those_between_are_seen(void **state) {
    (void)state;
    build b;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "Share", DTYPE_F32, &err);
    int x = toy_op(&b, "embed", "x", 0, 0, 8, 1, 0), y = toy_op(&b, "map", "y", x, 0, 0, 1, -1);
    int z = toy_op(&b, "map", "z", y, 0, 0, 1, -1);
    (void)toy_op(&b, "map", "w", z, 0, 0, 1, -1);
    plan *p = planned(&b, 2);
    buffer_of(p, "w")->offset = buffer_of(p, "x")->offset;
    accepted(p, "w over x");
    buffer_of(p, "z")->offset = buffer_of(p, "x")->offset + 64;
    refused(p, "z across", "z and w share bytes");
    plan_close(p);
}

static void the_callers_buffers_share_with_nothing(void **state) {
    (void)state;
    build b;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "Share", DTYPE_F32, &err);
    int y = toy_op(&b, "map", "y", build_input(&b, "in", 8), 0, 0, 1, -1);
    (void)toy_op(&b, "map", "z", y, 0, 0, 1, -1);
    plan *p = planned(&b, 2);
    buffer_of(p, "z")->offset = buffer_of(p, "in")->offset;
    refused(p, "written when it was read", "in is the caller's and shares with nothing");
    plan_close(p);
}

static void one_step_record(void **state) {
    (void)state;
    build b;
    graph *g = NULL;
    plan *p = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "Steps", DTYPE_F32, &err);
    (void)toy_op(&b, "embed", "x", 0, 0, 8, 1, 0);
    (void)build_op(&b, (op_spec){.kind = "step_begin", .name = "another"});
    assert_int_equal(build_finish(&b, &g), KEEL_OK);
    if (plan_build(g, &(plan_options){.workers = 2, .max_seq = 64}, &p, &err) != KEEL_OK) fail_msg("%s", err.detail);
    refused(p, "two", "the step record must be one");
    plan_close(p);
    graph_close(g);
}

/* ---- grid-wide ops and monotonic scratch ---------------------------------------------------------- */

static void grid_wide_ops_are_coresident(void **state) {
    (void)state;
    plan *p = with_tail("gather", 0);
    accepted(p, "grid-wide");
    task_of(p, "it", 1)->aux = 0;
    refused(p, "index twice", "here 0 stands twice");
    plan_close(p);

    p = with_tail("gather", 0); /* two of its tasks on one worker */
    kp_task *a = task_of(p, "it", 0), *b = task_of(p, "end", 0);
    uint32_t i = place_in_queue(p, number(p, a)), j = 0;
    for (uint32_t k = 0; k < p->n_tasks; k++) {
        if (p->queue[k] == number(p, b)) j = k;
    }
    p->queue[i] = number(p, b), p->queue[j] = number(p, a);
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (prove(p, NULL, &err) == KEEL_OK) fail_msg("accepted");
    plan_close(p);

    p = with_tail("gather", 0); /* a task of it waits for another one of it to be done */
    a = task_of(p, "it", 0), b = task_of(p, "it", 2);
    p->waits[p->n_waits] = a->trigger;
    b->wait_first = p->n_waits++;
    b->n_waits = 1;
    refused(p, "path inside", "deadlock, a circle of 1 wait");
    plan_close(p);

    p = with_tail("gather", 0); /* two of them in another order on one worker */
    move_in_front(p, task_of(p, "again", 1), task_of(p, "it", 1));
    refused(p, "crossed", "deadlock, a circle of 1 wait");
    plan_close(p);
}

/* No event stands between the two ops, only their barriers: whoever has them in another order never passes. */
static void barriers_in_another_order_are_a_deadlock(void **state) {
    (void)state;
    build b;
    graph *g = NULL;
    plan *p = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "Grid", DTYPE_F32, &err);
    int x = toy_op(&b, "embed", "x", 0, 0, 12, 3, 0);
    (void)build_op(&b, (op_spec){.kind = "gather", .name = "it", .in = {x}});
    (void)build_op(&b, (op_spec){.kind = "gather", .name = "again", .in = {x}});
    assert_int_equal(build_finish(&b, &g), KEEL_OK);
    assert_int_equal(plan_build(g, &(plan_options){.workers = 3, .max_seq = 64}, &p, &err), KEEL_OK);
    accepted(p, "in one order");
    move_in_front(p, task_of(p, "again", 1), task_of(p, "it", 1));
    refused(p, "in two orders", "at the barrier of their op; that stands in its queue behind");
    plan_close(p);
    graph_close(g);
}

static void monotonic_scratch_only_counts(void **state) {
    (void)state;
    plan *p = with_tail("gather", 0);
    for (uint32_t i = 0; i < p->n_buffers; i++) { /* the planner gives it bytes of its own */
        const plan_buffer *a = &p->buffers[i], *c = buffer_of(p, "it.barrier");
        if (a != c && buffer_placed(a->kind))
            assert_true(a->offset + a->bytes <= c->offset || c->offset + c->bytes <= a->offset);
    }
    buffer_of(p, "it.barrier")->offset = buffer_of(p, "end")->offset;
    refused(p, "shares bytes", "it.barrier is monotonic scratch and shares with nothing");
    plan_close(p);
    static const char *const words[] = {"", "which is monotonic scratch: it only ever counts up", "whose counts mean",
                                        "which is not monotonic scratch"};
    for (int fault = 1; fault <= 3; fault++) {
        p = with_tail("gather", fault);
        if (!p) continue; /* the planner refuses what nobody writes */
        refused(p, words[fault], words[fault]);
        plan_close(p);
    }
}

/* ---- the rest ------------------------------------------------------------------------------------- */

static void what_was_checked_is_counted(void **state) {
    (void)state;
    plan *p = decoder(3);
    proof found;
    buf text = {0};
    assert_int_equal(prove(p, &found, NULL), KEEL_OK);
    assert_int_equal(found.ranks, 1);
    assert_int_equal(found.workers, 3);
    assert_int_equal(found.tasks, p->n_tasks);
    assert_int_equal(found.events, p->n_events);
    assert_true(found.complete);
    assert_true(found.checks > found.accesses);
    proof_show(&found, &text);
    assert_non_null(strstr((char *)text.data, "proved free of deadlock and race: 1 rank, 3 workers"));
    buf_free(&text);
    plan_close(p);
    assert_int_equal(plan_prove(NULL, 0, NULL, NULL), KEEL_USAGE);
}

static void memory_may_fail_anywhere(void **state) {
    (void)state;
    plan *good = decoder(3), *bad = decoder(3), *circle = decoder(3);
    buffers_overlap(bad);
    waits_for_later(circle);
    const plan *plans[] = {good, bad, circle};
    for (int i = 0; i < 3; i++) {
        for (uint64_t n = 1;; n++) {
            keel_error err = KEEL_ERROR_INITIALIZER;
            mem_fail_after(n);
            keel_status s = prove(plans[i], NULL, &err);
            mem_fail_after(0);
            if (s == (i ? KEEL_REFUSED : KEEL_OK)) {
                assert_true(n > 10);
                break;
            }
            if (s != KEEL_NOMEM) fail_msg("allocation %llu: %d, %s", (unsigned long long)n, (int)s, err.detail);
        }
    }
    plan_close(good), plan_close(bad), plan_close(circle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_are_accepted),
        cmocka_unit_test(plans_of_the_corpus_are_accepted),
        cmocka_unit_test(breaks_are_named),
        cmocka_unit_test(reasons_name_everything),
        cmocka_unit_test(all_reasons_are_given),
        cmocka_unit_test(more_order_than_needed_is_fine),
        cmocka_unit_test(the_ring_orders_what_left_it),
        cmocka_unit_test(uses_of_the_state_are_ordered),
        cmocka_unit_test(units_of_a_cache_are_ordered),
        cmocka_unit_test(the_second_to_touch_is_seen),
        cmocka_unit_test(the_last_to_touch_is_seen),
        cmocka_unit_test(those_between_are_seen),
        cmocka_unit_test(the_callers_buffers_share_with_nothing),
        cmocka_unit_test(one_step_record),
        cmocka_unit_test(grid_wide_ops_are_coresident),
        cmocka_unit_test(barriers_in_another_order_are_a_deadlock),
        cmocka_unit_test(monotonic_scratch_only_counts),
        cmocka_unit_test(what_was_checked_is_counted),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
