/* SPDX-License-Identifier: Apache-2.0 */
/* Tiling by output columns, which most ops do. */
#ifndef KEEL_PLAN_COLUMNS_H
#define KEEL_PLAN_COLUMNS_H

#include "device/columns.h"
#include "plan/tiler.h"

/* In tile: cuts n columns evenly over the workers, in whole multiples of `grain` (0: the arch's tile_rows, so that
 * tiles of ops over the same columns coincide; less where `most` is less), at most `most` a task; tasks of phase 0 over
 * [lo, hi), aux 0. */
void columns_tile(tiler *t, uint32_t n, uint32_t grain, uint32_t most);
/* In task: is it one that columns_tile() makes? Bounds are checked with what it reads and writes. */
void columns_check(tiler *t, const op_task *k);
static inline uint64_t columns_width(const op_task *k) { return k->hi - (uint64_t)k->lo; }

/* Columns a task may take so that `regions` regions of column_bytes a column fit beside fixed_bytes in half of SMEM:
 * the next task's pages are free while this one computes, and contiguous wherever the ring stands. */
uint32_t columns_most(const tiler *t, uint64_t fixed_bytes, uint64_t column_bytes, uint32_t regions);

/* The element type of weight i as a body's parameter: one that vec.h reads, or F8E4M3 with scales; F32 where none is
 * bound. */
keel_status columns_weight_dtype(const tiler *t, const graph *g, const graph_op *op, int i, kp_u32 *type,
                                 keel_error *err);

/* Of the matrix in weight slot i: the buffer of its block scales and their type; KP_NONE and F32 without. */
keel_status columns_scale(const tiler *t, const graph *g, const graph_op *op, int i, kp_u32 *buffer, kp_u32 *type,
                          keel_error *err);
/* Bytes of scales that `width` rows from lo on of a matrix with k columns stand under. */
uint64_t columns_scale_bytes(uint64_t lo, uint64_t width, uint64_t k, dtype type);

/* Element by element from two inputs: kp_pair and its regions (device/columns.h). flops: for one element. */
keel_status columns_pair_params(tiler *t, const graph *g, const graph_op *op, keel_error *err);
void columns_pair_tile(tiler *t, const graph *g, const graph_op *op);
void columns_pair_task(tiler *t, const graph *g, const graph_op *op, const op_task *k, uint64_t flops);
/* From whole rows of input 0, by weight 0 and, where bound, weight 1: kp_matmul and its regions (device/columns.h).
 * residual: a tensor of the output's shape of which each task reads its columns, 0 without. */
/* op_desc.tags of products: x comes into SMEM. params: kp_matmul */
bool columns_matmul_tags(const void *params);
keel_status columns_matmul_params(tiler *t, const graph *g, const graph_op *op, keel_error *err);
/* Elements from one row of x to the next where it is staged. */
uint32_t columns_x_pitch(const tile_env *env, uint64_t k);
/* The same into *p, of the matrix in weight slot `matrix` and the bias in slot `bias`. */
keel_status columns_matmul_fill(const tiler *t, const graph *g, const graph_op *op, int matrix, int bias, kp_matmul *p,
                                keel_error *err);
void columns_matmul_tile(tiler *t, const graph *g, const graph_op *op);
void columns_matmul_task(tiler *t, const graph *g, const graph_op *op, const op_task *k, int residual);

#endif
