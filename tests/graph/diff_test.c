/* SPDX-License-Identifier: Apache-2.0 */
/* What two graphs differ in: lines against lines written by hand; and no difference means equal canonical text (but for
 * defaults), over random changes of that text. */
#include "graph/graph_diff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "graph/graph_cases.h"

enum { RANDOM_CHANGES = 3000 };

static graph *read_text(const char *text) {
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    case_ok(graph_json_read("x.json", text, strlen(text), NULL, &g, &err), &err);
    return g;
}

/* The text with the first `from` behind `after` replaced. */
static char *changed(const char *text, const char *after, const char *from, const char *to) {
    const char *at = strstr(text, after);
    assert_non_null(at);
    at = strstr(at, from);
    assert_non_null(at);
    buf b = {0};
    buf_put(&b, text, (size_t)(at - text));
    buf_str(&b, to);
    buf_str(&b, at + strlen(from));
    return buf_take(&b);
}

static char *differences(const graph *a, const graph *b, size_t *n) {
    buf out = {0};
    keel_error err = KEEL_ERROR_INITIALIZER;
    case_ok(graph_diff(a, b, &out, n, &err), &err);
    return buf_take(&out);
}

static void test_lines(void **state) {
    static const struct {
        const char *after, *from, *to, *expected;
    } cases[] = {
        {"{", "LlamaForCausalLM", "Other", "~ graph: architecture LlamaForCausalLM -> Other\n"},
        {"{", "\"max_position\": 2048", "\"max_position\": 77", "~ graph: max_position 2048 -> 77\n"},
        {"\"l0.attn.norm\"", "1e-05", "2e-05", "~ op l0.attn.norm: eps 1e-05 -> 2e-05\n"},
        {"\"name\": \"l0.attn.q_proj\"", "\"shard\": \"col\"", "\"shard\": \"rep\"",
         "~ op l0.attn.q_proj: weight w model.layers.0.self_attn.q_proj.weight[96,96]bf16 shard=col(dim=0) -> "
         "model.layers.0.self_attn.q_proj.weight[96,96]bf16 shard=rep(dim=0)\n"},
        {"\"name\": \"l0.attn.o_proj\"", "\"residual\": \"embed\"", "\"residual\": \"l0.attn.norm\"",
         "~ op l0.attn.o_proj: input residual embed -> l0.attn.norm\n"},
        {"\"name\": \"l0.mlp.act\"",
         "\"kind\": \"silu_mul\", \"layer\": 0, \"in\": {\"gate\": \"l0.mlp.gate_proj\", \"up\"",
         "\"kind\": \"add\", \"layer\": 0, \"in\": {\"a\": \"l0.mlp.gate_proj\", \"b\"",
         "~ op l0.mlp.act: kind silu_mul -> add\n"},
        {"\"name\": \"l0.mlp.act\"", "\"attrs\": {}", "\"attrs\": {}, \"notes\": \"fused\"",
         "~ op l0.mlp.act: notes none -> fused\n"},
    };
    (void)state;
    graph *g = case_geometry("tiny-llama", -1, false);
    char *text = case_json(g);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *other = changed(text, cases[i].after, cases[i].from, cases[i].to), *lines;
        graph *b = read_text(other);
        size_t n = 0;
        lines = differences(g, b, &n);
        assert_string_equal(lines, cases[i].expected);
        assert_int_equal(n, 1);
        keel_free(lines);
        keel_free(other);
        graph_close(b);
    }
    keel_free(text);
    graph_close(g);
}

/* Ops and sources that only one of two graphs has. */
static void test_alone(void **state) {
    (void)state;
    graph *a = case_two_kinds(2, 0), *b = case_two_kinds(1, 1);
    size_t n = 0;
    char *lines = differences(a, b, &n);
    assert_string_equal(lines, "~ op l1.down: input x l1.up -> l1.mix\n+ op l1.mix (add)\n");
    assert_int_equal(n, 2);
    keel_free(lines);
    lines = differences(b, a, &n);
    assert_string_equal(lines, "- op l1.mix (add)\n~ op l1.down: input x l1.mix -> l1.up\n");
    keel_free(lines);
    graph_close(a);
    graph_close(b);
    a = case_geometry("tiny-llama", 0, false), b = case_geometry("tiny-llama", 1, false);
    lines = differences(a, b, &n);
    assert_non_null(strstr(lines, "~ graph: n_layers 1 -> 2\n"));
    assert_non_null(strstr(lines, "+ cache l1.attn.cache_k\n+ cache l1.attn.cache_v\n"));
    assert_non_null(strstr(lines, "+ op l1.mlp.down_proj (linear_residual)\n"));
    assert_non_null(strstr(lines, "~ op final.norm: input x l0.mlp.down_proj -> l1.mlp.down_proj\n"));
    keel_free(lines);
    graph_close(a);
    graph_close(b);
}

