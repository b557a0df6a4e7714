/* SPDX-License-Identifier: Apache-2.0 */
/* The views: JSON that a parser reads back to the plan, and the table for people. */
#include "plan/toy.h"

#include "core/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static json_t *parsed(const plan *p) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    buf b = {0};
    json_t *root = NULL;
    assert_int_equal(plan_json(p, &b, &err), KEEL_OK);
    if (json_parse("plan.json", (const char *)b.data, b.len, &root, &err) != KEEL_OK) fail_msg("%s", err.detail);
    buf_free(&b);
    return root;
}

static int64_t number(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_integer(v)) fail_msg("%s is not a number", key);
    return json_integer_value(v);
}

static const char *string(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_string(v)) fail_msg("%s is not a string", key);
    return json_string_value(v);
}

static const json_t *array(const json_t *object, const char *key, size_t n) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_array(v) || json_array_size(v) != n) fail_msg("%s is not an array of %zu", key, n);
    return v;
}

static void check_task(const plan *p, const json_t *tasks, uint32_t i) {
    const json_t *t = json_array_get(tasks, i);
    const kp_task *k = &p->tasks[i];
    const plan_instance *n = &p->instances[k->instance];
    assert_int_equal(number(t, "id"), i);
    assert_string_equal(string(t, "op"), n->op->name);
    assert_string_equal(string(t, "phase"), n->op->phases[p->bodies[k->body].phase].name);
    assert_string_equal(string(t, "instance"), n->name);
    assert_int_equal(number(t, "layer"), n->layer);
    assert_int_equal(number(t, "lo"), k->lo);
    assert_int_equal(number(t, "hi"), k->hi);
    assert_int_equal(number(t, "bytes"), (int64_t)(p->costs[i].weight_bytes + p->costs[i].other_bytes));
    assert_int_equal(number(t, "flops"), (int64_t)p->costs[i].flops);
    const json_t *waits = array(t, "waits", k->n_waits), *pages = array(t, "pages", k->n_spans);
    for (uint32_t w = 0; w < k->n_waits; w++)
        assert_int_equal(json_integer_value(json_array_get(waits, w)), p->waits[k->wait_first + w]);
    for (uint32_t s = 0; s < k->n_spans; s++) {
        assert_int_equal(number(json_array_get(pages, s), "first"), k->span[s].first_page);
        assert_int_equal(number(json_array_get(pages, s), "count"), k->span[s].n_pages);
        assert_string_equal(string(json_array_get(pages, s), "release"),
                            k->span[s].release_role == KP_CONSUMER ? "consumer" : "storer");
    }
    if (k->trigger == KP_NONE)
        assert_true(json_is_null(json_object_get(t, "trigger")));
    else
        assert_int_equal(number(t, "trigger"), k->trigger);
}

