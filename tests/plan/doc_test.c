/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* The plan document against figures that come from elsewhere: the shapes in the configs, counts made by hand, and the
 * floor of a published measurement. */
#include "plan/doc.h"

#include "core/json.h"
#include "core/mem.h"
#include "graph/build.h"
#include "graph/geometry.h"
#include "graph/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

typedef struct made {
    graph *global, *local;
    plan *p;
    doc *d;
    json_t *json;
    char *text;
} made;

static made document(graph *global, const char *arch, uint32_t tp, uint32_t rank, bool vocab_parallel, double tbs) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    made m = {.global = global};
    shard_options so = {.tp = tp, .rank = rank, .vocab_parallel = vocab_parallel};
    plan_options po = {.arch = arch, .workers = strcmp(arch, "cpu") == 0 ? 3 : 132, .allow_absent = true};
    doc_options o = {.model = "--synth thing", .bandwidth_tbs = tbs};
    buf markdown = {0}, json = {0};
    if (graph_shard(global, &so, &m.local, &err) != KEEL_OK || plan_build(m.local, &po, &m.p, &err) != KEEL_OK ||
        doc_open(global, m.p, &o, &m.d, &err) != KEEL_OK || doc_json(m.d, &json, &err) != KEEL_OK ||
        json_parse("plan.json", (const char *)json.data, json.len, &m.json, &err) != KEEL_OK)
        fail_msg("%s", err.detail);
    doc_markdown(m.d, &markdown);
    m.text = buf_take(&markdown);
    assert_non_null(m.text);
    buf_free(&json);
    return m;
}

static graph *built(const char *name, bool sample) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    model_options o = {.layer_last = -1, .sample = sample};
    const geometry *at = geometry_table;
    while (at->name && strcmp(at->name, name) != 0) at++;
    json_t *config = NULL;
    graph *g = NULL;
    if (!at->name || json_parse(name, at->config, strlen(at->config), &config, &err) != KEEL_OK ||
        model_build(config, name, &o, &g, &err) != KEEL_OK)
        fail_msg("%s: %s", name, err.detail);
    json_decref(config);
    return g;
}

static graph *geometry_graph(const char *name) { return built(name, false); }
static graph *sampled_graph(const char *name) { return built(name, true); }

static void close_made(made *m) {
    json_decref(m->json);
    keel_free(m->text);
    doc_close(m->d);
    plan_close(m->p);
    graph_close(m->local);
    graph_close(m->global);
}

static void expect(const made *m, const char *words) {
    if (!strstr(m->text, words)) fail_msg("\"%s\" is not in:\n%.6000s", words, m->text);
}

static void expect_not(const made *m, const char *words) {
    if (strstr(m->text, words)) fail_msg("\"%s\" is in:\n%.6000s", words, m->text);
}

static const json_t *by(const json_t *list, const char *key, const char *value) {
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) {
        const char *s = json_string_value(json_object_get(v, key));
        if (s && strcmp(s, value) == 0) return v;
    }
    fail_msg("no %s %s", key, value);
    return NULL;
}

static const json_t *in(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    if (!v) fail_msg("no key %s", key);
    return v;
}

static int64_t number(const json_t *object, const char *key) { return json_integer_value(in(object, key)); }
static const char *string(const json_t *object, const char *key) { return json_string_value(in(object, key)); }
static const json_t *op(const made *m, const char *name) { return by(in(m->json, "ops"), "name", name); }
static const json_t *operand(const made *m, const char *name, const char *slot) {
    return by(in(op(m, name), "operands"), "slot", slot);
}

static bool dims(const json_t *list, int64_t a, int64_t b) {
    return json_array_size(list) == 2 && json_integer_value(json_array_get(list, 0)) == a &&
           json_integer_value(json_array_get(list, 1)) == b;
}

/* Qwen3-8B: 36 layers, hidden 4096, 32 query and 8 KV heads of 128, 12288 wide, 151936 tokens, BF16. A card that reads
 * 4.70 TB/s needs 3.22 ms for the 15.14 GB. */
