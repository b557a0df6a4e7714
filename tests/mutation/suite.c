/* SPDX-License-Identifier: Apache-2.0 */
#include "suite.h"

#include "core/buf.h"
#include "plan/prove.h"

#include <string.h>

enum { SEEDS_A_MUTANT = 40, WHAT_BYTES = 8 * MUTATE_WHAT_BYTES };

/* ---- judging ------------------------------------------------------------------------------------ */

/* The verdict of the oracle as an index into suite_tally.verdicts. */
static uint32_t judge(const suite *s, const suite_job *job, const plan *const *ranks, oracle_result *r) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (oracle_judge(s->oracle, ranks, job->n, 0, s->schedules, r, &err) != KEEL_OK) {
        fprintf(stderr, "%s: the oracle cannot run it: %s\n", job->name, err.detail);
        return UINT32_MAX;
    }
    if (r->verdict == ORACLE_OK && r->state_writes != job->state_writes) {
        snprintf(r->what, sizeof r->what, "the generation's state is written %u times an iteration instead of %u",
                 r->state_writes, job->state_writes);
        return SUITE_STATE;
    }
    return r->verdict;
}

bool suite_add(suite *s, suite_job *job) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    oracle_result r;
    if (!s->oracle) s->oracle = oracle_open();
    if (!s->oracle || s->n_jobs == SUITE_PLANS) return false;
    if (oracle_judge(s->oracle, (const plan *const *)job->ranks, job->n, 0, 12, &r, &err) != KEEL_OK || r.verdict) {
        fprintf(stderr, "%s: a sound plan, but the oracle says %s: %s\n", job->name, oracle_verdict_name(r.verdict),
                r.verdict ? r.what : err.detail);
        return false;
    }
    job->state_writes = r.state_writes;
    if (plan_prove((const plan *const *)job->ranks, job->n, NULL, &err) != KEEL_OK) {
        fprintf(stderr, "%s: a sound plan, but the proof refuses it: %s\n", job->name, err.detail);
        s->good_refused++;
    }
    s->jobs[s->n_jobs++] = *job;
    return true;
}

/* Written and read: what a file of it would be. */
static keel_status reread(const plan *p, plan **out, keel_error *err) {
    buf b = {0};
    keel_status s = plan_write(p, &b, err);
    if (s == KEEL_OK) s = plan_read("mutant", b.data, b.len, out, err);
    buf_free(&b);
    return s;
}

/* A mutated job: one rank's plan, or those of all ranks in the same way. */
typedef struct mutant {
    plan *ranks[SUITE_RANKS]; /* as read again; NULL: as it was */
    uint64_t seed;
    char where[24], what[WHAT_BYTES];
} mutant;

/* What the oracle, which asks the ops as the proof does, and the proof let pass: what does the runtime say? */
static uint32_t judge_run(suite_tally *t, const suite_job *job, const plan *p, oracle_result *r) {
    char what[REAL_RUN_WHAT_BYTES];
    real_run_verdict v = job->real_run ? real_run_judge(job->real_run, p, what) : REAL_RUN_OTHER;
    t->ran += v != REAL_RUN_OTHER;
    if (v != REAL_RUN_DIFFERS) return ORACLE_OK;
    snprintf(r->what, sizeof r->what, "%s", what);
    return SUITE_RUN;
}

static const char *verdict_name(uint32_t v) {
    return v == SUITE_STATE ? "STATE" : v == SUITE_RUN ? "RUN" : oracle_verdict_name((oracle_verdict)v);
}

static void count(suite *s, suite_tally *t, const suite_job *job, const mutant *m) {
    const plan *ranks[SUITE_RANKS];
    keel_error err = KEEL_ERROR_INITIALIZER;
    oracle_result r;
    for (uint32_t k = 0; k < job->n; k++) ranks[k] = m->ranks[k] ? m->ranks[k] : job->ranks[k];
    uint32_t verdict = judge(s, job, ranks, &r);
    bool accepted = plan_prove(ranks, job->n, NULL, &err) == KEEL_OK;
    if (accepted && verdict == ORACLE_OK) verdict = judge_run(t, job, ranks[0], &r);
    bool harmful = verdict != ORACLE_OK;
    if (verdict < SUITE_VERDICTS) t->verdicts[verdict]++;
    t->harmful += harmful;
    t->harmful_refused += harmful && !accepted;
    t->harmless_accepted += !harmful && accepted;
    t->harmless_refused += !harmful && !accepted;
    t->false_accepts += harmful && accepted;
    const char *says = verdict_name(verdict);
    const char *why = harmful ? r.what : accepted ? "" : err.detail;
    if (harmful && accepted && s->false_accepts) {
        fprintf(s->false_accepts, "%s%s | %s --kind %s --seed %llu | %s | %s (schedule %u): %s\n", job->name, m->where,
                s->program, t->kind, (unsigned long long)m->seed, m->what, says, r.schedule, r.what);
        fflush(s->false_accepts);
    }
    if (s->show)
        printf("%s%s: %s %llu: %s: %s: %s%s%s\n", job->name, m->where, t->kind, (unsigned long long)m->seed, says,
               accepted ? "ACCEPTED" : "refused", m->what, *why ? " | " : "", why);
}

