/* SPDX-License-Identifier: Apache-2.0 */
/* Which edges carry their epoch, and that the proof takes no such edge for more than it is. */
#include "core/json.h"
#include "graph/model.h"
#include "plan/prove.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static plan *plan_of(const char *arch, uint32_t m_max, int kv_heads) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    char path[512];
    json_t *config = NULL;
    graph *g = NULL;
    plan *p = NULL;
    model_options mo = {.layer_first = 0, .layer_last = 1};
    plan_options po = {.arch = arch, .m_max = m_max, .workers = 132, .max_seq = 512};
    snprintf(path, sizeof path, "%s/models/geometries/qwen3-0.6b.json", KEEL_SOURCE_DIR);
    if (json_read(path, 1 << 20, &config, &err) != KEEL_OK) fail_msg("%s", err.detail);
    if (json_object_set_new(config, "num_key_value_heads", json_integer(kv_heads))) fail_msg("memory");
    if (model_build(config, path, &mo, &g, &err) != KEEL_OK) fail_msg("%s", err.detail);
    if (plan_build(g, &po, &p, &err) != KEEL_OK) fail_msg("%s", err.detail);
    json_decref(config);
    graph_close(g);
    return p;
}

static plan *make_plan(const char *arch, uint32_t m_max) { return plan_of(arch, m_max, 8); }

static uint32_t count(const plan *p, buffer_kind kind) {
    uint32_t n = 0;
    for (uint32_t b = 0; b < p->n_buffers; b++) n += p->buffers[b].kind == kind;
    return n;
}

static uint32_t find_event(const plan *p, bool weak) {
    for (uint32_t e = 0; e < p->n_events; e++) {
        if (p->events[e].weak == weak) return e;
    }
    fail_msg("no such event");
    return KP_NONE;
}

static void refused(const plan *p, const char *words) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(plan_prove(&p, 1, NULL, &err), KEEL_REFUSED);
    if (!strstr(err.detail, words)) fail_msg("\"%s\" is not in:\n%s", words, err.detail);
}

/* Rows of one-row plans for an arch that has tags; nothing that leaves the chain of ops, and nothing elsewhere. */
static void where_they_are(void **state) {
    (void)state;
    plan *p = make_plan("sm_90a", 1);
    assert_true(count(p, BUFFER_TAGGED) > 0);
    assert_int_not_equal(p->buffers[p->logits].kind, BUFFER_TAGGED);
    for (uint32_t b = 0; b < p->n_buffers; b++) {
        if (p->buffers[b].kind == BUFFER_TAGGED) /* 16 columns of bf16 in 48 bytes */
            assert_int_equal(p->buffers[b].bytes, p->buffers[b].dim[1] * 3);
    }
    assert_int_equal(plan_prove((const plan *const *)&p, 1, NULL, NULL), KEEL_OK);
    plan_close(p);
    p = make_plan("sm_90a", 2);
    assert_int_equal(count(p, BUFFER_TAGGED), 0);
    for (uint32_t e = 0; e < p->n_events; e++) assert_false(p->events[e].weak);
    plan_close(p);
    p = make_plan("cpu", 1);
    assert_int_equal(count(p, BUFFER_TAGGED), 0);
    plan_close(p);
}

/* The one phase that writes caches alone (16 heads of 128 a KV head are cut): other tasks read them in this iteration,
 * and its events must order that. */
static void appends_for_others(void **state) {
    (void)state;
    plan *p = plan_of("sm_90a", 16, 1);
    uint32_t append = KP_NONE;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        const plan_body *b = &p->bodies[p->tasks[i].body];
        if (strcmp(b->op->phases[b->phase].name, "append") == 0) append = p->tasks[i].trigger;
    }
    assert_int_not_equal(append, KP_NONE);
    for (uint32_t e = 0; e < p->n_events; e++) assert_false(p->events[e].weak);
    assert_int_equal(plan_prove((const plan *const *)&p, 1, NULL, NULL), KEEL_OK);
    p->events[append].weak = true;
    refused(p, "weak");
    plan_close(p);
}

