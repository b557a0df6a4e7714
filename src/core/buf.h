/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer, also the string builder. A failed growth is remembered in `failed` and turns
 * every later call into a no-op, so that callers check once at the end. */
#ifndef KEEL_CORE_BUF_H
#define KEEL_CORE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct buf {
    uint8_t *data; /* always followed by a zero byte once anything was put */
    size_t len, cap;
    bool failed;
} buf;

void buf_put(buf *b, const void *data, size_t bytes);
void buf_str(buf *b, const char *s);
void buf_printf(buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Little-endian whatever the host. */
void buf_u8(buf *b, uint8_t v);
void buf_u16(buf *b, uint16_t v);
void buf_u32(buf *b, uint32_t v);
void buf_u64(buf *b, uint64_t v);
/* Zero bytes up to a multiple of align. */
void buf_align(buf *b, size_t align);
/* Hands the bytes over as a zero-terminated string (free with keel_free); NULL when a growth failed. */
char *buf_take(buf *b);
void buf_free(buf *b);

#endif
