/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 240
 * The mutation suite over toy graphs: any ops on any earlier tensors, in random tilings, that fill SMEM to the brim
 * (tests/plan/toy.h). Options: suite_main.h. */
/* toy.h's registry under another name: there is one op more here. */
#define op_registry toy_registry
#define op_registry_count toy_registry_count
#include "plan/toy.h"
#undef op_registry
#undef op_registry_count

#include "mutation/suite_main.h"

enum { ANY = 40 };

/* "meet": grid-wide, one task a worker; their consumers meet at counters of its own. */
static keel_status meet_params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    KEEL_TRY(toy_start(t, g, op, toy_cols(g, op->out[0]), err));
    tiler_scratch_monotonic(t, "counters", 64, 1);
    return KEEL_OK;
}

static void meet_tile(tiler *t, const graph *g, const graph_op *op) {
    uint32_t workers = tiler_env(t)->workers, cols = (uint32_t)toy_cols(g, op->out[0]);
    for (uint32_t i = 0; i < workers; i++) tiler_task(t, 0, cols * i / workers, cols * (i + 1) / workers, i);
}

static void meet_task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    tiler_read(t, op->in[0], 0, toy_cols(g, op->in[0]));
    tiler_write(t, op->out[0], k->lo, k->hi);
    tiler_count(t, tiler_scratch_of(t, 0), 0, 1);
    toy_smem(t, op, 8);
}

static const op_desc toy_meet = {.name = "meet",
                                 .attrs = TOY_ATTRS,
                                 .min_in = 1,
                                 .max_in = 1,
                                 .n_out = 1,
                                 .phases = {{.name = "", TOY_BODIES}},
                                 .grid_wide = true,
                                 .infer = toy_infer_rows,
                                 .params = meet_params,
                                 .tile = meet_tile,
                                 .task = meet_task};
const op_desc *const op_registry[] = {&toy_step,  &toy_embed,  &toy_map,  &toy_fork,
                                      &toy_split, &toy_argmax, &toy_meet, NULL};
const unsigned op_registry_count = 7;

/* Between maps in as many tiles as there are workers, so that every queue has one task of each phase. */
static graph *meetings(uint32_t workers, int cols) {
    build b;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    int tiles = (int)workers;
    (void)build_begin(&b, NULL, "Meetings", DTYPE_F32, &err);
    int x = toy_op(&b, "embed", "embed", 0, 0, cols, tiles, -1);
    x = toy_op(&b, "meet", "first", x, 0, 0, tiles, -1);
    int y = toy_op(&b, "map", "between", x, 0, 0, tiles, 0);
    y = toy_op(&b, "meet", "second", y, 0, 0, tiles, -1);
    build_tail(&b, toy_op(&b, "map", "add", y, x, 0, tiles, 0), false);
    if (build_finish(&b, &g) != KEEL_OK) fprintf(stderr, "meetings: %s\n", err.detail);
    return g;
}

static bool add(suite *s, graph *g, const char *name, plan_options o) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    suite_job job = {.n = 1};
    snprintf(job.name, sizeof job.name, "%s %s w%u", name, o.arch, o.workers);
    keel_status status = plan_build(g, &o, &job.ranks[0], &err);
    graph_close(g);
    if (status == KEEL_REFUSED) return true; /* it asks for more SMEM than this arch has */
    if (status != KEEL_OK) fprintf(stderr, "%s: %s\n", job.name, err.detail);
    return status == KEEL_OK && suite_add(s, &job);
}

int main(int argc, char **argv) {
    suite s = {.program = "toy_test", .floors = SUITE_FLOORS_TOY};
    bool ok = true;
    for (int i = 0; i < 6 && ok; i++) {
        plan_options o = {.arch = i % 2 ? "sm_90a" : "cpu", .m_max = 2, .max_seq = 100, .allow_absent = true};
        o.workers = 1 + (uint32_t)i % 4;
        ok = add(&s, toy_decoder(1 + i % 3, 8, 1 + i), "toy decoder", o);
    }
    for (uint32_t workers = 1; workers <= 4 && ok; workers++) {
        plan_options o = {.arch = "sm_90a", .workers = workers, .m_max = 1, .max_seq = 100, .allow_absent = true};
        ok = add(&s, meetings(workers, 12), "toy meetings", o);
    }
    for (uint64_t seed = 1; seed <= ANY && ok; seed++) {
        char name[32];
        uint64_t r = seed * 977;
        plan_options o = {.arch = toy_random(&r, 2) ? "sm_90a" : "cpu", .max_seq = 100, .allow_absent = true};
        o.workers = 1 + toy_random(&r, 5);
        o.m_max = 1 + toy_random(&r, 3);
        snprintf(name, sizeof name, "toy any %u", (unsigned)seed);
        ok = add(&s, toy_any(seed), name, o);
    }
    if (s.n_jobs < ANY / 2) ok = false;
    return ok ? suite_main(&s, argc, argv) : 1;
}
