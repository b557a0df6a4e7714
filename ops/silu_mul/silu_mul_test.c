/* SPDX-License-Identifier: Apache-2.0 */
#include "silu_mul.h"

#include "support/columns_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static double reference(float a, float b) { return (double)a / (1 + exp(-(double)a)) * (double)b; }

static void against_double(void **state) {
    (void)state;
    pair_check("silu_mul", reference);
}

static void bad_shapes(void **state) {
    (void)state;
    pair_refuses("silu_mul");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_double), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
