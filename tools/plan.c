/* SPDX-License-Identifier: Apache-2.0 */
/* keel plan: a model's plan, summed up on one screen, as JSON, or as a file. */
#include "fail.h"
#include "json_out.h"
#include "model_args.h"
#include "out.h"
#include "plan_doc.h"
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    TRY(out_format(err, "plan      for %s: %u workers, batch %u\n", p.arch, p.workers, p.batch));
    TRY(out_format(err, "complete  %s\n", p.complete ? "yes" : "no: role bodies are missing, it cannot run"));
    if (p.tp > 1)
        TRY(out_format(err, "ranks     this is rank %u of %u; %s of its activations are read by others\n", p.rank, p.tp,
                       out_size(p.symmetric_bytes).text));
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

/* The plans of all ranks; one that is shown, and perhaps the only one that is written. */
typedef struct job {
    const args *a;
    uint32_t n, shown;
    bool one; /* --rank */
    keel_model **models;
    keel_plan **plans;
    char *proof, *slice; /* --prove: what was checked; with --layers: what is left out of the model */
    char *code;          /* --cubin: what the compiler says, as JSON with --json */
} job;

static keel_status write_plans(const job *j, keel_error *err) {
    for (uint32_t r = 0; r < j->n; r++) {
        if (j->one && r != j->shown) continue;
        char *path = ranks_file(j->a->value[OPT_OUTPUT].text, j->n, r);
        if (!path) return fail_memory(err, "plan");
        keel_status s = keel_plan_save(j->plans[r], path, err);
        if (s == KEEL_OK && !args_flag(j->a, OPT_JSON)) s = out_format(err, "written   %s\n", path);
        free(path);
        TRY(s);
    }
    return KEEL_OK;
}

static keel_status check_slice(job *j, keel_error *err) {
    keel_model *whole;
    TRY(model_args_open_whole(j->a, j->shown, args_flag(j->a, OPT_SAMPLE), &whole, err));
    keel_status s = keel_slice_check(whole, j->models[j->shown], &j->slice, err);
    keel_model_close(whole);
    return s;
}

static keel_status prove(job *j, keel_error *err) {
    TRY(keel_plan_prove((const keel_plan *const *)j->plans, j->n, args_flag(j->a, OPT_ALLOW_ABSENT), &j->proof, err));
    if (j->a->value[OPT_LAYERS].given) TRY(check_slice(j, err));
    if (args_flag(j->a, OPT_JSON)) return KEEL_OK;
    TRY(out_text(j->proof, err));
    return j->slice ? out_text(j->slice, err) : KEEL_OK;
}

/* {"ok": …} of --prove; NULL with nothing to say or no memory. */
static char *proof_json(const job *j) {
    json_t *value = j->proof ? json_pack("{s:b,s:s,s:s?}", "ok", 1, "report", j->proof, "slice", j->slice) : NULL;
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(value);
    return text;
}

/* The plan's object, with "proof" and "code" in front where it was proved and compiled. */
static keel_status print_all_json(const job *j, const keel_plan *plan, keel_error *err) {
    if (!j->proof && !j->code) return print_json(plan, err);
    char *proof = proof_json(j), *text = NULL;
    keel_status s = j->proof && !proof ? fail_memory(err, "plan") : keel_plan_json(plan, &text, err);
    if (s == KEEL_OK) s = out_text("{", err);
    if (s == KEEL_OK && proof) s = out_format(err, "\"proof\":%s,", proof);
    if (s == KEEL_OK && j->code) s = out_format(err, "\"code\":%s,", j->code);
    if (s == KEEL_OK) s = out_text(strchr(text, '{') + 1, err);
    if (s == KEEL_OK) s = out_text("\n", err);
    free(proof), keel_free(text);
    return s;
}

static keel_status compile(job *j, keel_error *err) {
    bool json = args_flag(j->a, OPT_JSON);
    TRY(keel_plan_cubin(j->plans[j->shown], j->a->value[OPT_CUBIN].text, json, &j->code, err));
    return json ? KEEL_OK : out_text(j->code, err);
}

static keel_status write_and_print(job *j, keel_error *err) {
    bool json = args_flag(j->a, OPT_JSON);
    const keel_plan *plan = j->plans[j->shown];
    if (!json) TRY(print_model(j->a, j->models[j->shown], err));
    if (!json) TRY(print_plan(plan, err));
    if (args_flag(j->a, OPT_PROVE)) TRY(prove(j, err));
    if (j->a->value[OPT_CUBIN].given) TRY(compile(j, err));
    if (j->a->value[OPT_OUTPUT].text) TRY(write_plans(j, err));
    TRY(plan_doc_write(j->a, j->models[j->shown], plan, err));
    return json ? print_all_json(j, plan, err) : KEEL_OK;
}

static keel_status make_plans(job *j, keel_error *err) {
    keel_plan_options options = plan_args_options(j->a);
    j->models = calloc(j->n, sizeof(keel_model *));
    j->plans = calloc(j->n, sizeof(keel_plan *));
    if (!j->models || !j->plans) return fail_memory(err, "plan");
    for (uint32_t r = 0; r < j->n; r++) {
        TRY(model_args_open(j->a, r, true, args_flag(j->a, OPT_SAMPLE), &j->models[r], err));
        TRY(keel_plan_build(j->models[r], &options, &j->plans[r], err));
    }
    return KEEL_OK;
}

static keel_status plan_run(const args *a, keel_error *err) {
    const char *path = a->value[OPT_OUTPUT].text;
    job j = {.a = a, .n = args_count32(a, OPT_TP, 1), .shown = args_count32(a, OPT_RANK, 0)};
    j.one = a->value[OPT_RANK].given;
    if (j.shown >= j.n) return args_refuse(a->verb, err, "--rank %u: of --tp %u ranks, counted from 0", j.shown, j.n);
    if (path) TRY(output_path_check(path, err));
    TRY(plan_doc_check(a, err));
    keel_status s = make_plans(&j, err);
    if (s == KEEL_OK) s = write_and_print(&j, err);
    for (uint32_t r = 0; r < j.n; r++) {
        if (j.plans) keel_plan_close(j.plans[r]);
        if (j.models) keel_model_close(j.models[r]);
    }
    free(j.plans), free(j.models);
    keel_free(j.proof), keel_free(j.slice), keel_free(j.code);
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

static const option_id plan_options[] = {OPT_SYNTH,       OPT_QUANT,     OPT_WEIGHTS, OPT_LAYERS, OPT_ARCH,
                                         PLAN_OPTION_IDS, OPT_MAX_SEQ,   OPT_TP,      OPT_EP,     OPT_HEAD,
                                         OPT_RANK,        OPT_PROVE,     OPT_CUBIN,   OPT_SAMPLE, OPT_ALLOW_ABSENT,
                                         OPT_DOC,         OPT_BANDWIDTH, OPT_OUTPUT,  OPT_JSON,   OPT_HELP};
const verb verb_plan = {
    .name = "plan",
    .synopsis = "MODEL|GRAPH|--synth GEOMETRY [options]",
    .summary = "compile a model into a static plan",
    .example = "  keel plan --synth qwen3-0.6b --workers 2 --prove -o qwen3.plan\n"
               "  keel plan check qwen3.plan\n",
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
