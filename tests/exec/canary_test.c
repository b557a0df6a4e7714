/* SPDX-License-Identifier: Apache-2.0 */
/* The harness sees an op that writes one element too many, and one that leaves elements out. */
#include "support/op_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { ROWS = 16, N = 77 };

static harness *open_add(bool planted, int *out) {
    harness *h = harness_new((harness_config){.seed = 1, .planted = planted});
    int a = harness_input(h, "a", N), b = harness_input(h, "b", N);
    *out = build_op(harness_build(h), (op_spec){.kind = "add", .name = "it", .in = {a, b}});
    harness_ready(h);
    return h;
}

/* The buffer ends one element before what the op writes. */
static void one_element_too_many(void **state) {
    (void)state;
    int out;
    harness *h = open_add(true, &out);
    harness_run(h, ROWS, 0, NULL, false);
    harness_close(h);
}

/* Rows that a pass does not have keep the poison, also where the pass before wrote them. */
static void poison_stays_where_nothing_is_written(void **state) {
    (void)state;
    int out;
    harness *h = open_add(false, &out);
    for (uint32_t rows = ROWS; rows < 100; rows -= 5) {
        harness_run(h, rows, 0, NULL, false);
        const float *got = harness_tensor(h, out);
        for (uint32_t i = 0; i < ROWS * N; i++) assert_int_equal(isnan(got[i]) != 0, i >= rows * N);
    }
    harness_close(h);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_element_too_many),
                                       cmocka_unit_test(poison_stays_where_nothing_is_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
