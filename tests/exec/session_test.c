/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 240 */
/* Sessions: what must not change a result, what must end a run, what must be refused. */
#include "core/mem.h"
#include "exec/api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPT = 75, STEPS = 8, VOCAB = 515 };

typedef struct setup {
    uint32_t workers, lanes, batch, seed, page_seed, page_tokens, kv_splits, max_seq;
    bool fused;
} setup;

typedef struct outcome {
    keel_status status;
    keel_error err;
    keel_result result;
    int32_t token[64];
    float logits[STEPS][VOCAB];
} outcome;

static keel_model *open_model(const char *synth) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_model_options o = KEEL_MODEL_OPTIONS_INITIALIZER;
    o.synth = synth;
    keel_model *m = NULL;
    if (keel_model_open(&o, &m, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return m;
}

static void keep(void *user, uint32_t index, int32_t token, uint64_t ns) {
    (void)ns;
    ((outcome *)user)->token[index] = token;
}

static const int32_t *a_prompt(int salt) {
    static int32_t ids[4096];
    for (int i = 0; i < 4096; i++) ids[i] = (i * 31 + salt) % VOCAB;
    return ids;
}

static keel_session *open_session(const keel_model *m, setup u, keel_plan **kp) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_plan_options po = KEEL_PLAN_OPTIONS_INITIALIZER;
    keel_session_options so = KEEL_SESSION_OPTIONS_INITIALIZER;
    po.workers = u.workers ? u.workers : 2;
    po.batch = u.batch;
    po.max_seq = u.max_seq ? u.max_seq : 256;
    po.page_tokens = u.page_tokens;
    po.kv_splits = u.kv_splits ? u.kv_splits : 1;
    static const char *const fused[] = {"fused"};
    po.levers = fused;
    po.n_levers = u.fused;
    so.lanes = u.lanes;
    so.seed = u.seed;
    so.page_seed = u.page_seed;
    so.watchdog_s = 2;
    keel_session *s = NULL;
    if (keel_plan_build(m, &po, kp, &err) != KEEL_OK) fail_msg("%s", err.detail);
    if (keel_session_open(m, *kp, &so, &s, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return s;
}

static outcome *run(keel_session *s, const int32_t *prompt, size_t n, uint32_t steps) {
    outcome *o = calloc(1, sizeof *o);
    assert_non_null(o);
    keel_request r = KEEL_REQUEST_INITIALIZER;
    r.prompt = prompt;
    r.n_prompt = n;
    r.max_new_tokens = steps;
    r.on_token = keep;
    r.user = o;
    r.logits = steps <= STEPS ? &o->logits[0][0] : NULL;
    o->status = keel_session_run(s, &r, &o->result, &o->err);
    return o;
}

static outcome *run_once(const keel_model *m, setup u) {
    keel_plan *kp = NULL;
    keel_session *s = open_session(m, u, &kp);
    outcome *o = run(s, a_prompt(7), PROMPT, STEPS);
    if (o->status != KEEL_OK) fail_msg("%s", o->err.detail);
    keel_session_close(s);
    keel_plan_close(kp);
    return o;
}

/* With one KV split, logits are the same bits whatever the schedule, the lanes, the workers, the chunk of the prefill,
 * and where KV pages lie. */
static void same_bits_whatever_the_setup(void **state) {
    (void)state;
    keel_model *m = open_model("tiny-llama");
    outcome *want = run_once(m, (setup){.workers = 1, .batch = 16});
    const setup setups[] = {
        {.workers = 2},
        {.workers = 3, .lanes = 2},
        {.workers = 7, .lanes = 2, .seed = 11},
        {.workers = 2, .batch = 1},
        {.workers = 2, .batch = 3},
        {.workers = 2, .page_seed = 5},
        {.workers = 16, .seed = 3, .page_seed = 9, .batch = 5},
    };
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        outcome *got = run_once(m, setups[i]);
        assert_memory_equal(got->logits, want->logits, sizeof want->logits);
        assert_memory_equal(got->token, want->token, sizeof want->token);
        free(got);
    }
    free(want);
    keel_model_close(m);
}

/* Fused ops against the chain: on the CPU they do the same sums. */
static void fused_ops_agree(void **state) {
    (void)state;
    static const char *const models[] = {"tiny-llama", "tiny-qwen3"};
    for (int i = 0; i < 2; i++) {
        keel_model *m = open_model(models[i]);
        outcome *want = run_once(m, (setup){.workers = 2});
        const setup setups[] = {{.workers = 1, .batch = 16, .fused = true},
                                {.workers = 3, .lanes = 2, .seed = 5, .fused = true},
                                {.workers = 7, .batch = 1, .fused = true}};
        for (size_t k = 0; k < sizeof setups / sizeof *setups; k++) {
            outcome *got = run_once(m, setups[k]);
            assert_memory_equal(got->logits, want->logits, sizeof want->logits);
            assert_memory_equal(got->token, want->token, sizeof want->token);
            free(got);
        }
        free(want);
        keel_model_close(m);
    }
}

/* Other splits or page sizes sum in another order: close, and the same tokens. */
static void splits_and_page_sizes_agree(void **state) {
    (void)state;
    keel_model *m = open_model("tiny-llama");
    outcome *want = run_once(m, (setup){.workers = 1});
    const setup setups[] = {
        {.kv_splits = 2}, {.kv_splits = 3, .lanes = 2}, {.page_tokens = 16}, {.page_tokens = 1, .kv_splits = 4}};
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        outcome *got = run_once(m, setups[i]);
        for (int s = 0; s < STEPS; s++) {
            for (int v = 0; v < VOCAB; v++) assert_float_equal(got->logits[s][v], want->logits[s][v], 2e-4f);
        }
        assert_memory_equal(got->token, want->token, sizeof want->token);
        free(got);
    }
    free(want);
    keel_model_close(m);
}

