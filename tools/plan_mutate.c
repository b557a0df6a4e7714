/* SPDX-License-Identifier: Apache-2.0 */
/* keel plan mutate: a broken plan, to see that the proof refuses it. */
#include "args.h"
#include "fail.h"
#include "json_out.h"
#include "model_args.h"
#include "out.h"

#include <string.h>

static keel_status list_kinds(bool json, keel_error *err) {
    json_t *kinds = json ? json_array() : NULL;
    const char *name, *doc;
    bool whole = !json || kinds;
    for (size_t i = 0; (name = keel_mutation_kind(i, &doc)) != NULL; i++) {
        if (!json) {
            TRY(out_format(err, "%-18s  %s\n", name, doc));
        } else {
            whole = json_array_append_new(kinds, json_pack("{s:s,s:s}", "kind", name, "doc", doc)) == 0 && whole;
        }
    }
    if (!json) return KEEL_OK;
    if (whole) return json_print(kinds, err);
    json_decref(kinds);
    return fail_memory(err, "plan mutate");
}

static keel_status mutate(const args *a, const keel_plan *plan, keel_error *err) {
    const char *kind = a->value[OPT_KIND].text, *path = a->value[OPT_OUTPUT].text;
    uint64_t seed = args_count(a, OPT_SEED, 0);
    keel_plan *mutant = NULL;
    char *what = NULL;
    TRY(keel_plan_mutate(plan, kind, seed, &mutant, &what, err));
    keel_status s = keel_plan_save(mutant, path, err);
    if (s == KEEL_OK && args_flag(a, OPT_JSON)) {
        s = json_print(json_pack("{s:s,s:I,s:o,s:o}", "kind", kind, "seed", (json_int_t)seed, "what",
                                 json_of_text(what, strlen(what)), "written", json_of_text(path, strlen(path))),
                       err);
    } else if (s == KEEL_OK) {
        s = out_format(err, "%s\nwritten   %s\n", what, path);
    }
    keel_free(what);
    keel_plan_close(mutant);
    return s;
}

static keel_status plan_mutate_run(const args *a, keel_error *err) {
    if (!a->n_operands && !a->value[OPT_KIND].text) return list_kinds(args_flag(a, OPT_JSON), err);
    if (!a->n_operands) return args_refuse(a->verb, err, "no plan file");
    if (!a->value[OPT_KIND].text) return args_refuse(a->verb, err, "no --kind; keel plan mutate alone lists the kinds");
    if (!a->value[OPT_OUTPUT].text) return args_refuse(a->verb, err, "no -o FILE for the mutant");
    TRY(output_path_check(a->value[OPT_OUTPUT].text, err));
    keel_plan *plan;
    TRY(keel_plan_load(a->operand[0], &plan, err));
    keel_status s = mutate(a, plan, err);
    keel_plan_close(plan);
    return s;
}

static const option_id plan_mutate_options[] = {OPT_KIND, OPT_SEED, OPT_OUTPUT, OPT_JSON, OPT_HELP};
const verb verb_plan_mutate = {
    .name = "plan mutate",
    .synopsis = "[FILE --kind K -o FILE] [options]",
    .summary = "break a plan file on purpose; without FILE: list the kinds",
    .example = "  keel plan mutate\n"
               "  keel plan --synth tiny-qwen3 --workers 2 -o tiny.plan\n"
               "  keel plan mutate tiny.plan --kind drop-wait --seed 7 -o broken.plan\n"
               "  keel plan check broken.plan\n",
    .max_operands = 1,
    .options = plan_mutate_options,
    .n_options = sizeof plan_mutate_options / sizeof *plan_mutate_options,
    .run = plan_mutate_run,
};
