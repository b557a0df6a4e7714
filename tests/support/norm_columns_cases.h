/* SPDX-License-Identifier: Apache-2.0 */
/* What ops of the kind of kp_norm_matmul (device/columns.h) are put through: a norm and products of it. */
#ifndef KEEL_TESTS_NORM_COLUMNS_CASES_H
#define KEEL_TESTS_NORM_COLUMNS_CASES_H

#include "support/op_cases.h"

/* matrices: as many as the op has; paired: its output is silu(product of the first) × product of the second. */
void norm_matmul_check(const char *op, int matrices, bool paired);
void norm_matmul_rows_alone(const char *op, int matrices, bool paired);
void norm_matmul_refuses(const char *op, int matrices, bool paired);

#endif
