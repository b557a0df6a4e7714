/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor_init.h"

#include "support/op_cases.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct worth {
    uint32_t cols;
    double value;
} worth;

static void reference(const void *user, double *want) {
    const worth *t = user;
    for (size_t i = 0; i < (size_t)CASE_ROWS * t->cols; i++) want[i] = t->value;
}

static void check(uint32_t cols, const graph_attr *value, uint32_t workers, uint32_t lanes) {
    harness *h = harness_new((harness_config){.seed = cols, .workers = workers, .lanes = lanes});
    op_spec spec = {.kind = "tensor_init", .name = "init", .attr = {{"cols", cols}}};
    if (value) spec.attr[1] = *value;
    int out = build_op(harness_build(h), spec);
    harness_ready(h);
    worth t = {cols, value ? value->value : 0};
    op_case_check(
        &(op_case){.h = h, .op = "tensor_init", .out = out, .cols = cols, .reference = reference, .user = &t});
    harness_close(h);
}

static void one_value(void **state) {
    (void)state;
    graph_attr value = {"value", -0.375};
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        check(1, NULL, 2, lanes);
        check(77, &value, 1, lanes);
        check(1001, &value, 7, lanes);
        check(200, NULL, 3, lanes);
    }
}

static void bad_shapes(void **state) {
    (void)state;
    op_refuses((op_spec){.kind = "tensor_init", .attr = {{"cols", 0}}}, KEEL_RANGE, "cols 0");
    op_refuses((op_spec){.kind = "tensor_init", .attr = {{"cols", 2.5}}}, KEEL_RANGE, "cols 2.5");
    op_refuses((op_spec){.kind = "tensor_init"}, KEEL_FORMAT, "cols");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_value), cmocka_unit_test(bad_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
