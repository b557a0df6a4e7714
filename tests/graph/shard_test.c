/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* Rank graphs of every geometry against arithmetic over the config's numbers, slices against the whole, what does not
 * divide, and the placement check against graphs that somebody changed. */
#include "core/mem.h"
#include "graph/build.h"
#include "graph/geometry.h"
#include "graph/model.h"
#include "graph/shard.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct numbers {
    int64_t heads, kv, head_dim, hidden, inter, vocab, layers;
    bool tied, bias;
} numbers;

static int64_t number_of(const json_t *c, const char *key) { return json_integer_value(json_object_get(c, key)); }

static numbers read_numbers(const json_t *c) {
    numbers n = {.heads = number_of(c, "num_attention_heads"),
                 .kv = number_of(c, "num_key_value_heads"),
                 .head_dim = number_of(c, "head_dim"),
                 .hidden = number_of(c, "hidden_size"),
                 .inter = number_of(c, "intermediate_size"),
                 .vocab = number_of(c, "vocab_size"),
                 .layers = number_of(c, "num_hidden_layers")};
    n.tied = json_is_true(json_object_get(c, "tie_word_embeddings"));
    n.bias = json_is_true(json_object_get(c, "attention_bias"));
    return n;
}

/* Biases everywhere, an odd vocabulary, an untied head: what no published geometry has at once. */
static const char odd_text[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":48,\"intermediate_size\":80,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":16,\"vocab_size\":515,\"attention_bias\":true,"
    "\"mlp_bias\":true,\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0}";

static json_t *parse(const char *text) {
    json_t *c = json_loads(text, 0, NULL);
    assert_non_null(c);
    return c;
}

static graph *built(const char *text, bool sample) {
    json_t *c = parse(text);
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    model_options opts = {.layer_last = -1, .sample = sample};
    if (model_build(c, "config.json", &opts, &g, &err) != KEEL_OK) fail_msg("%s", err.detail);
    json_decref(c);
    return g;
}

static graph *sharded(const graph *g, shard_options o) {
    graph *r = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (graph_shard(g, &o, &r, &err) != KEEL_OK) fail_msg("W = %u: %s", o.tp, err.detail);
    if (graph_check_placement(r, &err) != KEEL_OK) fail_msg("W = %u: %s", o.tp, err.detail);
    return r;
}

static int find_op(const graph *g, const char *name) {
    for (int i = 0; i < g->n_ops; i++) {
        if (strcmp(g->ops[i].name, name) == 0) return i;
    }
    return -1;
}

static graph_op *op_named(const graph *g, const char *name) {
    int i = find_op(g, name);
    if (i < 0) fail_msg("no op %s", name);
    return &g->ops[i];
}

/* ---- local shapes -------------------------------------------------------------------------------- */

static void expect_dims(const graph_tensor *t, int64_t a, int64_t b, shard_rule rule) {
    if (t->dim[0] != a || t->dim[1] != b || t->shard != rule) {
        fail_msg("%s is [%lld, %lld] %s, not [%lld, %lld] %s", t->name, (long long)t->dim[0], (long long)t->dim[1],
                 shard_name(t->shard), (long long)a, (long long)b, shard_name(rule));
    }
}

static void expect_op(const graph *g, int layer, const char *name, const char *kind, int64_t n, int64_t k,
                      shard_rule rule, int64_t out, placement place) {
    char full[64];
    snprintf(full, sizeof full, "l%d.%s", layer, name);
    const graph_op *op = op_named(g, full);
    assert_string_equal(op->desc->name, kind);
    assert_int_equal(op->layer, layer);
    if (n) expect_dims(graph_tensor_at(g, op->weight[0]), n, k, rule);
    const graph_tensor *t = graph_tensor_at(g, op->out[0]);
    assert_string_equal(t->name, full);
    assert_int_equal(t->dim[1], out);
    assert_int_equal(t->place, place);
}

static void expect_sum(const graph *g, int layer, const char *name, int residual, bool bias) {
    char part[64], full[64];
    snprintf(part, sizeof part, "l%d.%s", layer, name);
    snprintf(full, sizeof full, "l%d.%s.ar", layer, name);
    const graph_op *p = op_named(g, part), *ar = op_named(g, full);
    assert_int_equal(find_op(g, full), find_op(g, part) + 1);
    assert_int_equal(p->n_in, 1);
    assert_int_equal(p->n_weights, 1);
    assert_int_equal(ar->in[0], p->out[0]);
    assert_int_equal(ar->in[1], residual);
    assert_int_equal(ar->n_weights, bias);
    if (bias) expect_dims(graph_tensor_at(g, ar->weight[0]), graph_tensor_at(g, ar->out[0])->dim[1], 0, SHARD_REP);
}

static void expect_layer(const graph *g, const numbers *c, int l, int64_t w, int *x, bool mlp_bias) {
    int64_t q = c->heads * c->head_dim, kv = c->kv * c->head_dim;
    expect_op(g, l, "attn.norm", "rmsnorm", c->hidden, 0, SHARD_REP, c->hidden, PLACE_WHOLE);
    expect_op(g, l, "attn.q_proj", "linear", q / w, c->hidden, SHARD_COL, q / w, PLACE_SHARD);
    expect_op(g, l, "attn.k_proj", "linear", kv / w, c->hidden, SHARD_COL, kv / w, PLACE_SHARD);
    expect_op(g, l, "attn.v_proj", "linear", kv / w, c->hidden, SHARD_COL, kv / w, PLACE_SHARD);
    expect_op(g, l, "attn", "attention", 0, 0, SHARD_REP, q / w, PLACE_SHARD);
    expect_op(g, l, "attn.o_proj", "linear", c->hidden, q / w, SHARD_ROW, c->hidden, PLACE_PARTIAL);
    expect_op(g, l, "attn.o_proj.ar", "allreduce", 0, 0, SHARD_REP, c->hidden, PLACE_WHOLE);
    expect_op(g, l, "mlp.gate_proj", "linear", c->inter / w, c->hidden, SHARD_COL, c->inter / w, PLACE_SHARD);
    expect_op(g, l, "mlp.up_proj", "linear", c->inter / w, c->hidden, SHARD_COL, c->inter / w, PLACE_SHARD);
    expect_op(g, l, "mlp.act", "silu_mul", 0, 0, SHARD_REP, c->inter / w, PLACE_SHARD);
    expect_op(g, l, "mlp.down_proj", "linear", c->hidden, c->inter / w, SHARD_ROW, c->hidden, PLACE_PARTIAL);
    expect_op(g, l, "mlp.down_proj.ar", "allreduce", 0, 0, SHARD_REP, c->hidden, PLACE_WHOLE);
    char name[64];
    snprintf(name, sizeof name, "l%d.attn", l);
    const graph_op *attn = op_named(g, name);
    assert_true(graph_attr_of(attn, "q_heads") == (double)(c->heads / w));
    assert_true(graph_attr_of(attn, "kv_heads") == (double)(c->kv / w));
    assert_true(graph_attr_of(attn, "head_dim") == (double)c->head_dim);
    for (int i = 4; i <= 5; i++) {
        const graph_tensor *cache = graph_tensor_at(g, attn->in[i]);
        assert_true(cache->kind == TENSOR_CACHE && cache->dim[0] == c->kv / w && cache->dim[1] == c->head_dim);
    }
    snprintf(name, sizeof name, "l%d.attn.q_proj", l);
    const graph_op *op = op_named(g, name);
    assert_int_equal(op->n_weights, 1 + c->bias);
    if (c->bias) expect_dims(graph_tensor_at(g, op->weight[1]), q / w, 0, SHARD_COL);
    expect_sum(g, l, "attn.o_proj", *x, c->bias);
    snprintf(name, sizeof name, "l%d.attn.o_proj.ar", l);
    *x = op_named(g, name)->out[0];
    expect_sum(g, l, "mlp.down_proj", *x, mlp_bias);
    snprintf(name, sizeof name, "l%d.mlp.down_proj.ar", l);
    *x = op_named(g, name)->out[0];
}

static void expect_head(const graph *g, const numbers *c, int64_t w, bool vocab_parallel, const char *tail) {
    const graph_op *head = op_named(g, "lm_head"), *end = &g->ops[g->n_ops - 1], *embed = op_named(g, "embed");
    const graph_tensor *weight = graph_tensor_at(g, head->weight[0]), *table = graph_tensor_at(g, embed->weight[0]);
    expect_dims(table, c->vocab, c->hidden, SHARD_REP);
    assert_string_equal(table->key, "model.embed_tokens.weight");
    assert_string_equal(weight->key, c->tied ? "model.embed_tokens.weight" : "lm_head.weight");
    if (vocab_parallel) {
        int64_t rows = (c->vocab + w - 1) / w;
        expect_dims(weight, rows, c->hidden, SHARD_COL);
        assert_int_equal(graph_tensor_at(g, head->out[0])->dim[1], rows);
        assert_int_equal(graph_tensor_at(g, head->out[0])->place, PLACE_SHARD);
        assert_true(head->weight[0] != embed->weight[0]);
        assert_string_equal(g->ops[g->n_ops - 2].name, "lm_head.ag");
        assert_int_equal(g->ops[g->n_ops - 2].in[0], head->out[0]);
        assert_int_equal(g->logits, g->ops[g->n_ops - 2].out[0]);
    } else {
        expect_dims(weight, c->vocab, c->hidden, SHARD_REP);
        assert_int_equal(head->weight[0] == embed->weight[0], c->tied);
        assert_int_equal(g->logits, head->out[0]);
    }
    const graph_tensor *logits = graph_tensor_at(g, g->logits);
    assert_true(logits->dim[0] == GRAPH_M_LOGIT && logits->dim[1] == c->vocab && logits->place == PLACE_WHOLE);
    assert_string_equal(end->desc->name, tail);
    assert_int_equal(end->in[0], g->logits);
}

static void expect_rank(const graph *g, const numbers *c, shard_options o, bool mlp_bias) {
    assert_true(g->tp == o.tp && g->rank == o.rank && g->ep == 1 && g->vocab_parallel == o.vocab_parallel);
    assert_true(g->vocab == c->vocab && g->hidden == c->hidden && g->n_layers == c->layers);
    assert_int_equal(g->n_ops, 6 + 13 * c->layers + o.vocab_parallel);
    for (int i = 0; i < g->n_ops; i++) {
        for (int k = 0; k < g->ops[i].n_in; k++) assert_true(graph_tensor_at(g, g->ops[i].in[k])->producer < i);
    }
    int x = op_named(g, "embed")->out[0];
    for (int l = 0; l < c->layers; l++) expect_layer(g, c, l, o.tp, &x, mlp_bias);
    assert_int_equal(op_named(g, "final.norm")->in[0], x);
    expect_head(g, c, o.tp, o.vocab_parallel, "argmax");
}

/* ---- slices -------------------------------------------------------------------------------------- */

static const graph_tensor *weight_keyed(const graph *g, const char *key) {
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (t->kind == TENSOR_WEIGHT && strcmp(t->key, key) == 0) return t;
    }
    fail_msg("no weight %s", key);
    return NULL;
}

