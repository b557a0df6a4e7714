/* SPDX-License-Identifier: Apache-2.0 */
#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>

/* A handler gets no argument, so these two are global; both are lock-free atomics. */
static _Atomic(keel_session *) watched;
static atomic_bool seen;

static void on_signal(int number) {
    (void)number;
    atomic_store(&seen, true);
    keel_session *session = atomic_load(&watched);
    if (session) keel_session_stop(session);
}

static void set_handler(void (*handler)(int)) {
    static const int numbers[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)}, present;
        sigemptyset(&action.sa_mask);
        /* Ignored from outside (nohup, a background job) stays ignored. */
        if (sigaction(numbers[i], NULL, &present) != 0 || present.sa_handler == SIG_IGN) continue;
        sigaction(numbers[i], &action, NULL);
    }
}

void interrupt_watch(keel_session *session) {
    atomic_store(&watched, session);
    set_handler(on_signal);
}

void interrupt_unwatch(void) {
    set_handler(SIG_DFL);
    atomic_store(&watched, NULL);
}

bool interrupt_seen(void) { return atomic_load(&seen); }
