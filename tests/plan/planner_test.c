/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan must be, judged by a simulator and by vector clocks that know the protocol and not the planner. */
#include "plan/toy.h"

#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { RANDOM_GRAPHS = 400, BUILDS = 20 };

/* ---- order -------------------------------------------------------------------------------------- */

/* start[t][w]: how many tasks of worker w are stored before task t's launcher goes on; done[t]: before t is stored. A
 * launcher, and a storer, takes its tasks in queue order; nothing orders a storer before the next task's launcher. */
typedef struct clocks {
    uint32_t *start, *done, *worker, *place;
    uint32_t workers;
    bool finished; /* false: deadlock */
} clocks;

static void clocks_free(clocks *c) { free(c->start), free(c->done), free(c->worker), free(c->place); }

static void join_into(uint32_t *to, const uint32_t *from, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) to[i] = to[i] > from[i] ? to[i] : from[i];
}

static void run_task(const plan *p, clocks *c, uint32_t task, uint32_t previous, uint32_t (*joined)[64]) {
    uint32_t n = c->workers, *start = c->start + (size_t)task * n, *done = c->done + (size_t)task * n;
    if (previous != KP_NONE) join_into(start, c->start + (size_t)previous * n, n);
    for (uint32_t i = 0; i < p->tasks[task].n_waits; i++)
        join_into(start, joined[p->waits[p->tasks[task].wait_first + i]], n);
    memcpy(done, start, n * sizeof *done);
    if (previous != KP_NONE) join_into(done, c->done + (size_t)previous * n, n);
    done[c->worker[task]] = c->place[task] + 1;
    if (p->tasks[task].trigger != KP_NONE) join_into(joined[p->tasks[task].trigger], done, n);
}

/* One iteration: again and again any worker whose next task's events are satisfied, by chance. */
static clocks simulate(const plan *p, uint64_t seed) {
    clocks c = {.workers = p->workers};
    size_t cells = (size_t)p->n_tasks * p->workers;
    assert_true(p->workers <= 64);
    c.start = calloc(cells, sizeof *c.start), c.done = calloc(cells, sizeof *c.done);
    c.worker = calloc(p->n_tasks, sizeof *c.worker), c.place = calloc(p->n_tasks, sizeof *c.place);
    uint32_t *count = calloc(p->n_events + 1, sizeof *count), *next = calloc(p->workers, sizeof *next),
             left = p->n_tasks;
    uint32_t(*joined)[64] = calloc(p->n_events + 1, sizeof *joined);
    for (uint32_t stuck = 0; left && stuck < 200 * p->workers; stuck++) {
        uint32_t w = toy_random(&seed, p->workers), at = p->queue_first[w] + next[w];
        if (at == p->queue_first[w + 1]) continue;
        uint32_t task = p->queue[at];
        const kp_task *t = &p->tasks[task];
        bool ready = true;
        for (uint32_t i = 0; i < t->n_waits; i++) {
            uint32_t e = p->waits[t->wait_first + i];
            ready = ready && count[e] >= p->events[e].triggers;
        }
        if (!ready) continue;
        c.worker[task] = w, c.place[task] = next[w];
        run_task(p, &c, task, next[w] ? p->queue[at - 1] : KP_NONE, joined);
        if (t->trigger != KP_NONE) count[t->trigger]++;
        next[w]++, left--, stuck = 0;
    }
    c.finished = left == 0;
    free(count), free(next), free(joined);
    return c;
}

/* Is a stored before b's launcher may touch anything? */
static bool before(const clocks *c, uint32_t a, uint32_t b) {
    return c->start[(size_t)b * c->workers + c->worker[a]] > c->place[a];
}

/* ---- data --------------------------------------------------------------------------------------- */

/* Text of the first breach; NULL when there is none. */
static const char *find_race(const plan *p, const clocks *c) {
    static char text[512];
    for (uint32_t i = 0; i < toy_n_log; i++) {
        const toy_access *r = &toy_log[i];
        for (uint32_t k = 0; k < toy_n_log; k++) {
            const toy_access *w = &toy_log[k];
            if (r->write || !w->write || w->task == r->task || r->buffer != w->buffer) continue;
            if (w->hi <= r->lo || r->hi <= w->lo || before(c, w->task, r->task)) continue;
            snprintf(text, sizeof text, "task %u reads %s [%lld, %lld) and task %u, which writes it, is not before it",
                     r->task, p->buffers[r->buffer].name, (long long)r->lo, (long long)r->hi, w->task);
            return text;
        }
    }
    for (uint32_t task = 1; task < toy_n_tasks; task++) { /* task 0 writes the step record, which all read */
        if (before(c, 0, task)) continue;
        snprintf(text, sizeof text, "task %u does not wait for the step record", task);
        return text;
    }
    return NULL;
}

