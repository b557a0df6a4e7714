/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions against IEEE 754's own words: every half, and the roundings at every kind of border. */
#include "core/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void every_half_comes_back(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 0x10000; v++) {
        uint32_t exponent = v >> 10 & 31, mantissa = v & 1023;
        if (exponent == 31 && mantissa) {
            assert_true(isnan(f16_to_f32((uint16_t)v)));
            continue;
        }
        double want = exponent == 31 ? (double)INFINITY
                      : exponent     ? ldexp(1024 + mantissa, (int)exponent - 25)
                                     : ldexp(mantissa, -24);
        if (v & 0x8000) want = -want;
        assert_true((double)f16_to_f32((uint16_t)v) == want);
        assert_int_equal(f16_from_f32(f16_to_f32((uint16_t)v)), v);
    }
}

static void halves_round_to_nearest_even(void **state) {
    (void)state;
    const struct {
        double value;
        uint16_t word;
    } cases[] = {{1 + ldexp(1, -11), 0x3c00},
                 {1 + ldexp(3, -11), 0x3c02},
                 {1 + ldexp(1, -11) + ldexp(1, -20), 0x3c01},
                 {65504, 0x7bff},
                 {65519.99, 0x7bff},
                 {65520, 0x7c00},
                 {1e30, 0x7c00},
                 {ldexp(1, -25), 0x0000},
                 {ldexp(1.5, -25), 0x0001},
                 {ldexp(3, -25), 0x0002},
                 {-ldexp(1, -24), 0x8001},
                 {ldexp(1, -14) - ldexp(1, -26), 0x0400},
                 {ldexp(1, -30), 0x0000},
                 {-0.0, 0x8000}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(f16_from_f32((float)cases[i].value), cases[i].word);
    assert_true(isnan(f16_to_f32(f16_from_f32(NAN))));
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 0x10000; v++) {
        if (!isnan(bf16_to_f32((uint16_t)v))) assert_int_equal(bf16_from_f32(bf16_to_f32((uint16_t)v)), v);
    }
    assert_int_equal(bf16_from_f32((float)(1 + ldexp(1, -8))), 0x3f80);
    assert_int_equal(bf16_from_f32((float)(1 + ldexp(3, -8))), 0x3f82);
    assert_true(isnan(bf16_to_f32(bf16_from_f32(NAN))));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_comes_back),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
