/* SPDX-License-Identifier: Apache-2.0 */
/* The measuring half of `keel bench`. */
#ifndef KEEL_TOOLS_BENCH_MEASURE_H
#define KEEL_TOOLS_BENCH_MEASURE_H

#include "keel.h"

/* n-of-N of one quantity. */
typedef struct spread {
    double median, least, most;
} spread;

/* Decode at one context. */
typedef struct bench_point {
    uint32_t ctx;       /* tokens in the KV pages before the first step */
    double *decode_ms;  /* [runs] mean of the steps of a run, as measured, in order */
    double *prefill_ms; /* [runs] */
    spread decode, prefill;
    double bytes_a_token;    /* weights once, and the KV rows of the mean context */
    double bandwidth_before; /* bytes/s that as many threads read, just before and just after */
    double bandwidth_after;
} bench_point;

typedef struct bench {
    keel_session *session;
    keel_plan_info plan;
    uint64_t vocab;
    uint32_t runs, steps;
    bool one_prefill;    /* the runs are pieces of one generation */
    bool progress;       /* on standard error */
    bench_point *points; /* [n_points] */
    size_t n_points;
    uint64_t peak_rss;                 /* bytes, without the buffer that the bandwidth is measured on */
    bool peak_rss_exact;               /* false: that buffer may be in it */
    double model_s, plan_s, session_s; /* what it took to open the model, to plan, and to open the session: device code
                                          and weights where they are used */
} bench;

/* Allocates the points' arrays; free with bench_close(). */
keel_status bench_open(bench *b, const uint64_t *ctx, size_t n, keel_error *err);
keel_status bench_measure(bench *b, keel_error *err);
void bench_close(bench *b);

/* Steps of the longest generation, behind the prefill. */
uint32_t bench_steps(const bench *b);

/* Bytes a second that the median step moved, and the higher of the two ceilings beside it. */
double bench_achieved(const bench_point *p);
double bench_ceiling(const bench_point *p);

#endif
