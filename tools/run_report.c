/* SPDX-License-Identifier: Apache-2.0 */
#include "run_report.h"

#include "fail.h"
#include "json_out.h"
#include "session_args.h"

#include <stdio.h>

/* The object of --save-tokens; --json adds to it. NULL when memory is short. */
static json_t *tokens_json(const run_facts *f) {
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "prompt_ids", json_of_ids(f->in->prompt, f->in->n_prompt), "token_ids",
                     json_of_ids(f->printer->ids, f->printer->n), "text",
                     json_of_text(f->printer->text ? f->printer->text : "", f->printer->bytes), "ttft_ms",
                     json_of_real(f->result->ttft_ms), "tpot_ms", json_of_real(f->result->tpot_ms));
}

keel_status run_report_save(const run_facts *f, keel_error *err) {
    const char *tokens = f->a->value[OPT_SAVE_TOKENS].text, *logits = f->a->value[OPT_SAVE_LOGITS].text;
    if (logits && f->result->n_tokens) TRY(keel_logits_save(logits, f->logits, f->result->n_tokens, f->vocab, err));
    return tokens ? json_save(tokens_json(f), tokens, err) : KEEL_OK;
}

static double a_second(double n, double ms) { return ms > 0 ? n * 1000 / ms : 0; }

static const char *why_ended(const run_facts *f) {
    if (f->result->stopped) return "interrupted";
    for (size_t i = 0; i < f->in->n_stop && f->printer->n; i++) {
        if (f->printer->ids[f->printer->n - 1] == f->in->stop[i]) return "stop_id";
    }
    return "length";
}

static keel_status print_json(const run_facts *f, keel_error *err) {
    keel_plan_info plan;
    TRY(keel_plan_info_get(f->plan, &plan, err));
    const keel_result *r = f->result;
    json_t *all = tokens_json(f);
    json_t *more = json_pack("{s:s,s:o,s:o,s:i,s:s,s:o}", "ended", why_ended(f), "prefill_tokens_per_s",
                             json_of_real(a_second((double)f->in->n_prompt, r->ttft_ms)), "decode_tokens_per_s",
                             json_of_real(a_second(1, r->tpot_ms)), "workers", (int)plan.workers, "plan_sha256",
                             plan.hash, "gpu_memory_bytes", session_memory_json(f->session));
    if (all && (!more || json_object_update(all, more) != 0)) {
        json_decref(all);
        all = NULL;
    }
    json_decref(more);
    return json_print(all, err);
}

keel_status run_report_print(const run_facts *f, keel_error *err) {
    const keel_result *r = f->result;
    if (args_flag(f->a, OPT_JSON)) return print_json(f, err);
    fprintf(stderr, "prompt %zu tokens", f->in->n_prompt);
    if (r->n_tokens) {
        fprintf(stderr, ", prefill %.1f ms (TTFT), %.1f tokens/s", r->ttft_ms,
                a_second((double)f->in->n_prompt, r->ttft_ms));
    }
    fprintf(stderr, "; generated %u tokens", r->n_tokens);
    if (r->n_tokens > 1) {
        fprintf(stderr, ", decode %.2f ms/token (TPOT), %.1f tokens/s", r->tpot_ms, a_second(1, r->tpot_ms));
    }
    memory_text memory = session_memory_text(f->session);
    fprintf(stderr, "%s%s\n", *memory.text ? "\n" : "", memory.text);
    return KEEL_OK;
}
