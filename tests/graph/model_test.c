/* SPDX-License-Identifier: Apache-2.0 */
/* config.json → graph: keys and shapes against transformers' model classes (keys_golden.json, made by make_golden.py),
 * the order and wiring of ops, slices, and what is refused. */
#include "core/buf.h"
#include "core/mem.h"
#include "graph/model.h"
#include "graph/op.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char llama_text[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":48,\"intermediate_size\":80,"
    "\"num_hidden_layers\":5,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,\"vocab_size\":100,"
    "\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"hidden_act\":\"silu\"}";
static const char qwen3_text[] =
    "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":48,\"intermediate_size\":80,"
    "\"num_hidden_layers\":5,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,\"vocab_size\":100,"
    "\"max_position_embeddings\":256,\"tie_word_embeddings\":true,\"sliding_window\":4096,\"use_sliding_window\":false,"
    "\"layer_types\":[\"full_attention\",\"full_attention\"],\"torch_dtype\":\"float32\"}";

/* The text with one key replaced; value NULL removes it. */
static json_t *with(const char *text, const char *key, const char *value) {
    json_t *c = json_loads(text, 0, NULL);
    assert_non_null(c);
    if (key && value) {
        json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        json_object_set_new(c, key, v);
    } else if (key) {
        json_object_del(c, key);
    }
    return c;
}

static graph *built(json_t *config, const model_options *opts) {
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = model_build(config, "config.json", opts, &g, &err);
    json_decref(config);
    if (s != KEEL_OK) fail_msg("%s", err.detail);
    return g;
}

static const graph_op *op_named(const graph *g, const char *name) {
    for (int i = 0; i < g->n_ops; i++) {
        if (strcmp(g->ops[i].name, name) == 0) return &g->ops[i];
    }
    fail_msg("no op %s", name);
    return NULL;
}

static const graph_tensor *weight_of(const graph *g, const char *op, int i) {
    const graph_op *o = op_named(g, op);
    assert_true(i < o->n_weights);
    return graph_tensor_at(g, o->weight[i]);
}

static int compare_lines(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void check_keys(const graph *g, const json_t *want, const char *name) {
    char **lines = calloc((size_t)g->n_tensors, sizeof *lines);
    assert_non_null(lines);
    size_t n = 0;
    int64_t elements = 0;
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (t->kind != TENSOR_WEIGHT) continue;
        buf b = {0};
        buf_printf(&b, "%s %" PRId64, t->key, t->dim[0]);
        for (int i = 1; i < t->rank; i++) buf_printf(&b, "x%" PRId64, t->dim[i]);
        buf_str(&b, "\n");
        lines[n++] = buf_take(&b);
        elements += graph_elements(t);
    }
    qsort(lines, n, sizeof *lines, compare_lines);
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        for (const char *p = lines[i]; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001b3u;
        keel_free(lines[i]);
    }
    free(lines);
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, h);
    print_message("%s: %zu keys, %" PRId64 " elements\n", name, n, elements);
    assert_int_equal(n, json_integer_value(json_object_get(want, "n_keys")));
    assert_int_equal(elements, json_integer_value(json_object_get(want, "n_elements")));
    assert_string_equal(hash, json_string_value(json_object_get(want, "fnv1a64")));
}

/* Ops a layer, and in head and tail. */
enum { LAYER_OPS = 11, OUTER_OPS = 6 };

static void keys_match_reference(void **state) {
    (void)state;
    json_t *root;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (json_read(KEEL_SOURCE_DIR "/tests/graph/keys_golden.json", 1 << 20, &root, &err)) fail_msg("%s", err.detail);
    const json_t *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) >= 11);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *config = json_object_get(c, "config");
        graph *g = built(json_deep_copy(config), NULL);
        check_keys(g, c, json_string_value(json_object_get(c, "name")));
        int64_t layers = json_integer_value(json_object_get(config, "num_hidden_layers"));
        assert_int_equal(g->n_layers, layers);
        assert_int_equal(g->n_ops, OUTER_OPS + LAYER_OPS * layers);
        graph_close(g);
    }
    json_decref(root);
}

