/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers over ucontext. A switch is announced to ThreadSanitizer WITHOUT synchronisation, so that two fibers of one OS
 * thread race like two threads, and to AddressSanitizer, so that it knows the stack. */
#ifndef KEEL_EXEC_FIBER_H
#define KEEL_EXEC_FIBER_H

#include <stdbool.h>
#include <stddef.h>
#include <ucontext.h>

typedef struct fiber {
    ucontext_t context;
    void *stack; /* mapped, with a guard page below; NULL for a thread's own fiber */
    size_t stack_bytes;
    void (*entry)(void *);
    void *argument;
    struct fiber *back; /* where to go when entry returns */
    bool done;
    void *tsan;
    void *asan_fake_stack;
    const void *asan_bottom;
    size_t asan_bytes;
} fiber;

/* The fiber of the calling thread. */
void fiber_self(fiber *f);
/* False when the stack cannot be mapped. entry runs at the first switch; then the fiber is done and `back` resumes. */
bool fiber_create(fiber *f, size_t stack_bytes, void (*entry)(void *), void *argument, fiber *back);
/* Starts a finished fiber over, on the same stack. */
void fiber_rewind(fiber *f, fiber *back);
void fiber_switch(fiber *from, fiber *to);
void fiber_destroy(fiber *f);

#endif
