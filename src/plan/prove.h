/* SPDX-License-Identifier: Apache-2.0 */
/* The proof that plans are safe to run: docs/proof.md says what is checked and why it suffices. It trusts nothing that
 * the planner thought, only what stands in the plan, what its ops say of their tasks, and the protocol. */
#ifndef KEEL_PLAN_PROVE_H
#define KEEL_PLAN_PROVE_H

#include "plan/plan.h"

/* Parts of the proof, in order: what stands in the plans; what the ops say of their tasks; ranks, events, SMEM, data;
 * the order of tasks with all that hangs on it; bytes that buffers share. */
enum { PROOF_SHAPE, PROOF_DESCRIBE, PROOF_STATIC, PROOF_ORDER, PROOF_SHARE, PROOF_PARTS };

/* What was checked, for people. */
typedef struct proof {
    uint32_t ranks, workers;
    uint64_t tasks, events, accesses, checks;
    uint64_t unread; /* outputs that no task reads, other than the logits; no reason to refuse */
    bool complete;   /* every needed role body is there (plan_check_bodies); no reason to refuse either */
    double ms, part_ms[PROOF_PARTS];
} proof;

/* ranks[0 … n): the plans of all ranks of a job, in any order. KEEL_REFUSED with every reason found (up to a cap).
 * Bodies are plan_check_bodies()'s. found may be NULL. */
keel_status plan_prove(const plan *const *ranks, uint32_t n, proof *found, keel_error *err);
/* One line a fact. */
void proof_show(const proof *p, buf *out);

/* Is `slice` some layers of `whole` with its head and tail: every op outside of layers is there, every op is reached
 * from the head and reaches the tail? KEEL_REFUSED names what is missing. text, may be NULL: which layers and ops of
 * `whole` are left out, a line each. */
keel_status plan_slice_check(const graph *whole, const graph *slice, buf *text, keel_error *err);

#endif
