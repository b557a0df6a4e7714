/* SPDX-License-Identifier: Apache-2.0 */
/* keel run: text or tokens from a model. */
#include "fail.h"
#include "interrupt.h"
#include "model_args.h"
#include "out.h"
#include "ranks.h"
#include "run_input.h"
#include "run_report.h"
#include "session_args.h"
#include "token_printer.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct job {
    const args *a;
    ranks ranks;
    run_input in;
    keel_model *model;
    keel_model_info info;
    keel_plan *plan;
    keel_session *session;
    uint32_t max_new;
    float *logits;
    token_printer printer;
    keel_result result;
} job;

static const uint32_t default_new_tokens = 128;

/* Positions that a generation fills: the last token is never fed. */
static uint64_t positions_needed(const job *j) { return j->in.n_prompt + j->max_new - (j->max_new > 0); }

/* Without --max-seq the KV pages grow with the request, as far as the model goes. */
static keel_status build_plan(job *j, uint32_t *max_seq, keel_error *err) {
    keel_plan_options options = plan_args_options(j->a);
    keel_plan_info plan;
    TRY(keel_plan_build(j->model, &options, &j->plan, err));
    TRY(keel_plan_info_get(j->plan, &plan, err));
    uint64_t need = positions_needed(j), most = j->info.max_position ? j->info.max_position : UINT32_MAX;
    if (need > plan.max_seq && !options.max_seq && most > plan.max_seq) {
        options.max_seq = (uint32_t)(need < most ? need : most);
        keel_plan_close(j->plan);
        j->plan = NULL;
        TRY(keel_plan_build(j->model, &options, &j->plan, err));
        plan.max_seq = options.max_seq;
    }
    *max_seq = plan.max_seq;
    return KEEL_OK;
}

static keel_status load_plan(job *j, uint32_t *max_seq, keel_error *err) {
    keel_plan_info plan;
    const char *file = j->a->value[OPT_PLAN].text;
    char *path = ranks_file(file, args_count32(j->a, OPT_TP, 1), j->ranks.rank);
    if (!path) return fail_memory(err, file);
    keel_status s = keel_plan_load(path, &j->plan, err);
    free(path);
    TRY(s);
    TRY(keel_plan_info_get(j->plan, &plan, err));
    *max_seq = plan.max_seq;
    return KEEL_OK;
}

static keel_status make_plan(job *j, keel_error *err) {
    uint32_t max_seq = 0, fallback = j->in.n_forced ? (uint32_t)j->in.n_forced : default_new_tokens;
    j->max_new = args_count32(j->a, OPT_MAX_NEW_TOKENS, fallback);
    TRY(j->a->value[OPT_PLAN].given ? load_plan(j, &max_seq, err) : build_plan(j, &max_seq, err));
    /* A number of tokens that nobody asked for shrinks to what fits. */
    bool asked = j->a->value[OPT_MAX_NEW_TOKENS].given || j->in.n_forced;
    if (!asked && positions_needed(j) > max_seq && j->in.n_prompt <= max_seq) {
        j->max_new = max_seq + 1 - (uint32_t)j->in.n_prompt;
    }
    return KEEL_OK;
}

static keel_status make_logits(job *j, keel_error *err) {
    if (!j->a->value[OPT_SAVE_LOGITS].given) return KEEL_OK;
    j->logits = calloc((size_t)j->max_new * j->info.vocab, sizeof *j->logits);
    if (j->logits) return KEEL_OK;
    return fail(err, KEEL_NOMEM, "--save-logits: %u steps of %llu logits do not fit in memory", j->max_new,
                (unsigned long long)j->info.vocab);
}

static keel_status generate(job *j, keel_error *err) {
    keel_request request = KEEL_REQUEST_INITIALIZER;
    request.prompt = j->in.prompt;
    request.n_prompt = j->in.n_prompt;
    request.max_new_tokens = j->max_new;
    request.stop_ids = j->in.stop;
    request.n_stop_ids = j->in.n_stop;
    request.forced = j->in.forced;
    request.n_forced = j->in.n_forced;
    request.temperature = (float)j->a->value[OPT_TEMPERATURE].real;
    request.top_p = (float)j->a->value[OPT_TOP_P].real;
    request.top_k = args_count32(j->a, OPT_TOP_K, 0);
    request.seed = args_count32(j->a, OPT_SEED, 0);
    request.logits = j->logits;
    request.on_token = token_printer_put;
    request.user = &j->printer;
    j->printer.session = j->session;
    interrupt_watch(j->session);
    keel_status s = keel_session_run(j->session, &request, &j->result, err);
    interrupt_unwatch();
    return s;
}