static void a_dense_model_on_one_gpu(void **state) {
    (void)state;
    made m = document(geometry_graph("qwen3-8b"), "sm_90a", 1, 0, false, 0);
    const json_t *floor = in(m.json, "floor");
    int64_t layer = 4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 12288;
    int64_t matrices = 2 * (36 * layer + (int64_t)151936 * 4096);
    assert_in_range(number(floor, "weight_bytes"), matrices, matrices + matrices / 1000); /* and norms, one embedding */
    assert_true(fabs(json_real_value(in(floor, "ms")) - 3.22) < 0.01);
    assert_int_equal(number(floor, "kv_bytes_a_position"), 36 * 2 * 8 * 128 * 2);
    /* step, embed | norm q split merge o norm gate act down | norm head partial reduce */
    assert_int_equal(number(floor, "hops"), 2 + 36 * 9 + 4 - 1);
    assert_int_equal(number(in(floor, "chain"), "hops_a_layer"), 9);
    assert_int_equal(number(floor, "collectives"), 0);
    expect(&m, "- complete: yes\n");
    expect(&m, "| **floor: weights alone** | **3.221** |");
    expect(
        &m,
        "| l{0-35}.mlp.down_proj | linear_residual | x [M, 12288], residual [M, 4096], w [4096, 12288] → [M, 4096] | "
        "as global | activations BF16; w BF16; no scales | w: `model.layers.{i}.mlp.down_proj.weight` row, whole, as "
        "stored | - | REUSE | leaf | 132 tasks |");
    expect(&m, "**M1 collectives on two ranks**: collapsed, no op of this graph reads other ranks' tensors (1 rank).");
    expect(&m, "**M5 the remaining layer types**: collapsed, every layer is of one kind.");
    expect(&m, "mlp.gate_proj + mlp.up_proj + mlp.act | 36 | ");
    expect_not(&m, "absent-bodies");
    close_made(&m);
    m = document(geometry_graph("qwen3-8b"), "sm_90a", 2, 0, false, 0); /* allreduce has no CUDA body */
    expect(&m, "- complete: no\n");
    expect(&m, "### allreduce\n");
    expect(&m, "1. **absent-bodies** (blocks): 1 of ");
    close_made(&m);
}

/* Rows of all ops once, in execution order; what they cost is what the plan costs; statuses follow from the bodies. */
static void the_table_is_whole(void **state) {
    (void)state;
    for (int cpu = 0; cpu < 2; cpu++) {
        made m = document(sampled_graph("tiny-qwen3"), cpu ? "cpu" : "sm_90a", 1, 0, false, 0);
        const json_t *ops = in(m.json, "ops"), *never = in(in(m.json, "absent"), "never_routed"), *row;
        int64_t bytes = 0, tasks = 0;
        size_t i, k;
        /* the graph's on the CPU; on the GPU two fused ops a layer stand for four of them each, and one for two */
        assert_int_equal(json_array_size(ops), m.global->n_ops - (cpu ? 0 : 2 * 2 * 3 + 1));
        json_array_foreach(ops, i, row) {
            const json_t *g;
            assert_string_equal(string(row, "name"), cpu ? m.global->ops[i].name : m.p->instances[i].name);
            assert_string_equal(string(row, "status"), "REUSE");
            assert_string_equal(string(row, "port_kind"), "leaf");
            bytes += number(row, "weight_bytes") + number(row, "other_bytes");
            json_array_foreach(in(row, "grid"), k, g) tasks += number(g, "tasks");
        }
        plan_cost total = plan_total_cost(m.p);
        assert_int_equal(bytes, total.weight_bytes + total.other_bytes);
        assert_int_equal(tasks, m.p->n_tasks);
        size_t routed = 0; /* every registered op is in the table or in the list */
        for (unsigned r = 0; r < op_registry_count; r++) {
            bool used = false, listed = false;
            json_array_foreach(ops, i, row) used |= strcmp(string(row, "kind"), op_registry[r]->name) == 0;
            json_array_foreach(never, i, row) listed |= strcmp(json_string_value(row), op_registry[r]->name) == 0;
            assert_true(used != listed);
            routed += used;
        }
        assert_true(routed >= 9);
        assert_true(json_is_true(in(m.json, "complete")));
        assert_int_equal(json_array_size(in(in(m.json, "absent"), "kernels")), 0);
        expect(&m, "- complete: yes\n");
        if (!cpu) expect(&m, "| l{0-1}.mlp.norm.swiglu | norm_swiglu (fused: rmsnorm, 2 linear, silu_mul) |");
        expect(&m, cpu ? "No floor in ms: nothing was measured for this arch; give `--bandwidth TB/s`."
                       : "At 4.7 TB/s (measured on one H200");
        close_made(&m);
    }
}

