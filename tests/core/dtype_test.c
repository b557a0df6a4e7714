/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions against IEEE 754's own words: every half, and the roundings at every kind of border. F8E4M3 against a
 * table that the package ml_dtypes made (tests/golden/make_f8e4m3.py), and a search through it for the nearest. */
#include "core/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

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

static const uint32_t e4m3[256] = {
#include "f8e4m3.inc"
};

static float word(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void every_e4m3_comes_back(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 256; v++) {
        float got = f8e4m3_to_f32((uint8_t)v);
        if ((v & 0x7f) == 0x7f) {
            assert_true(isnan(got) && isnan(word(e4m3[v])) && signbit(got) == signbit(word(e4m3[v])));
        } else {
            assert_memory_equal(&got, &e4m3[v], sizeof got);
        }
        assert_int_equal(f8e4m3_from_f32(got), v);
    }
}

/* By looking through the table: the nearest finite code, of two the even one; the sign is that of f. */
static uint32_t nearest_e4m3(float f) {
    double x = fabs((double)f), best = INFINITY;
    uint32_t code = 0;
    if (isnan(f)) return 0x7f | (signbit(f) ? 0x80 : 0);
    if (x > 1000) x = 1000;
    for (uint32_t v = 0; v < 0x7f; v++) {
        double off = fabs(x - (double)word(e4m3[v]));
        if (off < best || (off <= best && !(v & 1))) {
            best = off;
            code = v;
        }
    }
    return code | (signbit(f) ? 0x80 : 0);
}

static void e4m3_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 0x10000; v++) { /* every bf16 and every f16 */
        assert_int_equal(f8e4m3_from_f32(bf16_to_f32((uint16_t)v)), nearest_e4m3(bf16_to_f32((uint16_t)v)));
        assert_int_equal(f8e4m3_from_f32(f16_to_f32((uint16_t)v)), nearest_e4m3(f16_to_f32((uint16_t)v)));
    }
    for (uint32_t v = 0; v < 0x7e; v++) { /* half-way between neighbours, and next to it on both sides */
        float half = (float)(((double)word(e4m3[v]) + (double)word(e4m3[v + 1])) / 2);
        for (int side = -1; side <= 1; side++) {
            float f = side ? nextafterf(half, side < 0 ? -INFINITY : INFINITY) : half;
            assert_int_equal(f8e4m3_from_f32(f), nearest_e4m3(f));
            assert_int_equal(f8e4m3_from_f32(-f), nearest_e4m3(-f));
        }
    }
    assert_int_equal(f8e4m3_from_f32(INFINITY), 0x7e);
    assert_int_equal(f8e4m3_from_f32(-1e30f), 0xfe);
    assert_int_equal(fp8_blocks(1), 1);
    assert_int_equal(fp8_blocks(128), 1);
    assert_int_equal(fp8_blocks(129), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_comes_back),       cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even), cmocka_unit_test(every_e4m3_comes_back),
        cmocka_unit_test(e4m3_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