/* A session can be used again: the answer is that of the new prompt. */
static void second_run_is_fresh(void **state) {
    (void)state;
    keel_model *m = open_model("tiny-llama");
    keel_plan *kp = NULL;
    keel_session *s = open_session(m, (setup){0}, &kp);
    outcome *a = run(s, a_prompt(7), PROMPT, STEPS), *b = run(s, a_prompt(100), 40, STEPS),
            *c = run(s, a_prompt(7), PROMPT, STEPS);
    assert_memory_equal(a->logits, c->logits, sizeof a->logits);
    assert_memory_not_equal(a->logits, b->logits, sizeof a->logits);
    free(a), free(b), free(c);
    keel_session_close(s);
    keel_plan_close(kp);
    keel_model_close(m);
}

static void stop_at_third(void *user, uint32_t index, int32_t token, uint64_t ns) {
    (void)token, (void)ns;
    if (index == 2) keel_session_stop(user);
}

static void host_stop_ends_the_run(void **state) {
    (void)state;
    keel_model *m = open_model("tiny-llama");
    for (uint32_t workers = 1; workers <= 7; workers += 3) {
        keel_plan *kp = NULL;
        keel_session *s = open_session(m, (setup){.workers = workers, .max_seq = 2048}, &kp);
        keel_request r = KEEL_REQUEST_INITIALIZER;
        r.prompt = a_prompt(3);
        r.n_prompt = 5;
        r.max_new_tokens = 2000;
        r.on_token = stop_at_third;
        r.user = s;
        keel_result result = {0};
        keel_error err = KEEL_ERROR_INITIALIZER;
        assert_int_equal(keel_session_run(s, &r, &result, &err), KEEL_OK);
        assert_true(result.stopped);
        assert_true(result.n_tokens >= 3 && result.n_tokens < 2000);
        keel_session_close(s);
        keel_plan_close(kp);
    }
    keel_model_close(m);
}

static void stop_ids_end_the_run(void **state) {
    (void)state;
    keel_model *m = open_model("tiny-llama");
    keel_plan *kp = NULL;
    keel_session *s = open_session(m, (setup){0}, &kp);
    outcome *o = run(s, a_prompt(7), PROMPT, STEPS);
    keel_request r = KEEL_REQUEST_INITIALIZER;
    r.prompt = a_prompt(7);
    r.n_prompt = PROMPT;
    r.max_new_tokens = STEPS;
    r.stop_ids = &o->token[1];
    r.n_stop_ids = 1;
    keel_result result = {0};
    assert_int_equal(keel_session_run(s, &r, &result, NULL), KEEL_OK);
    assert_int_equal(result.n_tokens, o->token[0] == o->token[1] ? 1 : 2);
    free(o);
    keel_session_close(s);
    keel_plan_close(kp);
    keel_model_close(m);
}

