/* SPDX-License-Identifier: Apache-2.0 */
/* Toy ops for tests of the planner, of its file and of its views, on a registry that stands in for the real one: the
 * library's is an archive member that is linked only when nobody else defines the symbol. Bodies never run. What the
 * tile functions declare is also logged, so that a test can judge the plan without trusting the planner. */
#ifndef KEEL_TESTS_TOY_H
#define KEEL_TESTS_TOY_H

#include "graph/build.h"
#include "graph/op.h"
#include "plan/plan.h"
#include "plan/tiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOY_FN __attribute__((unused)) static

/* ---- the log ------------------------------------------------------------------------------------ */

typedef struct toy_access {
    uint32_t task;
    const char *name; /* of the buffer; gone with the graph */
    uint32_t buffer;  /* index into the plan's buffers */
    bool write;
    int64_t lo, hi;
} toy_access;

enum { TOY_LOG = 1 << 16, TOY_NAMES = 1 << 16 };
static toy_access toy_log[TOY_LOG];
static uint32_t toy_n_log, toy_n_tasks;
static char toy_names[TOY_NAMES]; /* of scratch buffers */
static size_t toy_n_names;
static bool toy_logging;

static const char *toy_buffer_name(const graph *g, const graph_op *op, int tensor) {
    if (tensor <= g->n_tensors) return graph_tensor_at(g, tensor)->name;
    if (toy_n_names + 128 > sizeof toy_names) abort();
    char *name = toy_names + toy_n_names;
    toy_n_names += (size_t)snprintf(name, 127, "%s.partial", op->name) + 1;
    return name;
}

/* The planner asks about every task once, in order. */
static void toy_begin(void) { toy_n_tasks += toy_logging; }

static void toy_put(const graph *g, const graph_op *op, int tensor, bool write, int64_t lo, int64_t hi) {
    if (toy_logging && tensor > 0 && toy_n_log < TOY_LOG)
        toy_log[toy_n_log++] = (toy_access){toy_n_tasks - 1, toy_buffer_name(g, op, tensor), KP_NONE, write, lo, hi};
}

static void toy_read(tiler *t, const graph *g, const graph_op *op, int tensor, int64_t lo, int64_t hi) {
    tiler_read(t, tensor, lo, hi);
    toy_put(g, op, tensor, false, lo, hi);
}

static void toy_write(tiler *t, const graph *g, const graph_op *op, int tensor, int64_t lo, int64_t hi) {
    tiler_write(t, tensor, lo, hi);
    toy_put(g, op, tensor, true, lo, hi);
}

/* Before each plan_build(). */
TOY_FN void toy_log_reset(void) {
    toy_n_log = toy_n_tasks = 0;
    toy_n_names = 0;
    toy_logging = true;
}

/* ---- the ops ------------------------------------------------------------------------------------ */

static void toy_body(kp_ctx *c) { (void)c; }
#define TOY_BODIES                                                                                                     \
    .needs = KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),                                                        \
    .cpu = {[KP_CONSUMER] = toy_body, [KP_STORER] = toy_body}

typedef struct toy_params {
    uint32_t cols, tiles;
} toy_params;

static int64_t toy_cols(const graph *g, int id) { return graph_tensor_at(g, id)->dim[1]; }

static keel_status toy_infer_step(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)g, (void)op, (void)err;
    out[0] = (graph_tensor){.kind = TENSOR_STEP, .dtype = DTYPE_I32, .rank = 1, .dim = {sizeof(kp_step) / 4}};
    return KEEL_OK;
}

static void toy_tile_step(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    tiler_task(t, 0, 0, 1, 0);
}

static void toy_task_step(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)k;
    toy_begin();
    toy_write(t, g, op, op->out[0], 0, graph_elements(graph_tensor_at(g, op->out[0])));
}

/* As wide as attribute "cols", or as input 0. */
static keel_status toy_infer_rows(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)err;
    int64_t cols = (int64_t)graph_attr_of(op, "cols");
    if (!cols) cols = toy_cols(g, op->in[0]);
    for (int i = 0; i < op->desc->n_out; i++)
        out[i] = (graph_tensor){.kind = TENSOR_ACTIVATION, .dtype = DTYPE_ACT, .rank = 2, .dim = {GRAPH_M, cols}};
    return KEEL_OK;
}

static keel_status toy_infer_none(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)g, (void)op, (void)out, (void)err;
    return KEEL_OK;
}

/* Attribute "pages": of the consumer's region; the storer's takes what a worker then has left, less what "spare" says.
 */
