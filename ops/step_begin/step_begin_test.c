/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of each pass, from the storer's body called as the protocol calls it, one iteration after the other. */
#include "step_begin.h"

#include "graph/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPT_MAX = 64 };

typedef struct fixture {
    kp_u32 prompt[PROMPT_MAX];
    kp_request request;
    kp_state state;
    kp_step step;
    kp_launch launch;
    kp_worker worker;
    kp_ctx ctx;
} fixture;

static void open(fixture *f, kp_u32 n_prompt, kp_u32 chunk, kp_u32 max_new, kp_u32 start) {
    memset(f, 0, sizeof *f);
    memset(&f->step, 0xee, sizeof f->step);
    for (kp_u32 i = 0; i < n_prompt; i++) f->prompt[i] = 1000 + i;
    f->request = (kp_request){
        .prompt = f->prompt, .n_prompt = n_prompt, .chunk = chunk, .max_new = max_new, .start = start, .max_seq = 4096};
    f->state.position = start;
    f->launch.request = &f->request;
    f->launch.state = &f->state;
    f->launch.step = &f->step;
    f->worker.lanes[KP_STORER] = 2;
    f->worker.launch = &f->launch;
    f->ctx.worker = &f->worker;
    f->ctx.role = KP_STORER;
}

static void next(fixture *f, kp_u32 iteration) {
    f->ctx.iteration = iteration;
    for (f->ctx.lane = 0; f->ctx.lane < f->worker.lanes[KP_STORER]; f->ctx.lane++) {
        op_find("step_begin")->phases[0].cpu[KP_STORER](&f->ctx);
    }
}

/* Every chunk size: all prompt tokens once, in order, at rising positions; only the last pass predicts. */
static void prompt_in_chunks(void **state) {
    (void)state;
    static const kp_u32 prompts[] = {1, 2, 15, 16, 17, 32, 50};
    for (unsigned i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        for (kp_u32 chunk = 1; chunk <= KP_M_MAX; chunk++) {
            for (kp_u32 all = 0; all <= 1; all++) {
                fixture f;
                open(&f, prompts[i], chunk, 5, 7);
                f.request.all_logits = all;
                kp_u32 done = 0;
                for (kp_u32 iteration = 0; done < prompts[i]; iteration++) {
                    next(&f, iteration);
                    kp_u32 want = prompts[i] - done < chunk ? prompts[i] - done : chunk;
                    int last = done + want == prompts[i];
                    assert_int_equal(f.step.iteration, iteration);
                    assert_int_equal(f.step.n_rows, want);
                    assert_int_equal(f.step.logit_from, all ? 0 : last ? want - 1 : want);
                    for (kp_u32 r = 0; r < want; r++) {
                        assert_int_equal(f.step.token[r], 1000 + done + r);
                        assert_int_equal(f.step.position[r], 7 + done + r);
                        assert_int_equal(f.step.seq[r], 0);
                    }
                    done += want;
                    assert_int_equal(f.state.cursor, done);
                    assert_int_equal(f.state.position, 7 + done);
                    assert_int_equal(f.state.finished, 0);
                }
            }
        }
    }
}

static void decode_feeds_the_last_token(void **state) {
    (void)state;
    fixture f;
    open(&f, 3, 2, 5, 0);
    next(&f, 0);
    next(&f, 1);
    for (kp_u32 n = 0; n < 4; n++) {
        f.state.last_token = 77 + n;
        next(&f, 2 + n);
        assert_int_equal(f.step.n_rows, 1);
        assert_int_equal(f.step.logit_from, 0);
        assert_int_equal(f.step.token[0], 77 + n);
        assert_int_equal(f.step.position[0], 3 + n);
        assert_int_equal(f.step.seq[0], 0);
        assert_int_equal(f.state.position, 4 + n);
    }
}

static void a_prompt_alone_ends_with_its_last_pass(void **state) {
    (void)state;
    fixture f;
    open(&f, 20, 16, 0, 0);
    next(&f, 0);
    assert_int_equal(f.state.finished, 0);
    next(&f, 1);
    assert_int_equal(f.state.finished, 1);
    assert_int_equal(f.step.n_rows, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_in_chunks),
        cmocka_unit_test(decode_feeds_the_last_token),
        cmocka_unit_test(a_prompt_alone_ends_with_its_last_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
