/* SPDX-License-Identifier: Apache-2.0 */
/* Broken plans on purpose: one small, seeded change of a sound plan. They show that the proof rejects what is broken
 * (tests/mutation); some are harmless, so that it is also seen not to reject too much. docs/mutation.md. */
#ifndef KEEL_PLAN_MUTATE_H
#define KEEL_PLAN_MUTATE_H

#include "plan/plan.h"

enum { MUTATE_WHAT_BYTES = 256 };

/* Kind i of the table: its name, and in *doc (may be NULL) what it changes. NULL past the last. */
const char *mutate_kind(size_t i, const char **doc);

/* A copy of p, the caller's, with one mutation of that kind at a place that the seed chooses; `what` says in words what
 * was done ("event 12: triggers 4 -> 3"). The same arguments give the same plan. p must be one that plan_write() takes.
 * The copy may be no plan that plan_read() takes. KEEL_USAGE: no such kind, the message lists them. KEEL_RANGE: p
 * offers no place for it. */
keel_status plan_mutate(const plan *p, const char *kind, uint64_t seed, plan **out, char what[MUTATE_WHAT_BYTES],
                        keel_error *err);

#endif