static void wiring(void **state) {
    (void)state;
    static const char *const order[] = {"step",
                                        "embed",
                                        "rope",
                                        "l0.attn.norm",
                                        "l0.attn.q_proj",
                                        "l0.attn.k_proj",
                                        "l0.attn.v_proj",
                                        "l0.attn",
                                        "l0.attn.o_proj",
                                        "l0.mlp.norm",
                                        "l0.mlp.gate_proj",
                                        "l0.mlp.up_proj",
                                        "l0.mlp.act",
                                        "l0.mlp.down_proj",
                                        "final.norm",
                                        "lm_head",
                                        "argmax"};
    graph *g = built(with(qwen3_text, "num_hidden_layers", "1"), NULL);
    assert_int_equal(g->n_ops, sizeof order / sizeof *order);
    for (int i = 0; i < g->n_ops; i++) assert_string_equal(g->ops[i].name, order[i]);
    for (int i = 0; i < g->n_ops; i++) { /* a producer stands before its readers */
        for (int k = 0; k < g->ops[i].n_in; k++) assert_true(graph_tensor_at(g, g->ops[i].in[k])->producer < i);
    }
    const graph_op *attn = op_named(g, "l0.attn"), *o = op_named(g, "l0.attn.o_proj"), *down = op_named(g, order[13]);
    assert_string_equal(o->desc->name, "linear_residual");
    assert_int_equal(o->in[1], op_named(g, "embed")->out[0]);
    assert_int_equal(down->in[1], o->out[0]);
    static const char *const qkv[] = {"l0.attn.q_proj", "l0.attn.k_proj", "l0.attn.v_proj"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(attn->in[i], op_named(g, qkv[i])->out[0]);
        assert_int_equal(op_named(g, qkv[i])->in[0], op_named(g, "l0.attn.norm")->out[0]);
    }
    const graph_op *act = op_named(g, "l0.mlp.act"), *gate = op_named(g, "l0.mlp.gate_proj");
    assert_int_equal(act->in[0], gate->out[0]);
    assert_int_equal(act->in[1], op_named(g, "l0.mlp.up_proj")->out[0]);
    assert_int_equal(gate->in[0], op_named(g, "l0.mlp.norm")->out[0]);
    assert_int_equal(down->in[0], act->out[0]);
    assert_int_equal(attn->in[3], op_named(g, "rope")->out[0]);
    assert_string_equal(graph_tensor_at(g, attn->in[4])->name, "l0.attn.cache_k");
    assert_string_equal(graph_tensor_at(g, attn->in[5])->name, "l0.attn.cache_v");
    assert_true(graph_attr_of(attn, "q_heads") == 4 && graph_attr_of(attn, "kv_heads") == 2);
    assert_true(graph_attr_of(attn, "head_dim") == 16 && graph_attr_of(attn, "eps") == 1e-6);
    assert_true(graph_attr_of(attn, "scale") == 0.25);
    assert_string_equal(weight_of(g, "l0.attn", 0)->key, "model.layers.0.self_attn.q_norm.weight");
    assert_string_equal(weight_of(g, "l0.attn", 1)->key, "model.layers.0.self_attn.k_norm.weight");
    assert_true(graph_attr_of(op_named(g, "final.norm"), "logit_rows") == 1);
    assert_true(graph_attr_of(op_named(g, "l0.mlp.norm"), "logit_rows") == 0);
    const graph_tensor *logits = graph_tensor_at(g, g->logits);
    assert_true(logits->dim[0] == GRAPH_M_LOGIT && logits->dim[1] == 100);
    assert_true(g->vocab == 100 && g->hidden == 48 && g->max_position == 256);
    assert_string_equal(g->architecture, "Qwen3ForCausalLM");
    graph_close(g);
}