static bool placed(const plan_buffer *b) { return b->kind == BUFFER_ACTIVATION || b->kind == BUFFER_SCRATCH; }

/* Buffers with a byte in common: all accesses of one before all accesses of the other. */
static const char *find_overlap(const plan *p, const clocks *c) {
    static char text[512];
    const char *breach = NULL;
    for (uint32_t x = 0; x < p->n_buffers && !breach; x++) {
        for (uint32_t y = 0; y < x && !breach; y++) {
            const plan_buffer *a = &p->buffers[x], *b = &p->buffers[y];
            bool forth = true, back = true;
            if (!placed(a) || !placed(b) || a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset)
                continue;
            for (uint32_t i = 0; i < toy_n_log; i++) {
                for (uint32_t k = 0; k < toy_n_log && toy_log[i].buffer == x; k++) {
                    if (toy_log[k].buffer != y) continue;
                    forth = forth && before(c, toy_log[i].task, toy_log[k].task);
                    back = back && before(c, toy_log[k].task, toy_log[i].task);
                }
            }
            if (forth != back && !a->external && !b->external) continue;
            snprintf(text, sizeof text, "%s and %s share bytes and are in use at once, or one is external", a->name,
                     b->name);
            breach = text;
        }
    }
    return breach;
}

static const char *find_fault(const plan *p, uint64_t seed) {
    clocks c = simulate(p, seed);
    const char *fault = !c.finished ? "deadlock" : find_race(p, &c);
    if (!fault) fault = find_overlap(p, &c);
    clocks_free(&c);
    return fault;
}

/* ---- structure ---------------------------------------------------------------------------------- */

static void check_queues(const plan *p) {
    uint8_t *seen = calloc(p->n_tasks, 1);
    assert_int_equal(p->queue_first[0], 0);
    assert_int_equal(p->queue_first[p->workers], p->n_tasks);
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        assert_in_range(p->queue[i], 0, p->n_tasks - 1);
        assert_int_equal(seen[p->queue[i]]++, 0);
    }
    free(seen);
}

static void check_triggers(const plan *p) {
    uint32_t *count = calloc(p->n_events + 1, sizeof *count);
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        if (p->tasks[i].trigger != KP_NONE) count[p->tasks[i].trigger]++;
    }
    for (uint32_t e = 0; e < p->n_events; e++) {
        assert_int_equal(p->events[e].triggers, count[e]);
        assert_int_not_equal(count[e], 0);
    }
    free(count);
}

/* Spans are disjoint and in SMEM; a region that was asked for begins in the span that its role releases. */
static void check_pages(const plan *p) {
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        const kp_task *t = &p->tasks[i];
        uint8_t *held = calloc(p->n_pages, 1);
        for (uint32_t s = 0; s < t->n_spans; s++) {
            for (uint32_t k = 0; k < t->span[s].n_pages; k++) {
                assert_in_range(t->span[s].first_page + k, 0, p->n_pages - 1);
                assert_int_equal(held[t->span[s].first_page + k]++, 0);
            }
        }
        for (uint32_t r = 0; r < t->n_regions; r++) {
            uint32_t page = t->region_offset[r] / p->page_bytes, role = r == 0 ? KP_CONSUMER : KP_STORER, found = 0;
            for (uint32_t s = 0; s < t->n_spans; s++) {
                found += t->span[s].release_role == role && page >= t->span[s].first_page &&
                         page < t->span[s].first_page + t->span[s].n_pages;
            }
            assert_int_equal(found, 1);
            assert_int_equal(t->region_offset[r] % 64, 0);
        }
        free(held);
    }
}

static void check_buffers(const plan *p) {
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const plan_buffer *b = &p->buffers[i];
        if (placed(b)) assert_true(b->offset + b->bytes <= p->arena_bytes);
        if (b->kind == BUFFER_CONST) assert_true(b->offset + b->bytes <= p->consts_bytes);
    }
}