/* Ranks hold the parts of a weight one after the other, all of it and nothing twice; other dimensions whole. */
static void expect_cover(const graph *global, graph *const *ranks, uint32_t w, int id) {
    const graph_tensor *first = graph_tensor_at(ranks[0], id), *whole = weight_keyed(global, first->key);
    int64_t end = 0;
    for (uint32_t r = 0; r < w; r++) {
        const graph_tensor *t = graph_tensor_at(ranks[r], id);
        assert_string_equal(t->name, first->name);
        assert_int_equal(t->dtype, whole->dtype);
        shard_slice s = graph_weight_slice(ranks[r], t);
        assert_int_equal(s.dim, t->shard == SHARD_REP ? -1 : t->shard == SHARD_COL ? 0 : 1);
        assert_int_equal(graph_weight_inner_slice(ranks[r], t).dim, -1);
        for (int d = 0; d < GRAPH_RANK; d++) assert_int_equal(t->dim[d], d == s.dim ? s.n : whole->dim[d]);
        if (s.dim < 0) {
            assert_int_equal(s.first, 0);
            continue;
        }
        assert_int_equal(s.whole, whole->dim[s.dim]);
        assert_int_equal(s.first, end);
        assert_true(s.first < s.whole && s.n >= 1);
        end = s.first + s.n < s.whole ? s.first + s.n : s.whole;
    }
    if (first->shard != SHARD_REP) assert_int_equal(end, whole->dim[graph_weight_slice(ranks[0], first).dim]);
}