static void toy_smem(tiler *t, const graph_op *op, uint32_t columns) {
    const arch_desc *arch = tiler_env(t)->arch;
    uint64_t pages = (uint64_t)graph_attr_of(op, "pages"), spare = (uint64_t)graph_attr_of(op, "spare");
    tiler_region(t, 0, pages ? pages * arch->page_bytes : (uint64_t)columns * 64, KP_CONSUMER);
    tiler_region(t, 1, pages ? (arch->n_pages - pages - spare) * arch->page_bytes : (uint64_t)columns * 32, KP_STORER);
    tiler_cost(t, columns * 10ull, columns * 3ull, columns * 100ull);
}

static keel_status toy_start(tiler *t, const graph *g, const graph_op *op, int64_t cols, keel_error *err) {
    (void)g;
    toy_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    uint32_t tiles = (uint32_t)graph_attr_of(op, "tiles");
    if (tiles > cols) tiles = (uint32_t)cols;
    *p = (toy_params){(uint32_t)cols, tiles ? tiles : 1};
    return KEEL_OK;
}

static keel_status toy_params_map(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    return toy_start(t, g, op, toy_cols(g, op->out[0]), err);
}

/* Output columns in tiles. Input 0: whole (halo < 0), else the tile's columns, scaled to its width, and `halo` more on
 * each side; input 1 (if as wide): the tile's columns. */
static void toy_tile_map(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    const toy_params *p = tiler_params_of(t);
    for (uint32_t i = 0; i < p->tiles; i++) {
        uint32_t lo, hi;
        tiler_bounds(p->cols, 1, p->tiles, i, &lo, &hi);
        tiler_task(t, 0, lo, hi, i);
    }
}

static void toy_task_map(tiler *t, const graph *g, const graph_op *op, const op_task *at) {
    const toy_params *p = tiler_params_of(t);
    int64_t cols = p->cols, halo = (int64_t)graph_attr_of(op, "halo"), lo = at->lo, hi = at->hi;
    bool pick = graph_attr_of(op, "pick") != 0;
    int clash = (int)graph_attr_of(op, "clash");
    toy_begin();
    for (int k = 0; k < op->n_in; k++) {
        int64_t width = op->in[k] ? toy_cols(g, op->in[k]) : 0, a = lo * width / cols - halo,
                b = (hi * width + cols - 1) / cols + halo;
        if (halo < 0) a = 0, b = width;
        if (op->in[k] && !(pick && op->n_in == 2 && (int)at->aux % 2 != k))
            toy_read(t, g, op, op->in[k], a < 0 ? 0 : a, b > width ? width : b);
    }
    for (int k = 0; k < op->n_out; k++) toy_write(t, g, op, op->out[k], clash == 1 ? 0 : lo, clash == 1 ? cols : hi);
    if (clash == 2) toy_read(t, g, op, op->out[0], 0, 1);
    toy_smem(t, op, (uint32_t)(hi - lo));
}

static keel_status toy_params_split(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    KEEL_TRY(toy_start(t, g, op, toy_cols(g, op->in[0]), err));
    const toy_params *p = tiler_params_of(t);
    tiler_scratch(t, "partial", 256ull * p->tiles, p->tiles);
    if (op->n_in > 1) tiler_units(t, op->in[1], p->tiles);
    return KEEL_OK;
}

static uint32_t toy_merges(const toy_params *p, const graph *g, const graph_op *op) {
    uint32_t merges = p->tiles / 2 ? p->tiles / 2 : 1;
    return op->n_out && merges > toy_cols(g, op->out[0]) ? 1 : merges;
}

/* Partial sums by split, in scratch units, then a merge: units are shared out among the merging tasks. */
static void toy_tile_split(tiler *t, const graph *g, const graph_op *op) {
    const toy_params *p = tiler_params_of(t);
    uint32_t lo, hi, merges = toy_merges(p, g, op);
    for (uint32_t i = 0; i < p->tiles; i++) {
        tiler_bounds(p->cols, 1, p->tiles, i, &lo, &hi);
        tiler_task(t, 0, lo, hi, i);
    }
    for (uint32_t i = 0; i < merges; i++) {
        tiler_bounds(p->tiles, 1, merges, i, &lo, &hi);
        tiler_task(t, 1, lo, hi, i);
    }
}

static void toy_task_split(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    int partial = tiler_scratch_of(t, 0), cache = op->n_in > 1 ? op->in[1] : 0;
    int64_t i = k->aux, merges = toy_merges(tiler_params_of(t), g, op);
    toy_begin();
    if (k->phase == 0) {
        toy_read(t, g, op, op->in[0], k->lo, k->hi);
        if (cache) {
            toy_read(t, g, op, cache, i, i + 1);
            toy_write(t, g, op, cache, i, i + 1);
        }
        toy_write(t, g, op, partial, i, i + 1);
        toy_smem(t, op, k->hi - k->lo);
        return;
    }
    toy_read(t, g, op, partial, k->lo, k->hi);
    for (int o = 0; o < op->n_out; o++) {
        int64_t wide = toy_cols(g, op->out[o]);
        toy_write(t, g, op, op->out[o], wide * i / merges, wide * (i + 1) / merges);
    }
    toy_smem(t, op, 4);
}