/* Llama-3.1-8B on 8 ranks: q 4096/8 rows, one KV head, o_proj's 512 columns of 4096; two all-reduces a layer. */
static void a_rank_of_eight(void **state) {
    (void)state;
    made m = document(geometry_graph("llama-3.1-8b"), "sm_90a", 8, 3, false, 0);
    const json_t *q = operand(&m, "l7.attn.q_proj", "w"), *o = operand(&m, "l7.attn.o_proj", "w");
    assert_true(dims(in(q, "global"), 4096, 4096) && dims(in(q, "per_rank"), 512, 4096));
    assert_int_equal(number(in(q, "slice"), "dim"), 0);
    assert_int_equal(number(in(q, "slice"), "first"), 3 * 512);
    assert_int_equal(number(in(q, "slice"), "n"), 512);
    assert_int_equal(number(in(q, "slice"), "whole"), 4096);
    assert_true(dims(in(o, "per_rank"), 4096, 512));
    assert_string_equal(string(o, "shard"), "row");
    assert_true(dims(in(operand(&m, "l7.attn", "cache_k"), "per_rank"), 1, 128));
    assert_string_equal(string(operand(&m, "l7.attn.o_proj", "out"), "placement"), "partial");
    assert_string_equal(string(operand(&m, "l7.attn.o_proj.ar", "out"), "placement"), "whole");
    assert_string_equal(string(operand(&m, "l7.attn.q_proj", "out"), "placement"), "shard");
    const json_t *ar = op(&m, "l7.attn.o_proj.ar"), *made_by = op(&m, "l7.attn.o_proj");
    assert_string_equal(string(ar, "global_op"), "l7.attn.o_proj");
    assert_string_equal(string(ar, "port_kind"), "collective");
    assert_string_equal(string(made_by, "collective"), "AR");
    assert_string_equal(string(made_by, "collective_op"), "l7.attn.o_proj.ar");
    assert_string_equal(string(made_by, "global_kind"), "linear_residual");
    assert_true(json_is_null(in(op(&m, "embed"), "collective")));
    assert_int_equal(number(in(m.json, "floor"), "collectives"), 2 * 32);
    const json_t *head = by(in(m.json, "risks"), "rule", "whole-head");
    double us = 2.0 * 128256 * 4096 * 7 / 8 / 4.70e12 * 1e6;
    assert_true(fabs(json_real_value(in(head, "us_a_step")) - us) < 0.01 * us);
    const json_t *reduces = by(in(m.json, "risks"), "rule", "collectives");
    assert_true(fabs(json_real_value(in(reduces, "us_a_step")) - 64 * 2.3) < 0.1);
    assert_true(json_is_null(in(by(in(m.json, "ladder"), "name", "M1"), "collapsed")));
    expect(&m, "w: `model.layers.{i}.self_attn.q_proj.weight` col(dim=0): 1536-2047 of 4096, as stored");
    expect(&m, "→ partial [M, 4096]");
    expect(&m, " --tp 8 --arch sm_90a --allow-absent --prove -o m4.plan`");
    close_made(&m);
    m = document(geometry_graph("llama-3.1-8b"), "cpu", 2, 0, true, 0);
    expect(&m, " --tp 2 --head vocab-parallel");
    expect_not(&m, "whole-head");
    close_made(&m);
}

