/* SPDX-License-Identifier: Apache-2.0 */
#include "linear_residual.h"

#include "support/columns_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void against_double(void **state) {
    (void)state;
    matmul_check("linear_residual", true);
}

static void block_scales(void **state) {
    (void)state;
    matmul_scaled("linear_residual", true);
}

static void limits_of_smem(void **state) {
    (void)state;
    matmul_limits_of_smem("linear_residual", true);
}

static void rows_do_not_meet(void **state) {
    (void)state;
    matmul_rows_alone("linear_residual", true);
}

/* W = 0: the residual comes out untouched, with the bias added to it once. */
static void residual_once(void **state) {
    (void)state;
    enum { N = 100, K = 40 };
    static const float zero[N * K];
    for (int bias = 0; bias < 2; bias++) {
        matmul_run t = matmul_open("linear_residual", true, DTYPE_F32,
                                   (matmul_shape){.n = N, .k = K, .bias = bias, .workers = 3, .lanes = 2});
        harness_set_weight(t.h, "w", zero);
        harness_run(t.h, CASE_ROWS, 0, NULL, true);
        const float *out = harness_tensor(t.h, t.out), *residual = harness_tensor(t.h, t.residual);
        for (uint32_t i = 0; i < CASE_ROWS * N; i++) {
            float want = bias ? harness_weight(t.h, "b")[i % N] + residual[i] : residual[i];
            assert_true(fabs((double)out[i] - (double)want) <= harness_tolerance(0));
        }
        harness_close(t.h);
    }
}

static void bad_shapes(void **state) {
    (void)state;
    matmul_refuses("linear_residual", true);
    op_refuses((op_spec){.kind = "linear_residual", .in = {8, 8}, .weight = {{.key = "w", .dim = {6, 8}}}}, KEEL_FORMAT,
               "residual y must have the rows of input x and the 6 columns");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_double), cmocka_unit_test(block_scales),
                                       cmocka_unit_test(limits_of_smem), cmocka_unit_test(rows_do_not_meet),
                                       cmocka_unit_test(residual_once),  cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