#define TOY_ATTRS                                                                                                      \
    {                                                                                                                  \
        {"tiles", false, 1, "tasks"}, {"halo", false, -1, "columns"}, {"cols", false, 0, "columns"},                   \
            {"clash", false, 0, "1: every task writes all columns; 2: every task reads what the first one writes"},    \
            {"pick", false, 0, "task i reads input i mod 2 alone"}, {"pages", false, 0, "SMEM"}, {                     \
            "spare", false, 0, "SMEM"                                                                                  \
        }                                                                                                              \
    }
const op_desc toy_step = {.name = "step_begin",
                          .n_out = 1,
                          .phases = {{.name = "", TOY_BODIES}},
                          .infer = toy_infer_step,
                          .tile = toy_tile_step,
                          .task = toy_task_step};
const op_desc toy_embed = {.name = "embed",
                           .attrs = TOY_ATTRS,
                           .max_weights = 1,
                           .n_out = 1,
                           .phases = {{.name = "", TOY_BODIES}},
                           .infer = toy_infer_rows,
                           .params = toy_params_map,
                           .tile = toy_tile_map,
                           .task = toy_task_map};
const op_desc toy_map = {.name = "map",
                         .attrs = TOY_ATTRS,
                         .min_in = 1,
                         .max_in = 3,
                         .max_weights = 1,
                         .n_out = 1,
                         .phases = {{.name = "", TOY_BODIES}},
                         .infer = toy_infer_rows,
                         .params = toy_params_map,
                         .tile = toy_tile_map,
                         .task = toy_task_map};
const op_desc toy_fork = {.name = "fork",
                          .attrs = TOY_ATTRS,
                          .min_in = 1,
                          .max_in = 1,
                          .n_out = 2,
                          .phases = {{.name = "", TOY_BODIES}},
                          .infer = toy_infer_rows,
                          .params = toy_params_map,
                          .tile = toy_tile_map,
                          .task = toy_task_map};
const op_desc toy_split = {.name = "split",
                           .attrs = TOY_ATTRS,
                           .min_in = 1,
                           .max_in = 2,
                           .n_out = 1,
                           .phases = {{.name = "part", TOY_BODIES}, {.name = "merge", TOY_BODIES}},
                           .infer = toy_infer_rows,
                           .params = toy_params_split,
                           .tile = toy_tile_split,
                           .task = toy_task_split};
const op_desc toy_argmax = {.name = "argmax",
                            .attrs = TOY_ATTRS,
                            .min_in = 1,
                            .max_in = 1,
                            .phases = {{.name = "part", TOY_BODIES}, {.name = "reduce", TOY_BODIES}},
                            .infer = toy_infer_none,
                            .params = toy_params_split,
                            .tile = toy_tile_split,
                            .task = toy_task_split};
const op_desc *const op_registry[] = {&toy_step, &toy_embed, &toy_map, &toy_fork, &toy_split, &toy_argmax, NULL};
const unsigned op_registry_count = 6;

/* ---- graphs ------------------------------------------------------------------------------------- */

TOY_FN uint32_t toy_random(uint64_t *state, uint32_t n) { /* splitmix64, Steele et al. 2014 */
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)((z ^ (z >> 31)) >> 16) % n;
}

static int toy_pick, toy_pages, toy_spare; /* attributes that toy_op() sets */

static int toy_op(build *b, const char *kind, const char *name, int in0, int in1, int cols, int tiles, int halo) {
    op_spec op = {.kind = kind,
                  .name = name,
                  .in = {in0, in1},
                  .attr = {{"tiles", tiles},
                           {"halo", halo},
                           {"cols", cols},
                           {"pick", toy_pick},
                           {"pages", toy_pages},
                           {"spare", toy_spare}}};
    return build_op(b, op);
}