/* ---- a small graph with a note, an unevenness of every kind, and two kinds of layers --------------------------- */

static int linear(build *b, const char *name, const char *key, int x, int64_t n, int64_t k, const char *notes) {
    op_spec s = {.kind = "linear", .name = name, .in = {x}, .notes = notes};
    s.weight[0] = (weight_spec){.key = key, .dim = {n, k}, .shard = SHARD_COL, .shard_dim = 0};
    return build_op(b, s);
}

static graph *small_graph(bool uneven) {
    build b;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    (void)build_begin(&b, NULL, "Small|Graph", DTYPE_BF16, &err);
    op_spec embed = {.kind = "embedding", .name = "embed"};
    embed.weight[0] = (weight_spec){.key = "e", .dim = {640, 64}, .shard = SHARD_REP, .shard_dim = 0};
    int x = build_op(&b, embed);
    for (b.layer = 0; b.layer < 3; b.layer++) {
        bool odd = uneven && b.layer == 2;
        x = linear(&b, "up", build_text(&b, "m.%d.up", b.layer), x, 64, 64, NULL);
        x = linear(&b, odd ? "other" : "down", build_text(&b, "m.%d.down", b.layer), x, 64, 64,
                   odd ? NULL : "see page 2 fused-candidate collective=AR");
    }
    b.layer = -1;
    build_tail(&b, linear(&b, "head", "h", x, 640, 64, NULL), false);
    if (b.status == KEEL_OK) b.g->n_layers = 3, b.g->vocab = 640, b.g->hidden = 64;
    if (build_finish(&b, &g) != KEEL_OK) fail_msg("%s", err.detail);
    return g;
}

static void notes_and_kinds_of_layers(void **state) {
    (void)state;
    made m = document(small_graph(true), "cpu", 1, 0, false, 2);
    expect(&m, "# Plan document: Small|Graph for cpu\n");
    expect(&m, "| l{0-2}.up | linear |");
    expect(&m, "w: `m.{i}.up` col, whole");
    expect(&m, "| l2.other | linear |");
    expect(&m, "| l{0-1}: down | 2 |");
    expect(&m, "the drawing's note says so");
    assert_string_equal(string(op(&m, "l1.down"), "collective"), "AR"); /* what the drawing says */
    assert_string_equal(string(op(&m, "l1.down"), "notes"), "see page 2 fused-candidate collective=AR");
    assert_true(json_is_null(in(by(in(m.json, "ladder"), "name", "M5"), "collapsed")));
    expect(&m, "2 kinds of layers");
    expect(&m, "one layer of the commonest kind (--layers 0-0)");
    double ms = (double)plan_total_cost(m.p).weight_bytes / 2e9;
    assert_true(fabs(json_real_value(in(in(m.json, "floor"), "ms")) - ms) < 1e-4 * ms);
    close_made(&m);
    m = document(small_graph(false), "cpu", 1, 0, false, 0);
    assert_false(json_is_null(in(by(in(m.json, "ladder"), "name", "M5"), "collapsed")));
    expect_not(&m, "l2.other");
    close_made(&m);
}

/* The worst first: blockers, then by microseconds. */
static void risks_are_ranked(void **state) {
    (void)state;
    made m = document(geometry_graph("llama-3.2-1b"), "sm_90a", 2, 1, false, 0);
    const json_t *risks = in(m.json, "risks"), *r;
    double last = 1e300;
    size_t i;
    assert_in_range(json_array_size(risks), 8, 16);
    json_array_foreach(risks, i, r) {
        double us = json_is_null(in(r, "us_a_step")) ? 0 : json_real_value(in(r, "us_a_step"));
        if (json_is_true(in(r, "blocks"))) us = 1e299;
        assert_true(us <= last);
        last = us;
        assert_true(*string(r, "what") && *string(r, "why") && *string(r, "do"));
    }
    close_made(&m);
}

