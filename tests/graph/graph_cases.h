/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that the tests of this area put through their forms: every geometry, the golden checkpoints' configurations
 * (yarn, llama3), and random ones. Include after cmocka.h. */
#ifndef TESTS_GRAPH_GRAPH_CASES_H
#define TESTS_GRAPH_GRAPH_CASES_H

#include "core/buf.h"
#include "core/json.h"
#include "graph/build.h"
#include "graph/geometry.h"
#include "graph/graph_json.h"
#include "graph/model.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void case_ok(keel_status s, const keel_error *err) {
    if (s != KEEL_OK) fail_msg("%s: %s", keel_status_name(s), err->detail);
}

static inline graph *case_build(json_t *config, const char *name, int layer_last, bool sample) {
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    model_options o = {.layer_last = layer_last, .sample = sample};
    case_ok(model_build(config, name, &o, &g, &err), &err);
    json_decref(config);
    return g;
}

static inline graph *case_geometry(const char *name, int layer_last, bool sample) {
    const geometry *at = geometry_table;
    json_t *config;
    keel_error err = KEEL_ERROR_INITIALIZER;
    while (at->name && strcmp(at->name, name) != 0) at++;
    assert_non_null(at->name);
    case_ok(json_parse(name, at->config, strlen(at->config), &config, &err), &err);
    return case_build(config, name, layer_last, sample);
}

static inline char *case_json(const graph *g) {
    buf b = {0};
    graph_json_write(g, &b);
    char *text = buf_take(&b);
    assert_non_null(text);
    return text;
}

/* The bytes of a plan of the graph. */
static inline buf case_plan(const graph *g) {
    plan_options o = {.arch = "cpu", .workers = 2, .max_seq = 128};
    plan *p;
    buf b = {0};
    keel_error err = KEEL_ERROR_INITIALIZER;
    case_ok(plan_build(g, &o, &p, &err), &err);
    case_ok(plan_write(p, &b, &err), &err);
    plan_close(p);
    return b;
}

/* Equal to the byte: the canonical text and the plan. with_plan: plans of many layers take their time. */
static inline void case_equal(const char *what, const graph *a, const graph *b, bool with_plan) {
    char *x = case_json(a), *y = case_json(b);
    if (strcmp(x, y) != 0) {
        size_t i = 0;
        while (x[i] == y[i]) i++;
        fail_msg("%s: the graphs differ at byte %zu: \"%.80s\" and \"%.80s\"", what, i, x + (i < 40 ? 0 : i - 40),
                 y + (i < 40 ? 0 : i - 40));
    }
    keel_free(x);
    keel_free(y);
    if (!with_plan) return;
    buf p = case_plan(a), q = case_plan(b);
    if (p.len != q.len || memcmp(p.data, q.data, p.len) != 0) fail_msg("%s: the plans differ", what);
    buf_free(&p);
    buf_free(&q);
}

/* Calls each(name, graph, small) for all geometries and golden configurations, with both tails. Large geometries come
 * whole, and once more cut to four layers with small set. */
static inline void case_each(void (*each)(const char *name, const graph *g, bool small)) {
    static const char *const golden[] = {"tiny-llama", "tiny-qwen3", "tiny-yarn"};
    for (const geometry *at = geometry_table; at->name; at++) {
        for (int sample = 0; sample < 2; sample++) {
            graph *g = case_geometry(at->name, -1, sample), *cut;
            each(at->name, g, g->n_layers <= 4);
            if (g->n_layers > 4) {
                cut = case_geometry(at->name, 3, sample);
                each(at->name, cut, true);
                graph_close(cut);
            }
            graph_close(g);
        }
    }
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        char path[1024];
        json_t *config;
        keel_error err = KEEL_ERROR_INITIALIZER;
        snprintf(path, sizeof path, "%s/tests/golden/%s/config.json", KEEL_SOURCE_DIR, golden[i]);
        case_ok(json_read(path, 1 << 20, &config, &err), &err);
        graph *g = case_build(config, golden[i], -1, false);
        each(golden[i], g, true);
        graph_close(g);
    }
}

static inline uint32_t case_random(uint32_t *state, uint32_t below) { /* xorshift32 */
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    *state = x;
    return x % below;
}

/* A graph of random width, depth and wiring, in which everything is read. Layers are random too, but some repeat the
 * one before them, so that there is something to fold. */
enum { CASE_COLS = 16, CASE_LIVE = 12 };

