/* SPDX-License-Identifier: Apache-2.0 */
/* What ops that read other ranks are put through without other ranks: shapes and tasks. */
#ifndef KEEL_TESTS_RANK_CASES_H
#define KEEL_TESTS_RANK_CASES_H

#include "graph/build.h"

typedef struct rank_world {
    uint32_t tp, ep, rank, workers;
} rank_world;

/* Columns of the output of the op, which is named "it", on a rank; spec.in holds the widths of the inputs, named x and
 * y. 0 when the shape rule refuses it with these words. */
int64_t rank_columns(op_spec spec, rank_world w, const char *words);
/* Plans the op on a rank, behind ops that make its inputs: the tasks cut the output's columns without gap or overlap,
 * input 0 lies in symmetric memory, and the plan's file gives the same tasks back. */
void rank_tiles(op_spec spec, rank_world w);

#endif
