/* SPDX-License-Identifier: Apache-2.0 */
/* keel bench: ms/token beside what the machine's memory allows. */
#include "bench_measure.h"
#include "fail.h"
#include "json_out.h"
#include "model_args.h"
#include "out.h"
#include "session_args.h"

#include <string.h>
#include <time.h>

static const uint32_t default_runs = 5, default_steps = 32;
static const uint64_t default_ctx[] = {128};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static keel_status print_point(const bench *b, const bench_point *p, keel_error *err) {
    TRY(out_format(err, "context %u, decode  %.3f ms/token, median of %u runs (min %.3f, max %.3f): %.2f tokens/s\n",
                   p->ctx, p->decode.median, b->runs, p->decode.least, p->decode.most, 1000 / p->decode.median));
    TRY(out_format(err, "  bytes            %s a token, weights and KV\n", out_size((uint64_t)p->bytes_a_token).text));
    TRY(out_format(err,
                   "  achieved         %.2f GB/s, %.1f %% of the read bandwidth, %.2f GB/s (before %.2f, after %.2f)\n",
                   bench_achieved(p) / 1e9, 100 * bench_achieved(p) / bench_ceiling(p), bench_ceiling(p) / 1e9,
                   p->bandwidth_before / 1e9, p->bandwidth_after / 1e9));
    return out_format(err, "  prefill          %.1f ms, %.1f tokens/s\n", p->prefill.median,
                      p->ctx * 1000 / p->prefill.median);
}

/* Weights that a pass reads, all KV pages; what one token makes resident of them is less. */
static keel_status print_text(const args *a, const keel_model_info *m, const bench *b, keel_error *err) {
    TRY(out_format(err, "%s: %s, %u layers, weights %s; %s, %u workers, batch %u, %u steps a run\n", model_args_name(a),
                   m->architecture, m->n_layers, out_size(m->weight_bytes).text, b->plan.arch, b->plan.workers,
                   b->plan.batch, b->steps));
    for (size_t i = 0; i < b->n_points; i++) TRY(print_point(b, &b->points[i], err));
    memory_text memory = session_memory_text(b->session);
    if (*memory.text) TRY(out_format(err, "%s\n", memory.text));
    TRY(out_format(err, "startup  %.2f s: model %.2f, plan %.2f, session %.2f (device code and weights)\n",
                   b->model_s + b->plan_s + b->session_s, b->model_s, b->plan_s, b->session_s));
    uint64_t must = m->weight_bytes + b->plan.kv_bytes;
    return out_format(err, "peak RSS %s%s, %.2f x weights + KV pages (%s)\n", out_size(b->peak_rss).text,
                      b->peak_rss_exact ? "" : " (or the bandwidth buffer's 537 MB)",
                      (double)b->peak_rss / (double)must, out_size(must).text);
}

static json_t *spread_json(const spread *s, const double *runs, uint32_t n) {
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++) json_array_append_new(list, json_of_real(runs[i]));
    return json_pack("{s:o,s:o,s:o,s:o}", "median", json_of_real(s->median), "min", json_of_real(s->least), "max",
                     json_of_real(s->most), "runs", list);
}

static json_t *point_json(const bench *b, const bench_point *p) {
    return json_pack("{s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "ctx", (json_int_t)p->ctx, "decode_ms_a_token",
                     spread_json(&p->decode, p->decode_ms, b->runs), "tokens_per_s",
                     json_of_real(1000 / p->decode.median), "bytes_a_token", json_of_real(p->bytes_a_token),
                     "achieved_bytes_per_s", json_of_real(bench_achieved(p)), "bandwidth_before_bytes_per_s",
                     json_of_real(p->bandwidth_before), "bandwidth_after_bytes_per_s", json_of_real(p->bandwidth_after),
                     "share_of_bandwidth", json_of_real(bench_achieved(p) / bench_ceiling(p)), "prefill_ms",
                     spread_json(&p->prefill, p->prefill_ms, b->runs), "prefill_tokens_per_s",
                     json_of_real(p->ctx * 1000 / p->prefill.median));
}

static json_t *startup_json(const bench *b) {
    return json_pack("{s:o,s:o,s:o}", "model_s", json_of_real(b->model_s), "plan_s", json_of_real(b->plan_s),
                     "session_s", json_of_real(b->session_s));
}

