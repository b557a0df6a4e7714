/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions on demand, for scripts (tests/gpu/sessions.py): opens a model once, then takes commands on standard input,
 * one a line, and answers each in one line on standard output, "ok NAME=VALUE …" or "error STATUS DETAIL". What `keel
 * run` cannot do stands here: many plans over one set of weights, permuted KV pages, several runs on one handle.
 *
 *   sessions (--synth GEOMETRY|--model DIR) [--quant fp8] [--seed N] [--layers A B] [--no-weights]
 *
 *   plan ARCH BATCH MAX_SEQ WORKERS KV_SPLITS PAGE_TOKENS      0: the plan's default; closes what was open
 *   open PAGE_SEED WATCHDOG_S CUBIN|-                           a session of that plan; a second `open` makes a new one
 *   cubin FILE                                                  the device code of that plan
 *   run N_PROMPT N_STEPS FORCED IDS_FILE LOGITS_FILE|-          ids: int32; logits: f32 [steps][vocab]
 *
 * IDS_FILE holds the prompt and behind it, where FORCED is 1, the N_STEPS − 1 ids that are fed instead of the
 * predictions. The answer to `run` ends in tokens=ID,ID,… */
#include "keel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct desk {
    keel_model *model;
    keel_plan *plan;
    keel_session *session;
    uint64_t vocab;
    int32_t *tokens; /* of the run in hand */
} desk;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One line, whatever the detail holds. */
static void answer_error(keel_status status, const char *detail) {
    printf("error %s ", keel_status_name(status));
    for (const char *c = detail; *c; c++) fputs(*c == '\n' ? " | " : (char[2]){*c, 0}, stdout);
    putchar('\n');
    fflush(stdout);
}

static void close_session(desk *d) {
    keel_session_close(d->session);
    d->session = NULL;
}

static void close_plan(desk *d) {
    close_session(d);
    keel_plan_close(d->plan);
    d->plan = NULL;
}

static keel_status make_plan(desk *d, const char *text, keel_error *err) {
    char arch[32];
    keel_plan_options o = KEEL_PLAN_OPTIONS_INITIALIZER;
    keel_plan_info info;
    double start = now_s();
    if (sscanf(text, "%31s %u %u %u %u %u", arch, &o.batch, &o.max_seq, &o.workers, &o.kv_splits, &o.page_tokens) != 6)
        return KEEL_USAGE;
    close_plan(d);
    o.arch = arch;
    keel_status s = keel_plan_build(d->model, &o, &d->plan, err);
    if (s == KEEL_OK) s = keel_plan_info_get(d->plan, &info, err);
    if (s != KEEL_OK) return s;
    printf("ok workers=%u max_seq=%u weight_bytes=%" PRIu64 " kv_bytes_a_token=%" PRIu64 " plan=%s seconds=%.3f\n",
           info.workers, info.max_seq, info.weight_bytes, info.kv_bytes_a_token, info.hash, now_s() - start);
    return KEEL_OK;
}

static keel_status open_session(desk *d, const char *text, keel_error *err) {
    keel_session_options o = KEEL_SESSION_OPTIONS_INITIALIZER;
    char cubin[1024];
    double start = now_s();
    if (!d->plan || sscanf(text, "%u %u %1023s", &o.page_seed, &o.watchdog_s, cubin) != 3) return KEEL_USAGE;
    o.cubin = strcmp(cubin, "-") == 0 ? NULL : cubin;
    close_session(d); /* first: two do not fit a GPU's memory beside each other */
    keel_status s = keel_session_open(d->model, d->plan, &o, &d->session, err);
    if (s == KEEL_OK) printf("ok seconds=%.3f\n", now_s() - start);
    return s;
}

static keel_status write_cubin(const desk *d, const char *path, keel_error *err) {
    double start = now_s();
    if (!d->plan || !*path) return KEEL_USAGE;
    keel_status s = keel_plan_cubin(d->plan, path, false, NULL, err);
    if (s == KEEL_OK) printf("ok seconds=%.3f\n", now_s() - start);
    return s;
}

static int32_t *read_ids(const char *path, size_t n) {
    int32_t *ids = calloc(n + 1, sizeof *ids);
    FILE *f = fopen(path, "rb");
    bool whole = ids && f && fread(ids, sizeof *ids, n, f) == n;
    if (f) fclose(f);
    if (whole) return ids;
    free(ids);
    return NULL;
}

static bool write_logits(const char *path, const float *logits, size_t n) {
    FILE *f = fopen(path, "wb");
    bool whole = f && fwrite(logits, sizeof *logits, n, f) == n;
    return f && fclose(f) == 0 && whole;
}

static void keep_token(void *user, uint32_t index, int32_t token, uint64_t ns) {
    desk *d = user;
    (void)ns;
    d->tokens[index] = token;
}

