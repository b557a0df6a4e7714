/* SPDX-License-Identifier: Apache-2.0 */
/* The judge that runs: the sound plan gives its own bits under every schedule; tasks that do less than they should, as
 * no op describes them, are found; other models and other sums are left alone. */
#include "mutation/suite.h"

#include "mutation/real_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { QWEN_W3 = 6, QWEN_SAMPLES = 2, LLAMA_SPLITS = 11 };

static const int all_jobs[] = {QWEN_W3, QWEN_SAMPLES, LLAMA_SPLITS};

static suite_job open_job(size_t i) {
    suite_job job;
    if (!suite_real_job(i, &job) || !job.real_run) fail_msg("job %zu cannot be run", i);
    return job;
}

static void close_job(suite_job *job) {
    real_run_close(job->real_run);
    plan_close(job->ranks[0]);
}

static kp_task *task_of(plan *p, const char *instance, uint32_t phase) {
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        kp_task *t = &p->tasks[i];
        if (strcmp(p->instances[t->instance].name, instance) == 0 && p->bodies[t->body].phase == phase) return t;
    }
    fail_msg("%s: no such op", instance);
    return NULL;
}

static void expect(suite_job *job, real_run_verdict want, const char *words) {
    char what[REAL_RUN_WHAT_BYTES];
    real_run_verdict got = real_run_judge(job->real_run, job->ranks[0], what);
    if (got != want || !strstr(what, words)) fail_msg("%s: verdict %d: %s", job->name, (int)got, what);
}

static void sound_plans_are_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof all_jobs / sizeof *all_jobs; i++) {
        suite_job job = open_job((size_t)all_jobs[i]);
        expect(&job, REAL_RUN_SAME, "");
        expect(&job, REAL_RUN_SAME, ""); /* nothing is left of the first time */
        close_job(&job);
    }
}

/* Columns that nobody makes any more: the logits tell. */
static void a_smaller_tile_is_found(void **state) {
    (void)state;
    static const char *const instances[] = {"l0.attn.q_proj", "l1.mlp.act", "lm_head"};
    for (size_t i = 0; i < sizeof instances / sizeof *instances; i++) {
        suite_job job = open_job(QWEN_W3);
        task_of(job.ranks[0], instances[i], 0)->hi -= 1;
        expect(&job, REAL_RUN_DIFFERS, "instead of");
        close_job(&job);
    }
}

/* Reads less than it should, and writes all it should: no description shows that. */
static void a_smaller_search_is_found(void **state) {
    (void)state;
    suite_job job = open_job(QWEN_W3);
    plan *p = job.ranks[0];
    uint32_t cut = 0;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        kp_task *t = &p->tasks[i];
        if (strcmp(p->instances[t->instance].name, "argmax") != 0 || p->bodies[t->body].phase != 0) continue;
        t->hi = t->lo + 1;
        cut++;
    }
    assert_true(cut > 1);
    expect(&job, REAL_RUN_DIFFERS, "instead of");
    close_job(&job);
}

/* Two halves of a KV head's positions, the first of them twice. */
static void a_split_left_out_is_found(void **state) {
    (void)state;
    suite_job job = open_job(LLAMA_SPLITS);
    plan *p = job.ranks[0];
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        kp_task *t = &p->tasks[i];
        if (strcmp(p->instances[t->instance].op->name, "attention") == 0 && t->aux == 1) t->aux = 0;
    }
    expect(&job, REAL_RUN_DIFFERS, "schedule");
    close_job(&job);
}

static void what_cannot_be_compared_is_left_alone(void **state) {
    (void)state;
    suite_job job = open_job(QWEN_W3);
    plan *p = job.ranks[0];
    p->kv_splits++;
    expect(&job, REAL_RUN_OTHER, "another order");
    p->kv_splits--;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        plan_buffer *b = &p->buffers[i];
        if (strcmp(b->key, "model.layers.0.self_attn.q_proj.weight") == 0)
            b->key = "model.layers.1.self_attn.q_proj.weight";
    }
    expect(&job, REAL_RUN_OTHER, "q_proj");
    close_job(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_plans_are_the_same),
        cmocka_unit_test(a_smaller_tile_is_found),
        cmocka_unit_test(a_smaller_search_is_found),
        cmocka_unit_test(a_split_left_out_is_found),
        cmocka_unit_test(what_cannot_be_compared_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