static keel_status prepare(job *j, keel_error *err) {
    bool sampling = j->a->value[OPT_TEMPERATURE].real > 0, print = !args_flag(j->a, OPT_JSON) && !j->ranks.rank;
    TRY(model_args_open(j->a, j->ranks.rank, false, sampling, &j->model, err));
    keel_model_info_get(j->model, &j->info);
    TRY(run_input_encode(j->a, j->model, &j->info, &j->in, err));
    TRY(make_plan(j, err));
    TRY(session_args_open(j->a, j->model, j->plan, j->ranks.group[0] ? j->ranks.group : NULL, &j->session, err));
    TRY(make_logits(j, err));
    return token_printer_open(&j->printer, j->model, j->info.has_tokenizer, j->max_new, print, err);
}

static keel_status finish(job *j, keel_error *err) {
    keel_status streamed = token_printer_end(&j->printer);
    if (j->ranks.rank > 0 || (streamed != KEEL_OK && streamed != KEEL_ABORTED)) return streamed;
    run_facts facts = {j->a, j->plan, j->session, &j->in, &j->printer, &j->result, j->logits, j->info.vocab};
    TRY(run_report_save(&facts, err));
    if (streamed != KEEL_OK) return fail_quietly(err, streamed);
    TRY(run_report_print(&facts, err));
    if (!j->result.stopped) return KEEL_OK;
    fprintf(stderr, "keel run: interrupted after %u tokens; what was generated is kept\n", j->result.n_tokens);
    return fail_quietly(err, KEEL_ABORTED);
}

static keel_status run_rank(job *j, keel_error *err) {
    keel_status s = prepare(j, err);
    if (s == KEEL_OK) s = generate(j, err);
    if (s == KEEL_OK) s = finish(j, err);
    keel_session_close(j->session);
    token_printer_close(&j->printer);
    keel_plan_close(j->plan);
    keel_model_close(j->model);
    free(j->logits);
    return s;
}

static keel_status run_run(const args *a, keel_error *err) {
    job j = {.a = a};
    keel_status s = run_input_check(a, err);
    if (s == KEEL_OK) s = run_input_read(a, &j.in, err); /* standard input can be read once */
    if (s == KEEL_OK) s = ranks_start(a, &j.ranks, err);
    if (s == KEEL_OK && !j.ranks.parent) s = run_rank(&j, err);
    run_input_close(&j.in);
    return s;
}

static const option_id run_options[] = {OPT_SYNTH,       OPT_QUANT,         OPT_PROMPT,      OPT_PROMPT_FILE,
                                        OPT_TOKENS,      OPT_CHAT,          OPT_SYSTEM,      OPT_MAX_NEW_TOKENS,
                                        OPT_IGNORE_EOS,  OPT_TEMPERATURE,   OPT_TOP_K,       OPT_TOP_P,
                                        OPT_SEED,        OPT_WEIGHTS,       OPT_LAYERS,      RANK_OPTION_IDS,
                                        OPT_SAVE_TOKENS, OPT_TEACHER_FORCE, OPT_SAVE_LOGITS, OPT_DEVICE,
                                        OPT_PLAN,        PLAN_OPTION_IDS,   OPT_MAX_SEQ,     SESSION_OPTION_IDS,
                                        OPT_JSON,        OPT_HELP};
const verb verb_run = {
    .name = "run",
    .synopsis = "MODEL|GRAPH --weights DIR|--synth GEOMETRY --prompt TEXT|--prompt-file FILE|--tokens ID,... [options]",
    .summary = "generate text or tokens from a checkpoint",
    .example = "  keel run smollm2 --chat --prompt \"Why is the sky blue?\" --max-new-tokens 64\n"
               "  keel run --synth tiny-qwen3:7 --tokens 1,2,3 --save-tokens out.json\n",
    .max_operands = 1,
    .options = run_options,
    .n_options = sizeof run_options / sizeof *run_options,
    .run = run_run,
};