static int n_weights(const graph *g) {
    int n = 0;
    for (int id = 1; id <= g->n_tensors; id++) n += graph_tensor_at(g, id)->kind == TENSOR_WEIGHT;
    return n;
}

static void check_world(const graph *global, const numbers *c, uint32_t w, bool vocab_parallel, bool mlp_bias) {
    graph *ranks[8] = {0};
    for (uint32_t r = 0; r < w; r++) {
        shard_options o = {.tp = w, .rank = r, .vocab_parallel = vocab_parallel};
        ranks[r] = sharded(global, o);
        expect_rank(ranks[r], c, o, mlp_bias);
        assert_int_equal(ranks[r]->n_tensors, ranks[0]->n_tensors);
    }
    for (int id = 1; id <= ranks[0]->n_tensors; id++) {
        if (graph_tensor_at(ranks[0], id)->kind == TENSOR_WEIGHT) expect_cover(global, ranks, w, id);
    }
    assert_int_equal(n_weights(ranks[0]), n_weights(global) + (vocab_parallel && c->tied));
    for (uint32_t r = 0; r < w; r++) graph_close(ranks[r]);
}

/* Each world divides, or is refused for the number that does not. */
static void every_geometry(void **state) {
    (void)state;
    int done = 0, refused = 0;
    for (const geometry *m = geometry_table; m->name; m++) {
        json_t *config = parse(m->config);
        numbers c = read_numbers(config);
        json_decref(config);
        graph *g = built(m->config, false);
        for (uint32_t w = 2; w <= 8; w *= 2) {
            for (int vp = 0; vp <= 1; vp++) {
                if (c.heads % w == 0 && c.kv % w == 0 && c.inter % w == 0) {
                    check_world(g, &c, w, vp, false);
                    done++;
                    continue;
                }
                graph *r = NULL;
                keel_error err = KEEL_ERROR_INITIALIZER;
                shard_options o = {.tp = w, .vocab_parallel = vp};
                assert_int_equal(graph_shard(g, &o, &r, &err), KEEL_REFUSED);
                char words[64];
                snprintf(words, sizeof words, "kv_heads is %lld, which does not divide by %u", (long long)c.kv, w);
                assert_non_null(strstr(err.detail, "op l0.attn (attention)"));
                if (!strstr(err.detail, words)) fail_msg("%s", err.detail);
                refused++;
            }
        }
        graph_close(g);
    }
    assert_true(done >= 9 * 6 + 2 && refused >= 6);
}

static void biases_and_an_odd_vocabulary(void **state) {
    (void)state;
    json_t *config = parse(odd_text);
    numbers c = read_numbers(config);
    json_decref(config);
    graph *g = built(odd_text, false);
    for (uint32_t w = 2; w <= 8; w *= 2) {
        for (int vp = 0; vp <= 1; vp++) check_world(g, &c, w, vp, true);
    }
    graph *r = sharded(g, (shard_options){.tp = 8, .rank = 7, .vocab_parallel = true});
    shard_slice s = graph_weight_slice(r, graph_tensor_at(r, op_named(r, "lm_head")->weight[0]));
    assert_true(s.dim == 0 && s.n == 65 && s.first == 455 && s.whole == 515); /* 5 rows of padding */
    graph_close(r);
    graph_close(g);
}

/* ---- one rank ------------------------------------------------------------------------------------ */

