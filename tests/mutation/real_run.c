/* SPDX-License-Identifier: Apache-2.0 */
#include "real_run.h"

#include "core/mem.h"
#include "exec/session.h"
#include "load/weights.h"

#include <stdio.h>
#include <string.h>

/* The suite's KV pages hold 16 tokens: three are used. Tokens are forced, so that predictions differ from step to step.
 */
enum { PROMPT = 20, NEW = 24 };

struct real_run {
    graph *g;
    weights *w;
    uint32_t kv_splits, page_tokens;
    kp_request request;
    kp_u32 prompt[PROMPT], forced[NEW], tokens[NEW], want_tokens[NEW];
    float *logits, *want; /* [NEW][vocab] */
    size_t logits_bytes;
};

/* Other lanes, orders of fibers and copies, and places of KV pages. */
static const session_options schedules[] = {
    {.lanes = 1}, {.lanes = 2, .seed = 7}, {.lanes = 1, .seed = 1234, .page_seed = 5}};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

static void keep(void *user, uint32_t index, uint32_t token, uint64_t ns) {
    (void)ns;
    if (index < NEW) ((real_run *)user)->tokens[index] = token;
}

/* Fills r->logits and r->tokens. */
static keel_status run_once(real_run *r, const plan *p, const session_options *o, keel_error *err) {
    session *s = NULL;
    session_result result = {0};
    memset(r->logits, 0xff, r->logits_bytes);
    memset(r->tokens, 0xff, sizeof r->tokens);
    KEEL_TRY(session_open(p, r->w, o, &s, err));
    keel_status status = session_run(s, &r->request, keep, r, &result, err);
    session_close(s);
    if (status == KEEL_OK && result.n_tokens != NEW)
        status = error_set(err, KEEL_REFUSED, "it gives %u tokens instead of %d", result.n_tokens, NEW);
    return status;
}

static keel_status prepare(real_run *r, const plan *sound, keel_error *err) {
    r->kv_splits = sound->kv_splits, r->page_tokens = sound->page_tokens;
    r->logits_bytes = NEW * sound->vocab * sizeof *r->logits;
    r->logits = mem_alloc(r->logits_bytes), r->want = mem_alloc(r->logits_bytes);
    if (!r->logits || !r->want) return KEEL_NOMEM_AT(err, "real_run");
    for (uint32_t i = 0; i < PROMPT; i++) r->prompt[i] = (i * 31 + 7) % (kp_u32)sound->vocab;
    for (uint32_t i = 0; i < NEW; i++) r->forced[i] = (i * i * 13 + 5) % (kp_u32)sound->vocab;
    r->request = (kp_request){.prompt = r->prompt,
                              .n_prompt = PROMPT,
                              .max_new = NEW,
                              .forced = r->forced,
                              .n_forced = NEW,
                              .logits = r->logits};
    if (sound->sampling) r->request.temperature = 0.8f, r->request.top_p = 0.95f, r->request.seed = 11;
    KEEL_TRY(weights_open_synth(3, &r->w, err));
    KEEL_TRY(weights_bind(r->w, r->g, err));
    KEEL_TRY(run_once(r, sound, &schedules[0], err));
    memcpy(r->want, r->logits, r->logits_bytes);
    memcpy(r->want_tokens, r->tokens, sizeof r->tokens);
    return KEEL_OK;
}

keel_status real_run_open(graph *g, const plan *sound, real_run **out, keel_error *err) {
    real_run *r = mem_calloc(1, sizeof *r);
    if (!r) {
        graph_close(g);
        return KEEL_NOMEM_AT(err, "real_run");
    }
    r->g = g;
    keel_status s = prepare(r, sound, err);
    if (s != KEEL_OK) {
        real_run_close(r);
        return s;
    }
    *out = r;
    return KEEL_OK;
}

void real_run_close(real_run *r) {
    if (!r) return;
    weights_close(r->w);
    graph_close(r->g);
    mem_free(r->logits), mem_free(r->want), mem_free(r);
}

/* The first logit or token that is another one; false: there is none. */
static bool find_difference(const real_run *r, char what[REAL_RUN_WHAT_BYTES]) {
    size_t vocab = r->logits_bytes / NEW / sizeof *r->want;
    for (size_t i = 0; i < NEW * vocab; i++) {
        if (memcmp(&r->logits[i], &r->want[i], sizeof *r->want) == 0) continue;
        snprintf(what, REAL_RUN_WHAT_BYTES, "logit %zu of step %zu is %.9g instead of %.9g", i % vocab, i / vocab,
                 (double)r->logits[i], (double)r->want[i]);
        return true;
    }
    for (int i = 0; i < NEW; i++) {
        if (r->tokens[i] == r->want_tokens[i]) continue;
        snprintf(what, REAL_RUN_WHAT_BYTES, "token %d is %u instead of %u", i, r->tokens[i], r->want_tokens[i]);
        return true;
    }
    return false;
}

real_run_verdict real_run_judge(real_run *r, const plan *p, char what[REAL_RUN_WHAT_BYTES]) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    snprintf(what, REAL_RUN_WHAT_BYTES, "its sums are in another order");
    if (p->kv_splits != r->kv_splits || p->page_tokens != r->page_tokens) return REAL_RUN_OTHER;
    if (plan_fits(p, r->g, &err) != KEEL_OK) {
        snprintf(what, REAL_RUN_WHAT_BYTES, "%.500s", err.detail);
        return REAL_RUN_OTHER;
    }
    for (int i = 0; i < SCHEDULES; i++) {
        char why[REAL_RUN_WHAT_BYTES];
        keel_status s = run_once(r, p, &schedules[i], &err);
        if (s != KEEL_OK) snprintf(why, sizeof why, "%.480s", err.detail);
        if (s == KEEL_OK && !find_difference(r, why)) continue;
        snprintf(what, REAL_RUN_WHAT_BYTES, "schedule %d: %.480s", i, why);
        return REAL_RUN_DIFFERS;
    }
    *what = '\0';
    return REAL_RUN_SAME;
}
