/* SPDX-License-Identifier: Apache-2.0 */
#include "load/tokenizer_internal.h"

#include "core/mem.h"

#include <string.h>
#include <utf8proc.h>

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

size_t utf8_scan(const uint8_t *p, size_t n, bool *well_formed) {
    uint8_t lead = p[0];
    *well_formed = lead < 0x80;
    if (lead < 0xC2 || lead > 0xF4) return 1;
    size_t want = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    /* Table 3-7: only the second byte's range depends on the lead. */
    uint8_t lo = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t hi = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    size_t i = 1;
    while (i < want && i < n && p[i] >= lo && p[i] <= hi) {
        i++;
        lo = 0x80;
        hi = 0xBF;
    }
    *well_formed = i == want;
    return i;
}

bool text_is_ascii(const char *text, size_t n) {
    unsigned char seen = 0;
    for (size_t i = 0; i < n; i++) seen |= (unsigned char)text[i];
    return seen < 0x80;
}

bool text_is_valid(const char *text, size_t n) {
    bool ok = true;
    for (size_t i = 0; ok && i < n;) i += utf8_scan((const uint8_t *)text + i, n - i, &ok);
    return ok;
}

void text_repair(const char *text, size_t n, buf *out) {
    for (size_t i = 0; i < n;) {
        bool ok;
        size_t step = utf8_scan((const uint8_t *)text + i, n - i, &ok);
        buf_put(out, ok ? text + i : REPLACEMENT, ok ? step : sizeof REPLACEMENT - 1);
        i += step;
    }
}

size_t utf8_put(uint32_t c, char out[4]) {
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)out);
}

/* Canonical order: a stable sort of each run of marks by combining class. utf8proc's own is an insertion sort,
 * quadratic on long runs, so the runs are sorted here by merging. */
static void marks_merge(utf8proc_int32_t *v, utf8proc_int32_t *tmp, size_t n) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            size_t a = lo, b = mid;
            for (size_t i = lo; i < hi; i++) {
                bool left = a < mid && (b >= hi || utf8proc_get_property(v[a])->combining_class <=
                                                       utf8proc_get_property(v[b])->combining_class);
                tmp[i] = left ? v[a++] : v[b++];
            }
        }
        memcpy(v, tmp, n * sizeof *v);
    }
}

static void marks_order(utf8proc_int32_t *v, utf8proc_int32_t *tmp, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && utf8proc_get_property(v[end])->combining_class) end++;
        if (end - i > 1) marks_merge(v + i, tmp, end - i);
        i = end > i ? end : i + 1;
    }
}

enum { DECOMPOSED_MAX = 8 }; /* the longest canonical decomposition has 4 characters */

bool text_nfc(const char *text, size_t n, buf *out) {
    buf chars = {0};
    for (size_t i = 0; i < n && !chars.failed;) {
        utf8proc_int32_t c, parts[DECOMPOSED_MAX];
        utf8proc_ssize_t step = utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)(n - i), &c);
        if (step <= 0) break; /* cannot be: the text is well-formed */
        int boundclass = 0;
        utf8proc_ssize_t k = utf8proc_decompose_char(
            c, parts, DECOMPOSED_MAX, (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE), &boundclass);
        if (k > 0 && k <= DECOMPOSED_MAX) buf_put(&chars, parts, (size_t)k * sizeof *parts);
        i += (size_t)step;
    }
    utf8proc_int32_t *v = (utf8proc_int32_t *)(void *)chars.data;
    size_t count = chars.len / sizeof *v;
    utf8proc_int32_t *tmp = chars.failed ? NULL : mem_alloc(chars.len);
    if (tmp && count) {
        marks_order(v, tmp, count);
        utf8proc_ssize_t m = utf8proc_normalize_utf32(v, (utf8proc_ssize_t)count,
                                                      (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        for (utf8proc_ssize_t i = 0; i < m; i++) {
            char bytes[4];
            buf_put(out, bytes, utf8_put((uint32_t)v[i], bytes));
        }
    }
    bool ok = tmp && !out->failed;
    mem_free(tmp);
    buf_free(&chars);
    return ok;
}

/* GPT-2's bytes_to_unicode: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards in order. */
uint32_t byte_to_char(uint8_t byte) {
    if (byte <= 0x20) return 0x100u + byte;
    if (byte >= 0x7F && byte <= 0xA0) return 0x121u + (byte - 0x7Fu);
    if (byte == 0xAD) return 0x143;
    return byte;
}

int char_to_byte(uint32_t c) {
    if (c >= 0x100 && c <= 0x120) return (int)(c - 0x100);
    if (c >= 0x121 && c <= 0x142) return (int)(c - 0x121 + 0x7F);
    if (c == 0x143) return 0xAD;
    return c < 0x100 && byte_to_char((uint8_t)c) == c ? (int)c : -1;
}

void text_map_bytes(const char *text, size_t n, buf *out) {
    for (size_t i = 0; i < n; i++) {
        char bytes[4];
        buf_put(out, bytes, utf8_put(byte_to_char((uint8_t)text[i]), bytes));
    }
}

void text_unmap_bytes(const char *text, size_t n, buf *out) {
    size_t start = out->len;
    for (size_t i = 0; i < n && !out->failed;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t step = utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)(n - i), &c);
        int byte = step > 0 ? char_to_byte((uint32_t)c) : -1;
        if (byte < 0) {
            out->len = start;
            buf_put(out, text, n);
            return;
        }
        buf_u8(out, (uint8_t)byte);
        i += (size_t)step;
    }
}
