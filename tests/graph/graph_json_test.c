/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* A graph as JSON: the bytes of a small one against a text written by hand, the round trip of every geometry down to
 * the plan, and what is said of text that is no graph. */
#include "core/mem.h"
#include "graph/graph_text.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "graph/graph_cases.h"

/* Two layers with a constant of each odd kind, a cache, biases, notes, an attribute in another order than declared. */
static const char small_text[] =
    "{\n"
    "  \"keel_graph\": 1,\n"
    "  \"architecture\": \"Small \\\"quoted\\\"\",\n"
    "  \"vocab\": 8, \"hidden\": 4, \"max_position\": 0,\n"
    "  \"n_layers\": 2, \"layer_first\": 5, \"sampling\": false,\n"
    "  \"logits\": \"head\",\n"
    "  \"inputs\": [\n"
    "    {\"name\": \"x\", \"dims\": [\"M\", 4], \"dtype\": \"act\"}\n"
    "  ],\n"
    "  \"consts\": [\n"
    "    {\"name\": \"freq\", \"dims\": [2], \"dtype\": \"f32\", \"values\": [-0.0, 0.1]}\n"
    "  ],\n"
    "  \"caches\": [],\n"
    "  \"ops\": [\n"
    "    {\"name\": \"rope\", \"kind\": \"rope_table\", \"layer\": -1, \"in\": {\"inv_freq\": \"freq\"}, \"weights\": "
    "{}, "
    "\"attrs\": {}, \"out\": [{\"name\": \"rope\", \"dims\": [\"M\", 4], \"dtype\": \"act\"}]},\n"
    "    {\"name\": \"l5.norm\", \"kind\": \"rmsnorm\", \"layer\": 5, \"in\": {\"x\": \"x\"}, \"weights\": {\"scale\": "
    "{\"key\": \"n\", \"dims\": [4], \"dtype\": \"f32\", \"shard\": \"rep\", \"shard_dim\": 0}}, \"attrs\": {\"eps\": "
    "1e-06, \"logit_rows\": 1}, \"out\": [{\"name\": \"l5.norm\", \"dims\": [\"M_logit\", 4], \"dtype\": \"act\"}], "
    "\"notes\": \"fused-candidate a=b\"},\n"
    "    {\"name\": \"l6.up\", \"kind\": \"linear\", \"layer\": 6, \"in\": {\"x\": \"l5.norm\"}, \"weights\": {\"w\": "
    "{\"key\": \"u\", \"dims\": [8, 4], \"dtype\": \"bf16\", \"shard\": \"col\", \"shard_dim\": 0}, \"bias\": "
    "{\"key\": "
    "\"b\", \"dims\": [8], \"dtype\": \"f16\", \"shard\": \"col\", \"shard_dim\": 0}}, \"attrs\": {}, \"out\": "
    "[{\"name\": \"l6.up\", \"dims\": [\"M_logit\", 8], \"dtype\": \"act\"}]},\n"
    "    {\"name\": \"l6.both\", \"kind\": \"add\", \"layer\": 6, \"in\": {\"a\": \"l6.up\", \"b\": \"l6.up\"}, "
    "\"weights\": {}, \"attrs\": {}, \"out\": [{\"name\": \"l6.both\", \"dims\": [\"M_logit\", 8], \"dtype\": "
    "\"act\"}]},\n"
    "    {\"name\": \"head\", \"kind\": \"linear\", \"layer\": -1, \"in\": {\"x\": \"l6.both\"}, \"weights\": {\"w\": "
    "{\"key\": \"h\", \"dims\": [8, 8], \"dtype\": \"bf16\", \"shard\": \"row\", \"shard_dim\": 1}}, \"attrs\": {}, "
    "\"out\": [{\"name\": \"head\", \"dims\": [\"M_logit\", 8], \"dtype\": \"act\"}]},\n"
    "    {\"name\": \"argmax\", \"kind\": \"argmax\", \"layer\": -1, \"in\": {\"logits\": \"head\"}, \"weights\": {}, "
    "\"attrs\": {}, \"out\": []}\n"
    "  ]\n"
    "}\n";

