/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120
 * The oracle itself: sound plans are sound under every schedule, plans broken by hand are found out for the right
 * reason, and an oracle that lacks one of its parts is found out by the suite. */
#include "mutation/suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { QWEN_W1 = 0, QWEN_W2 = 1, QWEN_TP2 = 4, WIDE_W1 = 8, SCHEDULES = 12 };

static oracle *sees;

static suite_job real_job(size_t i) {
    suite_job job;
    if (!suite_real_job(i, &job)) fail_msg("job %zu", i);
    return job;
}

static void close_job(suite_job *job) {
    for (uint32_t k = 0; k < job->n; k++) plan_close(job->ranks[k]);
    real_run_close(job->real_run);
}

static oracle_result judge(const suite_job *job) {
    oracle_result r;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (oracle_judge(sees, (const plan *const *)job->ranks, job->n, 0, SCHEDULES, &r, &err) != KEEL_OK)
        fail_msg("%s: %s", job->name, err.detail);
    return r;
}

/* ---- broken by hand ----------------------------------------------------------------------------- */

static kp_task *task_of(const plan *p, const char *name) {
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        if (strcmp(p->instances[p->tasks[i].instance].name, name) == 0) return &p->tasks[i];
    }
    fail_msg("no task of %s", name);
    return NULL;
}

static plan_buffer *buffer_of(const plan *p, const char *name) {
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        if (strcmp(p->buffers[i].name, name) == 0) return &p->buffers[i];
    }
    fail_msg("no buffer %s", name);
    return NULL;
}

static void no_waits(plan *p) { task_of(p, "l0.attn.o_proj")->n_waits = 0; }
static void no_trigger(plan *p) { task_of(p, "l0.attn.norm")->trigger = KP_NONE; }
static void early_events(plan *p) {
    for (uint32_t e = 0; e < p->n_events; e++) p->events[e].triggers = 1;
}

static void later_first(plan *p) { /* the queue of the only worker backwards, but for step_begin */
    for (uint32_t i = 1, k = p->n_tasks - 1; i < k; i++, k--) {
        uint32_t t = p->queue[i];
        p->queue[i] = p->queue[k];
        p->queue[k] = t;
    }
}

static void overwritten(plan *p) { /* the norm's result on top of what the residual still needs */
    buffer_of(p, "l0.attn.norm")->offset = buffer_of(p, "embed")->offset;
}

static void half_made(plan *p) { task_of(p, "l0.mlp.act")->hi -= 8; }

static void cycle_of_pages(plan *p) { /* twice the same page */
    kp_task *t = task_of(p, "l0.mlp.act");
    t->span[1].first_page = t->span[0].first_page;
}

static void outside(plan *p) { task_of(p, "l0.mlp.act")->region_offset[0] = (p->n_pages - 1) * p->page_bytes; }

static void released_early(plan *p) {
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        for (uint32_t s = 0; s < p->tasks[i].n_spans; s++) p->tasks[i].span[s].release_role = KP_LOADER;
    }
}

/* What a planner would do that takes one wait for implied where it is not. */
static void planner_bug(plan *p) {
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        if (p->tasks[i].n_waits > 1) p->tasks[i].n_waits--;
    }
}

static void rank_skips(plan *p) { /* only rank 1 comes here */
    p->events[task_of(p, "l0.attn.o_proj")->trigger].ranks = false;
    p->events[task_of(p, "l0.attn.o_proj")->trigger].triggers /= 2;
}

static void rank_elsewhere(plan *p) {
    plan_buffer *b = buffer_of(p, "l0.attn.o_proj");
    b->offset = b->offset ? 0 : 256;
    if (p->symmetric_bytes < b->offset + b->bytes) p->symmetric_bytes = b->offset + b->bytes;
}

