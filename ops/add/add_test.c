/* SPDX-License-Identifier: Apache-2.0 */
#include "add.h"

#include "support/columns_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static double reference(float a, float b) { return (double)(a + b); }

static void exact(void **state) {
    (void)state;
    pair_check("add", reference);
}

static void bad_shapes(void **state) {
    (void)state;
    pair_refuses("add");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(exact), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
