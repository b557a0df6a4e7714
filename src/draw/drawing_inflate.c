/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a <diagram>: base64 of raw deflate of percent-encoded XML (draw.io's "compressed"), or percent-encoded
 * XML alone, or the XML itself. */
#include "draw/drawing_internal.h"

#include "core/mem.h"

#include <limits.h>
#include <string.h>
#include <zlib.h>

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* In place of *out: at most 3/4 of the text. */
static keel_status decode_base64(drawing *d, const char *where, const char *text, size_t bytes, uint8_t *out,
                                 size_t *out_bytes) {
    uint32_t word = 0;
    int bits = 0;
    size_t n = 0;
    bool padded = false;
    for (size_t i = 0; i < bytes; i++) {
        if (is_blank(text[i])) continue;
        int digit = base64_digit(text[i]);
        if (text[i] == '=') padded = true;
        if (text[i] != '=' && (digit < 0 || padded)) {
            return error_set(d->err, KEEL_FORMAT,
                             "%s: %s: the text is neither XML nor base64 (byte %zu); save the drawing again", d->file,
                             where, i);
        }
        if (padded) continue;
        word = word << 6 | (uint32_t)digit;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[n++] = (uint8_t)(word >> bits);
        }
    }
    *out_bytes = n;
    return KEEL_OK;
}

static void *z_alloc(void *opaque, unsigned items, unsigned size) {
    (void)opaque;
    return mem_calloc(items, size);
}

static void z_free(void *opaque, void *p) {
    (void)opaque;
    mem_free(p);
}

static keel_status inflate_all(drawing *d, const char *where, z_stream *z, buf *out) {
    uint8_t chunk[16384];
    int r = Z_OK;
    while (r == Z_OK) {
        z->next_out = chunk;
        z->avail_out = sizeof chunk;
        r = inflate(z, Z_NO_FLUSH);
        if (r == Z_MEM_ERROR) return drawing_nomem(d);
        size_t n = sizeof chunk - z->avail_out;
        d->inflated += n;
        if (d->inflated > DRAWING_INFLATED) {
            return error_set(d->err, KEEL_RANGE,
                             "%s: %s: the compressed pages hold more than %d MB; draw repeated layers once (layer*N)",
                             d->file, where, DRAWING_INFLATED >> 20);
        }
        buf_put(out, chunk, n);
        if (out->failed) return drawing_nomem(d);
        if (r == Z_OK && n == 0) r = Z_BUF_ERROR;
    }
    if (r == Z_STREAM_END) return KEEL_OK;
    return error_set(d->err, KEEL_FORMAT, "%s: %s: the compressed text is damaged or cut off; save the drawing again",
                     d->file, where);
}

static keel_status inflate_bytes(drawing *d, const char *where, uint8_t *data, size_t bytes, buf *out) {
    z_stream z = {.zalloc = z_alloc, .zfree = z_free, .next_in = data, .avail_in = (unsigned)bytes};
    if (bytes > UINT_MAX) return error_set(d->err, KEEL_RANGE, "%s: %s: too large", d->file, where);
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return drawing_nomem(d);
    keel_status s = inflate_all(d, where, &z, out);
    inflateEnd(&z);
    return s;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* In place. A % that begins no escape stays. */
static size_t decode_percent(char *text, size_t bytes) {
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        int high = text[i] == '%' && bytes - i > 2 ? hex_digit(text[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
        text[n++] = low >= 0 ? (char)(16 * high + low) : text[i];
        if (low >= 0) i += 2;
    }
    return n;
}

static keel_status decompress(drawing *d, const char *where, const char *text, size_t bytes, buf *out) {
    uint8_t *data = mem_alloc(bytes);
    size_t n = 0;
    if (!data) return drawing_nomem(d);
    keel_status s = decode_base64(d, where, text, bytes, data, &n);
    if (s == KEEL_OK) s = inflate_bytes(d, where, data, n, out);
    mem_free(data);
    return s;
}

keel_status drawing_inflate(drawing *d, const char *where, const char *text, size_t bytes, char **out,
                            size_t *out_bytes) {
    buf b = {0};
    keel_status s = KEEL_OK;
    while (bytes && is_blank(*text)) text++, bytes--;
    bool plain = bytes && (*text == '<' || *text == '%');
    if (plain) {
        buf_put(&b, text, bytes);
    } else {
        s = decompress(d, where, text, bytes, &b);
    }
    if (s == KEEL_OK && b.failed) s = drawing_nomem(d);
    if (s != KEEL_OK || !b.data) {
        buf_free(&b);
        return s != KEEL_OK ? s : error_set(d->err, KEEL_FORMAT, "%s: %s: the page is empty", d->file, where);
    }
    *out_bytes = plain && b.data[0] == '<' ? b.len : decode_percent((char *)b.data, b.len);
    *out = (char *)b.data;
    return KEEL_OK;
}
