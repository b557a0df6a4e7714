/* SPDX-License-Identifier: Apache-2.0 */
/* The only door to the heap, so that tests can make the n-th allocation fail. */
#ifndef KEEL_CORE_MEM_H
#define KEEL_CORE_MEM_H

#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t bytes);
void *mem_calloc(size_t count, size_t size);
void *mem_realloc(void *p, size_t bytes);
/* Aligned to `align` (a power of two ≥ 16), not zeroed; freed with mem_free(). */
void *mem_aligned(size_t align, size_t bytes);
void mem_free(void *p);

/* Test hook: the n-th allocation from now (1 = the next) fails, and every later one too; 0 = never.
 * Per process; set it from one thread while no other allocates. */
void mem_fail_after(uint64_t n);
/* Allocations made since the hook was last set. */
uint64_t mem_count(void);

#endif
