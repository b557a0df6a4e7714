/* SPDX-License-Identifier: Apache-2.0 */
#include "linear.h"

#include "support/columns_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void against_double(void **state) {
    (void)state;
    matmul_check("linear", false);
}

static void block_scales(void **state) {
    (void)state;
    matmul_scaled("linear", false);
}

static void limits_of_smem(void **state) {
    (void)state;
    matmul_limits_of_smem("linear", false);
}

static void rows_do_not_meet(void **state) {
    (void)state;
    matmul_rows_alone("linear", false);
}

static void bad_shapes(void **state) {
    (void)state;
    matmul_refuses("linear", false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_double), cmocka_unit_test(block_scales),
                                       cmocka_unit_test(limits_of_smem), cmocka_unit_test(rows_do_not_meet),
                                       cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