static graph *small_graph(void) {
    build b;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    float freq[2] = {-0.0f, 0.1f};
    case_ok(build_begin(&b, "small", "Small \"quoted\"", DTYPE_BF16, &err), &err);
    b.g->vocab = 8, b.g->hidden = 4, b.g->n_layers = 2, b.g->layer_first = 5;
    op_spec rope = {.kind = "rope_table", .name = "rope", .in = {build_const(&b, "freq", freq, 2)}};
    build_op(&b, rope);
    int x = build_input(&b, "x", 4);
    b.layer = 5;
    op_spec norm = {.kind = "rmsnorm", .name = "norm", .in = {x}, .weight = {{"n", {4}, SHARD_REP, 0}}};
    norm.attr[0] = (graph_attr){"logit_rows", 1}, norm.attr[1] = (graph_attr){"eps", 1e-6};
    norm.notes = "fused-candidate a=b";
    norm.typed = true, norm.weight_dtype[0] = DTYPE_F32;
    x = build_op(&b, norm);
    b.layer = 6;
    op_spec up = {.kind = "linear", .name = "up", .in = {x}};
    up.weight[0] = (weight_spec){"u", {8, 4}, SHARD_COL, 0}, up.weight[1] = (weight_spec){"b", {8}, SHARD_COL, 0};
    up.typed = true, up.weight_dtype[0] = DTYPE_BF16, up.weight_dtype[1] = DTYPE_F16;
    x = build_op(&b, up);
    x = build_op(&b, (op_spec){.kind = "add", .name = "both", .in = {x, x}});
    b.layer = -1;
    op_spec head = {.kind = "linear", .name = "head", .in = {x}, .weight = {{"h", {8, 8}, SHARD_ROW, 1}}};
    build_tail(&b, build_op(&b, head), false);
    case_ok(build_finish(&b, &g), &err);
    return g;
}

static graph *read_text(const char *text, bool sample) {
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    graph_json_options o = {.sample = sample};
    case_ok(graph_json_read("x.json", text, strlen(text), &o, &g, &err), &err);
    return g;
}

static void test_bytes(void **state) {
    (void)state;
    graph *g = small_graph(), *back;
    char *text = case_json(g);
    assert_string_equal(text, small_text);
    keel_free(text);
    back = read_text(small_text, false);
    case_equal("small", g, back, false);
    /* the parts that JSON text alone does not show */
    assert_int_equal(back->n_tensors, g->n_tensors);
    const graph_op *norm = &back->ops[2];
    assert_string_equal(norm->notes, "fused-candidate a=b");
    assert_int_equal(norm->layer, 5);
    assert_true(back->logits == back->ops[back->n_ops - 1].in[0] && !back->sampling);
    graph_close(back);
    graph_close(g);
}

/* White space, the order of keys and what may be left out do not count. */
static void test_spelling(void **state) {
    static const char loose[] =
        " {\"ops\":[{\"kind\":\"rmsnorm\",\"in\":{\"x\":\"x\"},\"name\":\"l5.norm\",\"weights\":{\"scale\":{\"dtype\":"
        "\"F32\",\"dims\":[4],\"key\":\"n\"}},\"attrs\":{\"logit_rows\":1.0,\"eps\":0.000001}}],\"layer_first\":5,"
        "\"n_layers\":1,\"max_position\":0,\"hidden\":4,\"vocab\":0,\"architecture\":\"Small\",\"inputs\":[{\"name\":"
        "\"x\",\"dims\":[\"M\",4],\"dtype\":\"Act\"}],\"keel_graph\":1}";
    (void)state;
    graph *g = read_text(loose, false);
    char *text = case_json(g);
    graph *back = read_text(text, false);
    case_equal("loose", g, back, false);
    assert_int_equal(g->n_ops, 2);
    assert_true(g->ops[1].attr[0].value == 1e-6);
    keel_free(text);
    graph_close(back);
    graph_close(g);
}

static void round_trip(const char *name, const graph *g, bool small) {
    char *text = case_json(g);
    graph *back = read_text(text, false);
    case_equal(name, g, back, small);
    keel_free(text);
    graph_close(back);
}

static void test_models(void **state) {
    (void)state;
    case_each(round_trip);
    for (uint32_t seed = 1000; seed < 1100; seed++) {
        char name[32];
        snprintf(name, sizeof name, "seed %u", seed);
        graph *g = case_random_graph(seed);
        round_trip(name, g, false);
        graph_close(g);
    }
}

/* With `sample` a file that ends in argmax is the graph that the builder makes for sampling. */
static void test_sampling(void **state) {
    (void)state;
    graph *greedy = case_geometry("tiny-llama", -1, false), *drawn = case_geometry("tiny-llama", -1, true);
    char *text = case_json(greedy);
    graph *back = read_text(text, true);
    case_equal("sampling", drawn, back, true);
    keel_free(text);
    text = case_json(drawn);
    graph *stays = read_text(text, false);
    case_equal("stays", drawn, stays, true);
    keel_free(text);
    graph_close(stays);
    graph_close(back);
    graph_close(drawn);
    graph_close(greedy);
}