static void shard_rules(void **state) {
    (void)state;
    json_t *c = with(llama_text, "attention_bias", "true");
    json_object_set_new(c, "mlp_bias", json_true());
    graph *g = built(c, NULL);
    static const struct {
        const char *op;
        shard_rule weight, bias;
        int dim;
    } want[] = {{"l4.attn.q_proj", SHARD_COL, SHARD_COL, 0},   {"l4.attn.k_proj", SHARD_COL, SHARD_COL, 0},
                {"l4.attn.v_proj", SHARD_COL, SHARD_COL, 0},   {"l4.attn.o_proj", SHARD_ROW, SHARD_REP, 1},
                {"l4.mlp.gate_proj", SHARD_COL, SHARD_COL, 0}, {"l4.mlp.up_proj", SHARD_COL, SHARD_COL, 0},
                {"l4.mlp.down_proj", SHARD_ROW, SHARD_REP, 1}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const graph_tensor *w = weight_of(g, want[i].op, 0), *b = weight_of(g, want[i].op, 1);
        assert_true(w->shard == want[i].weight && w->shard_dim == want[i].dim);
        assert_true(b->shard == want[i].bias && b->shard_dim == 0 && b->rank == 1 && b->dim[0] == w->dim[0]);
    }
    assert_int_equal(weight_of(g, "embed", 0)->shard, SHARD_REP);
    assert_int_equal(weight_of(g, "lm_head", 0)->shard, SHARD_COL);
    assert_int_equal(weight_of(g, "l0.attn.norm", 0)->shard, SHARD_REP);
    assert_string_equal(weight_of(g, "l2.mlp.down_proj", 1)->key, "model.layers.2.mlp.down_proj.bias");
    assert_int_equal(op_named(g, "l0.attn")->n_weights, 0);
    graph_close(g);
}

static void heads_and_dtypes(void **state) {
    (void)state;
    graph *g = built(with(llama_text, NULL, NULL), NULL);
    assert_string_equal(weight_of(g, "lm_head", 0)->key, "lm_head.weight");
    assert_int_equal(weight_of(g, "lm_head", 0)->dtype, DTYPE_BF16);
    assert_true(graph_attr_of(op_named(g, "l0.attn.norm"), "eps") == 1e-5);
    assert_string_equal(g->ops[g->n_ops - 1].desc->name, "argmax");
    graph_close(g);
    g = built(with(qwen3_text, NULL, NULL), &(model_options){.layer_last = -1, .sample = true});
    assert_int_equal(op_named(g, "lm_head")->weight[0], op_named(g, "embed")->weight[0]);
    assert_int_equal(weight_of(g, "lm_head", 0)->dtype, DTYPE_F32);
    assert_string_equal(g->ops[g->n_ops - 1].desc->name, "sample");
    graph_close(g);
    g = built(with(qwen3_text, "dtype", "\"float16\""), NULL); /* the new spelling wins */
    assert_int_equal(weight_of(g, "embed", 0)->dtype, DTYPE_F16);
    graph_close(g);
}

static void rope_reaches_the_graph(void **state) {
    (void)state;
    graph *g = built(
        with(llama_text, "rope_scaling", "{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":64}"),
        NULL);
    const graph_op *rope = op_named(g, "rope");
    const graph_tensor *f = graph_tensor_at(g, rope->in[0]);
    assert_true(f->kind == TENSOR_CONST && f->rank == 1 && f->dim[0] == 8 && f->data[0] == 1.0f);
    assert_true(fabs(graph_attr_of(rope, "attention_factor") - 1.1386294361119890) < 1e-15); /* 0.1 ln 4 + 1 */
    graph_close(g);
}

