/* SPDX-License-Identifier: Apache-2.0 */
#include "coro.h"

#include <stdint.h>
#include <stdlib.h>

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__has_feature)
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define CORO_OWN 1
#endif
#else
#define CORO_OWN 1
#endif
#endif

static void coro_run(coro *c) {
    c->entry(c->argument);
    c->done = true;
    coro_switch(c, c->back);
}

#ifdef CORO_OWN

/* System V ABI: rbx, rbp, r12 to r15 are the callee's to keep; MXCSR and the x87 control word are never changed here.
 */
void coro_swap_stacks(void **from, void *to);
__asm__(".text\n"
        ".globl coro_swap_stacks\n"
        ".hidden coro_swap_stacks\n"
        ".type coro_swap_stacks,@function\n"
        "coro_swap_stacks:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size coro_swap_stacks,.-coro_swap_stacks\n");

static coro *starting; /* one thread only */

static void coro_first(void) { coro_run(starting); }

void coro_self(coro *c) { *c = (coro){0}; }

bool coro_create(coro *c, size_t stack_bytes, coro *back) {
    *c = (coro){.stack_bytes = stack_bytes, .back = back};
    c->stack = aligned_alloc(64, stack_bytes);
    return c->stack != NULL;
}

void coro_start(coro *c, void (*entry)(void *argument), void *argument) {
    uint64_t *top = (uint64_t *)(void *)((char *)c->stack + c->stack_bytes);
    c->entry = entry;
    c->argument = argument;
    c->done = false;
    *--top = 0; /* so that coro_first begins like after a call: rsp ≡ 8 modulo 16 */
    *--top = (uint64_t)(uintptr_t)coro_first;
    for (int i = 0; i < 6; i++) *--top = 0;
    c->sp = top;
}

void coro_switch(coro *from, coro *to) {
    starting = to;
    coro_swap_stacks(&from->sp, to->sp);
}

void coro_destroy(coro *c) {
    free(c->stack);
    *c = (coro){0};
}

#else

static void fiber_entry(void *argument) { coro_run(argument); }

void coro_self(coro *c) {
    *c = (coro){0};
    fiber_self(&c->fiber);
}

bool coro_create(coro *c, size_t stack_bytes, coro *back) {
    *c = (coro){.stack_bytes = stack_bytes < 65536 ? 65536 : stack_bytes, .back = back};
    return fiber_create(&c->fiber, c->stack_bytes, fiber_entry, c, &back->fiber);
}

void coro_start(coro *c, void (*entry)(void *argument), void *argument) {
    c->entry = entry;
    c->argument = argument;
    c->done = false;
    fiber_rewind(&c->fiber, &c->back->fiber);
}

void coro_switch(coro *from, coro *to) { fiber_switch(&from->fiber, &to->fiber); }

void coro_destroy(coro *c) { fiber_destroy(&c->fiber); }

#endif
