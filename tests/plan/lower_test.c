/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: which chains become fused ops, which must stay as they are, and that plans of lowered graphs are those of
 * their models. */
#include "plan/lower.h"

#include "graph/build.h"
#include "graph/geometry.h"
#include "graph/model.h"
#include "graph/op.h"
#include "graph/shard.h"
#include "core/json.h"
#include "plan/plan_file.h"
#include "plan/prove.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static keel_error err;

static void ok(keel_status s) {
    if (s != KEEL_OK) fail_msg("%s", err.detail);
}

static graph *geometry_graph(const char *name) {
    const geometry *at = geometry_table;
    while (at->name && strcmp(at->name, name) != 0) at++;
    json_t *config = NULL;
    graph *g = NULL;
    assert_non_null(at->name);
    ok(json_parse(name, at->config, strlen(at->config), &config, &err));
    ok(model_build(config, name, &(model_options){.layer_last = -1}, &g, &err));
    json_decref(config);
    return g;
}

static tile_env cpu_env(uint32_t m_max) {
    const arch_desc *arch = arch_find("cpu");
    return (tile_env){.arch = arch, .workers = 2, .m_max = m_max, .world = 1, .n_pages = arch->n_pages};
}

static graph *lowered(const graph *g) {
    graph *low = NULL;
    tile_env env = cpu_env(16);
    ok(plan_lower(g, &env, &low, &err));
    return low;
}

static const graph_op *op_of(const graph *g, const char *name) {
    for (int i = 0; i < g->n_ops; i++) {
        if (strcmp(g->ops[i].name, name) == 0) return &g->ops[i];
    }
    return NULL;
}

