/* SPDX-License-Identifier: Apache-2.0 */
/* keel.h: conversion, measurement, files. */
#include "core/file.h"
#include "core/mem.h"
#include "load/gguf.h"
#include "load/safetensors.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

keel_status keel_convert_gguf(const char *gguf_path, const char *out_dir, const char *dtype_text, keel_progress progress, void *user,
                              keel_error *err) {
    if (strcmp(dtype_text, "f32") != 0 && strcmp(dtype_text, "bf16") != 0) {
        return error_set(err, KEEL_USAGE, "--dtype %s: f32 or bf16", dtype_text);
    }
    return gguf_convert(gguf_path, out_dir, strcmp(dtype_text, "f32") == 0 ? DTYPE_F32 : DTYPE_BF16, progress, user, err);
}

keel_status keel_file_save(const char *path, const void *data, size_t bytes, keel_error *err) { return file_write(path, data, bytes, err); }

keel_status keel_logits_save(const char *path, const float *logits, uint64_t n, uint64_t vocab, keel_error *err) {
    safetensor_decl decl = {.name = "logits", .dtype = DTYPE_F32, .rank = 2, .dim = {(int64_t)n, (int64_t)vocab}};
    safetensors_writer *w;
    KEEL_TRY(safetensors_writer_open(path, &decl, 1, &w, err));
    keel_status s = safetensors_writer_put(w, logits, n * vocab * sizeof *logits, err);
    if (s == KEEL_OK) return safetensors_writer_commit(w, err);
    safetensors_writer_abandon(w);
    return s;
}

/* ---- read bandwidth ------------------------------------------------------------------------------ */

typedef struct reader {
    const uint64_t *data;
    size_t words;
    uint32_t repeats;
    double *best_seconds; /* of this thread's slice: [repeats] */
    pthread_barrier_t *barrier;
    uint64_t sum;
} reader;

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Eight sums, so that additions do not hold the loads back. */
static uint64_t sum_words(const uint64_t *p, size_t n) {
    uint64_t s[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (size_t k = 0; k < 8; k++) s[k] += p[i + k];
    }
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static void *reader_main(void *argument) {
    reader *r = argument;
    for (uint32_t i = 0; i < r->repeats; i++) {
        pthread_barrier_wait(r->barrier);
        double from = seconds_now();
        r->sum += sum_words(r->data, r->words);
        pthread_barrier_wait(r->barrier);
        r->best_seconds[i] = seconds_now() - from;
    }
    return NULL;
}

keel_status keel_read_bandwidth(uint32_t threads, uint64_t bytes, uint32_t repeats, double *best, keel_error *err) {
    enum { MOST = 256, MOST_REPEATS = 1000 };
    if (!threads || threads > MOST || !repeats || repeats > MOST_REPEATS || bytes < 4096) {
        return error_set(err, KEEL_RANGE, "read bandwidth: 1..%d threads, 1..%d repeats, at least 4096 bytes", MOST, MOST_REPEATS);
    }
    uint64_t *data = mem_aligned(4096, bytes);
    reader *readers = mem_calloc(threads, sizeof *readers);
    double *took = mem_calloc((size_t)threads * repeats, sizeof *took);
    pthread_t ids[MOST];
    pthread_barrier_t barrier;
    keel_status s = data && readers && took ? KEEL_OK : error_set(err, KEEL_NOMEM, "read bandwidth: cannot get %llu bytes", (unsigned long long)bytes);
    if (s == KEEL_OK) memset(data, 1, bytes);
    uint32_t started = 0;
    if (s == KEEL_OK && pthread_barrier_init(&barrier, NULL, threads) != 0) s = KEEL_NOMEM_AT(err, "read bandwidth");
    size_t words = bytes / 8 / threads;
    for (; s == KEEL_OK && started < threads; started++) {
        readers[started] = (reader){data + started * words, words, repeats, took + started * repeats, &barrier, 0};
        if (pthread_create(&ids[started], NULL, reader_main, &readers[started]) != 0) {
            /* The started ones wait at the barrier for ever: this is not recoverable in place, so it is refused up front. */
            s = error_set(err, KEEL_NOMEM, "read bandwidth: cannot start %u threads", threads);
            for (uint32_t i = 0; i < started; i++) pthread_cancel(ids[i]);
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++) pthread_join(ids[i], NULL);
    double least = 0;
    for (uint32_t r = 0; s == KEEL_OK && r < repeats; r++) {
        if (r == 0 || took[r] < least) least = took[r];
    }
    if (s == KEEL_OK) *best = (double)(words * 8 * threads) / least;
    if (started) pthread_barrier_destroy(&barrier);
    mem_free(data), mem_free(readers), mem_free(took);
    return s;
}
