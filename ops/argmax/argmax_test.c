/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
#include "argmax.h"

#include "core/mem.h"
#include "device/emit.h"
#include "support/op_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* ---- the op in a run ----------------------------------------------------------------------------- */

enum { ROWS = 5 };

typedef struct fixture {
    harness *h;
    float *logits; /* [16][vocab] */
    int64_t vocab;
} fixture;

static void fixture_open(fixture *f, int64_t vocab, uint32_t workers, uint32_t lanes) {
    f->h = harness_new((harness_config){.seed = (unsigned)vocab, .workers = workers, .lanes = lanes, .vocab = vocab});
    f->vocab = vocab;
    int id = harness_input(f->h, "logits", vocab);
    build_tail(harness_build(f->h), id, false);
    harness_ready(f->h);
    f->logits = harness_tensor(f->h, id);
    for (int64_t i = 0; i < ROWS * vocab; i++) f->logits[i] = harness_uniform(7, (uint64_t)i);
}

/* The prompt has ROWS rows, so that the first token comes from row ROWS − 1; later ones come from row 0. */
static void expect(fixture *f, int32_t first, int32_t then) {
    static const int32_t prompt[ROWS] = {0};
    int32_t out[3] = {-1, -1, -1};
    assert_int_equal(harness_generate(f->h, ROWS, prompt, (harness_sampling){0}, 3, out), 3);
    assert_int_equal(out[0], first);
    assert_int_equal(out[1], then);
    assert_int_equal(out[2], then);
}

static void set_row(fixture *f, int row, float value) {
    for (int64_t i = 0; i < f->vocab; i++) f->logits[row * f->vocab + i] = value;
}

static void finds_the_greatest_anywhere(void **state) {
    (void)state;
    static const int64_t vocabs[] = {1, 2, 17, 1000, 1025, 5000, 151936};
    for (unsigned i = 0; i < sizeof vocabs / sizeof *vocabs; i++) {
        for (uint32_t workers = 1; workers <= 3; workers++) {
            int64_t n = vocabs[i], places[] = {0, n / 3, n / 2, n - 1};
            fixture f;
            fixture_open(&f, n, workers, 1 + workers % 2);
            for (unsigned j = 0; j < sizeof places / sizeof *places; j++) {
                int64_t first = places[j], then = places[3 - j];
                f.logits[(ROWS - 1) * n + first] = 2;
                f.logits[then] = 3;
                expect(&f, (int32_t)first, (int32_t)then);
                f.logits[(ROWS - 1) * n + first] = f.logits[then] = 0;
            }
            harness_close(f.h);
        }
    }
}

static void the_lowest_index_wins_a_tie(void **state) {
    (void)state;
    for (uint32_t workers = 1; workers <= 4; workers++) {
        fixture f;
        fixture_open(&f, 5000, workers, 1 + workers % 2);
        set_row(&f, 0, -1);
        set_row(&f, ROWS - 1, 0);
        expect(&f, 0, 0);
        static const int tied[] = {4999, 4998, 3750, 2500, 2499, 1250, 1249, 17, 16, 15};
        for (unsigned i = 0; i < sizeof tied / sizeof *tied; i++) {
            f.logits[tied[i]] = 1;
            f.logits[(ROWS - 1) * 5000 + tied[i]] = 1;
            expect(&f, tied[i], tied[i]);
        }
        harness_close(f.h);
    }
}

static void nan_never_wins(void **state) {
    (void)state;
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        fixture f;
        fixture_open(&f, 5000, 3, lanes);
        set_row(&f, 0, NAN);
        set_row(&f, ROWS - 1, -INFINITY);
        expect(&f, 0, 0);
        f.logits[4321] = -INFINITY;
        f.logits[(ROWS - 1) * 5000 + 4321] = -1e30f;
        f.logits[(ROWS - 1) * 5000] = NAN;
        expect(&f, 4321, 0);
        f.logits[4321] = -5;
        f.logits[(ROWS - 1) * 5000 + 77] = INFINITY;
        expect(&f, 77, 4321);
        harness_close(f.h);
    }
}

/* ---- handing the token over (device/emit.h) and the copy of the logits, from the bodies alone ------- */

enum { VOCAB = 40, NEW = 4 };

typedef struct hand {
    kp_u32 stop[2], forced[NEW];
    float logits[2 * VOCAB], copied[NEW * VOCAB];
    kp_u64 out[NEW], out_ns[NEW];
    argmax_best best[2];
    argmax_params params;
    kp_request request;
    kp_state state;
    kp_step step;
    kp_instance instance;
    kp_launch launch;
    kp_worker worker;
    kp_task task;
    kp_ctx ctx;
} hand;

static void hand_open(hand *x) {
    memset(x, 0, sizeof *x);
    for (int i = 0; i < 2 * VOCAB; i++) x->logits[i] = harness_uniform(9, (uint64_t)i);
    x->params = (argmax_params){VOCAB, 2};
    x->request = (kp_request){.n_prompt = 3,
                              .max_new = NEW,
                              .max_seq = 100,
                              .stop_id = x->stop,
                              .forced = x->forced,
                              .out = x->out,
                              .out_ns = x->out_ns,
                              .logits = x->copied,
                              .vocab = VOCAB};
    x->state = (kp_state){.cursor = 3, .position = 3};
    x->step.n_rows = 2;
    x->instance = (kp_instance){.params = &x->params, .buffer = {x->logits, x->best}};
    x->launch.request = &x->request;
    x->launch.state = &x->state;
    x->launch.step = &x->step;
    x->launch.instances = &x->instance;
    for (int r = 0; r < KP_ROLES; r++) x->worker.lanes[r] = 2;
    x->worker.launch = &x->launch;
    x->ctx.worker = &x->worker;
    x->ctx.task = &x->task;
}

