/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: a graph of the chain's ops → the same graph with fused ops in the place of chains that they stand for
 * (graph/op.h, op_chain). A hop from one op to the next costs microseconds, so a decode step pays for every one.
 *
 * A fused op is called HEAD.suffix, "l0.attn.norm.qkv", and its outputs keep the names of the user's tensors:
 * l0.attn.q_proj and so on, which are their makers' names. */
#ifndef KEEL_PLAN_LOWER_H
#define KEEL_PLAN_LOWER_H

#include "plan/plan.h"
#include "plan/tiler.h"

/* Whether plans with these levers, for this arch, have fused ops: on archs where weights stream, unless the lever
 * `chain` is pulled; elsewhere with the lever `fused`. */
bool plan_fuses(const arch_desc *arch, const char *const *levers, uint32_t n_levers);

/* *out: the lowered graph, which borrows the strings and constants of g and must be closed before it; NULL where no
 * chain is one that a fused op stands for, with all its bodies, on the arch of env. */
keel_status plan_lower(const graph *g, const tile_env *env, graph **out, keel_error *err);

#endif
