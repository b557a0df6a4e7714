/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding.h"

#include "support/op_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 16, VOCAB = 37 };

static void check(dtype type, int64_t hidden, uint32_t workers, uint32_t lanes) {
    harness *h = harness_new((harness_config){
        .seed = (unsigned)hidden, .workers = workers, .lanes = lanes, .weight_dtype = type, .vocab = VOCAB});
    op_spec spec = {.kind = "embedding", .name = "embed", .weight = {{.key = "w", .dim = {VOCAB, hidden}}}};
    int out = build_op(harness_build(h), spec);
    harness_ready(h);
    double want[ROWS * 1000];
    static const uint32_t rows[] = {1, 2, 3, 15, 16};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int32_t tokens[ROWS];
        for (int32_t r = 0; r < ROWS; r++)
            tokens[r] = r < 2 ? VOCAB - 1 : (r * 11 + (int32_t)i) % VOCAB; /* one twice, the last */
        harness_run(h, rows[i], 3, tokens, i & 1);
        for (uint32_t r = 0; r < rows[i]; r++) {
            for (int64_t j = 0; j < hidden; j++)
                want[r * hidden + j] = (double)harness_weight(h, "w")[tokens[r] * hidden + j];
        }
        harness_compare(&keel_op_embedding, "embedding", harness_tensor(h, out), want, rows[i], (uint32_t)hidden,
                        (uint32_t)hidden, (uint32_t)hidden);
        if (rows[i] < ROWS) assert_true(isnan(harness_tensor(h, out)[rows[i] * hidden])); /* and no other row */
    }
    harness_close(h);
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

/* Runs the shape rule alone; the text must name the op and what is wrong. */
static void refuses(int64_t x_cols, op_spec spec, keel_status status, const char *what) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    build b;
    graph *g = NULL;
    assert_int_equal(build_begin(&b, "test", "test", DTYPE_F32, &err), KEEL_OK);
    int x = build_input(&b, "x", x_cols);
    for (int i = 0; i < GRAPH_IN; i++) spec.in[i] = spec.in[i] == 1 ? x : spec.in[i];
    spec.name = "l7.it";
    build_op(&b, spec);
    assert_int_equal(build_finish(&b, &g), status);
    if (!strstr(err.detail, what) || !strstr(err.detail, "l7.it")) fail_msg("%s", err.detail);
}

static void bad_shapes(void **state) {
    (void)state;
    refuses(8, (op_spec){.kind = "embedding", .weight = {{.key = "w", .dim = {8}}}}, KEEL_FORMAT, "[vocab, hidden]");
    refuses(8, (op_spec){.kind = "embedding", .weight = {{.key = "w", .dim = {8, 1ll << 31}}}}, KEEL_RANGE,
            "2147483648");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_the_table), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