static void expect_same_op(const graph_op *a, const graph_op *b) {
    assert_ptr_equal(a->desc, b->desc);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->notes, b->notes);
    assert_true(a->layer == b->layer && a->n_in == b->n_in && a->n_weights == b->n_weights && a->n_out == b->n_out);
    assert_memory_equal(a->in, b->in, sizeof a->in);
    assert_memory_equal(a->weight, b->weight, sizeof a->weight);
    assert_memory_equal(a->out, b->out, sizeof a->out);
    assert_int_equal(a->n_attrs, b->n_attrs);
    for (int i = 0; i < a->n_attrs; i++) {
        assert_string_equal(a->attr[i].name, b->attr[i].name);
        assert_true(a->attr[i].value == b->attr[i].value);
    }
}

static void expect_same(const graph *a, const graph *b) {
    assert_true(a->n_ops == b->n_ops && a->n_tensors == b->n_tensors);
    for (int i = 0; i < a->n_ops; i++) expect_same_op(&a->ops[i], &b->ops[i]);
    for (int id = 1; id <= a->n_tensors; id++) {
        const graph_tensor *s = graph_tensor_at(a, id), *t = graph_tensor_at(b, id);
        assert_string_equal(s->name, t->name);
        assert_true(s->kind == t->kind && s->dtype == t->dtype && s->rank == t->rank && s->producer == t->producer);
        assert_memory_equal(s->dim, t->dim, sizeof s->dim);
        assert_true(s->shard == t->shard && s->shard_dim == t->shard_dim && s->external == t->external);
        assert_int_equal(t->place, PLACE_WHOLE);
        assert_int_equal(!s->key, !t->key);
        if (s->key) assert_string_equal(s->key, t->key);
        if (s->data) assert_memory_equal(s->data, t->data, (size_t)s->dim[0] * sizeof *s->data);
    }
    assert_string_equal(a->architecture, b->architecture);
    assert_true(a->n_layers == b->n_layers && a->layer_first == b->layer_first && a->vocab == b->vocab);
    assert_true(a->hidden == b->hidden && a->max_position == b->max_position && a->step == b->step);
    assert_true(a->logits == b->logits && a->sampling == b->sampling && b->tp == 1 && b->ep == 1 && b->rank == 0);
    assert_false(b->vocab_parallel);
}

static void one_rank_is_the_graph_itself(void **state) {
    (void)state;
    for (const geometry *m = geometry_table; m->name; m++) {
        for (int sample = 0; sample <= 1; sample++) {
            graph *g = built(m->config, sample), *r = sharded(g, (shard_options){.vocab_parallel = sample});
            expect_same(g, r);
            graph_close(g);
            graph_close(r);
        }
    }
    /* Inputs, holes, notes, leaves that nothing reads, weights of several dtypes. */
    build b;
    graph *g = NULL;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, NULL), KEEL_OK);
    int x = build_input(&b, "x", 32), y = build_input(&b, "y", 32);
    build_cache(&b, "unread", 2, 16);
    b.layer = 3;
    op_spec spec = {.kind = "add", .name = "sum", .in = {y, x}, .notes = "seen by nobody"};
    x = build_op(&b, spec);
    b.weight_dtype = DTYPE_F16;
    spec = (op_spec){.kind = "linear", .name = "up", .in = {x}};
    spec.weight[0] = (weight_spec){.key = "w", .dim = {8, 32}, .shard = SHARD_COL};
    build_op(&b, spec);
    b.layer = -1;
    build_const(&b, "last", (const float[]){1, 2, 3}, 3);
    assert_int_equal(build_finish(&b, &g), KEEL_OK);
    graph *r = sharded(g, (shard_options){.tp = 1});
    expect_same(g, r);
    graph_close(r);
    graph_close(g);
}

/* ---- refusals of graph_shard --------------------------------------------------------------------- */

static void refuses(const graph *g, shard_options o, keel_status status, const char *words) {
    graph *r = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status got = graph_shard(g, &o, &r, &err);
    if (got != status || !strstr(err.detail, words)) {
        fail_msg("want %s, %s: got %s: %s", keel_status_name(status), words, keel_status_name(got), err.detail);
    }
    assert_null(r);
    assert_int_equal(graph_shard(g, &o, &r, NULL), status);
}

static void what_does_not_divide(void **state) {
    (void)state;
    graph *g = built(odd_text, false); /* 16 heads, 8 KV heads of 16, 80 inner, 2 layers */
    refuses(g, (shard_options){.tp = 16}, KEEL_REFUSED, "op l0.attn (attention): attribute kv_heads is 8");
    refuses(g, (shard_options){.tp = 16}, KEEL_REFUSED, "divides by W = 1, 2, 4, 8");
    refuses(g, (shard_options){.tp = 16}, KEEL_REFUSED, "heads of cache l0.attn.cache_v is 8, which does not");
    refuses(
        g, (shard_options){.tp = 3}, KEEL_REFUSED,
        "op l0.mlp.gate_proj (linear): dimension 0 (col) of weight model.layers.0.mlp.gate_proj.weight is 80, which "
        "does not divide by 3");
    refuses(g, (shard_options){.tp = 3}, KEEL_REFUSED, "more of layers other than 0");
    refuses(g, (shard_options){.tp = 3}, KEEL_REFUSED, "dimension 1 (row) of weight model.layers.0.mlp.down_proj");
    refuses(g, (shard_options){.tp = 2, .rank = 2}, KEEL_RANGE, "ranks 0-1");
    refuses(g, (shard_options){.tp = 4, .ep = 3}, KEEL_RANGE, "E = 3 must divide W = 4");
    refuses(g, (shard_options){.tp = 4, .ep = 2}, KEEL_REFUSED, "no experts to spread");
    graph *r = sharded(g, (shard_options){.tp = 2});
    refuses(r, (shard_options){.tp = 2}, KEEL_RANGE, "one rank's already");
    graph_close(r);
    graph_close(g);
}

