/* SPDX-License-Identifier: Apache-2.0 */
/* keel plan: a model's plan, summed up on one screen, as JSON, or as a file. */
#include "fail.h"
#include "model_args.h"
#include "out.h"

static keel_status print_model(const args *a, const keel_model *model, keel_error *err) {
    keel_model_info info;
    keel_model_info_get(model, &info);
    return out_format(err, "model     %s: %s, %u layers, hidden %llu, vocabulary %llu, weights %s\n",
                      model_args_name(a), info.architecture, info.n_layers, (unsigned long long)info.hidden,
                      (unsigned long long)info.vocab, out_size(info.weight_bytes).text);
}

static keel_status print_plan(const keel_plan *plan, keel_error *err) {
    keel_plan_info p;
    TRY(keel_plan_info_get(plan, &p, err));
    TRY(out_format(err, "plan      for %s: %u workers, batch %u%s\n", p.arch, p.workers, p.batch,
                   p.complete ? "" : "; NOT complete: role bodies are missing, it cannot run"));
    TRY(out_format(err, "work      %u tasks in %u phases, %u events\n", p.n_tasks, p.n_phases, p.n_events));
    TRY(out_format(err, "a token   reads %s of weights and %s for each position before it, moves %s, %.3g GFLOP\n",
                   out_size(p.weight_bytes).text, out_size(p.kv_bytes_a_token).text, out_size(p.other_bytes).text,
                   (double)p.flops / 1e9));
    TRY(out_format(err, "KV pages  %u positions in pages of %u tokens: %s\n", p.max_seq, p.page_tokens,
                   out_size(p.kv_bytes).text));
    return out_format(err, "identity  sha256 %s\n", p.hash);
}

static keel_status print_text(char *text, keel_error *err) {
    keel_status s = out_text(text, err);
    keel_free(text);
    return s;
}

static keel_status print_json(const keel_plan *plan, keel_error *err) {
    char *text;
    TRY(keel_plan_json(plan, &text, err));
    TRY(print_text(text, err));
    return out_text("\n", err);
}

static keel_status write_and_print(const args *a, const keel_model *model, const keel_plan *plan, keel_error *err) {
    const char *path = a->value[OPT_OUTPUT].text;
    if (path) TRY(keel_plan_save(plan, path, err));
    if (args_flag(a, OPT_JSON)) return print_json(plan, err);
    TRY(print_model(a, model, err));
    TRY(print_plan(plan, err));
    return path ? out_format(err, "written   %s\n", path) : KEEL_OK;
}

static keel_status plan_run(const args *a, keel_error *err) {
    const char *path = a->value[OPT_OUTPUT].text;
    if (path) TRY(output_path_check(path, err));
    keel_model *model = NULL;
    keel_plan *plan = NULL;
    keel_plan_options options = plan_args_options(a);
    TRY(model_args_open(a, true, args_flag(a, OPT_SAMPLE), &model, err));
    keel_status s = keel_plan_build(model, &options, &plan, err);
    if (s == KEEL_OK) s = write_and_print(a, model, plan, err);
    keel_plan_close(plan);
    keel_model_close(model);
    return s;
}

static keel_status plan_show_run(const args *a, keel_error *err) {
    if (!a->n_operands) return args_refuse(a->verb, err, "no plan file");
    keel_plan *plan;
    TRY(keel_plan_load(a->operand[0], &plan, err));
    char *text = NULL;
    keel_status s = KEEL_OK;
    if (args_flag(a, OPT_JSON)) {
        s = print_json(plan, err);
    } else {
        s = keel_plan_text(plan, &text, err);
        if (s == KEEL_OK) s = print_text(text, err);
    }
    keel_plan_close(plan);
    return s;
}

static const option_id plan_options[] = {OPT_SYNTH,  OPT_LAYERS,       OPT_ARCH,   PLAN_OPTION_IDS, OPT_MAX_SEQ,
                                         OPT_SAMPLE, OPT_ALLOW_ABSENT, OPT_OUTPUT, OPT_JSON,        OPT_HELP};
const verb verb_plan = {
    .name = "plan",
    .synopsis = "MODEL|--synth GEOMETRY [options]",
    .summary = "compile a model into a static plan",
    .example = "  keel plan --synth qwen3-0.6b --workers 2 -o qwen3.plan\n"
               "  keel plan show qwen3.plan\n",
    .max_operands = 1,
    .options = plan_options,
    .n_options = sizeof plan_options / sizeof *plan_options,
    .run = plan_run,
};

static const option_id plan_show_options[] = {OPT_JSON, OPT_HELP};
const verb verb_plan_show = {
    .name = "plan show",
    .synopsis = "FILE [options]",
    .summary = "show a plan file to a person, or with --json to a program",
    .example = "  keel plan --synth qwen3-0.6b -o qwen3.plan\n"
               "  keel plan show qwen3.plan\n",
    .max_operands = 1,
    .options = plan_show_options,
    .n_options = sizeof plan_show_options / sizeof *plan_show_options,
    .run = plan_show_run,
};