static void answer_run(const desk *d, const keel_result *r, double seconds) {
    printf("ok n=%u ttft_ms=%.4f tpot_ms=%.5f seconds=%.3f tokens=", r->n_tokens, r->ttft_ms, r->tpot_ms, seconds);
    for (uint32_t i = 0; i < r->n_tokens; i++) printf("%s%d", i ? "," : "", d->tokens[i]);
    putchar('\n');
}

static keel_status run(desk *d, const char *text, keel_error *err) {
    unsigned prompt, steps, forced;
    char ids_path[1024], logits_path[1024];
    keel_request q = KEEL_REQUEST_INITIALIZER;
    keel_result r = {0};
    double start = now_s();
    if (!d->session || sscanf(text, "%u %u %u %1023s %1023s", &prompt, &steps, &forced, ids_path, logits_path) != 5 ||
        !prompt || !steps)
        return KEEL_USAGE;
    bool want = strcmp(logits_path, "-") != 0;
    int32_t *ids = read_ids(ids_path, prompt + (forced ? steps - 1 : 0));
    float *logits = want ? calloc((size_t)steps * d->vocab, sizeof *logits) : NULL;
    d->tokens = calloc(steps, sizeof *d->tokens);
    keel_status s = ids && d->tokens && (logits || !want) ? KEEL_OK : KEEL_IO;
    q.prompt = ids, q.n_prompt = prompt, q.max_new_tokens = steps, q.logits = logits;
    q.on_token = keep_token, q.user = d;
    if (forced) q.forced = ids ? ids + prompt : NULL, q.n_forced = steps - 1;
    /* Not a number, so that a row nobody wrote cannot pass for one. */
    if (logits) memset(logits, 0xff, (size_t)steps * d->vocab * sizeof *logits);
    if (s == KEEL_OK) s = keel_session_run(d->session, &q, &r, err);
    if (s == KEEL_OK && want && !write_logits(logits_path, logits, (size_t)r.n_tokens * d->vocab)) s = KEEL_IO;
    if (s == KEEL_OK) answer_run(d, &r, now_s() - start);
    free(ids), free(logits), free(d->tokens);
    d->tokens = NULL;
    return s;
}

static void serve(desk *d, const char *line) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = KEEL_USAGE;
    if (strncmp(line, "plan ", 5) == 0) s = make_plan(d, line + 5, &err);
    if (strncmp(line, "open ", 5) == 0) s = open_session(d, line + 5, &err);
    if (strncmp(line, "cubin ", 6) == 0) s = write_cubin(d, line + 6, &err);
    if (strncmp(line, "run ", 4) == 0) s = run(d, line + 4, &err);
    if (s != KEEL_OK) answer_error(s, err.detail[0] ? err.detail : line);
    fflush(stdout);
}

static bool take_arguments(int n, char **arg, keel_model_options *o) {
    for (int i = 1; i < n; i++) {
        if (strcmp(arg[i], "--no-weights") == 0) {
            o->graph_only = true;
            continue;
        }
        if (i + 1 == n) return false;
        if (strcmp(arg[i], "--synth") == 0) {
            o->synth = arg[++i];
        } else if (strcmp(arg[i], "--model") == 0) {
            o->path = arg[++i];
        } else if (strcmp(arg[i], "--quant") == 0) {
            o->quant = arg[++i];
        } else if (strcmp(arg[i], "--seed") == 0) {
            o->synth_seed = (uint32_t)strtoul(arg[++i], NULL, 10);
        } else if (strcmp(arg[i], "--layers") == 0 && i + 2 < n) {
            o->layer_slice = true;
            o->layer_first = (int32_t)strtol(arg[++i], NULL, 10);
            o->layer_last = (int32_t)strtol(arg[++i], NULL, 10);
        } else {
            return false;
        }
    }
    return !o->synth != !o->path;
}

int main(int n, char **arg) {
    keel_model_options o = KEEL_MODEL_OPTIONS_INITIALIZER;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_model_info info;
    desk d = {0};
    static char line[4096];
    double start = now_s();
    if (!take_arguments(n, arg, &o)) {
        fprintf(stderr, "usage: sessions (--synth GEOMETRY|--model DIR) [--quant fp8] [--seed N] [--layers A B] "
                        "[--no-weights]\n");
        return 2;
    }
    keel_status s = keel_model_open(&o, &d.model, &err);
    if (s != KEEL_OK) {
        answer_error(s, err.detail);
        return keel_status_exit(s);
    }
    keel_model_info_get(d.model, &info);
    d.vocab = info.vocab;
    printf("ok vocab=%" PRIu64 " layers=%u weight_bytes=%" PRIu64 " seconds=%.3f\n", info.vocab, info.n_layers,
           info.weight_bytes, now_s() - start);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        serve(&d, line);
    }
    close_plan(&d);
    keel_model_close(d.model);
    return 0;
}