/* The reduce phase over partial results (value, index) a and b. */
static void hand_reduce(hand *x, argmax_best a, argmax_best b) {
    static const enum kp_role order[] = {KP_CONSUMER, KP_STORER};
    x->best[0] = a;
    x->best[1] = b;
    for (int r = 0; r < 2; r++) {
        for (x->ctx.lane = 0; x->ctx.lane < 2; x->ctx.lane++) op_find("argmax")->phases[1].cpu[order[r]](&x->ctx);
    }
}

static void emits_token_time_and_logits(void **state) {
    (void)state;
    hand x;
    hand_open(&x);
    hand_reduce(&x, (argmax_best){1, 5}, (argmax_best){2, 30});
    assert_true(x.out[0] == (30 | (kp_u64)1 << 32));
    assert_true(x.out_ns[0] != 0);
    assert_int_equal(x.state.last_token, 30);
    assert_int_equal(x.state.n_out, 1);
    assert_int_equal(x.state.finished, 0);
    assert_memory_equal(x.copied, x.logits + VOCAB, VOCAB * sizeof(float)); /* the last row's */
    x.step.n_rows = 1;
    hand_reduce(&x, (argmax_best){2, 6}, (argmax_best){2, 31});
    assert_true(x.out[1] == (6 | (kp_u64)2 << 32));
    assert_true(x.out_ns[1] >= x.out_ns[0]);
    assert_memory_equal(x.copied + VOCAB, x.logits, VOCAB * sizeof(float));
    hand_reduce(&x, (argmax_best){1, 1}, (argmax_best){0, 30});
    assert_int_equal(x.state.finished, 0);
    hand_reduce(&x, (argmax_best){1, 2}, (argmax_best){0, 30}); /* max_new */
    assert_int_equal(x.state.finished, 1);
    assert_int_equal(x.state.n_out, NEW);
    hand_reduce(&x, (argmax_best){1, 3}, (argmax_best){0, 30});
    assert_int_equal(x.state.n_out, NEW);
    assert_int_equal(x.state.last_token, 2);
}

static void nothing_before_the_prompt_ends(void **state) {
    (void)state;
    hand x;
    hand_open(&x);
    x.state.cursor = 2; /* of 3; with all_logits such a pass has logits, and still predicts nothing */
    hand_reduce(&x, (argmax_best){1, 5}, (argmax_best){2, 30});
    assert_int_equal(x.state.n_out, 0);
    assert_true(x.out[0] == 0);
    assert_true(x.copied[0] == 0);
    x.state.cursor = 3;
    x.request.max_new = 0;
    x.state.finished = 1;
    hand_reduce(&x, (argmax_best){1, 5}, (argmax_best){2, 30});
    assert_int_equal(x.state.n_out, 0);
}

static void stops_at_a_stop_id_and_at_the_last_position(void **state) {
    (void)state;
    hand x;
    hand_open(&x);
    x.stop[0] = 4;
    x.stop[1] = 30;
    x.request.n_stop = 2;
    hand_reduce(&x, (argmax_best){3, 5}, (argmax_best){2, 30});
    assert_int_equal(x.state.finished, 0);
    hand_reduce(&x, (argmax_best){1, 5}, (argmax_best){2, 30});
    assert_int_equal(x.state.finished, 1);
    assert_int_equal(x.state.n_out, 2);
    hand_open(&x);
    x.state.position = 99;
    hand_reduce(&x, (argmax_best){3, 5}, (argmax_best){2, 30});
    assert_int_equal(x.state.finished, 0);
    x.state.position = 100;
    hand_reduce(&x, (argmax_best){3, 5}, (argmax_best){2, 30});
    assert_int_equal(x.state.finished, 1);
}

static void teacher_forcing_feeds_its_own_and_ignores_stop_ids(void **state) {
    (void)state;
    hand x;
    hand_open(&x);
    x.stop[0] = 5;
    x.request.n_stop = 1;
    x.forced[0] = 11;
    x.request.n_forced = 1;
    hand_reduce(&x, (argmax_best){3, 5}, (argmax_best){2, 30});
    assert_true(x.out[0] == (5 | (kp_u64)1 << 32));
    assert_int_equal(x.state.last_token, 11);
    assert_int_equal(x.state.finished, 0);
    hand_reduce(&x, (argmax_best){3, 5}, (argmax_best){2, 30});
    assert_int_equal(x.state.last_token, 5);
    assert_int_equal(x.state.finished, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_greatest_anywhere),
        cmocka_unit_test(the_lowest_index_wins_a_tie),
        cmocka_unit_test(nan_never_wins),
        cmocka_unit_test(emits_token_time_and_logits),
        cmocka_unit_test(nothing_before_the_prompt_ends),
        cmocka_unit_test(stops_at_a_stop_id_and_at_the_last_position),
        cmocka_unit_test(teacher_forcing_feeds_its_own_and_ignores_stop_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
