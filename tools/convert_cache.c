/* SPDX-License-Identifier: Apache-2.0 */
/* keel convert --build-cache-only: ranks by as many threads as --jobs allows. */
#include "cache_dir.h"
#include "convert.h"
#include "fail.h"
#include "interrupt.h"
#include "json_out.h"
#include "out.h"
#include "wall_clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 2, MOST_JOBS = 256 };

/* A rank that is to be in the cache. */
typedef struct rank_job {
    keel_convert_options options;
    keel_convert_result result;
    keel_status status; /* KEEL_ABORTED without detail: not begun */
    keel_error error;
    keel_cache_phase phase;
    uint64_t done, total;
    double seconds;
} rank_job;

typedef struct conversion {
    rank_job *job; /* [n] */
    size_t n, next, finished;
    bool draws, drawn, failed;
    pthread_mutex_t lock; /* of what follows `job`, and of progress in the jobs */
} conversion;

static const char *phase_text(const rank_job *j) {
    switch (j->phase) {
    case KEEL_CACHE_WAITING:
        return "waits for another process";
    case KEEL_CACHE_CHECKING:
        return "checks";
    case KEEL_CACHE_CONVERTING:
        break;
    }
    return "converts";
}

/* One line on standard error for the rank that moved last. */
static void draw(conversion *c, const rank_job *j) {
    if (!c->draws) return;
    unsigned percent = j->total ? (unsigned)(100 * j->done / j->total) : 0;
    fprintf(stderr, "\r\033[Kkeel convert: %zu of %zu ranks done; rank %u %s", c->finished, c->n, j->options.rank,
            phase_text(j));
    if (j->total) fprintf(stderr, " %3u %% of %s", percent, out_size(j->total).text);
    fflush(stderr);
    c->drawn = true;
}

typedef struct progress_of {
    conversion *c;
    rank_job *j;
} progress_of;

static bool progress(void *user, uint32_t rank, keel_cache_phase phase, uint64_t done, uint64_t total) {
    const progress_of *p = user;
    (void)rank;
    pthread_mutex_lock(&p->c->lock);
    bool moved = p->j->phase != phase || !total || p->j->total != total ||
                 100 * done / total != 100 * p->j->done / p->j->total || done == 0;
    p->j->phase = phase;
    p->j->done = done;
    p->j->total = total;
    if (moved) draw(p->c, p->j);
    bool go = !p->c->failed;
    pthread_mutex_unlock(&p->c->lock);
    return go && !interrupt_seen();
}

static void *convert_main(void *argument) {
    conversion *c = argument;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        rank_job *j = c->next < c->n && !c->failed && !interrupt_seen() ? &c->job[c->next++] : NULL;
        pthread_mutex_unlock(&c->lock);
        if (!j) return NULL;
        progress_of p = {c, j};
        j->options.progress = progress;
        j->options.user = &p;
        double start = wall_seconds();
        keel_status s = keel_convert_rank(&j->options, &j->result, &j->error);
        j->seconds = wall_seconds() - start;
        pthread_mutex_lock(&c->lock);
        j->status = s;
        if (s != KEEL_OK) c->failed = true; /* the others stop: a rank that is missing makes them useless */
        c->finished += s == KEEL_OK;
        pthread_mutex_unlock(&c->lock);
    }
}

static void convert_all(conversion *c, size_t jobs) {
    pthread_t threads[MOST_JOBS];
    size_t started = 0;
    while (started + 1 < jobs && started + 1 < c->n && pthread_create(&threads[started], NULL, convert_main, c) == 0) {
        started++;
    }
    convert_main(c);
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    if (c->drawn) fprintf(stderr, "\r\033[K");
}

static json_t *job_json(const rank_job *j, const char *dir) {
    const keel_convert_result *r = &j->result;
    json_t *o = json_pack("{s:I,s:b,s:b,s:I,s:I,s:o}", "rank", (json_int_t)j->options.rank, "stored", r->stored,
                          "built", r->built, "tensors", (json_int_t)r->n_tensors, "bytes", (json_int_t)r->bytes,
                          "seconds", json_of_real(j->seconds));
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s/rank%u.safetensors", dir, r->key, j->options.rank);
    if (r->stored && n > 0 && (size_t)n < sizeof path) json_object_set_new(o, "path", json_of_text(path, strlen(path)));
    if (r->note[0]) json_object_set_new(o, "note", json_of_text(r->note, strlen(r->note)));
    return o;
}

