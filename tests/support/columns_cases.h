/* SPDX-License-Identifier: Apache-2.0 */
/* What ops of the two kinds of src/device/columns.h are put through. */
#ifndef KEEL_TESTS_COLUMNS_CASES_H
#define KEEL_TESTS_COLUMNS_CASES_H

#include "support/op_cases.h"

/* out = f(a, b), element by element: every kind of input, one to seven workers, more columns than a region holds. */
void pair_check(const char *op, double (*f)(float a, float b));
/* Inputs that do not agree. */
void pair_refuses(const char *op);

typedef struct matmul_shape {
    uint32_t n, k;
    bool bias;
    input_of input; /* NULL: harness_input */
    uint32_t workers, lanes;
    dtype scales; /* of the block scales "s" of a weight that is F8E4M3 */
} matmul_shape;

typedef struct matmul_run {
    harness *h;
    const char *op;
    matmul_shape s;
    int x, residual, out; /* residual 0: none */
    bool scaled;          /* weight "w" is F8E4M3 */
} matmul_run;

/* Weights "w", "b" and "s"; residual: whether the op takes one, as its input 1. */
matmul_run matmul_open(const char *op, bool residual, dtype type, matmul_shape s);
void matmul_check(const char *op, bool residual);
/* More columns than one region holds, so several rounds over the workers; and rows too long to be staged. */
void matmul_limits_of_smem(const char *op, bool residual);
/* A row gives the same bits alone and among sixteen, whatever the workers and lanes. */
void matmul_rows_alone(const char *op, bool residual);
/* F8E4M3 weights with scales of every type. */
void matmul_scaled(const char *op, bool residual);
void matmul_refuses(const char *op, bool residual);

#endif
