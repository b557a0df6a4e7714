/* SPDX-License-Identifier: Apache-2.0 */
/* A whole model through the real runtime: tokens and logits of 200 decode steps do not depend on workers, lanes or
 * schedule.
 *
 *   decode_stress GEOMETRY WORKERS LANES STEPS SEED
 *
 * Compares with one worker, one lane, fixed order. Built under ThreadSanitizer by tests/exec/CMakeLists.txt. */
#include "keel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void keep_token(void *user, uint32_t index, int32_t token, uint64_t ns) {
    (void)ns;
    ((int32_t *)user)[index] = token;
}

static int decode(const keel_model *model, uint32_t workers, uint32_t lanes, uint32_t steps, uint32_t seed,
                  int32_t *out, float *logits) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_plan *plan = NULL;
    keel_session *session = NULL;
    keel_plan_options po = KEEL_PLAN_OPTIONS_INITIALIZER;
    keel_session_options so = KEEL_SESSION_OPTIONS_INITIALIZER;
    po.workers = workers;
    po.max_seq = 512;
    so.lanes = lanes;
    so.seed = seed;
    so.page_seed = seed;
    so.watchdog_s = 60;
    int32_t prompt[21];
    for (int i = 0; i < 21; i++) prompt[i] = (i * 37 + 11) % 500;
    keel_request r = KEEL_REQUEST_INITIALIZER;
    r.prompt = prompt;
    r.n_prompt = 21;
    r.max_new_tokens = steps;
    r.on_token = keep_token;
    r.user = out;
    r.logits = logits;
    keel_result result = {0};
    keel_status s = keel_plan_build(model, &po, &plan, &err);
    if (s == KEEL_OK) s = keel_session_open(model, plan, &so, &session, &err);
    if (s == KEEL_OK) s = keel_session_run(session, &r, &result, &err);
    if (s != KEEL_OK) fprintf(stderr, "%s\n", err.detail);
    keel_session_close(session);
    keel_plan_close(plan);
    return s != KEEL_OK ? keel_status_exit(s) : result.n_tokens == steps ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: decode_stress GEOMETRY WORKERS LANES STEPS SEED\n");
        return 2;
    }
    uint32_t steps = (uint32_t)atoi(argv[4]);
    int32_t *got = calloc(steps + 1, sizeof *got), *want = calloc(steps + 1, sizeof *want);
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_model_options mo = KEEL_MODEL_OPTIONS_INITIALIZER;
    mo.synth = argv[1];
    mo.synth_seed = 3;
    keel_model *model = NULL;
    if (!got || !want || keel_model_open(&mo, &model, &err) != KEEL_OK) {
        fprintf(stderr, "%s\n", err.detail);
        return 2;
    }
    keel_model_info info;
    keel_model_info_get(model, &info);
    size_t n = steps * (size_t)info.vocab;
    float *logits = calloc(n, sizeof *logits), *want_logits = calloc(n, sizeof *want_logits);
    int rc = logits && want_logits ? decode(model, 1, 1, steps, 0, want, want_logits) : 2;
    if (rc == 0)
        rc = decode(model, (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), steps, (uint32_t)atoi(argv[5]), got,
                    logits);
    bool same = memcmp(got, want, steps * sizeof *got) == 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        same = same && fabsf(logits[i] - want_logits[i]) <= 1e-3f; /* KV splits differ */
    printf("%s workers %s lanes %s steps %u: %s\n", argv[1], argv[2], argv[3], steps,
           rc     ? "failed"
           : same ? "same tokens"
                  : "OTHER TOKENS");
    keel_model_close(model);
    free(got), free(want), free(logits), free(want_logits);
    return rc ? rc : same ? 0 : 1;
}