static keel_status report_json(const conversion *c, const char *dir, keel_error *err) {
    json_t *ranks = json_array();
    for (size_t i = 0; i < c->n; i++) json_array_append_new(ranks, job_json(&c->job[i], dir));
    return json_print(json_pack("{s:o,s:I,s:o}", "cache_dir", json_of_text(dir, strlen(dir)), "tp",
                                (json_int_t)c->job[0].options.tp, "ranks", ranks),
                      err);
}

static keel_status report_job(const rank_job *j, const char *dir, keel_error *err) {
    const keel_convert_result *r = &j->result;
    uint32_t rank = j->options.rank, tp = j->options.tp;
    if (!r->stored) {
        return out_format(err, "rank %u of %u: nothing to convert, it reads the checkpoint as it lies\n", rank, tp);
    }
    if (r->note[0]) TRY(out_format(err, "rank %u of %u: %s\n", rank, tp, r->note));
    return out_format(err, "rank %u of %u: %s, %u tensors, %s in %.1f s, %s/%s/rank%u.safetensors\n", rank, tp,
                      r->built ? "converted" : "was there, verified", r->n_tensors, out_size(r->bytes).text, j->seconds,
                      dir, r->key, rank);
}

/* The first error that is not only the echo of another's. */
static keel_status outcome(const conversion *c, keel_error *err) {
    const rank_job *found = NULL;
    for (size_t i = 0; i < c->n; i++) {
        const rank_job *j = &c->job[i];
        if (j->status != KEEL_OK && (!found || (found->status == KEEL_ABORTED && j->status != KEEL_ABORTED))) found = j;
    }
    if (!found) return KEEL_OK;
    if (!found->error.detail[0]) return fail(err, KEEL_ABORTED, "stopped before rank %u", found->options.rank);
    *err = found->error;
    return found->status;
}

static keel_status convert_ranks(const args *a, const char *dir, conversion *c, keel_error *err) {
    uint32_t tp = args_count32(a, OPT_TP, 1);
    bool one = a->value[OPT_RANK].given;
    const option_value *layers = &a->value[OPT_LAYERS];
    for (size_t i = 0; i < c->n; i++) {
        keel_convert_options *o = &c->job[i].options;
        *o = (keel_convert_options)KEEL_CONVERT_OPTIONS_INITIALIZER;
        o->path = a->operand[0];
        o->cache_dir = dir;
        o->tp = tp;
        o->ep = args_count32(a, OPT_EP, 1);
        o->rank = one ? args_count32(a, OPT_RANK, 0) : (uint32_t)i;
        o->vocab_parallel = a->value[OPT_HEAD].given && strcmp(a->value[OPT_HEAD].text, "vocab-parallel") == 0;
        o->jobs = args_count32(a, OPT_JOBS, JOBS);
        o->layer_slice = layers->given;
        if (layers->given) {
            o->layer_first = (int32_t)layers->count;
            o->layer_last = (int32_t)layers->last;
        }
        c->job[i].status = KEEL_ABORTED;
    }
    interrupt_watch(NULL);
    convert_all(c, args_count32(a, OPT_JOBS, JOBS));
    interrupt_unwatch();
    TRY(outcome(c, err));
    if (args_flag(a, OPT_JSON)) return report_json(c, dir, err);
    for (size_t i = 0; i < c->n; i++) TRY(report_job(&c->job[i], dir, err));
    return KEEL_OK;
}

keel_status convert_cache(const args *a, keel_error *err) {
    uint32_t tp = args_count32(a, OPT_TP, 1);
    if (a->n_operands != 1) return args_refuse(a->verb, err, "--build-cache-only: give one MODEL, a checkpoint folder");
    if (args_count(a, OPT_RANK, 0) >= tp) {
        return args_refuse(a->verb, err, "--rank %u: the ranks of --tp %u are 0 to %u", args_count32(a, OPT_RANK, 0),
                           tp, tp - 1);
    }
    char *dir;
    TRY(cache_dir_of(a, &dir, err));
    conversion c = {.n = a->value[OPT_RANK].given ? 1 : tp, .draws = out_progress_wanted()};
    c.job = calloc(c.n, sizeof *c.job);
    keel_status s = c.job ? KEEL_OK : fail_memory(err, "convert");
    if (s == KEEL_OK && pthread_mutex_init(&c.lock, NULL) != 0) s = fail_memory(err, "convert");
    if (s == KEEL_OK) {
        s = convert_ranks(a, dir, &c, err);
        pthread_mutex_destroy(&c.lock);
    }
    free(c.job);
    free(dir);
    return s;
}