/* x → one op, or two in a chain, at W = 2. */
static void refuses_ops(op_spec a, op_spec b2, const char *words) {
    build b;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    int x = build_input(&b, "x", 32), y = build_input(&b, "y", 32);
    a.name = "first";
    for (int i = 0; i < 2; i++) a.in[i] = a.in[i] == 1 ? x : a.in[i] == 2 ? y : 0;
    int out = build_op(&b, a);
    if (b2.kind) {
        b2.name = "second";
        for (int i = 0; i < 2; i++) b2.in[i] = b2.in[i] == 1 ? x : b2.in[i] == 2 ? y : b2.in[i] == 3 ? out : 0;
        build_op(&b, b2);
    }
    if (build_finish(&b, &g) != KEEL_OK) fail_msg("%s", err.detail);
    refuses(g, (shard_options){.tp = 2}, KEEL_REFUSED, words);
    graph_close(g);
}

#define W(name, n, k, rule, d)                                                                                         \
    { .key = name, .dim = {n, k}, .shard = rule, .shard_dim = d }

static void placements_without_a_rule(void **state) {
    (void)state;
    op_spec none = {0}, col = {.kind = "linear", .in = {1}, .weight = {W("w", 32, 32, SHARD_COL, 0)}};
    op_spec op = {.kind = "linear", .in = {1}, .weight = {W("w", 32, 32, SHARD_ROW, 1)}};
    refuses_ops(op, none,
                "op first (linear): at W = 2: a weight with the rule row needs a sharded input (x = x is whole, "
                "w = w is row)");
    op = (op_spec){.kind = "linear", .in = {3}, .weight = {W("v", 32, 32, SHARD_REP, 0)}};
    refuses_ops(col, op, "op second (linear): at W = 2: a weight with the rule rep needs a whole input");
    op.weight[0].shard = SHARD_COL;
    refuses_ops(col, op, "op second (linear): at W = 2: a weight with the rule col needs a whole input");
    op.weight[0].shard = SHARD_EP;
    refuses_ops(col, op, "no rule for a weight cut by experts");
    refuses_ops(col, (op_spec){.kind = "add", .in = {1, 3}}, "op second (add): at W = 2: its inputs must be alike");
    op = (op_spec){.kind = "rmsnorm", .in = {3}, .weight = {W("s", 32, 0, SHARD_REP, 0)}, .attr = {{"eps", 1}}};
    refuses_ops(col, op, "op second (rmsnorm): at W = 2: it has no rule for sharded");
    op = (op_spec){.kind = "embedding", .weight = {W("t", 32, 32, SHARD_COL, 0)}};
    refuses_ops(op, none, "op first (embedding): at W = 2: it has no rule");
    refuses_ops((op_spec){.kind = "allreduce", .in = {1, 2}}, none, "added once a rank");
    op = col;
    op.weight[1] = (weight_spec)W("b", 32, 0, SHARD_REP, 0);
    refuses_ops(op, none, "with a col weight the bias must be col");
    op = (op_spec){.kind = "linear", .in = {3}, .weight = {W("v", 32, 32, SHARD_ROW, 1), W("b", 32, 0, SHARD_COL, 0)}};
    refuses_ops(col, op, "with a row weight the bias must be rep");
    op = (op_spec){.kind = "linear", .in = {1}, .weight = {W("w", 32, 32, SHARD_COL, 1)}};
    build b; /* a rule that cuts the wrong dimension: the op's own shape rule sees it */
    graph *g = NULL;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, NULL), KEEL_OK);
    op.name = "first";
    op.in[0] = build_input(&b, "x", 32);
    build_op(&b, op);
    assert_int_equal(build_finish(&b, &g), KEEL_OK);
    refuses(g, (shard_options){.tp = 2}, KEEL_FORMAT,
            "rank 0 of 2: first: input x is [M, 32] but weight w is [32, 16]");
    refuses(g, (shard_options){.tp = 2, .vocab_parallel = true}, KEEL_REFUSED, "no logits");
    graph_close(g);
}

/* A drawn row-sharded linear without a residual, followed by an add, and a vocabulary too small to be cut. */
static graph *small_graph(int64_t vocab) {
    build b;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    int x = build_input(&b, "x", 32);
    op_spec up = {.kind = "linear", .name = "up", .in = {x}, .weight = {W("up.w", 64, 32, SHARD_COL, 0)}};
    int y = build_op(&b, up);
    op_spec down = {.kind = "linear", .name = "down", .in = {y}, .weight = {W("down.w", 32, 64, SHARD_ROW, 1)}};
    int z = build_op(&b, down);
    z = build_op(&b, (op_spec){.kind = "add", .name = "sum", .in = {z, x}});
    op_spec norm = {.kind = "rmsnorm", .name = "norm", .in = {z}, .weight = {W("norm.w", 32, 0, SHARD_REP, 0)}};
    norm.attr[0] = (graph_attr){"eps", 1e-5};
    norm.attr[1] = (graph_attr){"logit_rows", 1};
    z = build_op(&b, norm);
    op_spec head = {.kind = "linear", .name = "head", .in = {z}, .weight = {W("head.w", vocab, 32, SHARD_COL, 0)}};
    build_tail(&b, build_op(&b, head), false);
    if (build_finish(&b, &g) != KEEL_OK) fail_msg("%s", err.detail);
    return g;
}