/* A digit or a word of the text becomes another one. */
static char *random_change(const char *text, uint32_t *state) {
    static const char *const words[][2] = {
        {"\"col\"", "\"row\""}, {"\"rep\"", "\"col\""}, {"linear\"", "linear_residual\""},
        {"bf16", "f16"},        {"\"l0.", "\"l1."},     {"gate", "up"},
        {"argmax", "sample"}};
    char *copy = strdup(text);
    size_t bytes = strlen(copy), at = case_random(state, (uint32_t)bytes);
    if (case_random(state, 2)) {
        while (at < bytes && (copy[at] < '0' || copy[at] > '9')) at++;
        if (at < bytes) copy[at] = (char)('0' + case_random(state, 10));
        return copy;
    }
    const char *const *pair = words[case_random(state, sizeof words / sizeof *words)];
    const char *found = strstr(copy + at, pair[0]);
    if (!found) return copy;
    buf b = {0};
    buf_put(&b, copy, (size_t)(found - copy));
    buf_str(&b, pair[1]);
    buf_str(&b, found + strlen(pair[0]));
    free(copy);
    return buf_take(&b);
}

static void test_equal_means_equal(void **state) {
    (void)state;
    uint32_t random = 12345;
    graph *a = case_geometry("tiny-qwen3", 1, false);
    char *text = case_json(a);
    int read = 0, other = 0;
    for (int i = 0; i < RANDOM_CHANGES; i++) {
        char *change = random_change(text, &random), *json, *lines;
        graph *b = NULL;
        if (graph_json_read("x.json", change, strlen(change), NULL, &b, NULL) == KEEL_OK) {
            size_t n = 0, newlines = 0;
            lines = differences(a, b, &n);
            json = case_json(b);
            for (const char *c = lines; *c; c++) newlines += *c == '\n';
            if ((n == 0) != (strcmp(json, text) == 0))
                fail_msg("change %d: %zu differences:\n%s%s", i, n, lines, change);
            assert_int_equal(n, newlines);
            read++;
            other += n > 0;
            keel_free(json);
            keel_free(lines);
            graph_close(b);
        }
        free(change);
    }
    assert_true(read > 100 && other > 50);
    keel_free(text);
    graph_close(a);
}

/* An attribute left at its default is the same as one that is written so; the texts stay what they are. */
static void test_defaults(void **state) {
    static const struct {
        const char *from, *to, *expected;
    } cases[] = {
        {"\"attention_factor\": 1", "", ""},
        {"\"attention_factor\": 1", "\"attention_factor\": 2", "~ op rope: attention_factor 1 -> 2\n"},
        {", \"scale\": 0.25", "", ""},
        {"\"scale\": 0.25", "\"scale\": 0", ""},
        {"\"scale\": 0.25", "\"scale\": 0.5", "~ op l0.attn: scale 0.25 -> 0.5\n"},
    };
    (void)state;
    graph *g = case_geometry("tiny-llama", -1, false);
    char *text = case_json(g);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *other = changed(text, "{", cases[i].from, cases[i].to);
        graph *b = read_text(other);
        size_t n = 0;
        char *lines = differences(g, b, &n), *again = case_json(b);
        assert_string_equal(lines, cases[i].expected);
        assert_int_equal(n, *cases[i].expected != '\0');
        assert_string_equal(again, other);
        keel_free(lines);
        keel_free(again);
        keel_free(other);
        graph_close(b);
    }
    keel_free(text);
    graph_close(g);
}

/* Two ops that do not read each other may change places: another order of execution. */
static void test_order(void **state) {
    (void)state;
    graph *a = case_geometry("tiny-llama", 0, false);
    char *text = case_json(a);
    const char *k = strstr(text, "    {\"name\": \"l0.attn.k_proj\""),
               *v = strstr(text, "    {\"name\": \"l0.attn.v_proj\"");
    const char *end = strchr(v, '\n') + 1;
    buf swapped = {0};
    buf_put(&swapped, text, (size_t)(k - text));
    buf_put(&swapped, v, (size_t)(end - v));
    buf_put(&swapped, k, (size_t)(v - k));
    buf_str(&swapped, end);
    graph *b = read_text((const char *)swapped.data);
    size_t n = 0;
    char *lines = differences(a, b, &n);
    assert_string_equal(lines, "~ order: after l0.attn.q_proj comes l0.attn.k_proj -> l0.attn.v_proj\n");
    keel_free(lines);
    keel_free(text);
    buf_free(&swapped);
    graph_close(a);
    graph_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines), cmocka_unit_test(test_alone),
                                       cmocka_unit_test(test_defaults), cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_equal_means_equal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