/* More mutations on top of the first, of any kinds, each seeded by its number; those that find no place are left out.
 */
static void mutate_further(const suite *s, plan **p, uint64_t seed, char what[WHAT_BYTES]) {
    size_t kinds = 0;
    while (mutate_kind(kinds, NULL)) kinds++;
    for (uint32_t i = 1; i < s->depth; i++) {
        uint64_t mixed = (seed + i * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
        char more[MUTATE_WHAT_BYTES];
        plan *next = NULL;
        if (plan_mutate(*p, mutate_kind((mixed >> 40) % kinds, NULL), mixed, &next, more, NULL) != KEEL_OK) continue;
        size_t n = strlen(what);
        if (n + sizeof more + 2 < WHAT_BYTES) snprintf(what + n, sizeof more + 2, "; %s", more);
        plan_close(*p);
        *p = next;
    }
}

/* KEEL_RANGE: no place for it. KEEL_OK with *out NULL: reading refuses it, err says why. */
static keel_status mutate_rank(const suite *s, const char *kind, const plan *p, mutant *m, plan **out,
                               keel_error *err) {
    plan *made = NULL;
    KEEL_TRY(plan_mutate(p, kind, m->seed, &made, m->what, err));
    mutate_further(s, &made, m->seed, m->what);
    (void)reread(made, out, err);
    plan_close(made);
    return KEEL_OK;
}

/* One mutant, of the first seed from `seed` on with which some job offers a place: the job, and whether one rank or all
 * of them, are chosen by the seed. */
static bool one_mutant(suite *s, suite_tally *t, uint64_t *seed) {
    for (int tries = 0; tries < SEEDS_A_MUTANT; tries++) {
        keel_error err = KEEL_ERROR_INITIALIZER;
        mutant m = {.seed = (*seed)++};
        const suite_job *job = &s->jobs[m.seed % s->n_jobs];
        uint32_t which = (uint32_t)(m.seed / s->n_jobs) % (job->n + 1), made = 0;
        bool read = true;
        for (uint32_t k = 0; k < job->n && read; k++) {
            if (job->n > 1 && which < job->n && which != k) continue;
            if (mutate_rank(s, t->kind, job->ranks[k], &m, &m.ranks[k], &err) != KEEL_OK) continue;
            made++;
            read = m.ranks[k] != NULL;
        }
        if (job->n > 1) snprintf(m.where, sizeof m.where, which < job->n ? " rank %u" : " all %u ranks", which);
        t->mutants += made > 0;
        t->unread += made > 0 && !read;
        if (made && read) count(s, t, job, &m);
        if (made && !read && s->show)
            printf("%s%s: %s %llu: unread: %s | %s\n", job->name, m.where, t->kind, (unsigned long long)m.seed, m.what,
                   err.detail);
        for (uint32_t k = 0; k < job->n; k++) plan_close(m.ranks[k]);
        if (made) return true;
    }
    return false;
}

bool suite_run(suite *s, const char *only, uint32_t per_kind, uint64_t seed) {
    bool found = false;
    for (size_t i = 0; mutate_kind(i, NULL) && s->n_kinds < SUITE_KINDS; i++) {
        if (only && strcmp(mutate_kind(i, NULL), only) != 0) continue;
        suite_tally *t = &s->tallies[s->n_kinds++];
        uint64_t next = seed;
        *t = (suite_tally){.kind = mutate_kind(i, NULL)};
        found = true;
        while (t->mutants < per_kind && one_mutant(s, t, &next)) continue;
    }
    return found;
}

/* Of 100 mutants that reading lets pass, so many at least are harmful: well below what was measured, well above what an
 * oracle without one of its parts finds. NONE: no mutant can be. */
enum { NONE = -1 };
static const struct floor {
    const char *kind;
    int percent[2];
} floors[] = {
    {"drop-wait", {40, 35}},       {"retarget-wait", {55, 40}},   {"duplicate-wait", {NONE, NONE}},
    {"add-wait", {30, 25}},        {"drop-trigger", {90, 85}},    {"retarget-trigger", {75, 70}},
    {"add-trigger", {65, 50}},     {"trigger-count", {70, 70}},   {"event-phase", {NONE, NONE}},
    {"swap-tasks", {55, 25}},      {"swap-workers", {40, 20}},    {"move-task", {35, 20}},
    {"overlap-buffers", {65, 50}}, {"shift-buffer", {35, 30}},    {"lifetime", {NONE, NONE}},
    {"shrink-span", {95, 95}},     {"alias-page", {95, 95}},      {"overlap-spans", {95, 95}},
    {"shift-region", {45, 40}},    {"drop-region", {60, 75}},     {"release-role", {3, 0}},
    {"drop-task", {90, 60}},       {"duplicate-task", {45, 40}},  {"resize-tile", {60, 20}},
    {"drop-phase", {90, 60}},      {"skip-collective", {90, 0}},  {"reorder-collective", {90, 0}},
    {"rank-event", {80, 0}},       {"symmetric-offset", {90, 0}},
};

/* Jobs with a real_run, and no mutant of them run? */
static uint32_t nothing_ran(const suite *s) {
    uint32_t real_runs = 0, ran = 0;
    for (uint32_t i = 0; i < s->n_jobs; i++) real_runs += s->jobs[i].real_run != NULL;
    for (uint32_t i = 0; i < s->n_kinds; i++) ran += s->tallies[i].ran;
    if (!real_runs || ran || s->n_kinds <= 1) return 0;
    fprintf(stderr, "no accepted mutant was run\n");
    return 1;
}

uint32_t suite_below_floor(const suite *s) {
    uint32_t below = 0;
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        const suite_tally *t = &s->tallies[i];
        uint32_t read = t->mutants - t->unread, share = read ? 100 * t->harmful / read : 0;
        for (size_t f = 0; f < sizeof floors / sizeof *floors && t->mutants; f++) {
            int least = floors[f].percent[s->floors];
            if (strcmp(floors[f].kind, t->kind) != 0) continue;
            if (least == NONE ? t->harmful == 0 : (int)share >= least) continue;
            fprintf(stderr, "%s: the oracle finds %u of %u harmful; %d in 100 expected\n", t->kind, t->harmful, read,
                    least == NONE ? 0 : least);
            below++;
        }
    }
    for (uint32_t v = 1; v < ORACLE_VERDICTS && s->n_kinds > 1; v++) { /* what one part does not see, another may */
        uint32_t found = 0;
        for (uint32_t i = 0; i < s->n_kinds; i++) found += s->tallies[i].verdicts[v];
        if (found) continue;
        fprintf(stderr, "the oracle never says %s\n", oracle_verdict_name((oracle_verdict)v));
        below++;
    }
    return below + nothing_ran(s);
}

