/* SPDX-License-Identifier: Apache-2.0 */
/* Planning of ops that norm their input and multiply it by several matrices: kp_norm_matmul and its regions
 * (device/columns.h); weights as shape_norm_matmul() has them. A task makes columns [lo, hi) of one W after the other,
 * or, paired, [lo, hi) of two W, of which it makes one output. */
#ifndef KEEL_PLAN_NORM_COLUMNS_H
#define KEEL_PLAN_NORM_COLUMNS_H

#include "plan/columns.h"

/* Whether one kind of task does for all matrices, all rows that a pass may carry fit SMEM, and a band beside them. */
bool norm_columns_fit(const tile_env *env, const graph *g, const graph_op *op, bool paired);
keel_status norm_columns_params(tiler *t, const graph *g, const graph_op *op, bool paired, keel_error *err);
void norm_columns_tile(tiler *t);
void norm_columns_task(tiler *t, const graph *g, const graph_op *op, const op_task *k);

#endif
