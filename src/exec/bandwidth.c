/* SPDX-License-Identifier: Apache-2.0 */
/* keel.h: the machine's read bandwidth. */
#include "core/mem.h"
#include "core/error.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

typedef struct meter {
    uint32_t threads, repeats;
    uint32_t arrived; /* threads × rounds; everyone waits for all at the start and end of a repeat */
    uint32_t abandoned;
} meter;

typedef struct reader {
    meter *meter;
    const uint64_t *data;
    size_t words;
    double *seconds; /* [repeats] from common start to common end */
    uint64_t sum;    /* keeps the loads alive */
    pthread_t thread;
} reader;

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void meet(meter *m, uint32_t round) {
    __atomic_fetch_add(&m->arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&m->arrived, __ATOMIC_ACQUIRE) < m->threads * round &&
           !__atomic_load_n(&m->abandoned, __ATOMIC_ACQUIRE))
        sched_yield();
}

/* Eight sums, so that additions do not hold the loads back. */
static uint64_t sum_words(const uint64_t *p, size_t n) {
    uint64_t s[8] = {0};
    for (size_t i = 0; i + 8 <= n; i += 8) {
        for (size_t k = 0; k < 8; k++) s[k] += p[i + k];
    }
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static void *reader_main(void *argument) {
    reader *r = argument;
    for (uint32_t i = 0; i < r->meter->repeats; i++) {
        meet(r->meter, 2 * i + 1);
        double from = seconds_now();
        r->sum += sum_words(r->data, r->words);
        meet(r->meter, 2 * i + 2);
        r->seconds[i] = seconds_now() - from;
    }
    return NULL;
}

static keel_status read_all(meter *m, reader *readers, keel_error *err) {
    uint32_t started = 0;
    keel_status s = KEEL_OK;
    while (started < m->threads && pthread_create(&readers[started].thread, NULL, reader_main, &readers[started]) == 0)
        started++;
    if (started < m->threads) {
        __atomic_store_n(&m->abandoned, 1, __ATOMIC_RELEASE);
        s = error_set(err, KEEL_NOMEM, "read bandwidth: cannot start %u threads", m->threads);
    }
    for (uint32_t i = 0; i < started; i++) pthread_join(readers[i].thread, NULL);
    return s;
}

keel_status keel_read_bandwidth(uint32_t threads, uint64_t bytes, uint32_t repeats, double *best, keel_error *err) {
    enum { MOST = 256, MOST_REPEATS = 1000 };
    if (!threads || threads > MOST || !repeats || repeats > MOST_REPEATS || bytes < 4096u * threads) {
        return error_set(err, KEEL_RANGE, "read bandwidth: 1..%d threads, 1..%d repeats, at least 4096 bytes a thread",
                         MOST, MOST_REPEATS);
    }
    meter m = {.threads = threads, .repeats = repeats};
    uint64_t *data = mem_aligned(4096, bytes);
    reader *readers = mem_calloc(threads, sizeof *readers);
    double *seconds = mem_calloc((size_t)threads * repeats, sizeof *seconds);
    size_t words = bytes / 8 / threads;
    keel_status s = data && readers && seconds ? KEEL_OK
                                               : error_set(err, KEEL_NOMEM, "read bandwidth: cannot get %llu bytes",
                                                           (unsigned long long)bytes);
    if (s == KEEL_OK) {
        memset(data, 1, bytes);
        for (uint32_t i = 0; i < threads; i++)
            readers[i] = (reader){
                .meter = &m, .data = data + i * words, .words = words, .seconds = seconds + (size_t)i * repeats};
        s = read_all(&m, readers, err);
    }
    double least = 0;
    for (uint32_t r = 0; s == KEEL_OK && r < repeats; r++) {
        if (r == 0 || seconds[r] < least) least = seconds[r];
    }
    if (s == KEEL_OK) *best = (double)(words * 8 * threads) / least;
    mem_free(data), mem_free(readers), mem_free(seconds);
    return s;
}