static const struct breakage {
    const char *name;
    void (*make)(plan *p);
    size_t job;
    oracle_verdict verdict, or_this;
    enum oracle_blindness unseen_without;
} breakages[] = {
    {"no waits", no_waits, QWEN_W2, ORACLE_RACE, ORACLE_UNWRITTEN, ORACLE_BLIND_GLOBAL},
    {"no trigger", no_trigger, QWEN_W2, ORACLE_DEADLOCK, ORACLE_DEADLOCK, ORACLE_BLIND_STUCK},
    {"events too early", early_events, QWEN_W2, ORACLE_RACE, ORACLE_UNWRITTEN, ORACLE_BLIND_TAGS},
    {"queue backwards", later_first, QWEN_W1, ORACLE_DEADLOCK, ORACLE_DEADLOCK, ORACLE_BLIND_STUCK},
    {"overwritten", overwritten, QWEN_W1, ORACLE_VALUE, ORACLE_VALUE, ORACLE_BLIND_TAGS},
    {"a tile too short", half_made, QWEN_W1, ORACLE_UNWRITTEN, ORACLE_VALUE, ORACLE_BLIND_TAGS},
    {"a page twice", cycle_of_pages, QWEN_W2, ORACLE_DEADLOCK, ORACLE_DEADLOCK, ORACLE_BLIND_STUCK},
    {"region outside", outside, QWEN_W2, ORACLE_BOUNDS, ORACLE_BOUNDS, ORACLE_BLIND_BOUNDS},
    {"released early", released_early, WIDE_W1, ORACLE_SMEM, ORACLE_SMEM, ORACLE_BLIND_SMEM},
    {"planner's bug", planner_bug, QWEN_W2, ORACLE_RACE, ORACLE_UNWRITTEN, ORACLE_BLIND_GLOBAL},
    {"a rank does not wait", rank_skips, QWEN_TP2, ORACLE_UNWRITTEN, ORACLE_RACE, ORACLE_BLIND_TAGS},
    {"elsewhere on a rank", rank_elsewhere, QWEN_TP2, ORACLE_UNWRITTEN, ORACLE_VALUE, ORACLE_BLIND_TAGS},
};

static void sound_plans_are_sound(void **state) {
    (void)state;
    for (size_t i = 0; i < SUITE_REAL_JOBS; i++) {
        suite_job job = real_job(i);
        oracle_result r = judge(&job);
        if (r.verdict) fail_msg("%s: %s: %s", job.name, oracle_verdict_name(r.verdict), r.what);
        assert_int_equal(r.state_writes, 2 * job.n); /* step_begin, and the op that picks the token */
        assert_int_equal(r.runs, SCHEDULES);
        close_job(&job);
    }
}

static void broken_plans_are_found_out(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof breakages / sizeof *breakages; i++) {
        const struct breakage *b = &breakages[i];
        suite_job job = real_job(b->job);
        b->make(job.ranks[job.n - 1]);
        oracle_result r = judge(&job);
        if (r.verdict != b->verdict && r.verdict != b->or_this)
            fail_msg("%s: %s: %s", b->name, oracle_verdict_name(r.verdict), r.what);
        close_job(&job);
    }
}

/* Each part sees what no other part does: without it some breakage is called by another name, or not at all. */
static void every_part_is_needed(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof breakages / sizeof *breakages; i++) {
        const struct breakage *b = &breakages[i];
        suite_job job = real_job(b->job);
        b->make(job.ranks[job.n - 1]);
        oracle_result with = judge(&job);
        oracle_blind(sees, b->unseen_without);
        oracle_result without = judge(&job);
        oracle_blind(sees, ORACLE_SEES_ALL);
        if (with.verdict == without.verdict && strcmp(with.what, without.what) == 0)
            fail_msg("%s: seen without the part that should see it: %s", b->name, without.what);
        close_job(&job);
    }
}

static void verdicts_repeat(void **state) {
    (void)state;
    suite_job job = real_job(QWEN_W2);
    no_waits(job.ranks[0]);
    oracle_result a = judge(&job), b = judge(&job);
    assert_int_equal(a.schedule, b.schedule);
    assert_int_equal(a.switches, b.switches);
    assert_string_equal(a.what, b.what);
    close_job(&job);
}

/* ---- would the suite notice? -------------------------------------------------------------------- */

static uint32_t below_floor(enum oracle_blindness blind) {
    static const char *const kinds[] = {"drop-wait",    "drop-trigger", "overlap-buffers", "shrink-span",
                                        "release-role", "drop-phase",   "lifetime"};
    suite s = {.schedules = 4};
    for (size_t i = 0; i < SUITE_REAL_JOBS; i++) {
        suite_job job = real_job(i);
        assert_true(suite_add(&s, &job));
    }
    oracle_blind(s.oracle, blind);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) assert_true(suite_run(&s, kinds[i], 30, 1));
    uint32_t below = suite_below_floor(&s);
    suite_close(&s);
    return below;
}

static void the_suite_notices_a_blind_oracle(void **state) {
    (void)state;
    assert_int_equal(below_floor(ORACLE_SEES_ALL), 0);
    for (int b = ORACLE_SEES_ALL + 1; b < ORACLE_BLINDNESSES; b++) {
        if (!below_floor((enum oracle_blindness)b)) fail_msg("blindness %d goes unnoticed", b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_plans_are_sound),
        cmocka_unit_test(broken_plans_are_found_out),
        cmocka_unit_test(every_part_is_needed),
        cmocka_unit_test(verdicts_repeat),
        cmocka_unit_test(the_suite_notices_a_blind_oracle),
    };
    sees = oracle_open();
    int failed = sees ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    oracle_close(sees);
    return failed;
}