static void reads(const graph *g, const char *name, const char *const *in, const char *const *weight,
                  const char *const *out) {
    const graph_op *op = op_of(g, name);
    assert_non_null(op);
    for (int i = 0; i < op->n_in; i++) assert_string_equal(graph_tensor_at(g, op->in[i])->name, in[i]);
    for (int i = 0; weight[i]; i++) assert_string_equal(graph_tensor_at(g, op->weight[i])->name, weight[i]);
    for (int i = 0; i < op->n_out; i++) {
        assert_string_equal(graph_tensor_at(g, op->out[i])->name, out[i]);
        assert_ptr_equal(&g->ops[graph_tensor_at(g, op->out[i])->producer], op);
    }
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define L0 "model.layers.0."

/* Eight ops of a layer become two, the two of the head one; names of tensors and keys stay. */
static void a_decoder(void **state) {
    (void)state;
    graph *g = geometry_graph("tiny-qwen3"), *low = lowered(g);
    assert_non_null(low);
    assert_int_equal(g->n_ops, 3 + 2 * 11 + 3);
    assert_int_equal(low->n_ops, 3 + 2 * 5 + 2);
    reads(low, "l0.attn.norm.qkv", NAMES("embed"),
          NAMES(L0 "input_layernorm.weight", L0 "self_attn.q_proj.weight", L0 "self_attn.k_proj.weight",
                L0 "self_attn.v_proj.weight"),
          NAMES("l0.attn.q_proj", "l0.attn.k_proj", "l0.attn.v_proj"));
    reads(low, "l0.mlp.norm.swiglu", NAMES("l0.attn.o_proj"),
          NAMES(L0 "post_attention_layernorm.weight", L0 "mlp.gate_proj.weight", L0 "mlp.up_proj.weight"),
          NAMES("l0.mlp.act"));
    reads(low, "final.norm.linear", NAMES("l1.mlp.down_proj"), NAMES("model.norm.weight", "model.embed_tokens.weight"),
          NAMES("lm_head"));
    assert_true(graph_attr_of(op_of(low, "l0.attn.norm.qkv"), "eps") == graph_attr_of(op_of(g, "l0.attn.norm"), "eps"));
    assert_true(graph_attr_of(op_of(low, "final.norm.linear"), "logit_rows") == 1);
    assert_string_equal(graph_tensor_at(low, low->logits)->name, "lm_head");
    assert_string_equal(graph_tensor_at(low, low->step)->name, "step");
    for (int i = 1; i <= low->n_tensors; i++) { /* nothing that no op makes any more */
        const char *name = graph_tensor_at(low, i)->name;
        assert_null(strstr(name, "norm.0"));
        assert_string_not_equal(name, "l0.attn.norm");
        assert_string_not_equal(name, "l1.mlp.gate_proj");
    }
    graph_close(low);
    graph_close(g);
}

/* ---- chains that stay ---------------------------------------------------------------------------- */

typedef struct pieces {
    build b;
    int x, norm, gate, up, act;
} pieces;

enum { K = 32, N = 48 };

static int linear(pieces *p, const char *name, int x, int64_t n) {
    const char *key = build_text(&p->b, "%s.weight", name);
    return build_op(&p->b,
                    (op_spec){.kind = "linear", .name = name, .in = {x}, .weight = {{.key = key, .dim = {n, K}}}});
}

static pieces begin(void) {
    pieces p = {0};
    ok(build_begin(&p.b, NULL, "Pieces", DTYPE_BF16, &err));
    p.x = build_op(&p.b, (op_spec){.kind = "embedding", .name = "embed", .weight = {{.key = "e", .dim = {64, K}}}});
    p.norm = build_op(&p.b, (op_spec){.kind = "rmsnorm",
                                      .name = "norm",
                                      .in = {p.x},
                                      .weight = {{.key = "n", .dim = {K}}},
                                      .attr = {{"eps", 1e-6}}});
    p.gate = linear(&p, "gate", p.norm, N);
    p.up = linear(&p, "up", p.norm, N);
    return p;
}

static void act(pieces *p, int first, int second) {
    p->act = build_op(&p->b, (op_spec){.kind = "silu_mul", .name = "act", .in = {first, second}});
}

/* The graph's only fused op, "" without. */
static void becomes(pieces *p, const char *name) {
    graph *g = NULL;
    ok(build_finish(&p->b, &g));
    graph *low = lowered(g);
    const char *found = "";
    for (int i = 0; low && i < low->n_ops; i++) {
        if (low->ops[i].desc->chain.head) found = low->ops[i].name;
    }
    assert_string_equal(found, name);
    graph_close(low);
    graph_close(g);
}

static void what_stays(void **state) {
    (void)state;
    pieces p = begin();
    act(&p, p.gate, p.up);
    becomes(&p, "norm.swiglu");

    p = begin(); /* somebody else reads the norm */
    act(&p, p.gate, p.up);
    build_op(&p.b, (op_spec){.kind = "add", .name = "more", .in = {p.norm, p.x}});
    becomes(&p, "");

    p = begin(); /* a third product of it */
    act(&p, p.gate, p.up);
    linear(&p, "third", p.norm, N);
    becomes(&p, "");

    p = begin(); /* somebody else reads a product */
    act(&p, p.gate, p.up);
    build_op(&p.b, (op_spec){.kind = "add", .name = "more", .in = {p.gate, p.act}});
    becomes(&p, "");

    p = begin(); /* one of them stands on both sides */
    act(&p, p.gate, p.gate);
    becomes(&p, "");

    p = begin(); /* another tail */
    build_op(&p.b, (op_spec){.kind = "add", .name = "sum", .in = {p.gate, p.up}});
    becomes(&p, "");

    p = begin(); /* the name is taken */
    act(&p, p.gate, p.up);
    build_op(&p.b, (op_spec){.kind = "add", .name = "norm.swiglu", .in = {p.act, p.act}});
    becomes(&p, "");
}

/* The order of the tail's inputs, not that of the graph, says which matrix is which. */
static void the_tail_says_the_order(void **state) {
    (void)state;
    pieces p = begin();
    act(&p, p.up, p.gate);
    graph *g = NULL;
    ok(build_finish(&p.b, &g));
    graph *low = lowered(g);
    assert_non_null(low);
    reads(low, "norm.swiglu", NAMES("embed"), NAMES("n", "up.weight", "gate.weight"), NAMES("act"));
    graph_close(low);
    graph_close(g);
}

static plan *planned(const graph *g, const char *arch, const char *lever, uint32_t m_max) {
    plan *p = NULL;
    ok(plan_build(
        g,
        &(plan_options){
            .arch = arch, .workers = 7, .m_max = m_max, .max_seq = 200, .levers = &lever, .n_levers = lever != NULL},
        &p, &err));
    return p;
}

static uint32_t fused_ops(const plan *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_instances; i++) n += p->instances[i].op->chain.head != NULL;
    return n;
}

