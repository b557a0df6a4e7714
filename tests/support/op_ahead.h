/* SPDX-License-Identifier: Apache-2.0 */
/* Device code of the harness's cases, compiled side by side before they run on a GPU: the tests run once on the CPU,
 * and each plan's code goes into the cache that a later run on a GPU takes it from. */
#ifndef KEEL_TESTS_OP_AHEAD_H
#define KEEL_TESTS_OP_AHEAD_H

#include "plan/plan.h"

typedef struct op_ahead_count {
    unsigned compiled, failed;
} op_ahead_count;

/* From now on, with at most so many compilers at a time. */
void op_ahead_begin(unsigned jobs);
bool op_ahead(void);
/* Begins to compile for the plan, unless that was done already. */
void op_ahead_plan(const graph *g, const plan_options *options);
/* Waits for the last one. */
op_ahead_count op_ahead_end(void);

#endif
