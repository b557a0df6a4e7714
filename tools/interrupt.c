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
    struct sigaction action = {.sa_handler = handler, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
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