/* Of the kernels that are missing. Pages: the largest span set of a kernel's tasks; regions lie in them. */
static void cards_say_what_the_plan_says(void **state) {
    (void)state;
    made m = document(sampled_graph("qwen3-0.6b"), "sm_90a", 2, 0, false, 0);
    const json_t *kernels = in(in(m.json, "absent"), "kernels"), *k, *g;
    size_t i, r;
    uint64_t tasks = 0, absent = 0;
    json_array_foreach(kernels, i, k) {
        uint32_t most = 0, n = 0, waits = 0, body = 0;
        while (body < m.p->n_bodies && strcmp(m.p->bodies[body].op->name, string(k, "op")) != 0) body++;
        assert_true(body < m.p->n_bodies);
        for (uint32_t t = 0; t < m.p->n_tasks; t++) {
            const kp_task *task = &m.p->tasks[t];
            if (task->body != body) continue;
            uint32_t pages = 0;
            for (int s = 0; s < task->n_spans; s++) pages += task->span[s].n_pages;
            if (pages > most) most = pages;
            if (task->n_waits > waits) waits = task->n_waits;
            n++;
        }
        assert_int_equal(number(k, "tasks"), n);
        assert_int_equal(json_integer_value(json_array_get(in(in(k, "task"), "pages"), 1)), most);
        assert_int_equal(json_integer_value(json_array_get(in(in(k, "task"), "waits"), 1)), waits);
        uint64_t least = 0;
        json_array_foreach(in(k, "regions"), r, g) {
            least += (uint64_t)json_integer_value(json_array_get(in(g, "bytes"), 1));
            assert_true(number(g, "alignment") >= 64);
        }
        assert_true(least <= (uint64_t)most * m.p->page_bytes);
        tasks += n;
    }
    for (uint32_t t = 0; t < m.p->n_tasks; t++) {
        const char *name = m.p->bodies[m.p->tasks[t].body].op->name;
        absent += strcmp(name, "allreduce") == 0;
    }
    assert_int_equal(json_array_size(kernels), 1);
    assert_int_equal(tasks, absent);
    close_made(&m);
}

static void bytes_are_the_same_each_time(void **state) {
    (void)state;
    made a = document(geometry_graph("llama-3.2-1b"), "sm_90a", 4, 2, true, 0);
    made b = document(geometry_graph("llama-3.2-1b"), "sm_90a", 4, 2, true, 0);
    assert_string_equal(a.text, b.text);
    assert_true(json_equal(a.json, b.json));
    expect(&a, "all_gather");
    close_made(&a);
    close_made(&b);
}

static void memory_may_fail_anywhere(void **state) {
    (void)state;
    graph *g = small_graph(true);
    plan *p = NULL;
    assert_int_equal(plan_build(g, &(plan_options){.workers = 2}, &p, NULL), KEEL_OK);
    uint64_t n = 1;
    for (keel_status s = KEEL_NOMEM; s != KEEL_OK; n++) {
        doc *d = NULL;
        buf out = {0};
        keel_error err = KEEL_ERROR_INITIALIZER;
        mem_fail_after(n);
        s = doc_open(g, p, NULL, &d, &err);
        if (s == KEEL_OK) doc_markdown(d, &out);
        if (s == KEEL_OK) s = doc_json(d, &out, &err);
        mem_fail_after(0);
        if (s != KEEL_OK && s != KEEL_NOMEM) fail_msg("allocation %llu: %s", (unsigned long long)n, err.detail);
        doc_close(d);
        buf_free(&out);
    }
    assert_true(n > 20);
    plan_close(p);
    graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dense_model_on_one_gpu),
        cmocka_unit_test(the_table_is_whole),
        cmocka_unit_test(a_rank_of_eight),
        cmocka_unit_test(notes_and_kinds_of_layers),
        cmocka_unit_test(risks_are_ranked),
        cmocka_unit_test(cards_say_what_the_plan_says),
        cmocka_unit_test(bytes_are_the_same_each_time),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