static void json_says_what_the_plan_says(void **state) {
    (void)state;
    for (int i = 0; i < TOY_SEEDS; i++) {
        plan *p = toy_seed(i);
        json_t *root = parsed(p);
        assert_string_equal(string(root, "arch"), p->arch);
        assert_int_equal(number(root, "workers"), p->workers);
        array(root, "levers", 0);
        const json_t *tasks = array(root, "tasks", p->n_tasks), *queues = array(root, "queues", p->workers);
        for (uint32_t t = 0; t < p->n_tasks; t++) check_task(p, tasks, t);
        for (uint32_t w = 0; w < p->workers; w++) {
            const json_t *queue = json_array_get(queues, w);
            assert_int_equal(json_array_size(queue), p->queue_first[w + 1] - p->queue_first[w]);
            for (uint32_t k = 0; k < json_array_size(queue); k++) {
                json_int_t task = json_integer_value(json_array_get(queue, k));
                assert_int_equal(task, p->queue[p->queue_first[w] + k]);
                assert_int_equal(number(json_array_get(tasks, (size_t)task), "worker"), w);
            }
        }
        const json_t *events = array(root, "events", p->n_events);
        for (uint32_t e = 0; e < p->n_events; e++) {
            assert_int_equal(number(json_array_get(events, e), "id"), e);
            assert_int_equal(number(json_array_get(events, e), "triggers"), p->events[e].triggers);
        }
        assert_int_equal(number(json_object_get(root, "pages"), "count"), p->n_pages);
        assert_int_equal(number(json_object_get(root, "pages"), "bytes"), p->page_bytes);
        const json_t *buffers = array(root, "buffers", p->n_buffers);
        for (uint32_t k = 0; k < p->n_buffers; k++) {
            assert_string_equal(string(json_array_get(buffers, k), "name"), p->buffers[k].name);
            assert_string_equal(string(json_array_get(buffers, k), "kind"), buffer_kind_name(p->buffers[k].kind));
            assert_int_equal(number(json_array_get(buffers, k), "bytes"), (int64_t)p->buffers[k].bytes);
        }
        const json_t *instances = array(root, "instances", p->n_instances);
        for (uint32_t k = 0; k < p->n_instances; k++) {
            const json_t *n = json_array_get(instances, k), *attrs = json_object_get(n, "attrs");
            const plan_instance *is = &p->instances[k];
            assert_string_equal(string(n, "name"), is->name);
            assert_int_equal(json_object_size(attrs), is->n_attrs);
            for (uint32_t a = is->attr_first; a < is->attr_first + is->n_attrs; a++)
                assert_true(json_number_value(json_object_get(attrs, p->attrs[a].name)) == p->attrs[a].value);
            const json_t *slots = array(n, "buffers", KP_BUFFERS);
            for (size_t b = 0; b < KP_BUFFERS; b++) {
                const json_t *slot = json_array_get(slots, b);
                if (is->buffer[b] == KP_NONE)
                    assert_true(json_is_null(slot));
                else
                    assert_int_equal(json_integer_value(slot), is->buffer[b]);
            }
        }
        json_decref(root);
        plan_close(p);
    }
}

/* Rank 3 of 4, with a buffer that the other ranks read. */
static plan *rank_plan(void) {
    plan *p = toy_seed(2);
    plan_buffer *b = &p->buffers[p->logits];
    p->tp = 4, p->ep = 2, p->rank = 3, p->vocab_parallel = true;
    b->kind = BUFFER_SYMMETRIC, b->offset = 512, p->symmetric_bytes = 4096;
    p->events[1].ranks = true;
    return p;
}

static void json_tells_of_ranks(void **state) {
    (void)state;
    plan *p = rank_plan();
    json_t *root = parsed(p);
    assert_int_equal(number(root, "tp"), 4);
    assert_int_equal(number(root, "ep"), 2);
    assert_int_equal(number(root, "rank"), 3);
    assert_true(json_is_true(json_object_get(root, "vocab_parallel")));
    assert_int_equal(number(root, "symmetric_bytes"), 4096);
    const json_t *b = json_array_get(json_object_get(root, "buffers"), p->logits);
    assert_string_equal(string(b, "kind"), "symmetric");
    assert_int_equal(number(b, "offset"), 512);
    assert_string_equal(string(b, "rows"), "M");
    const json_t *events = json_object_get(root, "events");
    assert_true(json_is_true(json_object_get(json_array_get(events, 1), "ranks")));
    assert_null(json_object_get(json_array_get(events, 0), "ranks"));
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (p->buffers[i].kind != BUFFER_WEIGHT) continue;
        b = json_array_get(json_object_get(root, "buffers"), i);
        assert_string_equal(string(b, "shard"), p->buffers[i].shard == SHARD_COL ? "col" : "rep");
        assert_int_equal(number(b, "shard_dim"), p->buffers[i].shard_dim);
    }
    json_decref(root);
    plan_close(p);
}