static void slices(void **state) {
    (void)state;
    graph *g = built(with(qwen3_text, NULL, NULL), &(model_options){.layer_first = 2, .layer_last = 3});
    assert_int_equal(g->n_ops, OUTER_OPS + 2 * LAYER_OPS);
    assert_true(g->n_layers == 2 && g->layer_first == 2);
    assert_int_equal(op_named(g, "l2.attn.norm")->in[0], op_named(g, "embed")->out[0]);
    assert_int_equal(op_named(g, "final.norm")->in[0], op_named(g, "l3.mlp.down_proj")->out[0]);
    assert_int_equal(op_named(g, "l3.attn")->layer, 3);
    assert_string_equal(weight_of(g, "l3.mlp.up_proj", 0)->key, "model.layers.3.mlp.up_proj.weight");
    graph_close(g);
    static const int bad[][2] = {{-1, 2}, {3, 2}, {0, 5}, {5, -1}, {0, -2}, {2147483647, 2147483647}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *c = with(qwen3_text, NULL, NULL);
        keel_error err = KEEL_ERROR_INITIALIZER;
        g = NULL;
        model_options opts = {.layer_first = bad[i][0], .layer_last = bad[i][1]};
        assert_int_equal(model_build(c, "config.json", &opts, &g, &err), KEEL_RANGE);
        assert_non_null(strstr(err.detail, "the model has the layers 0-4"));
        assert_null(g);
        json_decref(c);
    }
}

static void refused(json_t *c, keel_status status, const char *words) {
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status got = model_build(c, "dir/config.json", NULL, &g, &err);
    if (got != status || !strstr(err.detail, words)) {
        fail_msg("want %s, %s: got %s: %s", keel_status_name(status), words, keel_status_name(got), err.detail);
    }
    assert_int_equal(strncmp(err.detail, "dir/config.json: ", 17), 0);
    assert_null(g);
    assert_int_equal(model_build(c, "dir/config.json", NULL, &g, NULL), status);
    json_decref(c);
}

static void refuses_architectures(void **state) {
    (void)state;
    static const char known[] = "known architectures: LlamaForCausalLM, Qwen3ForCausalLM";
    refused(with(llama_text, "architectures", "[\"DeepseekV3ForCausalLM\"]"), KEEL_UNSUPPORTED, known);
    refused(with(llama_text, "architectures", "[\"Mist\\u00e9ralForCausalLM\"]"), KEEL_UNSUPPORTED, known);
    refused(with(llama_text, "architectures", "\"LlamaForCausalLM\""), KEEL_FORMAT, "\"architectures\"");
    refused(with(llama_text, "architectures", "[7]"), KEEL_FORMAT, "\"architectures\"");
    refused(json_array(), KEEL_FORMAT, "object");
    refused(json_object(), KEEL_MISSING, "\"model_type\"");
    json_t *c = with(llama_text, "architectures", "null");
    json_object_set_new(c, "model_type", json_string("mamba"));
    refused(c, KEEL_UNSUPPORTED, "no model named mamba");
    /* model_type is asked only without architectures */
    graph *g = built(with(llama_text, "model_type", "\"qwen3\""), NULL);
    assert_int_equal(op_named(g, "l0.attn")->n_weights, 0);
    graph_close(g);
    graph_close(built(with(llama_text, "model_type", "7"), NULL));
    c = with(llama_text, "architectures", "[]");
    json_object_set_new(c, "model_type", json_string("qwen3"));
    g = built(c, NULL);
    assert_string_equal(g->architecture, "Qwen3ForCausalLM");
    graph_close(g);
}

