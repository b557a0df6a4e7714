/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong, on stderr and as the driver's error text: who waits at what, with the lines of the device text. */
#include "emu.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { FRAMES = 16, MOST_TOLD = 40 };
static char first_line[512];

const char *emu_report_text(void) { return first_line; }

/* ---- stacks ---------------------------------------------------------------------------------------- */

/* The lines of a stack that lie in the compiled device text, by binutils' addr2line: "function at file:line". */
static void print_stack(void **at, unsigned n) {
    char command[1024];
    int len = snprintf(command, sizeof command, "addr2line -f -i -s -p -C -e %s", emu_m.launch.module_path);
    unsigned found = 0;
    for (unsigned i = 0; i < n; i++) {
        Dl_info info;
        if (!dladdr(at[i], &info) || !info.dli_fname || strcmp(info.dli_fname, emu_m.launch.module_path) != 0) continue;
        len +=
            snprintf(command + len, sizeof command - (size_t)len, " %#tx", (char *)at[i] - 1 - (char *)info.dli_fbase);
        found++;
    }
    if (!found) return;
    snprintf(command + len, sizeof command - (size_t)len, " 2>/dev/null");
    FILE *f = popen(command, "r");
    char line[512];
    while (f && fgets(line, sizeof line, f)) {
        char *text = strncmp(line, " (inlined by) ", 14) == 0 ? line + 14 : line;
        if (strstr(text, "kx_emu") || strstr(text, "std::") || strstr(text, "emu_entry_")) continue;
        fprintf(stderr, "        %s", text);
    }
    if (f) pclose(f);
}

void emu_say_place(uint32_t pc) {
    void *at = (char *)(uintptr_t)emu_m.launch.base + pc;
    print_stack(&at, 1);
}

static void head(const char *format, va_list list) {
    int n = snprintf(first_line, sizeof first_line, "keel emulator: %s, ", emu_m.launch.name);
    vsnprintf(first_line + n, sizeof first_line - (size_t)n, format, list);
    fprintf(stderr, "%s\n", first_line);
}

void emu_say(const char *format, ...) {
    va_list list;
    va_start(list, format);
    head(format, list);
    va_end(list);
}

/* ---- faults ---------------------------------------------------------------------------------------- */

static _Noreturn void leave(void) {
    emu_m.failed = true;
    emu_m.warp->ready = 0; /* nobody of it runs again */
    for (;;) emu_context_switch(&emu_m.thread->context, &emu_m.scheduler);
}

_Noreturn void emu_fault(const char *format, ...) {
    char text[384];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    emu_say("block %u thread %u: %s", emu_m.now.block, emu_m.now.thread, text);
    void *frames[FRAMES], **frame = __builtin_frame_address(0);
    unsigned n = 0;
    const char *stack = emu_m.thread->stack;
    while (n < FRAMES && (char *)frame > stack && (char *)frame < stack + EMU_STACK - 64) {
        frames[n++] = frame[1];
        frame = frame[0];
    }
    print_stack(frames, n);
    leave();
}

/* A plain access went astray: ends the launch like any other fault, on the thread's own stack. */
static void *bad_address;
static void after_signal(void) {
    char where[128];
    emu_address_text(bad_address, where, sizeof where);
    emu_fault("an access to %p (%s)", bad_address, where);
}

static void on_signal(int signal_number, siginfo_t *info, void *context) {
    ucontext_t *u = context;
#ifdef __x86_64__
    char *sp = (char *)u->uc_mcontext.gregs[REG_RSP];
    const char *stack = emu_m.thread ? emu_m.thread->stack : NULL;
    if (stack && sp > stack + 4096 && sp < stack + EMU_STACK) {
        bad_address = info->si_addr;
        sp = (char *)((uintptr_t)(sp - 256) & ~(uintptr_t)15) - sizeof(void *);
        *(greg_t *)(void *)sp = u->uc_mcontext.gregs[REG_RIP] + 1; /* as if it had called: the report shows where */
        u->uc_mcontext.gregs[REG_RSP] = (greg_t)sp;
        u->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)after_signal;
        return;
    }
#endif
    (void)info, (void)u;
    signal(signal_number, SIG_DFL);
}

void emu_catch_signals(void) {
    static char stack[64 << 10];
    stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigaltstack(&alternative, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

/* ---- stuck ------------------------------------------------------------------------------------------ */

static void state_text(const emu_warp *w, const emu_thread *t, char *text, size_t bytes) {
    static const char *const kinds[] = {
#define X(NAME, words) words,
        EMU_MEET_MAP(X)
#undef X
    };
    char where[256];
    if (t->state == EMU_MEETING) {
        snprintf(text, bytes, "%s, %s:%u, where threads %#x of the warp are missing", kinds[w->kind], t->deal->file,
                 t->deal->line, ~w->meeting);
    } else if (t->state == EMU_BARRIER) {
        snprintf(text, bytes, "bar.sync %u, %u of %u threads came", t->barrier, w->block->bar[t->barrier].come,
                 w->block->bar[t->barrier].threads);
    } else if (t->state == EMU_TRYING) {
        emu_mbar_text(t->bar, where, sizeof where);
        snprintf(text, bytes, "parity %u of %s", t->barrier, where);
    } else {
        unsigned most = 0;
        for (unsigned i = 1; i < EMU_POLLS; i++)
            if (t->poll[i].hits > t->poll[most].hits) most = i;
        emu_address_text(t->poll[most].at, where, sizeof where);
        snprintf(text, bytes, "a change of %#llx in %s", (unsigned long long)t->poll[most].seen[0], where);
    }
}

/* Threads of a warp that wait for the same are told together. */
static unsigned tell_warp(emu_warp *w) {
    uint32_t told = 0, mine = emu_m.launch.threads - w->index * EMU_WARP >= EMU_WARP
                                  ? 0xffffffffu
                                  : (1u << (emu_m.launch.threads - w->index * EMU_WARP)) - 1;
    unsigned n = 0;
    for (unsigned l = 0; l < EMU_WARP; l++) {
        emu_thread *t = &w->thread[l];
        if (!(mine >> l & 1) || t->state == EMU_LEFT || told >> l & 1) continue;
        char text[384], other[384];
        uint32_t same = 0;
        state_text(w, t, text, sizeof text);
        for (unsigned k = l; k < EMU_WARP; k++) {
            if (w->thread[k].state != t->state) continue;
            state_text(w, &w->thread[k], other, sizeof other);
            if (strcmp(text, other) == 0) same |= 1u << k;
        }
        told |= same;
        fprintf(stderr, "    block %u warp %u threads %#x: wait for %s\n", w->block->index, w->index, same, text);
        void *frames[FRAMES];
        print_stack(frames, emu_context_stack(&t->context, frames, FRAMES));
        n++;
    }
    return n;
}

void emu_report_stuck(void) {
    unsigned told = 0;
    emu_say("stuck: no thread of %u blocks can run, no copy is on its way (seed %s)", emu_m.launch.grid,
            getenv("KEEL_EMU_SEED") ? getenv("KEEL_EMU_SEED") : "1");
    for (unsigned b = 0; b < emu_m.n_blocks; b++) {
        if (!emu_m.block[b].busy) continue;
        for (unsigned i = 0; i < emu_m.block[b].n_warps && told < MOST_TOLD; i++)
            told += tell_warp(&emu_m.block[b].warp[i]);
    }
}