static void small_vocabularies(void **state) {
    (void)state;
    for (int64_t vocab = 1; vocab <= 20; vocab++) {
        graph *g = small_graph(vocab);
        for (uint32_t w = 2; w <= 8; w *= 2) {
            int64_t rows = vocab / w + (vocab % w != 0);
            if (rows * (w - 1) < vocab) {
                graph *r = sharded(g, (shard_options){.tp = w, .rank = w - 1, .vocab_parallel = true});
                shard_slice s = graph_weight_slice(r, graph_tensor_at(r, op_named(r, "head")->weight[0]));
                assert_true(s.n == rows && s.first == rows * (w - 1) && s.whole == vocab);
                graph_close(r);
            } else {
                refuses(g, (shard_options){.tp = w, .vocab_parallel = true}, KEEL_REFUSED, "too few to give each");
            }
        }
        graph_close(g);
    }
}

/* ---- experts ------------------------------------------------------------------------------------- */

static void expert_slices(void **state) {
    (void)state;
    enum { EXPERTS = 16, INNER = 24 };
    graph_tensor w = {.kind = TENSOR_WEIGHT, .rank = 3, .shard = SHARD_EP, .shard_dim = 1};
    for (uint32_t tp = 1; tp <= 8; tp *= 2) {
        for (uint32_t ep = 1; ep <= tp; ep *= 2) {
            int seen[EXPERTS][INNER] = {{0}};
            for (uint32_t r = 0; r < tp; r++) {
                graph g = {.tp = tp, .ep = ep, .rank = r, .tensors = &w};
                w.dim[0] = EXPERTS / ep;
                w.dim[1] = INNER / (tp / ep);
                w.dim[2] = 5;
                shard_slice e = graph_weight_slice(&g, &w), i = graph_weight_inner_slice(&g, &w);
                assert_int_equal(e.dim, ep > 1 ? 0 : -1);
                assert_int_equal(i.dim, tp / ep > 1 ? 1 : -1);
                if (i.dim == 1) assert_int_equal(i.whole, INNER);
                if (e.dim == 0) assert_int_equal(e.whole, EXPERTS);
                int64_t a0 = e.dim < 0 ? 0 : e.first, b0 = i.dim < 0 ? 0 : i.first;
                for (int64_t a = a0; a < a0 + w.dim[0]; a++) {
                    for (int64_t k = b0; k < b0 + w.dim[1]; k++) seen[a][k]++;
                }
                if (tp == 8 && ep == 2) assert_true(e.first == (r < 4 ? 0 : 8) && i.first == 6 * (r % 4));
            }
            for (int a = 0; a < EXPERTS; a++) {
                for (int k = 0; k < INNER; k++) assert_int_equal(seen[a][k], 1);
            }
        }
    }
    graph_tensor bias = {.kind = TENSOR_WEIGHT, .rank = 1, .shard = SHARD_EP, .dim = {4}};
    graph g = {.tp = 8, .ep = 2, .rank = 5, .tensors = &bias};
    assert_int_equal(graph_weight_slice(&g, &bias).first, 4);
    assert_int_equal(graph_weight_inner_slice(&g, &bias).dim, -1);
}

/* ---- graphs that somebody changed ---------------------------------------------------------------- */

static graph_tensor *weight_of(graph *g, const char *op, int i) { return &g->tensors[op_named(g, op)->weight[i]]; }