typedef struct random_case {
    build b;
    uint32_t state;
    int live[CASE_LIVE]; /* what ops may read */
    bool read[CASE_LIVE];
    int n_live;
} random_case;

static inline int random_read(random_case *r) {
    int i = (int)case_random(&r->state, (uint32_t)r->n_live);
    r->read[i] = true;
    return r->live[i];
}

/* The new tensor takes the place of one that was read, so that none is left unread. */
static inline void random_put(random_case *r, int id) {
    if (r->n_live < CASE_LIVE && case_random(&r->state, 3) == 0) {
        r->live[r->n_live] = id;
        r->read[r->n_live++] = false;
        return;
    }
    for (int i = 0; i < r->n_live; i++) {
        if (!r->read[i]) continue;
        r->live[i] = id;
        r->read[i] = false;
        return;
    }
    fail_msg("nothing was read");
}

static inline void random_op(random_case *r, int index) {
    static const char *const kinds[] = {"add", "silu_mul", "rmsnorm", "linear", "linear_residual"};
    build *b = &r->b;
    op_spec op = {.kind = kinds[case_random(&r->state, 5)], .name = build_text(b, "op%d", index)};
    const char *key = b->layer >= 0 ? build_text(b, "m.layers.%d.w%d", b->layer, index) : build_text(b, "m.w%d", index);
    bool two = strcmp(op.kind, "rmsnorm") != 0 && strcmp(op.kind, "linear") != 0;
    op.in[0] = random_read(r);
    if (two) op.in[1] = random_read(r);
    if (strcmp(op.kind, "rmsnorm") == 0) {
        op.weight[0] = (weight_spec){key, {CASE_COLS}, SHARD_REP, 0};
        op.attr[0] = (graph_attr){"eps", 1.0 / (double)(1 + case_random(&r->state, 1000000))};
    } else if (op.kind[0] == 'l') {
        int rule = (int)case_random(&r->state, 3);
        op.weight[0] = (weight_spec){key, {CASE_COLS, CASE_COLS}, (shard_rule)rule, (int)case_random(&r->state, 2)};
        if (rule == SHARD_REP) op.weight[0].shard_dim = 0;
        if (case_random(&r->state, 4) == 0)
            op.weight[1] = (weight_spec){build_text(b, "%s.bias", key), {CASE_COLS}, 0, 0};
    }
    if (case_random(&r->state, 5) == 0) op.notes = "fused-candidate <a&b> \"why\" x>y";
    random_put(r, build_op(b, op));
}

/* A constant or an input, of this layer or of none, and what reads it. */
static inline void random_source(random_case *r, int index) {
    build *b = &r->b;
    int layer = b->layer, id;
    float values[CASE_COLS / 2];
    bool own = case_random(&r->state, 2), input = case_random(&r->state, 3) == 0;
    for (int i = 0; i < CASE_COLS / 2; i++) values[i] = (float)case_random(&r->state, 1000) / 7;
    if (!own) b->layer = -1;
    const char *name = build_text(b, own ? "source%d" : "free%d.%d", own ? index : b->g->n_tensors, index);
    id = input ? build_input(b, name, CASE_COLS) : build_const(b, name, values, CASE_COLS / 2);
    b->layer = layer;
    const char *reader = build_text(b, "reads%d", index);
    if (!input) id = build_op(b, (op_spec){.kind = "rope_table", .name = reader, .in = {id}});
    op_spec op = {.kind = "add", .name = build_text(b, "joins%d", index), .in = {random_read(r), id}};
    random_put(r, build_op(b, op));
}

/* One layer by the random numbers from `seed` on: equal seeds and equal things to read give equal layers. */
static inline void random_layer(random_case *r, uint32_t seed) {
    uint32_t kept = r->state;
    r->state = seed;
    int n = 1 + (int)case_random(&r->state, 9);
    for (int i = 0; i < n; i++) random_op(r, i);
    if (case_random(&r->state, 4) == 0) random_source(r, n);
    r->state = kept;
}