static void refuses_values(void **state) {
    (void)state;
    static const char *const required[] = {"vocab_size",        "hidden_size",         "intermediate_size",
                                           "num_hidden_layers", "num_attention_heads", "max_position_embeddings"};
    static const char *const numbers[] = {"0", "-1", "2147483648"}, *const others[] = {"\"64\"", "1.5", "[1]", "true"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        refused(with(llama_text, required[i], NULL), KEEL_MISSING, required[i]);
        refused(with(llama_text, required[i], "null"), KEEL_MISSING, required[i]);
        for (size_t k = 0; k < 3; k++) refused(with(llama_text, required[i], numbers[k]), KEEL_RANGE, required[i]);
        for (size_t k = 0; k < 4; k++) refused(with(llama_text, required[i], others[k]), KEEL_FORMAT, required[i]);
    }
    static const struct {
        const char *key, *value;
        keel_status status;
    } bad[] = {
        {"num_hidden_layers", "1025", KEEL_RANGE},
        {"vocab_size", "16777217", KEEL_RANGE},
        {"num_key_value_heads", "3", KEEL_RANGE},
        {"num_key_value_heads", "0", KEEL_RANGE},
        {"num_attention_heads", "9999999", KEEL_RANGE},
        {"head_dim", "1", KEEL_RANGE},
        {"head_dim", "514", KEEL_RANGE},
        {"head_dim", "17", KEEL_RANGE},
        {"rms_norm_eps", "0", KEEL_RANGE},
        {"rms_norm_eps", "\"1e-5\"", KEEL_FORMAT},
        {"attention_bias", "1", KEEL_FORMAT},
        {"mlp_bias", "\"no\"", KEEL_FORMAT},
        {"tie_word_embeddings", "0", KEEL_FORMAT},
        {"hidden_act", "\"gelu\"", KEEL_UNSUPPORTED},
        {"hidden_act", "3", KEEL_FORMAT},
        {"sliding_window", "4096", KEEL_UNSUPPORTED},
        {"sliding_window", "\"all\"", KEEL_FORMAT},
        {"layer_types", "[\"full_attention\",\"sliding_attention\"]", KEEL_UNSUPPORTED},
        {"layer_types", "[1]", KEEL_FORMAT},
        {"layer_types", "{}", KEEL_FORMAT},
        {"quantization_config", "{\"quant_method\":\"fp8\"}", KEEL_UNSUPPORTED},
        {"quantization_config", "7", KEEL_UNSUPPORTED},
        {"torch_dtype", "\"int8\"", KEEL_UNSUPPORTED},
        {"dtype", "16", KEEL_FORMAT},
        {"partial_rotary_factor", "0.5", KEEL_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *words = strcmp(bad[i].value, "17") ? bad[i].key : "head";
        refused(with(llama_text, bad[i].key, bad[i].value), bad[i].status, words);
    }
    refused(with(qwen3_text, "use_sliding_window", "true"), KEEL_UNSUPPORTED, "\"sliding_window\" is 4096");
    json_t *c = with(llama_text, "head_dim", NULL);
    json_object_set_new(c, "hidden_size", json_integer(50));
    refused(c, KEEL_RANGE, "\"hidden_size\", 50");
}

/* The largest sizes that are let through stay cheap: a graph holds shapes, never the weights. */
static void limits(void **state) {
    (void)state;
    json_t *c = with(llama_text, "num_hidden_layers", "1024");
    json_object_set_new(c, "hidden_size", json_integer(1 << 24));
    json_object_set_new(c, "intermediate_size", json_integer(1 << 24));
    json_object_set_new(c, "vocab_size", json_integer(1 << 24));
    graph *g = built(c, NULL);
    assert_int_equal(g->n_ops, OUTER_OPS + 1024 * LAYER_OPS);
    assert_int_equal(graph_elements(weight_of(g, "lm_head", 0)), (int64_t)1 << 48);
    graph_close(g);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    json_t *c = with(qwen3_text, NULL, NULL);
    for (uint64_t n = 1;; n++) {
        graph *g = NULL;
        keel_error err = KEEL_ERROR_INITIALIZER;
        mem_fail_after(n);
        keel_status s = model_build(c, "config.json", NULL, &g, &err);
        mem_fail_after(0);
        if (s == KEEL_OK) {
            assert_true(n > 5);
            graph_close(g);
            break;
        }
        assert_int_equal(s, KEEL_NOMEM);
        assert_null(g);
    }
    json_decref(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_match_reference),
        cmocka_unit_test(wiring),
        cmocka_unit_test(shard_rules),
        cmocka_unit_test(heads_and_dtypes),
        cmocka_unit_test(rope_reaches_the_graph),
        cmocka_unit_test(slices),
        cmocka_unit_test(refuses_architectures),
        cmocka_unit_test(refuses_values),
        cmocka_unit_test(limits),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
