/* SPDX-License-Identifier: Apache-2.0 */
/* Is a plan safe? Not by argument, but by running it: the real protocol text (device/protocol.h) with every lane of
 * every role, of all workers and ranks, as a coroutine of one thread, under schedulers that permute their
 * interleavings; bodies are replaced by recorders of what each task touches; vector clocks find what no order of the
 * protocol separates, tags find what was overwritten or never written. It knows nothing of the planner or the prover.
 * docs/mutation.md. */
#ifndef KEEL_TESTS_MUTATION_ORACLE_H
#define KEEL_TESTS_MUTATION_ORACLE_H

#include "plan/plan.h"

/* X(NAME, what it means) */
#define ORACLE_MAP(X)                                                                                                  \
    X(OK, "nothing found")                                                                                             \
    X(DEADLOCK, "nothing can move, and not everyone has left")                                                         \
    X(RACE, "two accesses of a buffer, one a write, that nothing orders")                                              \
    X(SMEM, "the same in SMEM")                                                                                        \
    X(UNWRITTEN, "a read of what nobody has written in this iteration")                                                \
    X(VALUE, "a read of what another write has replaced")                                                              \
    X(BOUNDS, "memory outside what the task, the worker or the rank has")
typedef enum oracle_verdict {
#define X(NAME, text) ORACLE_##NAME,
    ORACLE_MAP(X)
#undef X
        ORACLE_VERDICTS
} oracle_verdict;
const char *oracle_verdict_name(oracle_verdict v);

typedef struct oracle_result {
    oracle_verdict verdict;
    uint32_t schedule;       /* the first that showed it */
    uint32_t state_writes;   /* writes of the generation's state in the last iteration, all ranks; of an OK run */
    uint32_t runs, switches; /* schedules run, coroutine switches */
    char what[512];
} oracle_result;

/* Keeps its memory from one plan to the next. */
typedef struct oracle oracle;
oracle *oracle_open(void);
void oracle_close(oracle *o);

/* Runs the plans of all ranks of one job under schedules first_schedule … first_schedule + schedules − 1, until one
 * shows harm. KEEL_REFUSED: an op does not have such a task, or the graph in the plan is none (plan_read() finds that
 * too). */
keel_status oracle_judge(oracle *o, const plan *const *ranks, uint32_t n, uint32_t first_schedule, uint32_t schedules,
                         oracle_result *out, keel_error *err);

/* For tests of the oracle itself: each turns one part of it off. */
enum oracle_blindness {
    ORACLE_SEES_ALL,
    ORACLE_BLIND_GLOBAL, /* races in buffers */
    ORACLE_BLIND_SMEM,   /* races in SMEM */
    ORACLE_BLIND_TAGS,   /* what was written */
    ORACLE_BLIND_STUCK,  /* deadlock */
    ORACLE_BLIND_BOUNDS,
    ORACLE_BLINDNESSES
};
void oracle_blind(oracle *o, enum oracle_blindness b);

#endif