/* An event whose tasks also write what is not tagged must order it. */
static void weak_where_it_must_not_be(void **state) {
    (void)state;
    plan *p = make_plan("sm_90a", 1);
    p->events[find_event(p, false)].weak = true;
    refused(p, "weak");
    plan_close(p);
}

/* A strong one where a weak one would do is only slower. */
static void strong_is_always_right(void **state) {
    (void)state;
    plan *p = make_plan("sm_90a", 1);
    p->events[find_event(p, true)].weak = false;
    assert_int_equal(plan_prove((const plan *const *)&p, 1, NULL, NULL), KEEL_OK);
    plan_close(p);
}

/* The wait for data must stand in the plan, or it would be in no cycle that the proof looks for. */
static void reader_without_its_wait(void **state) {
    (void)state;
    plan *p = make_plan("sm_90a", 1);
    bool dropped = false;
    for (uint32_t i = 0; i < p->n_tasks && !dropped; i++) {
        kp_task *t = &p->tasks[i];
        uint32_t kept = 0;
        for (uint32_t w = 0; w < t->n_waits; w++) {
            uint32_t e = p->waits[t->wait_first + w];
            if (!p->events[e].weak) p->waits[t->wait_first + kept++] = e;
        }
        dropped = kept < t->n_waits;
        t->n_waits = (kp_u16)kept;
    }
    assert_true(dropped);
    refused(p, "nothing orders them");
    plan_close(p);
}

/* Weak events say nothing of other data: who reads the step record must hear of it by another one. */
static void step_record_needs_its_own_event(void **state) {
    (void)state;
    plan *p = make_plan("sm_90a", 1);
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        kp_task *t = &p->tasks[i];
        uint32_t kept = 0;
        for (uint32_t w = 0; w < t->n_waits; w++) {
            uint32_t e = p->waits[t->wait_first + w];
            bool weak_too = false;
            for (uint32_t k = 0; k < t->n_waits; k++) weak_too |= p->events[p->waits[t->wait_first + k]].weak;
            if (p->events[e].phase != 0 || !weak_too) p->waits[t->wait_first + kept++] = e;
        }
        t->n_waits = (kp_u16)kept;
    }
    refused(p, "step");
    plan_close(p);
}

/* Old data of another buffer could look like this iteration's. */
static void shares_with_nothing(void **state) {
    (void)state;
    plan *p = make_plan("sm_90a", 1);
    plan_buffer *tagged = NULL, *other = NULL;
    for (uint32_t b = 0; b < p->n_buffers; b++) {
        plan_buffer *x = &p->buffers[b];
        if (x->kind == BUFFER_TAGGED && !tagged) tagged = x;
        if (x->kind == BUFFER_TAGGED && x != tagged && x->bytes <= tagged->bytes) other = x;
    }
    assert_non_null(other);
    other->offset = tagged->offset;
    refused(p, "shares with nothing");
    plan_close(p);
}

/* Its op's bodies would take the tags for data. */
static void ops_that_know_no_tags(void **state) {
    (void)state;
    plan *p = make_plan("sm_90a", 1);
    plan_buffer *b = &p->buffers[p->logits];
    p->logits = KP_NONE;
    b->kind = BUFFER_TAGGED;
    b->dim[1] -= b->dim[1] % 16;
    b->bytes = (uint64_t)b->dim[1] * 3;
    b->offset = (p->arena_bytes + 255) / 256 * 256;
    p->arena_bytes = b->offset + b->bytes;
    refused(p, "tags");
    plan_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_they_are),
        cmocka_unit_test(appends_for_others),
        cmocka_unit_test(weak_where_it_must_not_be),
        cmocka_unit_test(strong_is_always_right),
        cmocka_unit_test(step_record_needs_its_own_event),
        cmocka_unit_test(reader_without_its_wait),
        cmocka_unit_test(shares_with_nothing),
        cmocka_unit_test(ops_that_know_no_tags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