/* Numbers as they stand and as they must come back. */
static void test_numbers(void **state) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {{1e-6, "1e-06"},
                 {0.1, "0.1"},
                 {16, "16"},
                 {1.0 / 3, "0.3333333333333333"},
                 {DBL_MAX, "1.7976931348623157e+308"},
                 {DBL_TRUE_MIN, "5e-324"},
                 {0.08838834764831845, "0.08838834764831845"},
                 {123456789012345680.0, "1.2345678901234568e+17"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[GRAPH_TEXT_BYTES];
        graph_text_real(text, cases[i].value);
        assert_string_equal(text, cases[i].text);
    }
}

/* The small text with `from` replaced by `to`. */
static char *changed(const char *from, const char *to) {
    const char *at = strstr(small_text, from);
    buf b = {0};
    if (!at) fail_msg("the text has no %s", from);
    buf_put(&b, small_text, (size_t)(at - small_text));
    buf_str(&b, to);
    buf_str(&b, at + strlen(from));
    return buf_take(&b);
}

static void test_malformed(void **state) {
    static const struct {
        const char *from, *to, *expected;
        keel_status status;
    } cases[] = {
        {"{\n  \"keel_graph\"", "[", "not valid JSON", KEEL_FORMAT},
        {"\"keel_graph\": 1", "\"other\": 1", "is no graph", KEEL_FORMAT},
        {"\"keel_graph\": 1", "\"keel_graph\": 2", "this build reads version 1", KEEL_UNSUPPORTED},
        {"\"keel_graph\": 1", "\"keel_graph\": 1, \"tp\": 2", "graph of one rank", KEEL_UNSUPPORTED},
        {"\"vocab\": 8", "\"vocab\": 9", "\"vocab\" is 9, but head has 8 columns", KEEL_FORMAT},
        {"\"vocab\": 8", "\"vocab\": -1", "vocab must be a whole number", KEEL_FORMAT},
        {"\"vocab\": 8", "\"vocab\": \"8\"", "vocab must be a whole number", KEEL_FORMAT},
        {"\"n_layers\": 2", "\"n_layers\": 1", "op l6.up: its layer is outside", KEEL_FORMAT},
        {"\"n_layers\": 2", "\"n_layers\": 3", "the ops are in 2 from 5 on", KEEL_FORMAT},
        {"\"n_layers\": 2, \"layer_first\": 5", "\"n_layers\": 3, \"layer_first\": 4", "the ops are in 2 from 5 on",
         KEEL_FORMAT},
        {"\"sampling\": false", "\"sampling\": true", "\"sampling\" is not", KEEL_FORMAT},
        {"\"logits\": \"head\"", "\"logits\": \"rope\"", "\"logits\" is rope", KEEL_FORMAT},
        {"\"hidden\": 4", "\"hidden\": 4, \"colour\": 1", "unknown key \"colour\"", KEEL_FORMAT},
        {"\"rope_table\"", "\"ropetable\"", "kind \"ropetable\" is unknown; known kinds: step_begin", KEEL_UNSUPPORTED},
        {"{\"inv_freq\": \"freq\"}", "{\"x\": \"freq\"}", "op rope: kind rope_table has no slot \"x\"", KEEL_FORMAT},
        {"{\"inv_freq\": \"freq\"}", "{}", "takes 1 to 1 inputs, got 0", KEEL_FORMAT},
        {"{\"inv_freq\": \"freq\"}", "[\"freq\"]", "must be an object of slots", KEEL_FORMAT},
        {"{\"x\": \"l5.norm\"}", "{\"x\": \"l6.norm\"}", "op l6.up: reads l6.norm, which no op before it", KEEL_FORMAT},
        {"{\"x\": \"l5.norm\"}", "{\"x\": \"l6.both\"}", "op l6.up: reads l6.both, which no op before it", KEEL_FORMAT},
        {"{\"x\": \"l5.norm\"}", "{\"x\": 3}", "must be the name of a tensor", KEEL_FORMAT},
        {"\"name\": \"l6.both\"", "\"name\": \"l6.up\"", "op l6.up (add): the name is taken", KEEL_FORMAT},
        {"\"name\": \"l6.both\"", "\"name\": \"l7.both\"", "\"layer\" is 6, but the name says 7", KEEL_FORMAT},
        {"\"name\": \"l6.both\"", "\"name\": \"both\"", "\"layer\" is 6, but the name says -1", KEEL_FORMAT},
        {"\"name\": \"l6.both\"", "\"name\": \"l6.\\u0007both\"", "without control characters", KEEL_FORMAT},
        {"\"name\": \"l6.both\"", "\"title\": \"l6.both\"", "op number 3 of \"ops\"", KEEL_FORMAT},
        {"[4], \"dtype\": \"f32\"", "[5], \"dtype\": \"f32\"", "l5.norm", KEEL_FORMAT},
        {"[4], \"dtype\": \"f32\"", "[0], \"dtype\": \"f32\"", "op l5.norm: a dimension", KEEL_FORMAT},
        {"[4], \"dtype\": \"f32\"", "[\"M\"], \"dtype\": \"f32\"", "its dimensions must be numbers", KEEL_FORMAT},
        {"[4], \"dtype\": \"f32\"", "[4], \"dtype\": \"f33\"", "\"dtype\" of n", KEEL_FORMAT},
        {"[4], \"dtype\": \"f32\"", "[4], \"dtype\": \"act\"", "weight n: its dtype", KEEL_FORMAT},
        {"\"shard\": \"col\"", "\"shard\": \"column\"", "\"shard\" of u must be rep, col, row or ep", KEEL_FORMAT},
        {"\"shard_dim\": 0}, \"bias\"", "\"shard_dim\": 2}, \"bias\"", "\"shard_dim\" must be", KEEL_FORMAT},
        {"\"eps\": 1e-06", "\"eps\": \"1e-06\"", "op l5.norm: attribute \"eps\" must be a number", KEEL_FORMAT},
        {"\"eps\": 1e-06, ", "", "op l5.norm (rmsnorm): needs the attribute \"eps\"", KEEL_FORMAT},
        {"\"eps\": 1e-06", "\"eps\": 1e-06, \"size\": 1", "has no attribute \"size\"", KEEL_FORMAT},
        {"[\"M_logit\", 8], \"dtype\": \"act\"}]},\n    {\"name\": \"l6.both\"",
         "[\"M\", 8], \"dtype\": \"act\"}]},\n    {\"name\": \"l6.both\"",
         "output l6.up is [M_logit,8]act by the op's shape rule, but the file says [M,8]act", KEEL_FORMAT},
        {"[-0.0, 0.1]", "[0.1]", "constant freq must have", KEEL_FORMAT},
        {"[-0.0, 0.1]", "[1, \"nan\"]", "constant freq: value 1 is not a number", KEEL_FORMAT},
        {"[-0.0, 0.1]", "[1, 1e60]", "constant freq: value 1 is not a number", KEEL_FORMAT},
        {"\"dims\": [\"M\", 4], \"dtype\": \"act\"}\n  ]", "\"dims\": [4], \"dtype\": \"act\"}\n  ]",
         "x must be an input", KEEL_FORMAT},
        {"\"caches\": []", "\"caches\": [{\"name\": \"x\"}]", "two tensors are named x", KEEL_FORMAT},
        {"\"caches\": []", "\"caches\": 3", "\"caches\" must be a list", KEEL_FORMAT},
        {"\"caches\": []", "\"caches\": [7]", "op caches: \"name\" must be", KEEL_FORMAT},
        {"\"kind\": \"add\"", "\"kind\": \"add\", \"kind\": \"add\"", "duplicate", KEEL_FORMAT},
        {"\"kind\": \"add\"", "\"kind\": \"add\", \"note\": \"x\"", "unknown key \"note\"", KEEL_FORMAT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = changed(cases[i].from, cases[i].to);
        graph *g = NULL;
        keel_error err = KEEL_ERROR_INITIALIZER;
        keel_status s = graph_json_read("x.json", text, strlen(text), NULL, &g, &err);
        if (s != cases[i].status || g || !strstr(err.detail, cases[i].expected) ||
            strncmp(err.detail, "x.json", 6) != 0) {
            fail_msg("%s for %s: %s: %s, expected %s", cases[i].to, cases[i].from, keel_status_name(s), err.detail,
                     cases[i].expected);
        }
        keel_free(text);
    }
}

static void test_short_memory(void **state) {
    (void)state;
    graph *g = small_graph(), *back = NULL;
    keel_status s = KEEL_NOMEM;
    for (uint64_t n = 1; n < 1000 && s != KEEL_OK; n++) {
        keel_error err = KEEL_ERROR_INITIALIZER;
        mem_fail_after(n);
        s = graph_json_read("x.json", small_text, strlen(small_text), NULL, &back, &err);
        mem_fail_after(0);
        if (s != KEEL_OK) assert_int_equal(s, KEEL_NOMEM);
    }
    assert_int_equal(s, KEEL_OK);
    graph_close(back);
    bool whole = false;
    for (uint64_t n = 1; n < 100 && !whole; n++) {
        buf b = {0};
        mem_fail_after(n);
        graph_json_write(g, &b);
        mem_fail_after(0);
        whole = !b.failed;
        buf_free(&b);
    }
    assert_true(whole);
    graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),        cmocka_unit_test(test_spelling), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_models),       cmocka_unit_test(test_sampling), cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_short_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
