/* SPDX-License-Identifier: Apache-2.0 */
/* Bump allocator for what lives as long as a graph, a plan or a model. Not thread-safe. */
#ifndef KEEL_CORE_ARENA_H
#define KEEL_CORE_ARENA_H

#include <stddef.h>

typedef struct arena {
    struct arena_block *head;
} arena;

/* Zeroed memory aligned to 16 bytes; NULL when memory is short. Lives until arena_free(). */
void *arena_alloc(arena *a, size_t bytes);
/* Zeroed array; NULL on overflow of count × size. */
void *arena_array(arena *a, size_t count, size_t size);
/* Copies. NULL when memory is short. */
char *arena_strdup(arena *a, const char *s);
char *arena_strndup(arena *a, const char *s, size_t n);
char *arena_printf(arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_free(arena *a);

#endif
