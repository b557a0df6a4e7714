/* SPDX-License-Identifier: Apache-2.0 */
#include "load/each.h"

#include <pthread.h>
#include <unistd.h>

typedef struct each_work {
    size_t n, next; /* next: taken by the next free thread */
    each_fn fn;
    void *context;
} each_work;

static void work(each_work *w, bool caller) {
    for (size_t i; (i = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < w->n;) w->fn(w->context, i, caller);
}

static void *thread_main(void *argument) {
    work(argument, false);
    return NULL;
}

void each_on_cores(size_t n, each_fn fn, void *context) {
    enum { MOST = 64 };
    pthread_t threads[MOST];
    each_work w = {.n = n, .fn = fn, .context = context};
    long cores = sysconf(_SC_NPROCESSORS_ONLN), started = 0;
    while (started < cores - 1 && started < MOST && (size_t)started + 1 < n &&
           pthread_create(&threads[started], NULL, thread_main, &w) == 0) {
        started++;
    }
    work(&w, true);
    for (long i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