/* Rows that would not fit beside a band keep the chain. */
static void rows_must_fit(void **state) {
    (void)state;
    graph *g = geometry_graph("qwen3-32b"), *low = NULL;
    tile_env env = cpu_env(16);
    ok(plan_lower(g, &env, &low, &err));
    assert_non_null(low);
    graph_close(low);
    env.n_pages = 10; /* 16 × 5120 × 4 bytes are five pages of 64 KiB, of the five that a task may have */
    ok(plan_lower(g, &env, &low, &err));
    assert_null(low);
    graph_close(g);
}

/* A GPU of 132 workers: eight phases a layer become two and the last two one, where x fits SMEM. With one row a pass
 * attention is one phase, with more it is two. */
static void a_gpu(void **state) {
    (void)state;
    graph *g = geometry_graph("qwen3-8b");
    static const struct {
        const char *lever;
        uint32_t batch, fused, phases;
    } cases[] = {{NULL, 1, 73, 186}, {"chain", 1, 0, 403}, {NULL, 4, 73, 222}, {NULL, 16, 0, 439}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plan *p = NULL;
        ok(plan_build(g,
                      &(plan_options){.arch = "sm_90a",
                                      .workers = 132,
                                      .m_max = cases[i].batch,
                                      .levers = &cases[i].lever,
                                      .n_levers = cases[i].lever != NULL},
                      &p, &err));
        assert_int_equal(fused_ops(p), cases[i].fused);
        assert_int_equal(p->n_phases, cases[i].phases);
        const plan *list[] = {p};
        ok(plan_prove(list, 1, NULL, &err));
        ok(plan_fits(p, g, &err));
        plan_close(p);
    }
    graph_close(g);
}

static void levers(void **state) {
    (void)state;
    graph *g = geometry_graph("tiny-qwen3");
    plan *chain = planned(g, "cpu", NULL, 16), *fused = planned(g, "cpu", "fused", 16);
    assert_int_equal(fused_ops(chain), 0);
    assert_int_equal(fused_ops(fused), 5);
    const plan *list[] = {fused};
    ok(plan_prove(list, 1, NULL, &err));
    ok(plan_fits(chain, g, &err));
    ok(plan_fits(fused, g, &err));
    graph *other = geometry_graph("tiny-llama");
    assert_int_equal(plan_fits(fused, other, &err), KEEL_USAGE);
    graph_close(other);
    graph_close(g);
    plan_close(chain);
    plan_close(fused);
}

/* Ranks: shards of the same matrices, one plan after the other and all together. */
static void ranks(void **state) {
    (void)state;
    graph *g = geometry_graph("tiny-qwen3");
    plan *p[2];
    const plan *list[2];
    for (uint32_t r = 0; r < 2; r++) {
        graph *own = NULL;
        ok(graph_shard(g, &(shard_options){.tp = 2, .ep = 1, .rank = r}, &own, &err));
        list[r] = p[r] = planned(own, "cpu", "fused", 4);
        assert_int_equal(fused_ops(p[r]), 5);
        ok(plan_fits(p[r], own, &err));
        graph_close(own);
    }
    ok(plan_prove(list, 2, NULL, &err));
    plan_close(p[0]);
    plan_close(p[1]);
    graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decoder),     cmocka_unit_test(what_stays), cmocka_unit_test(the_tail_says_the_order),
        cmocka_unit_test(rows_must_fit), cmocka_unit_test(a_gpu),      cmocka_unit_test(levers),
        cmocka_unit_test(ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