/* ---- tests -------------------------------------------------------------------------------------- */

static plan *random_plan(uint64_t seed, bool no_reuse) {
    uint64_t r = seed * 977;
    graph *g = toy_any(seed);
    plan *p = toy_plan(g, &(plan_options){.workers = 1 + toy_random(&r, 9),
                                          .m_max = 1 + toy_random(&r, 16),
                                          .max_seq = 256,
                                          .no_reuse = no_reuse});
    graph_close(g);
    if (!p) fail_msg("seed %llu: no plan", (unsigned long long)seed);
    return p;
}

static void random_graphs_have_no_deadlock_and_no_race(void **state) {
    (void)state;
    uint32_t shared = 0;
    for (uint64_t seed = 1; seed <= RANDOM_GRAPHS; seed++) {
        plan *p = random_plan(seed, false);
        check_queues(p);
        check_triggers(p);
        check_pages(p);
        check_buffers(p);
        for (uint64_t run = 0; run < 3; run++) {
            const char *fault = find_fault(p, seed * 31 + run);
            if (fault) fail_msg("seed %llu, run %llu: %s", (unsigned long long)seed, (unsigned long long)run, fault);
        }
        uint64_t reused = p->arena_bytes;
        plan_close(p);
        p = random_plan(seed, true);
        assert_true(reused <= p->arena_bytes);
        shared += reused < p->arena_bytes;
        plan_close(p);
    }
    assert_true(shared > RANDOM_GRAPHS / 4); /* or the check of sharing would see none */
}

/* The judges see what they are there for. */
static void broken_plans_are_caught(void **state) {
    (void)state;
    uint32_t waits = 0, caught = 0, overlaps = 0, deadlocks = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        plan *p = random_plan(seed, false);
        for (uint32_t i = 0; i < p->n_tasks; i++) {
            kp_task *t = &p->tasks[i];
            if (t->n_waits == 0) continue;
            t->n_waits--; /* the last one */
            waits++, caught += find_fault(p, seed) != NULL;
            t->n_waits++;
        }
        for (uint32_t i = 0; i < p->n_buffers; i++) p->buffers[i].offset = 0;
        overlaps += find_fault(p, seed) != NULL;
        if (p->n_events) {
            p->events[0].triggers++;
            const char *fault = find_fault(p, seed);
            deadlocks += fault && strcmp(fault, "deadlock") == 0;
        }
        plan_close(p);
    }

    assert_true(caught > waits / 3); /* the rest is ordered by the queue, or by the other waits */
    assert_true(overlaps == 40);
    assert_true(deadlocks == 40);
}

static void twenty_builds_are_the_same_bytes(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        buf first = {0};
        char hash[PLAN_HASH_HEX] = "", again[PLAN_HASH_HEX] = "";
        for (int i = 0; i < BUILDS; i++) {
            buf bytes = {0};
            void *stir = malloc((size_t)(i + 1) * 1000); /* other addresses, other garbage */
            memset(stir, i + 1, (size_t)(i + 1) * 1000);
            free(stir);
            plan *p = random_plan(seed, false);
            assert_int_equal(plan_write(p, &bytes, NULL), KEEL_OK);
            assert_int_equal(plan_hash(p, i ? again : hash, NULL), KEEL_OK);
            if (i == 0) {
                first = bytes;
            } else {
                assert_int_equal(bytes.len, first.len);
                assert_memory_equal(bytes.data, first.data, first.len);
                assert_string_equal(hash, again);
                buf_free(&bytes);
            }
            plan_close(p);
        }
        buf_free(&first);
    }
}

static void missing_bodies_are_named(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    graph *g = toy_decoder(1, 8, 2);
    plan *p = NULL;
    assert_int_equal(plan_build(g, &(plan_options){.arch = "sm_90a"}, &p, &err), KEEL_REFUSED);
    assert_null(p);
    static const char *const named[] = {"sm_90a", "op map: storer", "op split.part: consumer", "op split.merge: storer",
                                        "op argmax.part: storer"};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (!strstr(err.detail, named[i])) fail_msg("%s is not in: %s", named[i], err.detail);
    }
    assert_null(strstr(err.detail, "loader"));
    assert_null(strstr(err.detail, "step_begin")); /* it has ops/step_begin/step_begin.cuh; the toys have none */
    assert_int_equal(plan_build(g, &(plan_options){.arch = "sm_90a", .allow_absent = true}, &p, &err), KEEL_OK);
    assert_int_equal(p->workers, 132);
    assert_int_equal(plan_check_bodies(p, &err), KEEL_REFUSED);
    plan_close(p);
    graph_close(g);
}

