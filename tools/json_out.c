/* SPDX-License-Identifier: Apache-2.0 */
#include "json_out.h"

#include "fail.h"
#include "out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the well-formed UTF-8 sequence at s, 0 when there is none (Unicode 15, table 3-7). */
static size_t utf8_length(const unsigned char *s, size_t left) {
    unsigned char low = 0x80, high = 0xbf;
    size_t n;
    if (s[0] < 0x80) return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        n = 2;
    } else if ((s[0] & 0xf0) == 0xe0) {
        n = 3;
        if (s[0] == 0xe0) low = 0xa0;
        if (s[0] == 0xed) high = 0x9f;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        n = 4;
        if (s[0] == 0xf0) low = 0x90;
        if (s[0] == 0xf4) high = 0x8f;
    } else {
        return 0;
    }
    if (left < n || s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
    }
    return n;
}

json_t *json_of_text(const char *text, size_t bytes) {
    static const char replacement[] = "\xef\xbf\xbd";
    char *clean = malloc(bytes * 3 + 1);
    if (!clean) return NULL;
    size_t n = 0;
    for (size_t i = 0; i < bytes;) {
        size_t length = utf8_length((const unsigned char *)text + i, bytes - i);
        memcpy(clean + n, length ? text + i : replacement, length ? length : 3);
        n += length ? length : 3;
        i += length ? length : 1;
    }
    json_t *value = json_stringn(clean, n);
    free(clean);
    return value;
}

json_t *json_of_ids(const int32_t *ids, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        if (json_array_append_new(list, json_integer(ids[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

json_t *json_of_real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static keel_status dump(json_t *value, char **text, keel_error *err) {
    *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    return *text ? KEEL_OK : fail_memory(err, "JSON");
}

keel_status json_print(json_t *value, keel_error *err) {
    char *text;
    TRY(dump(value, &text, err));
    keel_status s = out_format(err, "%s\n", text);
    free(text);
    return s == KEEL_OK ? out_flush(err) : s;
}

keel_status json_save(json_t *value, const char *path, keel_error *err) {
    char *text;
    TRY(dump(value, &text, err));
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in place of the zero */
    keel_status s = keel_file_save(path, text, bytes + 1, err);
    free(text);
    return s;
}

keel_status json_print_error(const keel_error *what, keel_error *err) {
    json_t *detail = json_of_text(what->detail, strlen(what->detail));
    return json_print(json_pack("{s:{s:s,s:o}}", "error", "status", keel_status_name(what->status), "detail", detail),
                      err);
}
