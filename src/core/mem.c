/* SPDX-License-Identifier: Apache-2.0 */
#include "core/mem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

static _Atomic uint64_t mem_calls;
static _Atomic uint64_t mem_limit;

static bool mem_refused(void) {
    uint64_t n = atomic_fetch_add_explicit(&mem_calls, 1, memory_order_relaxed) + 1;
    uint64_t limit = atomic_load_explicit(&mem_limit, memory_order_relaxed);
    return limit && n >= limit;
}

void *mem_alloc(size_t bytes) { return mem_refused() ? NULL : malloc(bytes ? bytes : 1); }

void *mem_calloc(size_t count, size_t size) {
    return mem_refused() ? NULL : calloc(count ? count : 1, size ? size : 1);
}

void *mem_realloc(void *p, size_t bytes) { return mem_refused() ? NULL : realloc(p, bytes ? bytes : 1); }

void *mem_aligned(size_t align, size_t bytes) {
    if (mem_refused() || bytes > SIZE_MAX - align) return NULL;
    return aligned_alloc(align, (bytes + align - 1) & ~(align - 1));
}

void mem_free(void *p) { free(p); }

void mem_fail_after(uint64_t n) {
    atomic_store(&mem_calls, 0);
    atomic_store(&mem_limit, n);
}

uint64_t mem_count(void) { return atomic_load(&mem_calls); }
