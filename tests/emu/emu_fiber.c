/* SPDX-License-Identifier: Apache-2.0 */
/* A switch between stacks, for x86-64's System V calling convention; other machines take ucontext's. */
#include "emu.h"

#include <string.h>

#ifdef __x86_64__
/* Callee-saved registers lie on the stack, rbp next to the return address, so that a sleeping stack can be walked. */
__asm__(".text\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".type emu_begin, @function\n"
        "emu_begin:\n"
        "    mov %rbx, %rdi\n"
        "    xor %ebp, %ebp\n"
        "    call *%r12\n"
        "    ud2\n");
void emu_switch(void **save, void *to);
void emu_begin(void);

enum { R15, R14, R13, R12, RBX, RBP, RETURN, SAVED };

void emu_context_make(emu_context *c, char *stack, size_t bytes, void (*entry)(void *), void *argument) {
    void **top = (void **)(void *)(stack + bytes - 64);
    top -= SAVED;
    memset(top, 0, SAVED * sizeof *top);
    top[RBX] = argument;
    memcpy(&top[R12], &entry, sizeof entry);
    void (*begin)(void) = emu_begin;
    memcpy(&top[RETURN], &begin, sizeof begin);
    c->sp = top;
}

void emu_context_switch(emu_context *from, const emu_context *to) { emu_switch(&from->sp, to->sp); }

unsigned emu_context_stack(const emu_context *c, void **out, unsigned most) {
    void **at = c->sp, **frame = at[RBP];
    unsigned n = 0;
    if (n < most) out[n++] = at[RETURN];
    while (n < most && frame && frame > at && frame < at + EMU_STACK / sizeof *at) {
        out[n++] = frame[1];
        at = frame;
        frame = frame[0];
    }
    return n;
}
#else
#include <stdlib.h>
#include <ucontext.h>

static void begin(unsigned high, unsigned low, unsigned high_argument, unsigned low_argument) {
    uintptr_t entry = (uintptr_t)high << 32 | low, argument = (uintptr_t)high_argument << 32 | low_argument;
    void (*call)(void *);
    memcpy(&call, &entry, sizeof call);
    call((void *)argument);
}

void emu_context_make(emu_context *c, char *stack, size_t bytes, void (*entry)(void *), void *argument) {
    ucontext_t *u = c->sp ? c->sp : calloc(1, sizeof *u);
    if (!u) abort();
    getcontext(u);
    u->uc_stack.ss_sp = stack;
    u->uc_stack.ss_size = bytes;
    uintptr_t e, a = (uintptr_t)argument;
    memcpy(&e, &entry, sizeof e);
    makecontext(u, (void (*)(void))begin, 4, (unsigned)(e >> 32), (unsigned)e, (unsigned)(a >> 32), (unsigned)a);
    c->sp = u;
}

void emu_context_switch(emu_context *from, const emu_context *to) {
    if (!from->sp && !(from->sp = calloc(1, sizeof(ucontext_t)))) abort();
    swapcontext(from->sp, to->sp);
}

unsigned emu_context_stack(const emu_context *c, void **out, unsigned most) {
    (void)c, (void)out, (void)most;
    return 0;
}
#endif
