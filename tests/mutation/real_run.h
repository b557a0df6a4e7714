/* SPDX-License-Identifier: Apache-2.0 */
/* A judge that asks no op what its tasks touch: the real CPU runtime, with the model's synthetic weights. A plan that
 * was made from the same graph must give the same bits as the sound one. docs/mutation.md. */
#ifndef KEEL_TESTS_MUTATION_REAL_RUN_H
#define KEEL_TESTS_MUTATION_REAL_RUN_H

#include "graph/graph.h"
#include "plan/plan.h"

/* A model with weights, and what the sound plan says to one request. */
typedef struct real_run real_run;

/* Takes g (this rank's graph, of a single rank) over, also on failure. `sound` must be for the CPU and is not kept. */
keel_status real_run_open(graph *g, const plan *sound, real_run **out, keel_error *err);
void real_run_close(real_run *r);

typedef enum real_run_verdict {
    REAL_RUN_SAME,
    REAL_RUN_DIFFERS, /* other logits or tokens, a hang, or it cannot be opened or run at all */
    REAL_RUN_OTHER    /* not to be compared: of another model, or one whose sums are in another order */
} real_run_verdict;

enum { REAL_RUN_WHAT_BYTES = 512 };
/* Runs p under several schedules. what: why it differs, or may. */
real_run_verdict real_run_judge(real_run *r, const plan *p, char what[REAL_RUN_WHAT_BYTES]);

#endif
