/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of sound plans, each judged twice: by the oracle, which runs it, and by reading and proof, which are what a
 * user's plan has to pass. What these accept the CPU runtime runs as well, where it can. docs/mutation.md. */
#ifndef KEEL_TESTS_MUTATION_SUITE_H
#define KEEL_TESTS_MUTATION_SUITE_H

#include "mutation/oracle.h"
#include "mutation/real_run.h"
#include "plan/mutate.h"

#include <stdio.h>

/* After the oracle's: the generation's state written more or less often than in a sound run; accepted, and the runtime
 * gives another result. */
enum { SUITE_STATE = ORACLE_VERDICTS, SUITE_RUN, SUITE_VERDICTS };
enum { SUITE_RANKS = 4, SUITE_PLANS = 64, SUITE_KINDS = 64, SUITE_REAL_JOBS = 16 };

/* A sound job: the plans of all its ranks. */
typedef struct suite_job {
    char name[96];
    plan *ranks[SUITE_RANKS];
    uint32_t n;
    uint32_t state_writes; /* that the oracle counted: as many as a sound run has */
    real_run *real_run;    /* of one rank on the CPU; NULL: nobody runs its mutants */
} suite_job;

typedef struct suite_tally {
    const char *kind;
    uint32_t mutants, unread, harmful, harmful_refused, harmless_accepted, harmless_refused, false_accepts;
    uint32_t ran;                      /* accepted ones that the runtime ran */
    uint32_t verdicts[SUITE_VERDICTS]; /* the oracle's, then SUITE_STATE, SUITE_RUN */
} suite_tally;

/* Which column of the least shares of harmful mutants (suite.c) holds. */
enum suite_floors { SUITE_FLOORS_REAL, SUITE_FLOORS_TOY };

typedef struct suite {
    const char *program; /* for how to repeat a mutant */
    suite_job jobs[SUITE_PLANS];
    uint32_t n_jobs;
    enum suite_floors floors;
    uint32_t schedules; /* the oracle's */
    uint32_t depth;     /* mutations a mutant has: the kind's, then any others; 0 = 1 */
    suite_tally tallies[SUITE_KINDS];
    uint32_t n_kinds;
    uint32_t good_refused;
    FILE *false_accepts; /* a line each; may be NULL */
    bool show;           /* each mutant on stdout */
    oracle *oracle;
} suite;

/* Takes plans and real_run over. False, and a message on stderr, where the oracle or the prover does not like them. */
bool suite_add(suite *s, suite_job *job);
/* per_kind mutants of each kind that has a place in some job, spread over the jobs; `only` NULL or one kind. */
bool suite_run(suite *s, const char *only, uint32_t per_kind, uint64_t seed);
/* Kinds of which the oracle finds so few mutants harmful, or, where none can be, any, that it must have gone blind or
 * mad; each is named on stderr, as is a verdict that never came. Meant for 30 mutants of one mutation and more. */
uint32_t suite_below_floor(const suite *s);
void suite_table(const suite *s, FILE *out);
void suite_close(suite *s);

/* Sound job i of SUITE_REAL_JOBS: a small model of real ops, planned. False, and a message on stderr, on failure. */
bool suite_real_job(size_t i, suite_job *job);

#endif
