/* SPDX-License-Identifier: Apache-2.0 */
/* plan_mutate: each kind changes something somewhere, says so, repeats, and leaves the plan it was given alone. */
#include "mutation/suite.h"

#include "core/buf.h"
#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { QWEN_W2 = 1, LLAMA_TP2 = 14, SEEDS = 60 };

static suite_job jobs[2];

static buf written(const plan *p) {
    buf b = {0};
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (plan_write(p, &b, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return b;
}

static bool same(const buf *a, const buf *b) { return a->len == b->len && memcmp(a->data, b->data, a->len) == 0; }

/* One mutant against its original; 1 when there was a place for it. */
static uint32_t check_mutant(const plan *p, const buf *before, const char *kind, uint64_t seed) {
    char what[MUTATE_WHAT_BYTES], again[MUTATE_WHAT_BYTES];
    keel_error err = KEEL_ERROR_INITIALIZER;
    plan *a = NULL, *b = NULL;
    keel_status s = plan_mutate(p, kind, seed, &a, what, &err);
    if (s == KEEL_RANGE) return 0;
    if (s != KEEL_OK) fail_msg("%s %llu: %s", kind, (unsigned long long)seed, err.detail);
    assert_int_equal(plan_mutate(p, kind, seed, &b, again, &err), KEEL_OK);
    buf one = written(a), two = written(b), after = written(p);
    assert_string_equal(what, again);
    assert_true(same(&one, &two));
    assert_true(same(before, &after));
    assert_true(strlen(what) > 10);
    if (same(before, &one)) fail_msg("%s %llu: \"%s\" changed nothing", kind, (unsigned long long)seed, what);
    buf_free(&one), buf_free(&two), buf_free(&after);
    plan_close(a), plan_close(b);
    return 1;
}

static void every_kind_changes_something(void **state) {
    (void)state;
    uint32_t kinds = 0;
    const char *doc;
    for (size_t i = 0; mutate_kind(i, &doc); i++, kinds++) {
        uint32_t places = 0;
        assert_true(strlen(doc) > 10);
        for (int k = 0; k < 2; k++) {
            buf before = written(jobs[k].ranks[0]);
            for (uint64_t seed = 0; seed < SEEDS; seed++)
                places += check_mutant(jobs[k].ranks[0], &before, mutate_kind(i, NULL), seed);
            buf_free(&before);
        }
        if (places < SEEDS / 2) fail_msg("%s: %u places in %d tries", mutate_kind(i, NULL), places, 2 * SEEDS);
    }
    assert_true(kinds >= 12);
}

static void seeds_differ(void **state) {
    (void)state;
    uint32_t differ = 0;
    char first[MUTATE_WHAT_BYTES], what[MUTATE_WHAT_BYTES];
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        plan *p = NULL;
        assert_int_equal(plan_mutate(jobs[0].ranks[0], "drop-wait", seed, &p, seed ? what : first, NULL), KEEL_OK);
        differ += seed && strcmp(first, what) != 0;
        plan_close(p);
    }
    assert_true(differ > SEEDS / 2);
}

static void wrong_kinds_are_refused(void **state) {
    (void)state;
    char what[MUTATE_WHAT_BYTES];
    keel_error err = KEEL_ERROR_INITIALIZER;
    plan *p = NULL;
    assert_int_equal(plan_mutate(jobs[0].ranks[0], "drop", 0, &p, what, &err), KEEL_USAGE);
    assert_non_null(strstr(err.detail, "drop-wait"));
    assert_int_equal(plan_mutate(jobs[0].ranks[0], "skip-collective", 0, &p, what, &err), KEEL_RANGE);
    assert_non_null(strstr(err.detail, "no place"));
    assert_null(p);
}

static void memory_may_fail_anywhere(void **state) {
    (void)state;
    static const char *const kinds[] = {"duplicate-wait", "duplicate-task", "drop-task"};
    for (size_t i = 0; i < 3; i++) {
        for (uint64_t n = 1;; n++) {
            char what[MUTATE_WHAT_BYTES];
            keel_error err = KEEL_ERROR_INITIALIZER;
            plan *p = NULL;
            mem_fail_after(n);
            keel_status s = plan_mutate(jobs[0].ranks[0], kinds[i], 1, &p, what, &err);
            mem_fail_after(0);
            plan_close(p);
            if (s == KEEL_OK) break;
            if (s != KEEL_NOMEM) fail_msg("%s, allocation %llu: %s", kinds[i], (unsigned long long)n, err.detail);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_changes_something),
        cmocka_unit_test(seeds_differ),
        cmocka_unit_test(wrong_kinds_are_refused),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    if (!suite_real_job(QWEN_W2, &jobs[0]) || !suite_real_job(LLAMA_TP2, &jobs[1])) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int k = 0; k < 2; k++) {
        for (uint32_t r = 0; r < jobs[k].n; r++) plan_close(jobs[k].ranks[r]);
        real_run_close(jobs[k].real_run);
    }
    return failed;
}
