/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_measure.h"

#include "fail.h"
#include "rss.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t bandwidth_bytes = 512u << 20;
static const uint32_t bandwidth_repeats = 5;

keel_status bench_open(bench *b, const uint64_t *ctx, size_t n, keel_error *err) {
    b->points = calloc(n, sizeof *b->points);
    if (!b->points) return fail_memory(err, "bench");
    b->n_points = n;
    for (size_t i = 0; i < n; i++) {
        bench_point *p = &b->points[i];
        p->ctx = (uint32_t)ctx[i];
        p->decode_ms = calloc(b->runs, sizeof *p->decode_ms);
        p->prefill_ms = calloc(b->runs, sizeof *p->prefill_ms);
        if (!p->decode_ms || !p->prefill_ms) return fail_memory(err, "bench");
    }
    return KEEL_OK;
}

void bench_close(bench *b) {
    for (size_t i = 0; i < b->n_points; i++) {
        free(b->points[i].decode_ms);
        free(b->points[i].prefill_ms);
    }
    free(b->points);
}

/* Keeps the peak so far, then measures on a buffer that is not to count. */
static keel_status measure_bandwidth(bench *b, double *out, keel_error *err) {
    uint64_t peak = rss_peak_bytes();
    if (peak > b->peak_rss) b->peak_rss = peak;
    TRY(keel_session_bandwidth(b->session, bandwidth_bytes, bandwidth_repeats, out, err));
    if (!rss_peak_reset()) b->peak_rss_exact = false;
    return KEEL_OK;
}

/* Any ids do: what a step costs does not depend on them. */
static int32_t *make_prompt(uint32_t n, uint64_t vocab) {
    int32_t *ids = calloc(n, sizeof *ids);
    uint32_t x = 1;
    for (uint32_t i = 0; ids && i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % vocab);
    }
    return ids;
}

static keel_status run_once(bench *b, bench_point *p, const int32_t *prompt, uint32_t run, keel_error *err) {
    keel_request request = KEEL_REQUEST_INITIALIZER;
    keel_result result;
    request.prompt = prompt;
    request.n_prompt = p->ctx;
    request.max_new_tokens = b->steps + 1; /* the prefill gives the first */
    if (b->progress) {
        fprintf(stderr, "\r\033[Kkeel bench: context %u, run %u of %u", p->ctx, run + 1, b->runs);
        fflush(stderr);
    }
    TRY(keel_session_run(b->session, &request, &result, err));
    p->prefill_ms[run] = result.ttft_ms;
    p->decode_ms[run] = result.tpot_ms;
    return KEEL_OK;
}

/* When the first token came, and the last of each run behind it. */
typedef struct marks {
    uint32_t steps, next;
    uint64_t *ns; /* [runs + 1] */
} marks;

static void mark_token(void *user, uint32_t index, int32_t token, uint64_t ns) {
    marks *m = user;
    (void)token;
    if (index == m->next * m->steps) m->ns[m->next++] = ns;
}

/* A long prefill once instead of once a run: the KV pages go on growing from run to run. */
static keel_status run_through(bench *b, bench_point *p, const int32_t *prompt, keel_error *err) {
    keel_request request = KEEL_REQUEST_INITIALIZER;
    keel_result result;
    marks m = {.steps = b->steps, .ns = calloc((size_t)b->runs + 1, sizeof *m.ns)};
    if (!m.ns) return fail_memory(err, "bench");
    request.prompt = prompt;
    request.n_prompt = p->ctx;
    request.max_new_tokens = b->runs * b->steps + 1;
    request.on_token = mark_token;
    request.user = &m;
    keel_status s = keel_session_run(b->session, &request, &result, err);
    for (uint32_t run = 0; s == KEEL_OK && run < b->runs; run++) {
        p->prefill_ms[run] = result.ttft_ms;
        p->decode_ms[run] = (double)(m.ns[run + 1] - m.ns[run]) * 1e-6 / b->steps;
    }
    free(m.ns);
    return s;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static keel_status spread_of(const double *v, uint32_t n, spread *out, keel_error *err) {
    double *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return fail_memory(err, "bench");
    memcpy(sorted, v, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    *out = (spread){(sorted[(n - 1) / 2] + sorted[n / 2]) / 2, sorted[0], sorted[n - 1]};
    free(sorted);
    return KEEL_OK;
}

static keel_status measure_point(bench *b, bench_point *p, keel_error *err) {
    int32_t *prompt = make_prompt(p->ctx, b->vocab);
    keel_status s = prompt ? measure_bandwidth(b, &p->bandwidth_before, err) : fail_memory(err, "bench");
    if (s == KEEL_OK && b->one_prefill) s = run_through(b, p, prompt, err);
    for (uint32_t run = 0; s == KEEL_OK && !b->one_prefill && run < b->runs; run++)
        s = run_once(b, p, prompt, run, err);
    free(prompt);
    if (b->progress) fprintf(stderr, "\r\033[K");
    if (s == KEEL_OK) s = measure_bandwidth(b, &p->bandwidth_after, err);
    if (s == KEEL_OK) s = spread_of(p->decode_ms, b->runs, &p->decode, err);
    if (s == KEEL_OK) s = spread_of(p->prefill_ms, b->runs, &p->prefill, err);
    /* Step j of 1..steps attends to ctx + j positions. */
    double mean_context = p->ctx + (bench_steps(b) + 1) / 2.0;
    p->bytes_a_token = (double)b->plan.weight_bytes + (double)b->plan.kv_bytes_a_token * mean_context;
    return s;
}

uint32_t bench_steps(const bench *b) { return b->one_prefill ? b->runs * b->steps : b->steps; }

keel_status bench_measure(bench *b, keel_error *err) {
    b->peak_rss_exact = true;
    for (size_t i = 0; i < b->n_points; i++) TRY(measure_point(b, &b->points[i], err));
    return KEEL_OK;
}

double bench_achieved(const bench_point *p) { return p->bytes_a_token / p->decode.median * 1000; }

double bench_ceiling(const bench_point *p) {
    return p->bandwidth_before > p->bandwidth_after ? p->bandwidth_before : p->bandwidth_after;
}