/* A small decoder: layers of norm, projection, attention in two phases on a KV cache, residual. */
TOY_FN graph *toy_decoder(int n_layers, int cols, int tiles) {
    build b;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "ToyForCausalLM", DTYPE_BF16, &err);
    op_spec embed = {.kind = "embed", .name = "embed", .attr = {{"cols", cols}, {"tiles", tiles}}};
    embed.weight[0] = (weight_spec){.key = "model.embed.weight", .dim = {64, cols}, .shard = SHARD_REP, .shard_dim = 0};
    int x = build_op(&b, embed);
    float freq[3] = {1, 0.5f, 0.25f};
    (void)build_const(&b, "freq", freq, 3);
    for (b.layer = 0; b.layer < n_layers; b.layer++) {
        op_spec proj = {.kind = "map", .name = "proj", .attr = {{"tiles", tiles}}};
        proj.in[0] = toy_op(&b, "map", "norm", x, 0, 0, 1, -1);
        proj.weight[0] = (weight_spec){.key = build_text(&b, "model.layers.%d.proj.weight", b.layer),
                                       .dim = {cols, cols},
                                       .shard = SHARD_COL,
                                       .shard_dim = 0};
        int y = build_op(&b, proj);
        y = toy_op(&b, "split", "attn", y, build_cache(&b, "cache", 2, 8), 0, tiles, 0);
        x = toy_op(&b, "map", "add", y, x, 0, tiles, 0);
    }
    b.layer = -1;
    build_tail(&b, toy_op(&b, "map", "head", x, 0, 2 * cols, 2 * tiles, -1), false);
    if (b.status == KEEL_OK) b.g->n_layers = n_layers, b.g->vocab = 2 * cols, b.g->hidden = cols;
    if (build_finish(&b, &g) != KEEL_OK) fprintf(stderr, "toy_decoder: %s\n", err.detail);
    return g;
}

/* Any ops on any earlier tensors, in random tilings. */
TOY_FN graph *toy_any(uint64_t seed) {
    static const char *const kinds[] = {"map", "map", "map", "map", "fork", "split", "split", "embed"};
    build b;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    uint64_t r = seed;
    int made[64], n = 0, ops = 3 + (int)toy_random(&r, 20);
    (void)build_begin(&b, NULL, "Any", DTYPE_F32, &err);
    made[n++] = build_input(&b, "in", 1 + toy_random(&r, 40));
    for (int i = 0; i < ops; i++) {
        const char *kind = kinds[toy_random(&r, 8)];
        uint32_t back = toy_random(&r, 3) ? 4 : 64; /* mostly what was made last */
        int pair[2], cols = 1 + (int)toy_random(&r, 40), tiles = 1 + (int)toy_random(&r, 14),
                     halo = (int)toy_random(&r, 5) - 1;
        for (int k = 0; k < 2; k++)
            pair[k] = made[n - 1 - (int)toy_random(&r, (uint32_t)n < back ? (uint32_t)n : back)];
        bool split = kind[0] == 's', two = kind[0] == 'm' && toy_random(&r, 2);
        if (split) pair[1] = toy_random(&r, 2) ? build_cache(&b, build_text(&b, "kv%d", i), 1, 4) : 0;
        int in0 = kind[0] == 'e' ? 0 : pair[0];
        toy_pick = toy_random(&r, 3) == 0;
        toy_pages = toy_random(&r, 6) ? 0 : 1 + (int)toy_random(&r, 40);
        toy_spare = (int)toy_random(&r, 20);
        int out = toy_op(&b, kind, build_text(&b, "op%d", i), in0, split || two ? pair[1] : 0, cols, tiles, halo);
        made[n++] = out;
        if (kind[0] == 'f') made[n++] = out + 1;
    }
    toy_pick = toy_pages = toy_spare = 0;
    build_tail(&b, made[n - 1], false);
    if (build_finish(&b, &g) != KEEL_OK) fprintf(stderr, "toy_any(%llu): %s\n", (unsigned long long)seed, err.detail);
    return g;
}

TOY_FN plan *toy_plan(const graph *g, const plan_options *o) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    plan *p = NULL;
    toy_log_reset();
    if (!g || plan_build(g, o, &p, &err) != KEEL_OK) fprintf(stderr, "toy_plan: %s\n", err.detail);
    toy_logging = false;
    for (uint32_t i = 0; p && i < toy_n_log; i++) {
        toy_access *a = &toy_log[i];
        for (a->buffer = 0; a->buffer < p->n_buffers && strcmp(p->buffers[a->buffer].name, a->name) != 0;) a->buffer++;
        if (a->buffer == p->n_buffers) abort();
    }
    return p;
}

/* Plan number i of the seeds in tests/fuzz/corpus/plan; NULL beyond the last. The caller closes it. */
enum { TOY_SEEDS = 4 };
TOY_FN plan *toy_seed(int i) {
    static const int layers[TOY_SEEDS] = {0, 1, 3, 0};
    if (i >= TOY_SEEDS) return NULL;
    graph *g = i == 3 ? toy_any(7) : toy_decoder(layers[i], i == 0 ? 4 : 8, i == 0 ? 1 : 2);
    plan *p = toy_plan(g, &(plan_options){.arch = i == 2 ? "sm_90a" : "cpu",
                                          .workers = (uint32_t)i + 1,
                                          .max_seq = 100,
                                          .m_max = 2,
                                          .allow_absent = true});
    graph_close(g);
    return p;
}

#endif