static void residual_every_rank(graph *g) {
    graph_op *op = op_named(g, "l0.attn.o_proj"), *ar = op_named(g, "l0.attn.o_proj.ar");
    op->desc = op_find("linear_residual");
    op->in[1] = ar->in[1];
    op->n_in = 2;
}
static void residual_moved(graph *g) {
    residual_every_rank(g);
    op_named(g, "l0.attn.o_proj.ar")->in[1] = 0;
    op_named(g, "l0.attn.o_proj.ar")->n_in = 1;
}
static void bias_on_partial(graph *g) {
    graph_op *op = op_named(g, "l1.mlp.down_proj");
    op->weight[1] = op_named(g, "l1.mlp.down_proj.ar")->weight[0];
    op->n_weights = 2;
}
static void partial_into_norm(graph *g) { op_named(g, "l0.mlp.norm")->in[0] = op_named(g, "l0.attn.o_proj")->out[0]; }
static void add_for_allreduce(graph *g) {
    graph_op *ar = op_named(g, "l0.attn.o_proj.ar");
    ar->desc = op_find("add");
    ar->n_weights = 0;
}
static void no_allreduce(graph *g) { /* the sum reads another partial; nobody reads this one */
    op_named(g, "l0.mlp.down_proj.ar")->in[0] = op_named(g, "l1.mlp.down_proj")->out[0];
}
static void row_to_rep(graph *g) { weight_of(g, "l0.attn.o_proj", 0)->shard = SHARD_REP; }
static void row_to_col(graph *g) { weight_of(g, "l0.attn.o_proj", 0)->shard = SHARD_COL; }
static void col_to_rep(graph *g) { weight_of(g, "l1.attn.k_proj", 0)->shard = SHARD_REP; }
static void col_to_row(graph *g) { weight_of(g, "l1.mlp.up_proj", 0)->shard = SHARD_ROW; }
static void rep_to_col(graph *g) { weight_of(g, "l1.mlp.norm", 0)->shard = SHARD_COL; }
static void rep_bias_to_col(graph *g) { weight_of(g, "l1.mlp.down_proj.ar", 0)->shard = SHARD_COL; }
static void heads_not_divided(graph *g) { op_named(g, "l0.attn")->attr[0].value *= 2; }
static void kv_heads_not_divided(graph *g) { op_named(g, "l0.attn")->attr[1].value *= 2; }
static void cache_not_divided(graph *g) { g->tensors[op_named(g, "l1.attn")->in[4]].dim[0] *= 2; }
static void rows_not_divided(graph *g) {
    weight_of(g, "l0.mlp.gate_proj", 0)->dim[0] *= 2;
    weight_of(g, "l0.mlp.gate_proj", 1)->dim[0] *= 2;
}
static void sharded_logits(graph *g) { weight_of(g, "lm_head", 0)->shard = SHARD_COL; }
static void own_logits(graph *g) { /* of a vocab-parallel head */
    graph_op *tail = op_named(g, "argmax");
    g->logits = tail->in[0] = op_named(g, "lm_head")->out[0];
}
static void summed_twice(graph *g) {
    op_named(g, "l0.mlp.down_proj.ar")->in[0] = op_named(g, "l0.attn.o_proj.ar")->out[0];
}
static void two_sums_of_one(graph *g) {
    op_named(g, "l0.mlp.down_proj.ar")->in[0] = op_named(g, "l0.attn.o_proj")->out[0];
}
static void partial_residual(graph *g) {
    op_named(g, "l0.mlp.down_proj.ar")->in[1] = op_named(g, "l0.mlp.down_proj")->out[0];
}
static void lying_placement(graph *g) { g->tensors[op_named(g, "l0.attn.norm")->out[0]].place = PLACE_SHARD; }
static void rank_too_high(graph *g) { g->rank = g->tp; }
static void odd_experts(graph *g) { g->ep = 3; }
static void read_too_early(graph *g) {
    op_named(g, "l0.attn.norm")->in[0] = op_named(g, "l1.mlp.down_proj.ar")->out[0];
}

static void tampered_graphs_are_refused(void **state) {
    (void)state;
    static const struct {
        void (*change)(graph *g);
        const char *op, *why;
    } changes[] = {
        {residual_every_rank, "op l0.attn.o_proj (linear_residual)", "the residual embed would be added 2 times"},
        {residual_moved, "op l0.attn.o_proj (linear_residual)", "the residual embed would be added 2 times"},
        {bias_on_partial, "op l1.mlp.down_proj (linear)",
         "the bias model.layers.1.mlp.down_proj.bias would be added 2 times"},
        {partial_into_norm, "op l0.mlp.norm (rmsnorm)", "a partial sum must be combined by a collective"},
        {add_for_allreduce, "op l0.attn.o_proj.ar (add)", "a partial sum must be combined by a collective"},
        {no_allreduce, "tensor l0.mlp.down_proj:", "no collective combines the partial sum"},
        {row_to_rep, "op l0.attn.o_proj (linear)", "the rule rep needs a whole input"},
        {row_to_col, "op l0.attn.o_proj (linear)", "the rule col needs a whole input"},
        {col_to_rep, "op l1.attn (attention)", "must be alike"},
        {col_to_row, "op l1.mlp.up_proj (linear)", "the rule row needs a sharded input"},
        {rep_to_col, "op l1.mlp.norm (rmsnorm)", "no rule for sharded"},
        {rep_bias_to_col, "op l1.mlp.down_proj.ar (allreduce)", "must be whole, weights rep"},
        {heads_not_divided, "op l0.attn (attention)", "input 0 (q) must be [M, 256]"},
        {kv_heads_not_divided, "op l0.attn (attention)", "must be [M, 128]"},
        {cache_not_divided, "op l1.attn (attention)", "two caches [4, 16]"},
        {rows_not_divided, "op l0.mlp.gate_proj (linear)", "its output l0.mlp.gate_proj is [., 40]"},
        {sharded_logits, "op argmax (argmax)", "the logits lm_head are shard"},
        {summed_twice, "op l0.mlp.down_proj.ar (allreduce)", "would be added once a rank"},
        {two_sums_of_one, "tensor l0.attn.o_proj:", "is read 2 times"},
        {partial_residual, "op l0.mlp.down_proj.ar (allreduce)", "must be whole, weights rep"},
        {lying_placement, "tensor l0.attn.norm:", "said to be shard, but by the rules it is whole"},
        {rank_too_high, "rank 2 of W = 2", "ranks are below W"},
        {odd_experts, "E = 3", "must divide W"},
        {read_too_early, "op l0.attn.norm (rmsnorm)", "reads l1.mlp.down_proj.ar before it is made"},
    };
    graph *g = built(odd_text, false);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        graph *r = sharded(g, (shard_options){.tp = 2});
        changes[i].change(r);
        keel_error err = KEEL_ERROR_INITIALIZER;
        assert_int_equal(graph_check_placement(r, &err), KEEL_REFUSED);
        if (!strstr(err.detail, changes[i].op) || !strstr(err.detail, changes[i].why)) {
            fail_msg("change %zu: want %s … %s, got %s", i, changes[i].op, changes[i].why, err.detail);
        }
        assert_int_equal(graph_check_placement(r, NULL), KEEL_REFUSED);
        graph_close(r);
    }
    graph *r = sharded(g, (shard_options){.tp = 2, .vocab_parallel = true});
    own_logits(r);
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(graph_check_placement(r, &err), KEEL_REFUSED);
    assert_non_null(strstr(err.detail, "op argmax (argmax)"));
    assert_non_null(strstr(err.detail, "the logits lm_head are shard"));
    graph_close(r);
    r = sharded(g, (shard_options){.tp = 1});
    lying_placement(r);
    assert_int_equal(graph_check_placement(r, &err), KEEL_REFUSED);
    graph_close(r);
    graph_close(g);
}

