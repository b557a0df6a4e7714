/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the suite's programs, and what must hold:
 *
 *   [--per-kind N] [--kind K] [--seed S] [--depth D] [--schedules N] [--table FILE] [--false-accepts FILE] [--show]
 *
 * Without arguments the part of the suite that `make check` runs. A line of --false-accepts says how to see that mutant
 * again: --kind K --seed S --per-kind 1 --show. */
#ifndef KEEL_TESTS_MUTATION_SUITE_MAIN_H
#define KEEL_TESTS_MUTATION_SUITE_MAIN_H

#include "mutation/suite.h"

#include <stdlib.h>
#include <string.h>

typedef struct suite_args {
    uint32_t per_kind, schedules, depth;
    uint64_t seed;
    const char *kind, *table, *false_accepts;
    bool show;
} suite_args;

static bool suite_parse(int argc, char **argv, suite_args *a) {
    *a = (suite_args){.per_kind = 30, .schedules = 4, .seed = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        bool has = true;
        if (strcmp(argv[i], "--per-kind") == 0) {
            a->per_kind = (uint32_t)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--schedules") == 0) {
            a->schedules = (uint32_t)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--depth") == 0) {
            a->depth = (uint32_t)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0) {
            a->seed = strtoull(value, NULL, 10);
        } else if (strcmp(argv[i], "--kind") == 0) {
            a->kind = value;
        } else if (strcmp(argv[i], "--table") == 0) {
            a->table = value;
        } else if (strcmp(argv[i], "--false-accepts") == 0) {
            a->false_accepts = value;
        } else if (strcmp(argv[i], "--show") == 0) {
            a->show = true;
            has = false;
        } else {
            fprintf(stderr, "%s: see tests/mutation/suite_main.h for the options\n", argv[i]);
            return false;
        }
        i += has;
    }
    return true;
}

/* Exit status: 0 when no harmful mutant was accepted, no sound plan refused, and the oracle finds what it should. */
static int suite_main(suite *s, int argc, char **argv) {
    suite_args a;
    if (!suite_parse(argc, argv, &a)) return 2;
    s->schedules = a.schedules;
    s->show = a.show;
    s->depth = a.depth;
    s->false_accepts = a.false_accepts ? fopen(a.false_accepts, "a") : stderr;
    FILE *table = a.table ? fopen(a.table, "a") : NULL;
    if (!s->false_accepts || (a.table && !table)) return perror("mutation"), 2;
    bool found = suite_run(s, a.kind, a.per_kind, a.seed);
    suite_table(s, stdout);
    if (table) suite_table(s, table), fclose(table);
    if (a.false_accepts) fclose(s->false_accepts);
    uint32_t bad = s->good_refused;
    if (a.per_kind >= 30 && a.depth <= 1) bad += suite_below_floor(s);
    for (uint32_t i = 0; i < s->n_kinds; i++) bad += s->tallies[i].false_accepts;
    suite_close(s);
    if (!found) return fprintf(stderr, "--kind %s: no such kind\n", a.kind), 2;
    return bad ? 1 : 0;
}

#endif
