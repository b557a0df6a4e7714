/* SPDX-License-Identifier: Apache-2.0 */
/* The proof that plans are safe to run: docs/proof.md says what is checked and why it suffices. It trusts nothing that
 * the planner thought, only what stands in the plan, what its ops say of their tasks, and the protocol. */
#ifndef KEEL_PLAN_PROVE_H
#define KEEL_PLAN_PROVE_H

#include "plan/plan.h"

/* What was checked, for people. */
typedef struct proof {
    uint32_t ranks, workers;
    uint64_t tasks, events, accesses, checks;
    double ms;
} proof;

/* ranks[0 … n): the plans of all ranks of a job, in any order. KEEL_REFUSED with every reason found (up to a cap). Bodies
 * are plan_check_bodies()'s. found may be NULL. */
keel_status plan_prove(const plan *const *ranks, uint32_t n, proof *found, keel_error *err);
/* One line a fact. */
void proof_show(const proof *p, buf *out);

#endif
