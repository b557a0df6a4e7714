/* SPDX-License-Identifier: Apache-2.0 */
/* Cases that most ops are put through, over the harness. */
#ifndef KEEL_TESTS_OP_CASES_H
#define KEEL_TESTS_OP_CASES_H

#include "support/op_harness.h"

enum { CASE_ROWS = KP_M_MAX };

/* Kinds of inputs; harness_input is the plain one. logit_input: one that has only the rows whose logits are wanted; all
 * its rows hold numbers, so that a body that computes too many rows leaves a number where none belongs.
 * computed_input: one that another op computes, and that must be waited for. */
typedef int (*input_of)(harness *h, const char *name, int64_t cols);
int logit_input(harness *h, const char *name, int64_t cols);
int computed_input(harness *h, const char *name, int64_t cols);

typedef struct op_case {
    harness *h; /* ready */
    const char *op;
    int out;
    uint32_t cols;
    bool logit_rows;       /* the output has only the rows whose logits are wanted */
    uint32_t start;        /* first position */
    const int32_t *tokens; /* [CASE_ROWS], or NULL */
    /* want[CASE_ROWS][cols] in double precision, from the inputs as they are after a run. */
    void (*reference)(const void *user, double *want);
    const void *user;
} op_case;
/* Passes of 1, 2, 3, 15 and 16 rows, all or the last with logits: the rows asked for lie within the op's tolerances,
 * and no other row is written. */
void op_case_check(const op_case *c);

typedef struct case_input {
    int id;
    uint32_t cols;
} case_input;
/* A row gives the same bits alone and among sixteen. in ends with id 0; all[CASE_ROWS][cols] takes the sixteen. The
 * inputs' first rows are lost. */
void op_case_rows_alone(harness *h, int out, uint32_t cols, const case_input *in, float *all);

/* Every task waits for every input, read off the plan: a race over little work would seldom show. spec.in holds the
 * widths of the inputs; spec.name is set here. */
void op_case_waits(op_spec spec);

/* Runs the shape rule alone; the text must name the op and what is wrong. spec.in holds the widths of the inputs, which
 * are named x, y, z; spec.name is set here. */
void op_refuses(op_spec spec, keel_status status, const char *what);

#endif
