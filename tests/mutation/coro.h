/* SPDX-License-Identifier: Apache-2.0 */
/* Coroutines that cost nanoseconds: ten thousand plans are run some ten thousand switches each. On x86-64 a switch of
 * our own; elsewhere, and under sanitizers, exec/fiber.h. A coroutine may be abandoned where it stands. */
#ifndef KEEL_TESTS_MUTATION_CORO_H
#define KEEL_TESTS_MUTATION_CORO_H

#include "exec/fiber.h"

typedef struct coro {
    void *sp, *stack;
    size_t stack_bytes;
    void (*entry)(void *argument);
    void *argument;
    struct coro *back;
    fiber fiber;
    bool done;
} coro;

/* The caller's own. */
void coro_self(coro *c);
/* False when there is no memory. */
bool coro_create(coro *c, size_t stack_bytes, coro *back);
/* entry(argument) from its start at the next switch, wherever c stood. When it returns, c is done and goes back. */
void coro_start(coro *c, void (*entry)(void *argument), void *argument);
void coro_switch(coro *from, coro *to);
void coro_destroy(coro *c);

#endif