/* A chain of residual layers, as models have them: `first` layers of one kind, then `then` of another. */
static inline graph *case_two_kinds(int first, int then) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    case_ok(build_begin(&b, "two kinds", "TwoKinds", DTYPE_BF16, &err), &err);
    b.g->vocab = 32;
    b.g->hidden = CASE_COLS;
    b.g->n_layers = first + then;
    b.g->max_position = 512;
    op_spec embed = {.kind = "embedding", .name = "embed"};
    embed.weight[0] = (weight_spec){"embed.weight", {32, CASE_COLS}, SHARD_REP, 0};
    int x = build_op(&b, embed), whole = x;
    for (b.layer = 0; b.layer < first + then; b.layer++) {
        op_spec norm = {.kind = "rmsnorm", .name = "norm", .in = {x}, .attr = {{"eps", 1e-5}}};
        norm.weight[0] = (weight_spec){build_text(&b, "layers.%d.norm", b.layer), {CASE_COLS}, SHARD_REP, 0};
        int y = build_op(&b, norm);
        op_spec up = {.kind = "linear", .name = "up", .in = {y}};
        up.weight[0] = (weight_spec){build_text(&b, "layers.%d.up.3", b.layer), {CASE_COLS, CASE_COLS}, SHARD_COL, 0};
        int u = build_op(&b, up);
        if (b.layer >= first) u = build_op(&b, (op_spec){.kind = "add", .name = "mix", .in = {u, whole}});
        op_spec down = {.kind = "linear_residual", .name = "down", .in = {u, x}};
        down.weight[0] = (weight_spec){build_text(&b, "layers.%d.down", b.layer), {CASE_COLS, CASE_COLS}, SHARD_ROW, 1};
        x = build_op(&b, down);
    }
    b.layer = -1;
    op_spec last = {.kind = "rmsnorm", .name = "last", .in = {x}, .attr = {{"eps", 1e-5}, {"logit_rows", 1}}};
    last.weight[0] = (weight_spec){"last.weight", {CASE_COLS}, SHARD_REP, 0};
    op_spec head = {.kind = "linear", .name = "head", .in = {build_op(&b, last)}};
    head.weight[0] = (weight_spec){"embed.weight", {32, CASE_COLS}, SHARD_REP, 0};
    build_tail(&b, build_op(&b, head), false);
    case_ok(build_finish(&b, &g), &err);
    return g;
}

static inline graph *case_random_graph(uint32_t seed) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    random_case r = {.state = seed * 2654435761u + 1u};
    build *b = &r.b;
    graph *g = NULL;
    case_ok(build_begin(b, "random", "RandomForTests", DTYPE_BF16, &err), &err);
    op_spec embed = {.kind = "embedding", .name = "embed"};
    embed.weight[0] = (weight_spec){"embed.weight", {32, CASE_COLS}, SHARD_REP, 0};
    r.live[r.n_live++] = build_op(b, embed);
    int n_layers = (int)case_random(&r.state, 6);
    bool mixed = case_random(&r.state, 4) == 0;
    uint32_t layer_seed = 1 + case_random(&r.state, 100000);
    b->g->layer_first = n_layers ? (int)case_random(&r.state, 12) : 0;
    b->g->n_layers = n_layers;
    b->g->vocab = 32;
    b->g->hidden = CASE_COLS;
    for (int i = 0; i < n_layers; i++) {
        b->layer = b->g->layer_first + i;
        if (case_random(&r.state, 5) == 0) layer_seed = 1 + case_random(&r.state, 100000);
        random_layer(&r, layer_seed);
        if (mixed && case_random(&r.state, 3) == 0) { /* ops of no layer, and of an earlier one, in between */
            b->layer = -1;
            random_op(&r, 100 + i);
            b->layer = b->g->layer_first + (int)case_random(&r.state, (uint32_t)i + 1);
            random_op(&r, 200 + i);
        }
    }
    b->layer = -1;
    int x = r.live[0];
    for (int i = 1; i < r.n_live; i++) {
        x = build_op(b, (op_spec){.kind = "add", .name = build_text(b, "sum%d", i), .in = {x, r.live[i]}});
    }
    op_spec last = {.kind = "rmsnorm", .name = "last", .in = {x}, .attr = {{"eps", 1e-5}, {"logit_rows", 1}}};
    last.weight[0] = (weight_spec){"last.weight", {CASE_COLS}, SHARD_REP, 0};
    op_spec head = {.kind = "linear", .name = "head", .in = {build_op(b, last)}};
    head.weight[0] = (weight_spec){"head.weight", {32, CASE_COLS}, SHARD_COL, 0};
    build_tail(b, build_op(b, head), case_random(&r.state, 2) == 0);
    case_ok(build_finish(b, &g), &err);
    return g;
}

#endif
