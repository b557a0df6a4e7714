/* SPDX-License-Identifier: Apache-2.0 */
#include "norm_swiglu.h"

#include "support/norm_columns_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void against_double(void **state) {
    (void)state;
    norm_matmul_check("norm_swiglu", 2, true);
}

static void rows_do_not_meet(void **state) {
    (void)state;
    norm_matmul_rows_alone("norm_swiglu", 2, true);
}

static void bad_shapes(void **state) {
    (void)state;
    norm_matmul_refuses("norm_swiglu", 2, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_double), cmocka_unit_test(rows_do_not_meet),
                                       cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