static void json_escapes_any_name(void **state) {
    (void)state;
    static const char *const names[][2] = {{"a\"b\\c/d", "a\"b\\c/d"},
                                           {"tab\tline\nbell\a", "tab\tline\nbell\a"},
                                           {"Größe ∑ 𝄞", "Größe ∑ 𝄞"},
                                           {"cut \xe2\x88", "cut \xef\xbf\xbd\xef\xbf\xbd"},
                                           {"\x7f", "\x7f"}};
    plan *p = toy_seed(0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        p->buffers[0].name = names[i][0];
        json_t *root = parsed(p);
        assert_string_equal(string(json_array_get(json_object_get(root, "buffers"), 0), "name"), names[i][1]);
        json_decref(root);
    }
    plan_close(p);
}

static char *shown(const plan *p) {
    buf b = {0};
    plan_show(p, &b);
    char *text = buf_take(&b);
    assert_non_null(text);
    return text;
}

static void expect(const char *text, const char *words) {
    if (!strstr(text, words)) fail_msg("\"%s\" is not in:\n%s", words, text);
}

static void people_see_layers_once(void **state) {
    (void)state;
    graph *g = toy_decoder(36, 8, 2);
    plan *p = toy_plan(g, &(plan_options){.workers = 3, .m_max = 2, .max_seq = 64});
    char *text = shown(p);
    expect(text, "plan for cpu: ToyForCausalLM, layers 0-35, vocab 16, hidden 8, argmax\n");
    expect(text, "3 workers, 2 rows a pass, 64 positions, KV pages of 64 tokens\n");
    expect(text, "levers: none\n");
    expect(text, ": each the same tasks, waits and costs as layer ");
    expect(text, "l0.attn");
    assert_null(strstr(text, "l30.attn"));
    expect(text, "split.merge");
    expect(text, "model.layers.*.proj.weight");
    expect(text, "x36");
    expect(text, "shared with");
    size_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
    assert_in_range(lines, 20, 80);
    keel_free(text);
    plan_close(p);
    graph_close(g);
}

static void people_see_ranks(void **state) {
    (void)state;
    plan *p = rank_plan();
    char *text = shown(p);
    expect(text, "rank 3 of 4 in 2 expert groups, vocab-parallel head, 4.1 kB of symmetric memory\n");
    expect(text, " events (1 of them on all ranks), ");
    expect(text, "symmetric: 1, ");
    expect(text, " col(dim=0)\n");
    keel_free(text);
    plan_close(p);
    p = toy_seed(2);
    text = shown(p);
    assert_null(strstr(text, "rank "));
    assert_null(strstr(text, "symmetric"));
    keel_free(text);
    plan_close(p);
}

/* A layer folds only when it is the same to the last detail. */
static void a_layer_that_differs_is_shown(void **state) {
    (void)state;
    graph *g = toy_decoder(12, 8, 2);
    for (int what = 0; what < 8; what++) {
        plan *p = toy_plan(g, &(plan_options){.workers = 3, .m_max = 2, .max_seq = 64});
        char *before = shown(p);
        assert_null(strstr(before, "l9.proj "));
        keel_free(before);
        uint32_t i = 0, q = 0;
        while (strcmp(p->instances[i].name, "l9.proj") != 0) i++;
        while (p->phases[q].instance != i) q++;
        kp_task *t = &p->tasks[p->phases[q].first_task + 1];
        if (what == 0) t->aux++;
        if (what == 7) p->events[t->trigger].ranks = true;
        if (what == 1) p->waits[t->wait_first]--;
        if (what == 2) p->costs[t - p->tasks].other_bytes++;
        if (what == 3) p->params[p->instances[i].params_offset] ^= 1;
        if (what == 4) t->span[0].n_pages++;
        if (what == 5) p->instances[i].buffer[1] = 0;
        if (what == 6) t->trigger = KP_NONE;
        char *after = shown(p);
        expect(after, "l9.proj ");
        keel_free(after);
        plan_close(p);
    }
    graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_says_what_the_plan_says),
        cmocka_unit_test(json_tells_of_ranks),
        cmocka_unit_test(json_escapes_any_name),
        cmocka_unit_test(people_see_layers_once),
        cmocka_unit_test(people_see_ranks),
        cmocka_unit_test(a_layer_that_differs_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
