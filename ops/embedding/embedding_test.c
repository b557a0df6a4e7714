/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding.h"

#include "support/op_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { VOCAB = 37 };

typedef struct run {
    harness *h;
    int64_t hidden;
    int32_t tokens[CASE_ROWS];
} run;

static void reference(const void *user, double *want) {
    const run *t = user;
    const float *w = harness_weight(t->h, "w");
    for (int64_t i = 0; i < CASE_ROWS * t->hidden; i++)
        want[i] = (double)w[t->tokens[i / t->hidden] * t->hidden + i % t->hidden];
}

static void check(dtype type, int64_t hidden, uint32_t workers, uint32_t lanes) {
    run t = {.hidden = hidden};
    t.h = harness_new((harness_config){
        .seed = (unsigned)hidden, .workers = workers, .lanes = lanes, .weight_dtype = type, .vocab = VOCAB});
    op_spec spec = {.kind = "embedding", .name = "embed", .weight = {{.key = "w", .dim = {VOCAB, hidden}}}};
    int out = build_op(harness_build(t.h), spec);
    harness_ready(t.h);
    for (int32_t r = 0; r < CASE_ROWS; r++) t.tokens[r] = r < 2 ? VOCAB - 1 : r * 11 % VOCAB; /* one twice, the last */
    op_case_check(&(op_case){.h = t.h,
                             .op = "embedding",
                             .out = out,
                             .cols = (uint32_t)hidden,
                             .start = 3,
                             .tokens = t.tokens,
                             .reference = reference,
                             .user = &t});
    harness_close(t.h);
}

static void rows_of_the_table(void **state) {
    (void)state;
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int t = 0; t < 3; t++) {
        check(types[t], 1, 2, 2);
        check(types[t], 77, 1, 1);
        check(types[t], 200, 3, 2);
        check(types[t], 1000, 7, 1);
    }
}

static void bad_shapes(void **state) {
    (void)state;
    op_refuses((op_spec){.kind = "embedding", .weight = {{.key = "w", .dim = {8}}}}, KEEL_FORMAT, "[vocab, hidden]");
    op_refuses((op_spec){.kind = "embedding", .weight = {{.key = "w", .dim = {8, 1ll << 31}}}}, KEEL_RANGE,
               "2147483648");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_the_table), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
