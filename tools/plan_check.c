/* SPDX-License-Identifier: Apache-2.0 */
/* keel plan check: is a plan file of any origin safe to run? */
#include "args.h"
#include "fail.h"
#include "json_out.h"
#include "out.h"
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MOST = 64 };

typedef struct job {
    char *stem; /* what stands before ".rank0" in the names of a job's files */
    keel_plan *plans[RANKS_MOST];
    uint32_t n;
} job;

/* FILE without ".rank3", if it ends so. */
static char *stem_of(const char *file) {
    const char *dot = strrchr(file, '.');
    size_t digits = dot && strncmp(dot, ".rank", 5) == 0 ? strspn(dot + 5, "0123456789") : 0;
    return digits && !dot[5 + digits] ? strndup(file, (size_t)(dot - file)) : strdup(file);
}

static keel_status load_rank(job *j, uint32_t rank, keel_error *err) {
    char *path = ranks_file(j->stem, 2, rank);
    if (!path) return fail_memory(err, "plan check");
    keel_status s = keel_plan_load(path, &j->plans[rank], err);
    free(path);
    return s;
}

/* The file itself, or, of a job with several ranks, the files of all of them beside it. */
static keel_status load(job *j, const char *file, keel_error *err) {
    keel_plan_info info;
    char *first = ranks_file(j->stem, 2, 0);
    if (!first) return fail_memory(err, "plan check");
    bool there = access(file, F_OK) == 0, beside = access(first, F_OK) == 0;
    keel_status s = KEEL_OK;
    if (there && beside && strcmp(j->stem, file) == 0)
        s = fail(err, KEEL_USAGE,
                 "%s and %s are both there: a plan of one rank and a job of several; name %s, or remove one", file,
                 first, first);
    if (s == KEEL_OK) s = keel_plan_load(there || !beside ? file : first, &j->plans[0], err);
    free(first);
    TRY(s);
    j->n = 1;
    TRY(keel_plan_info_get(j->plans[0], &info, err));
    if (info.tp > RANKS_MOST)
        return fail(err, KEEL_UNSUPPORTED, "%s: of %u ranks; %d can be checked", file, info.tp, RANKS_MOST);
    if (info.tp <= 1) return KEEL_OK;
    keel_plan_close(j->plans[0]);
    j->plans[0] = NULL;
    for (j->n = 0; j->n < info.tp; j->n++) TRY(load_rank(j, j->n, err));
    return KEEL_OK;
}

static keel_status print(char *report, bool json, keel_error *err) {
    if (!json) return out_text(report, err);
    return json_print(json_pack("{s:b,s:s}", "ok", 1, "report", report), err);
}

static keel_status plan_check_run(const args *a, keel_error *err) {
    if (!a->n_operands) return args_refuse(a->verb, err, "no plan file");
    job j = {.stem = stem_of(a->operand[0])};
    char *report = NULL;
    keel_status s = j.stem ? load(&j, a->operand[0], err) : fail_memory(err, "plan check");
    if (s == KEEL_OK)
        s = keel_plan_prove((const keel_plan *const *)j.plans, j.n, args_flag(a, OPT_ALLOW_ABSENT), &report, err);
    if (s == KEEL_OK) s = print(report, args_flag(a, OPT_JSON), err);
    keel_free(report);
    for (uint32_t r = 0; r < RANKS_MOST; r++) keel_plan_close(j.plans[r]);
    free(j.stem);
    return s;
}

static const option_id plan_check_options[] = {OPT_ALLOW_ABSENT, OPT_JSON, OPT_HELP};
const verb verb_plan_check = {
    .name = "plan check",
    .synopsis = "FILE [options]",
    .summary = "prove a plan file of any origin safe, or say why it is not",
    .example = "  keel plan --synth qwen3-0.6b -o qwen3.plan\n"
               "  keel plan check qwen3.plan\n"
               "  keel plan --synth llama-3.2-1b --tp 2 -o llama.plan   (llama.plan.rank0, llama.plan.rank1)\n"
               "  keel plan check llama.plan\n",
    .max_operands = 1,
    .options = plan_check_options,
    .n_options = sizeof plan_check_options / sizeof *plan_check_options,
    .run = plan_check_run,
};
