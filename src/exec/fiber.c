/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/fiber.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif

#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
enum { TSAN_SWITCH_NO_SYNC = 1 };
#endif
#ifdef FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

void fiber_self(fiber *f) {
    *f = (fiber){0};
#ifdef FIBER_TSAN
    f->tsan = __tsan_get_current_fiber();
#endif
}

static void fiber_arrived(fiber *f, fiber *from) {
    (void)f, (void)from;
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(f->asan_fake_stack, &from->asan_bottom, &from->asan_bytes);
#endif
}

/* makecontext passes ints: the pointer comes in two halves. */
/* `done` is the scheduler's: fibers of one OS thread need no synchronisation for it. */
__attribute__((no_sanitize("thread"))) static void fiber_start(unsigned high, unsigned low) {
    fiber *f = (fiber *)((uintptr_t)high << 32 | (uintptr_t)low);
    fiber_arrived(f, f->back);
    f->entry(f->argument);
    f->done = true;
    fiber_switch(f, f->back);
}

static void fiber_prepare(fiber *f, fiber *back) {
    f->back = back;
    f->done = false;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->stack_bytes;
    f->context.uc_link = NULL;
    uintptr_t p = (uintptr_t)f;
    makecontext(&f->context, (void (*)(void))fiber_start, 2, (unsigned)(p >> 32), (unsigned)p);
#ifdef FIBER_ASAN
    f->asan_fake_stack = NULL;
    f->asan_bottom = f->stack;
    f->asan_bytes = f->stack_bytes;
#endif
#ifdef FIBER_TSAN
    f->tsan = __tsan_create_fiber(0);
#endif
}

bool fiber_create(fiber *f, size_t stack_bytes, void (*entry)(void *), void *argument, fiber *back) {
    size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    *f = (fiber){.entry = entry, .argument = argument, .stack_bytes = stack_bytes};
    char *p = mmap(NULL, guard + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (p == MAP_FAILED) return false;
    mprotect(p, guard, PROT_NONE);
    f->stack = p + guard;
    fiber_prepare(f, back);
    return true;
}

void fiber_rewind(fiber *f, fiber *back) {
#ifdef FIBER_TSAN
    if (f->tsan) __tsan_destroy_fiber(f->tsan);
#endif
    fiber_prepare(f, back);
}

/* Which fiber runs is the scheduler's affair, as above. */
__attribute__((no_sanitize("thread"))) void fiber_switch(fiber *from, fiber *to) {
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(from->done ? NULL : &from->asan_fake_stack, to->asan_bottom, to->asan_bytes);
#endif
#ifdef FIBER_TSAN
    __tsan_switch_to_fiber(to->tsan, TSAN_SWITCH_NO_SYNC);
#endif
    swapcontext(&from->context, &to->context);
    fiber_arrived(from, to);
}

void fiber_destroy(fiber *f) {
    if (!f->stack) return;
#ifdef FIBER_TSAN
    if (f->tsan) __tsan_destroy_fiber(f->tsan);
#endif
    size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    munmap((char *)f->stack - guard, guard + f->stack_bytes);
    *f = (fiber){0};
}