static void expect_refusal(const plan_options *o, keel_status status, const char *words) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    graph *g = toy_decoder(1, 8, 2);
    plan *p = NULL;
    assert_int_equal(plan_build(g, o, &p, &err), status);
    if (!strstr(err.detail, words)) fail_msg("%s is not in: %s", words, err.detail);
    assert_null(p);
    graph_close(g);
}

static void options_are_checked(void **state) {
    (void)state;
    const char *lever = "warp-drive";
    expect_refusal(&(plan_options){.arch = "sm_999"}, KEEL_USAGE, "sm_90a");
    expect_refusal(&(plan_options){.workers = 5000}, KEEL_RANGE, "5000");
    expect_refusal(&(plan_options){.m_max = 17}, KEEL_RANGE, "17");
    expect_refusal(&(plan_options){.max_seq = 1u << 25}, KEEL_RANGE, "--max-seq");
    expect_refusal(&(plan_options){.page_tokens = 2048}, KEEL_RANGE, "--page-tokens");
    expect_refusal(&(plan_options){.levers = &lever, .n_levers = 1}, KEEL_USAGE, "warp-drive");
}

/* Tasks of one phase are unordered: they must neither write nor read each other's columns. */
static void clashing_tiles_are_refused(void **state) {
    (void)state;
    const char *const words[] = {NULL, "must be disjoint", "which another task of the same phase writes"};
    for (int clash = 0; clash <= 2; clash++) {
        keel_error err = KEEL_ERROR_INITIALIZER;
        build b;
        graph *g = NULL;
        plan *p = NULL;
        assert_int_equal(build_begin(&b, "toy", "Toy", DTYPE_F32, &err), KEEL_OK);
        int x = build_op(&b, (op_spec){.kind = "embed", .name = "x", .attr = {{"cols", 8}, {"tiles", 2}}});
        build_op(&b, (op_spec){.kind = "map", .name = "y", .in = {x}, .attr = {{"tiles", 2}, {"clash", clash}}});
        assert_int_equal(build_finish(&b, &g), KEEL_OK);
        toy_log_reset();
        keel_status s = plan_build(g, &(plan_options){.workers = 2}, &p, &err);
        assert_int_equal(s, clash ? KEEL_REFUSED : KEEL_OK);
        if (clash && !strstr(err.detail, words[clash])) fail_msg("%s is not in: %s", words[clash], err.detail);
        plan_close(p);
        graph_close(g);
    }
}

/* Each layer finds the bytes of the one before it free again. */
static void more_layers_take_no_more_arena(void **state) {
    (void)state;
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        graph *g = toy_decoder(i ? 40 : 4, 64, 4);
        plan *p = toy_plan(g, &(plan_options){.workers = 3, .max_seq = 64});
        const char *fault = find_fault(p, 1);
        if (fault) fail_msg("%s", fault);
        bytes[i] = p->arena_bytes;
        plan_close(p);
        graph_close(g);
    }
    assert_int_equal(bytes[0], bytes[1]);
}

static void memory_may_fail_anywhere(void **state) {
    (void)state;
    graph *g = toy_decoder(2, 8, 3);
    for (uint64_t n = 1;; n++) {
        keel_error err = KEEL_ERROR_INITIALIZER;
        plan *p = NULL;
        toy_log_reset();
        mem_fail_after(n);
        keel_status s = plan_build(g, &(plan_options){.workers = 3, .max_seq = 64}, &p, &err);
        mem_fail_after(0);
        plan_close(p);
        if (s == KEEL_OK) {
            assert_true(n > 10);
            break;
        }
        if (s != KEEL_NOMEM || p)
            fail_msg("allocation %llu: %s: %s", (unsigned long long)n, keel_status_name(s), err.detail);
    }
    graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_have_no_deadlock_and_no_race),
        cmocka_unit_test(broken_plans_are_caught),
        cmocka_unit_test(twenty_builds_are_the_same_bytes),
        cmocka_unit_test(missing_bodies_are_named),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(clashing_tiles_are_refused),
        cmocka_unit_test(more_layers_take_no_more_arena),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
