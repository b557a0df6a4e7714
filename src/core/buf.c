/* SPDX-License-Identifier: Apache-2.0 */
#include "core/buf.h"

#include "core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool buf_reserve(buf *b, size_t more) {
    if (b->failed) return false;
    if (more > SIZE_MAX / 4 - b->len) {
        b->failed = true;
        return false;
    }
    size_t need = b->len + more + 1;
    if (need <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 256;
    while (cap < need) cap *= 2;
    uint8_t *p = mem_realloc(b->data, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->data = p;
    b->cap = cap;
    return true;
}

void buf_put(buf *b, const void *data, size_t bytes) {
    if (!buf_reserve(b, bytes)) return;
    if (bytes) memcpy(b->data + b->len, data, bytes);
    b->len += bytes;
    b->data[b->len] = 0;
}

void buf_str(buf *b, const char *s) { buf_put(b, s, strlen(s)); }

void buf_printf(buf *b, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) b->failed = true;
    if (n >= 0 && buf_reserve(b, (size_t)n)) {
        vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void buf_u8(buf *b, uint8_t v) { buf_put(b, &v, 1); }

static void buf_le(buf *b, uint64_t v, size_t bytes) {
    uint8_t le[8];
    for (size_t i = 0; i < bytes; i++) le[i] = (uint8_t)(v >> (8 * i));
    buf_put(b, le, bytes);
}

void buf_u16(buf *b, uint16_t v) { buf_le(b, v, 2); }
void buf_u32(buf *b, uint32_t v) { buf_le(b, v, 4); }
void buf_u64(buf *b, uint64_t v) { buf_le(b, v, 8); }

void buf_align(buf *b, size_t align) {
    while (!b->failed && b->len % align) buf_u8(b, 0);
}

char *buf_take(buf *b) {
    if (!b->failed && !b->data) buf_put(b, "", 0);
    char *s = b->failed ? NULL : (char *)b->data;
    if (b->failed) mem_free(b->data);
    *b = (buf){0};
    return s;
}

void buf_free(buf *b) {
    mem_free(b->data);
    *b = (buf){0};
}
