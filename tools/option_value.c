/* SPDX-License-Identifier: Apache-2.0 */
#include "option_value.h"

#include "fail.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool count_parse(const char *text, uint64_t *out, const char **end) {
    char *stop;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    unsigned long long n = strtoull(text, &stop, 10);
    if (errno || (!end && *stop)) return false;
    if (end) *end = stop;
    *out = n;
    return true;
}

static bool in_limits(const option *o, uint64_t n) { return (double)n >= o->low && (double)n <= o->high; }

static keel_status read_count(const verb *v, const option *o, const char *text, option_value *out, keel_error *err) {
    if (count_parse(text, &out->count, NULL) && in_limits(o, out->count)) return KEEL_OK;
    return args_refuse(v, err, "--%s: '%s' is not a whole number from %.0f to %.0f", o->name, text, o->low, o->high);
}

static keel_status read_counts(const verb *v, const option *o, const char *text, option_value *out, keel_error *err) {
    size_t most = 1;
    for (const char *c = text; *c; c++) most += *c == ',';
    out->counts = calloc(most, sizeof *out->counts);
    if (!out->counts) return fail_memory(err, o->name);
    for (const char *at = text;; at++) {
        const char *from = at;
        uint64_t n;
        if (!count_parse(at, &n, &at) || !in_limits(o, n) || (*at && *at != ',')) {
            return args_refuse(v, err, "--%s: '%.*s' (entry %zu) is not a whole number from %.0f to %.0f", o->name,
                               (int)strcspn(from, ","), from, out->n, o->low, o->high);
        }
        out->counts[out->n++] = n;
        if (!*at) return KEEL_OK;
    }
}

static keel_status read_range(const verb *v, const option *o, const char *text, option_value *out, keel_error *err) {
    const char *at;
    uint64_t last = 0;
    bool good = count_parse(text, &out->count, &at) && in_limits(o, out->count);
    if (good && !*at) {
        out->last = (int64_t)out->count;
    } else if (good && at[0] == '-' && !at[1]) {
        out->last = -1;
    } else {
        good = good && *at == '-' && count_parse(at + 1, &last, NULL) && in_limits(o, last) && last >= out->count;
        out->last = (int64_t)last;
    }
    if (good) return KEEL_OK;
    return args_refuse(v, err, "--%s: '%s' is no range; give A-B with A up to B, A- or A", o->name, text);
}

static keel_status read_real(const verb *v, const option *o, const char *text, option_value *out, keel_error *err) {
    char *stop;
    out->real = strtod(text, &stop);
    bool plain = text[strspn(text, "0123456789.eE+-")] == 0; /* no hexadecimal, no infinity */
    if (*text && !*stop && plain && out->real >= o->low && out->real <= o->high) return KEEL_OK;
    return args_refuse(v, err, "--%s: '%s' is not a number from %g to %g", o->name, text, o->low, o->high);
}

static keel_status read_bytes(const verb *v, const option *o, const char *text, option_value *out, keel_error *err) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},      {"B", 1},      {"kB", 1e3},      {"MB", 1e6},      {"GB", 1e9},
                 {"TB", 1e12}, {"KiB", 1024}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1024.0 * (1 << 30)}};
    size_t digits = strspn(text, "0123456789."), most = sizeof units / sizeof *units, unit = 0;
    char *stop;
    double n = strtod(text, &stop);
    while (unit < most && strcmp(text + digits, units[unit].name) != 0) unit++;
    if (digits && stop == text + digits && unit < most) {
        n *= units[unit].bytes;
        out->count = n >= o->low && n <= o->high ? (uint64_t)n : 0;
        if (out->count) return KEEL_OK;
    }
    return args_refuse(v, err, "--%s: '%s' is no size; give bytes, or a number and one of kB MB GB TB KiB MiB GiB TiB",
                       o->name, text);
}

static keel_status read_choice(const verb *v, const option *o, const char *text, option_value *out, keel_error *err) {
    size_t n = strlen(text);
    for (const char *at = o->metavar; n; at++) {
        size_t word = strcspn(at, "|");
        if (word == n && memcmp(at, text, n) == 0) {
            out->text = text;
            return KEEL_OK;
        }
        at += word;
        if (!*at) break;
    }
    return args_refuse(v, err, "--%s: '%s' is none of %s", o->name, text, o->metavar);
}

static keel_status add_text(const option *o, const char *text, option_value *out, keel_error *err) {
    const char **texts = realloc(out->texts, (out->n + 1) * sizeof *texts);
    if (!texts) return fail_memory(err, o->name);
    out->texts = texts;
    out->texts[out->n++] = text;
    return KEEL_OK;
}

keel_status option_value_read(const verb *v, const option *o, const char *text, option_value *out, keel_error *err) {
    switch (o->type) {
    case OPTION_COUNT:
        return read_count(v, o, text, out, err);
    case OPTION_COUNTS:
        return read_counts(v, o, text, out, err);
    case OPTION_REAL:
        return read_real(v, o, text, out, err);
    case OPTION_RANGE:
        return read_range(v, o, text, out, err);
    case OPTION_BYTES:
        return read_bytes(v, o, text, out, err);
    case OPTION_CHOICE:
        return read_choice(v, o, text, out, err);
    case OPTION_TEXTS:
        return add_text(o, text, out, err);
    case OPTION_TEXT:
    case OPTION_FLAG:
        break;
    }
    out->text = text;
    return KEEL_OK;
}