/* The residual stands behind the all-reduce as an add; the all-reduce takes it too. */
static void a_residual_in_the_sum_and_behind_it(void **state) {
    (void)state;
    graph *g = small_graph(8), *r = sharded(g, (shard_options){.tp = 4, .rank = 3});
    graph_op *ar = op_named(r, "down.ar");
    assert_int_equal(ar->n_in, 1);
    ar->in[1] = op_named(r, "sum")->in[1];
    ar->n_in = 2;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(graph_check_placement(r, &err), KEEL_REFUSED);
    assert_non_null(strstr(err.detail, "op sum (add): the residual x would be added 2 times: down.ar has it already"));
    graph_close(r);
    graph_close(g);
}

static void stated_placements_are_not_needed(void **state) {
    (void)state;
    graph *g = built(odd_text, false), *r = sharded(g, (shard_options){.tp = 2});
    for (int id = 1; id <= r->n_tensors; id++) r->tensors[id].place = PLACE_WHOLE;
    assert_int_equal(graph_check_placement(r, NULL), KEEL_OK);
    graph_close(r);
    graph_close(g);
}

/* The graph that a plan's file carries: the same check, the same slices. */
static void from_a_plan_file(void **state) {
    (void)state;
    graph *g = built(odd_text, false);
    for (uint32_t rank = 0; rank < 4; rank++) {
        keel_error err = KEEL_ERROR_INITIALIZER;
        graph *r = sharded(g, (shard_options){.tp = 4, .rank = rank, .vocab_parallel = true}), *back = NULL;
        plan *p = NULL, *again = NULL;
        buf file = {0};
        plan_options o = {.workers = 2, .allow_absent = true};
        if (plan_build(r, &o, &p, &err) != KEEL_OK || plan_write(p, &file, &err) != KEEL_OK ||
            plan_read("file", file.data, file.len, &again, &err) != KEEL_OK ||
            plan_graph(again, &back, &err) != KEEL_OK || graph_check_placement(back, &err) != KEEL_OK) {
            fail_msg("%s", err.detail);
        }
        int n = 0;
        for (int id = 1; id <= back->n_tensors; id++) {
            const graph_tensor *t = graph_tensor_at(back, id);
            if (t->kind != TENSOR_WEIGHT) continue;
            int own = 1;
            while (strcmp(graph_tensor_at(r, own)->name, t->name) != 0) own++;
            shard_slice a = graph_weight_slice(r, graph_tensor_at(r, own)), b = graph_weight_slice(back, t);
            assert_true(a.dim == b.dim && a.first == b.first && a.n == b.n && a.whole == b.whole);
            n++;
        }
        assert_int_equal(n, n_weights(r));
        weight_of(back, "l1.attn.o_proj", 0)->shard = SHARD_REP;
        assert_int_equal(graph_check_placement(back, NULL), KEEL_REFUSED);
        graph_close(back);
        plan_close(again);
        plan_close(p);
        buf_free(&file);
        graph_close(r);
    }
    graph_close(g);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    graph *g = built(odd_text, false);
    for (uint64_t n = 1;; n++) {
        graph *r = NULL;
        keel_error err = KEEL_ERROR_INITIALIZER;
        shard_options o = {.tp = 2, .vocab_parallel = true};
        mem_fail_after(n);
        keel_status s = graph_shard(g, &o, &r, &err);
        if (s == KEEL_OK) s = graph_check_placement(r, &err);
        mem_fail_after(0);
        graph_close(r);
        if (s == KEEL_OK) {
            assert_true(n > 10);
            break;
        }
        assert_int_equal(s, KEEL_NOMEM);
    }
    graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_geometry),
        cmocka_unit_test(biases_and_an_odd_vocabulary),
        cmocka_unit_test(one_rank_is_the_graph_itself),
        cmocka_unit_test(what_does_not_divide),
        cmocka_unit_test(placements_without_a_rule),
        cmocka_unit_test(small_vocabularies),
        cmocka_unit_test(expert_slices),
        cmocka_unit_test(tampered_graphs_are_refused),
        cmocka_unit_test(a_residual_in_the_sum_and_behind_it),
        cmocka_unit_test(stated_placements_are_not_needed),
        cmocka_unit_test(from_a_plan_file),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
