/* SPDX-License-Identifier: Apache-2.0 */
#include "rope_table.h"

#include "support/op_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { HALF_MAX = 64, ROWS = 16 };

static void check(uint32_t half, double factor, uint32_t lanes, uint32_t rows, uint32_t start) {
    harness *h = harness_new((harness_config){.seed = half, .lanes = lanes, .max_seq = 65536});
    float inv_freq[HALF_MAX];
    for (uint32_t i = 0; i < half; i++) inv_freq[i] = (float)pow(10000, -(double)i / half);
    build *b = harness_build(h);
    int table = build_const(b, "inv_freq", inv_freq, half);
    int out = build_op(
        b, (op_spec){.kind = "rope_table", .name = "rope", .in = {table}, .attr = {{"attention_factor", factor}}});
    harness_ready(h);
    harness_run(h, rows, start, NULL, true);
    double want[ROWS * 2 * HALF_MAX];
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < half; i++) {
            /* The angle's rounding to float is part of the definition; the rest is exact here. */
            volatile float angle = (float)(start + r) * inv_freq[i];
            want[(r * 2) * half + i] = (double)(cosl((long double)angle) * (long double)factor);
            want[(r * 2 + 1) * half + i] = (double)(sinl((long double)angle) * (long double)factor);
        }
    }
    harness_compare(op_find("rope_table"), "rope table", harness_tensor(h, out), want, rows, 2 * half, 2 * half,
                    2 * half);
    harness_close(h);
}

static void cosines_and_sines(void **state) {
    (void)state;
    check(64, 1, 1, 16, 0);
    check(64, 1, 2, 16, 60000);
    check(16, 1.2079441541679836, 2, 5, 100);
    check(1, 1, 2, 1, 3);
    check(40, 0.5, 1, 16, 4095);
}

/* 60001 × 0.7f rounds to 42000.69921875; the cosine of the unrounded product differs by 4.5e-5. The values are
 * mpmath's, with 40 digits, of the rounded angle. */
static void the_angle_is_a_float(void **state) {
    (void)state;
    harness *h = harness_new((harness_config){.seed = 1, .max_seq = 65536});
    float inv_freq = 0.7f;
    build *b = harness_build(h);
    int out = build_op(b, (op_spec){.kind = "rope_table", .name = "rope", .in = {build_const(b, "f", &inv_freq, 1)}});
    harness_ready(h);
    harness_run(h, 1, 60001, NULL, true);
    const float *got = harness_tensor(h, out);
    assert_true(fabs((double)got[0] - -0.73370813002233583) < harness_tolerance(1e-7));
    assert_true(fabs((double)got[1] - -0.67946477461200310) < harness_tolerance(1e-7));
    harness_close(h);
}

static void needs_a_constant(void **state) {
    (void)state;
    op_refuses((op_spec){.kind = "rope_table", .in = {8}}, KEEL_FORMAT, "constant");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cosines_and_sines),
        cmocka_unit_test(the_angle_is_a_float),
        cmocka_unit_test(needs_a_constant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