static void refusals(void **state) {
    (void)state;
    keel_model *m = open_model("tiny-llama");
    keel_plan *kp = NULL;
    keel_session *s = open_session(m, (setup){.max_seq = 64}, &kp);
    outcome *o = run(s, a_prompt(0), 65, 0);
    assert_int_equal(o->status, KEEL_RANGE);
    assert_non_null(strstr(o->err.detail, "--max-seq"));
    free(o);
    o = run(s, a_prompt(0), 60, 6);
    assert_int_equal(o->status, KEEL_RANGE);
    free(o);
    o = run(s, a_prompt(0), 60, 5); /* the last token needs no position */
    assert_int_equal(o->status, KEEL_OK);
    assert_int_equal(o->result.n_tokens, 5);
    free(o);
    const int32_t bad[] = {1, VOCAB, -1};
    o = run(s, bad, 2, 1);
    assert_int_equal(o->status, KEEL_RANGE);
    assert_non_null(strstr(o->err.detail, "token 1"));
    free(o);
    o = run(s, bad + 2, 1, 1);
    assert_int_equal(o->status, KEEL_RANGE);
    free(o);
    o = run(s, bad, 0, 1);
    assert_int_equal(o->status, KEEL_USAGE);
    free(o);
    keel_session_close(s);
    keel_plan_close(kp);
    keel_model_close(m);
}

/* A task that never triggers its event: the watchdog ends the run and says who waits for what. */
static void lost_trigger_is_named(void **state) {
    (void)state;
    keel_model *m = open_model("tiny-llama");
    keel_plan *kp = NULL;
    keel_session *s = open_session(m, (setup){.workers = 3}, &kp);
    plan_phase *lost = NULL;
    for (uint32_t q = 0; q < kp->plan->n_phases; q++) {
        if (strcmp(kp->plan->instances[kp->plan->phases[q].instance].name, "l1.mlp.gate_proj") == 0)
            lost = &kp->plan->phases[q];
    }
    assert_non_null(lost);
    kp->plan->tasks[lost->first_task].trigger = KP_NONE;
    outcome *o = run(s, a_prompt(7), PROMPT, STEPS);
    assert_int_equal(o->status, KEEL_HANG);
    assert_int_equal(keel_status_exit(o->status), 3);
    assert_non_null(strstr(o->err.detail, "waits for event"));
    assert_non_null(strstr(o->err.detail, "l1.mlp.gate_proj"));
    assert_non_null(strstr(o->err.detail, "launcher"));
    free(o);
    keel_session_close(s);
    keel_plan_close(kp);
    keel_model_close(m);
}

static void plan_of_another_model_is_refused(void **state) {
    (void)state;
    keel_model *llama = open_model("tiny-llama"), *qwen = open_model("tiny-qwen3");
    keel_plan *kp = NULL;
    keel_session *s = open_session(llama, (setup){0}, &kp), *other = NULL;
    keel_session_options so = KEEL_SESSION_OPTIONS_INITIALIZER;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_not_equal(keel_session_open(qwen, kp, &so, &other, &err), KEEL_OK);
    assert_null(other);
    keel_session_close(s);
    keel_plan_close(kp);
    keel_model_close(llama);
    keel_model_close(qwen);
}

/* A plan that was read from a file runs only where this build would make the same bytes. */
static void plan_file_of_another_shape_is_refused(void **state) {
    (void)state;
    const char *const path = "session_test.plan", *const config = "session_test.json";
    keel_model *m = open_model("tiny-llama");
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_session_options so = KEEL_SESSION_OPTIONS_INITIALIZER;
    keel_plan *kp = NULL, *read = NULL;
    keel_session *s = open_session(m, (setup){.workers = 3, .kv_splits = 2}, &kp);
    keel_session_close(s);
    assert_int_equal(keel_plan_save(kp, path, &err), KEEL_OK);
    keel_plan_close(kp);
    assert_int_equal(keel_plan_load(path, &read, &err), KEEL_OK);
    assert_int_equal(keel_session_open(m, read, &so, &s, &err), KEEL_OK);
    keel_session_close(s);
    /* the same keys and types, another width: what would read past every row */
    const char *text =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 96, \"intermediate_size\": 160,"
        "\"num_hidden_layers\": 3, \"num_attention_heads\": 6, \"num_key_value_heads\": 3, \"head_dim\": 16,"
        "\"vocab_size\": 515, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"max_position_embeddings\": 2048,"
        "\"tie_word_embeddings\": false, \"attention_bias\": true, \"torch_dtype\": \"bfloat16\"}";
    assert_int_equal(keel_file_save(config, text, strlen(text), &err), KEEL_OK);
    keel_model *other = open_model(config);
    s = NULL;
    assert_int_equal(keel_session_open(other, read, &so, &s, &err), KEEL_USAGE);
    assert_non_null(strstr(err.detail, "was not made for this model"));
    assert_null(s);
    keel_plan_close(read);
    keel_model_close(other);
    keel_model_close(m);
}