/* ---- the table ---------------------------------------------------------------------------------- */

static void row(const suite_tally *t, FILE *out) {
    fprintf(out, "%-18s %7u %7u %7u  ", t->kind, t->mutants, t->unread, t->harmful);
    for (uint32_t v = 1; v < SUITE_VERDICTS; v++) fprintf(out, "%6u", t->verdicts[v]);
    fprintf(out, "  %7u %8u %6u %8u %8u\n", t->harmful_refused, t->harmless_accepted, t->ran, t->harmless_refused,
            t->false_accepts);
}

void suite_table(const suite *s, FILE *out) {
    suite_tally sum = {.kind = "all"};
    fprintf(out, "%-18s %7s %7s %7s  %-48s  %7s %24s %8s\n", "", "", "refused", "", "  found by the oracle, or run",
            "refused", "harmless:       ", "FALSE");
    fprintf(out, "%-18s %7s %7s %7s  ", "kind", "mutants", "reading", "harmful");
    fprintf(out, "  dead  race  smem unwri value bound state   run  harmful accepted    run  refused  ACCEPTS\n");
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        const suite_tally *t = &s->tallies[i];
        row(t, out);
        sum.mutants += t->mutants, sum.unread += t->unread, sum.harmful += t->harmful;
        sum.harmful_refused += t->harmful_refused, sum.harmless_accepted += t->harmless_accepted;
        sum.harmless_refused += t->harmless_refused, sum.false_accepts += t->false_accepts;
        sum.ran += t->ran;
        for (uint32_t v = 0; v < SUITE_VERDICTS; v++) sum.verdicts[v] += t->verdicts[v];
    }
    row(&sum, out);
    fprintf(out, "%u sound jobs, %u of them refused; %u schedules a mutant\n", s->n_jobs, s->good_refused,
            s->schedules);
}

void suite_close(suite *s) {
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        for (uint32_t k = 0; k < s->jobs[i].n; k++) plan_close(s->jobs[i].ranks[k]);
        real_run_close(s->jobs[i].real_run);
    }
    oracle_close(s->oracle);
    *s = (suite){0};
}
