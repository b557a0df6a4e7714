/* SPDX-License-Identifier: Apache-2.0 */
#include "run_input.h"

#include "fail.h"
#include "model_args.h"
#include "token_file.h"

#include <stdlib.h>
#include <string.h>

/* Which of the options, OPTION_IDS for none; *several: more than one. */
static option_id given_of(const args *a, const option_id *ids, size_t n, bool *several) {
    option_id found = OPTION_IDS;
    *several = false;
    for (size_t i = 0; i < n; i++) {
        if (!a->value[ids[i]].given) continue;
        *several = found != OPTION_IDS;
        found = ids[i];
    }
    return found;
}

static keel_status check_prompt(const args *a, keel_error *err) {
    static const option_id prompts[] = {OPT_PROMPT, OPT_PROMPT_FILE, OPT_TOKENS};
    bool several;
    option_id prompt = given_of(a, prompts, 3, &several);
    if (several) return args_refuse(a->verb, err, "give one of --prompt, --prompt-file and --tokens");
    if (prompt == OPTION_IDS) return args_refuse(a->verb, err, "no prompt: give --prompt, --prompt-file or --tokens");
    if (args_flag(a, OPT_CHAT) && prompt == OPT_TOKENS) {
        return args_refuse(a->verb, err, "--chat: wraps text, not --tokens");
    }
    if (a->value[OPT_SYSTEM].given && !args_flag(a, OPT_CHAT)) {
        return args_refuse(a->verb, err, "--system: belongs to --chat");
    }
    return KEEL_OK;
}

static keel_status check_sampling(const args *a, keel_error *err) {
    static const option_id ids[] = {OPT_TOP_K, OPT_TOP_P};
    for (size_t i = 0; i < 2; i++) {
        if (a->value[ids[i]].given && !a->value[OPT_TEMPERATURE].given) {
            return args_refuse(a->verb, err, "--%s: needs a --temperature", option_table[ids[i]].name);
        }
    }
    return KEEL_OK;
}

static keel_status check_outputs(const args *a, keel_error *err) {
    const option_value *max_new = &a->value[OPT_MAX_NEW_TOKENS];
    const char *tokens = a->value[OPT_SAVE_TOKENS].text, *logits = a->value[OPT_SAVE_LOGITS].text;
    if (logits && max_new->given && !max_new->count) {
        return args_refuse(a->verb, err, "--save-logits: there are none with --max-new-tokens 0");
    }
    if (tokens && logits && strcmp(tokens, logits) == 0) {
        return args_refuse(a->verb, err, "--save-tokens and --save-logits name the same file");
    }
    if (tokens) TRY(output_path_check(tokens, err));
    return logits ? output_path_check(logits, err) : KEEL_OK;
}

keel_status run_input_check(const args *a, keel_error *err) {
    TRY(check_prompt(a, err));
    TRY(check_sampling(a, err));
    option_id planned = plan_args_given(a);
    if (a->value[OPT_PLAN].given && planned != OPTION_IDS) {
        return args_refuse(a->verb, err, "--%s: the plan of --plan says so already", option_table[planned].name);
    }
    return check_outputs(a, err);
}

static keel_status copy_tokens(const args *a, run_input *in, keel_error *err) {
    const option_value *v = &a->value[OPT_TOKENS];
    in->prompt = calloc(v->n + 1, sizeof *in->prompt);
    if (!in->prompt) return fail_memory(err, "--tokens");
    for (size_t i = 0; i < v->n; i++) in->prompt[i] = (int32_t)v->counts[i]; /* options.def limits them */
    in->n_prompt = v->n;
    return KEEL_OK;
}

keel_status run_input_read(const args *a, run_input *in, keel_error *err) {
    const char *forced = a->value[OPT_TEACHER_FORCE].text;
    if (forced) TRY(token_file_read(forced, &in->forced, &in->n_forced, err));
    if (a->value[OPT_TOKENS].given) return copy_tokens(a, in, err);
    if (a->value[OPT_PROMPT_FILE].given) return file_bytes(a->value[OPT_PROMPT_FILE].text, &in->text, &in->bytes, err);
    in->text = strdup(a->value[OPT_PROMPT].text);
    if (!in->text) return fail_memory(err, "--prompt");
    in->bytes = strlen(in->text);
    return KEEL_OK;
}

/* Teacher forcing goes through all its ids, so nothing stops it. */
static keel_status choose_stop_ids(const args *a, const keel_model_info *info, int32_t turn_end, run_input *in,
                                   keel_error *err) {
    if (args_flag(a, OPT_IGNORE_EOS) || in->n_forced) return KEEL_OK;
    in->stop = calloc(info->n_stop_ids + 1, sizeof *in->stop);
    if (!in->stop) return fail_memory(err, "stop ids");
    for (size_t i = 0; i < info->n_stop_ids; i++) in->stop[in->n_stop++] = info->stop_ids[i];
    if (turn_end >= 0) in->stop[in->n_stop++] = turn_end;
    return KEEL_OK;
}

static keel_status encode_text(const args *a, const keel_model *model, run_input *in, int32_t *turn_end,
                               keel_error *err) {
    int32_t *ids;
    size_t n;
    if (args_flag(a, OPT_CHAT)) {
        TRY(keel_chat_encode(model, a->value[OPT_SYSTEM].text, in->text, in->bytes, &ids, &n, turn_end, err));
    } else {
        TRY(keel_encode(model, in->text, in->bytes, true, &ids, &n, err));
    }
    in->prompt = calloc(n + 1, sizeof *in->prompt);
    if (in->prompt && n) memcpy(in->prompt, ids, n * sizeof *ids);
    in->n_prompt = n;
    keel_free(ids);
    return in->prompt ? KEEL_OK : fail_memory(err, "prompt");
}

keel_status run_input_encode(const args *a, const keel_model *model, const keel_model_info *info, run_input *in,
                             keel_error *err) {
    int32_t turn_end = -1;
    if (in->text) TRY(encode_text(a, model, in, &turn_end, err));
    if (!in->n_prompt) return fail(err, KEEL_USAGE, "the prompt is empty: give at least one token");
    return choose_stop_ids(a, info, turn_end, in, err);
}

void run_input_close(run_input *in) {
    free(in->text);
    free(in->prompt);
    free(in->forced);
    free(in->stop);
}