/* A stop before the run ends that run after its first iteration, and no later one. */
static void early_stop_is_not_lost(void **state) {
    (void)state;
    keel_model *m = open_model("tiny-llama");
    keel_plan *kp = NULL;
    keel_session *s = open_session(m, (setup){0}, &kp);
    keel_session_stop(s);
    outcome *o = run(s, a_prompt(7), 5, 40);
    assert_true(o->result.stopped && o->result.n_tokens < 40);
    free(o);
    o = run(s, a_prompt(7), 5, 40);
    assert_true(!o->result.stopped && o->result.n_tokens == 40);
    free(o);
    keel_session_close(s);
    keel_plan_close(kp);
    keel_model_close(m);
}

/* Built against an older, shorter header: the fields it did not know keep their defaults. A longer one is refused. */
static void option_structs_are_versioned(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_model *m = open_model("tiny-llama");
    keel_plan *kp = NULL;
    keel_plan_options po = KEEL_PLAN_OPTIONS_INITIALIZER;
    po.workers = 3;
    po.batch = 999; /* beyond what an old caller's struct had */
    po.struct_size = offsetof(keel_plan_options, batch);
    assert_int_equal(keel_plan_build(m, &po, &kp, &err), KEEL_OK);
    keel_plan_info info;
    assert_int_equal(keel_plan_info_get(kp, &info, &err), KEEL_OK);
    assert_int_equal(info.workers, 3);
    assert_int_equal(info.batch, 16);
    keel_plan_close(kp);
    po.struct_size = sizeof po + 8;
    assert_int_equal(keel_plan_build(m, &po, &kp, &err), KEEL_USAGE);
    po.struct_size = 0;
    assert_int_equal(keel_plan_build(m, &po, &kp, &err), KEEL_USAGE);
    keel_model_close(m);
}

static keel_status whole_life(void) {
    keel_model_options o = KEEL_MODEL_OPTIONS_INITIALIZER;
    keel_plan_options po = KEEL_PLAN_OPTIONS_INITIALIZER;
    keel_session_options so = KEEL_SESSION_OPTIONS_INITIALIZER;
    o.synth = "tiny-qwen3";
    po.workers = 2;
    po.max_seq = 64;
    keel_model *m = NULL;
    keel_plan *kp = NULL;
    keel_session *s = NULL;
    keel_result result = {0};
    keel_request r = KEEL_REQUEST_INITIALIZER;
    r.prompt = a_prompt(1);
    r.n_prompt = 3;
    r.max_new_tokens = 2;
    keel_status status = keel_model_open(&o, &m, NULL);
    if (status == KEEL_OK) status = keel_plan_build(m, &po, &kp, NULL);
    if (status == KEEL_OK) status = keel_session_open(m, kp, &so, &s, NULL);
    if (status == KEEL_OK) status = keel_session_run(s, &r, &result, NULL);
    keel_session_close(s);
    keel_plan_close(kp);
    keel_model_close(m);
    return status;
}

/* Every allocation fails once: the call says so, and nothing leaks (AddressSanitizer). */
static void every_allocation_may_fail(void **state) {
    (void)state;
    mem_fail_after(0);
    assert_int_equal(whole_life(), KEEL_OK);
    uint64_t all = mem_count();
    assert_true(all > 50);
    for (uint64_t n = 1; n <= all; n++) {
        mem_fail_after(n);
        keel_status s = whole_life();
        mem_fail_after(0);
        if (s != KEEL_NOMEM)
            fail_msg("allocation %llu of %llu failed: status %s", (unsigned long long)n, (unsigned long long)all,
                     keel_status_name(s));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_whatever_the_setup),
        cmocka_unit_test(fused_ops_agree),
        cmocka_unit_test(splits_and_page_sizes_agree),
        cmocka_unit_test(second_run_is_fresh),
        cmocka_unit_test(host_stop_ends_the_run),
        cmocka_unit_test(stop_ids_end_the_run),
        cmocka_unit_test(refusals),
        cmocka_unit_test(lost_trigger_is_named),
        cmocka_unit_test(plan_of_another_model_is_refused),
        cmocka_unit_test(plan_file_of_another_shape_is_refused),
        cmocka_unit_test(early_stop_is_not_lost),
        cmocka_unit_test(option_structs_are_versioned),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