static keel_status print_json(const args *a, const keel_model_info *m, const bench *b, keel_error *err) {
    const char *name = model_args_name(a);
    json_t *points = json_array();
    for (size_t i = 0; points && i < b->n_points; i++) json_array_append_new(points, point_json(b, &b->points[i]));
    return json_print(
        json_pack("{s:o,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:s,s:o,s:o,s:o}", "model",
                  json_of_text(name, strlen(name)), "architecture", m->architecture, "device", b->plan.arch, "workers",
                  (json_int_t)b->plan.workers, "batch", (json_int_t)b->plan.batch, "runs", (json_int_t)b->runs, "steps",
                  (json_int_t)b->steps, "weight_bytes", (json_int_t)m->weight_bytes, "weight_bytes_a_token",
                  (json_int_t)b->plan.weight_bytes, "kv_bytes", (json_int_t)b->plan.kv_bytes, "peak_rss_bytes",
                  (json_int_t)b->peak_rss, "peak_rss_exact", (int)b->peak_rss_exact, "plan_sha256", b->plan.hash,
                  "gpu_memory_bytes", session_memory_json(b->session), "startup", startup_json(b), "contexts", points),
        err);
}

/* The KV pages hold the longest context and its steps. */
static keel_status make_plan(const args *a, const keel_model *model, bench *b, keel_plan **plan, keel_error *err) {
    keel_plan_options options = plan_args_options(a);
    uint32_t longest = 0;
    for (size_t i = 0; i < b->n_points; i++) longest = b->points[i].ctx > longest ? b->points[i].ctx : longest;
    options.max_seq = longest + bench_steps(b);
    keel_model_info info;
    keel_model_info_get(model, &info);
    if (info.max_position && options.max_seq > info.max_position) {
        return fail(err, KEEL_RANGE, "--ctx: %u tokens and %u steps are more than the %llu positions of the model",
                    longest, bench_steps(b), (unsigned long long)info.max_position);
    }
    TRY(keel_plan_build(model, &options, plan, err));
    return keel_plan_info_get(*plan, &b->plan, err);
}

static keel_status measure(const args *a, const keel_model *model, const keel_plan *plan, bench *b, keel_error *err) {
    keel_model_info info;
    keel_model_info_get(model, &info);
    double from = now_s();
    TRY(session_args_open(a, model, plan, NULL, &b->session, err));
    b->session_s = now_s() - from;
    b->vocab = info.vocab;
    TRY(bench_measure(b, err));
    return args_flag(a, OPT_JSON) ? print_json(a, &info, b, err) : print_text(a, &info, b, err);
}

static keel_status bench_run(const args *a, keel_error *err) {
    const option_value *ctx = &a->value[OPT_CTX];
    bench b = {.runs = args_count32(a, OPT_RUNS, default_runs),
               .steps = args_count32(a, OPT_STEPS, default_steps),
               .one_prefill = args_flag(a, OPT_ONE_PREFILL),
               .progress = out_progress_wanted()};
    keel_model *model = NULL;
    keel_plan *plan = NULL;
    keel_status s = bench_open(&b, ctx->given ? ctx->counts : default_ctx, ctx->given ? ctx->n : 1, err);
    double from = now_s();
    if (s == KEEL_OK) s = model_args_open(a, 0, false, false, &model, err);
    b.model_s = now_s() - from;
    if (s == KEEL_OK) s = make_plan(a, model, &b, &plan, err);
    b.plan_s = now_s() - from - b.model_s;
    if (s == KEEL_OK) s = measure(a, model, plan, &b, err);
    keel_session_close(b.session);
    keel_plan_close(plan);
    keel_model_close(model);
    bench_close(&b);
    return s;
}

static const option_id bench_options[] = {
    OPT_SYNTH,       OPT_QUANT,     OPT_DEVICE,         OPT_CTX,  OPT_STEPS, OPT_RUNS, OPT_ONE_PREFILL, OPT_LAYERS,
    PLAN_OPTION_IDS, OPT_CACHE_DIR, SESSION_OPTION_IDS, OPT_JSON, OPT_HELP};
const verb verb_bench = {
    .name = "bench",
    .synopsis = "MODEL|--synth GEOMETRY [options]",
    .summary = "time decode beside the read bandwidth of this machine",
    .example = "  keel bench --synth qwen3-0.6b --device cpu --workers 2 --ctx 16,1024\n",
    .max_operands = 1,
    .options = bench_options,
    .n_options = sizeof bench_options / sizeof *bench_options,
    .run = bench_run,
};
