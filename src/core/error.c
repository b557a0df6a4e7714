/* SPDX-License-Identifier: Apache-2.0 */
#include "core/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *keel_status_name(keel_status status) {
    switch (status) {
#define X(name, value, exit_status, text)                                                                              \
    case KEEL_##name:                                                                                                  \
        return #name;
        KEEL_STATUS_MAP(X)
#undef X
    }
    return "UNKNOWN";
}

const char *keel_status_text(keel_status status) {
    switch (status) {
#define X(name, value, exit_status, text)                                                                              \
    case KEEL_##name:                                                                                                  \
        return text;
        KEEL_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

int keel_status_exit(keel_status status) {
    switch (status) {
#define X(name, value, exit_status, text)                                                                              \
    case KEEL_##name:                                                                                                  \
        return exit_status;
        KEEL_STATUS_MAP(X)
#undef X
    }
    return 2;
}

void keel_free(void *p) { free(p); }

/* Formats into a scratch of its own first, since arguments may point into err->detail. */
static void detail_format(char *out, size_t cap, const char *fmt, va_list args) {
    int n = vsnprintf(out, cap, fmt, args);
    if (n < 0) out[0] = '\0';
}

void error_put(keel_error *err, keel_status status, const char *fmt, ...) {
    if (!err) return;
    char text[KEEL_ERROR_DETAIL_BYTES];
    va_list args;
    va_start(args, fmt);
    detail_format(text, sizeof text, fmt, args);
    va_end(args);
    err->status = status;
    memcpy(err->detail, text, strlen(text) + 1);
}

keel_status error_prefix(keel_error *err, keel_status status, const char *fmt, ...) {
    if (!err) return status;
    char text[KEEL_ERROR_DETAIL_BYTES];
    va_list args;
    va_start(args, fmt);
    detail_format(text, sizeof text, fmt, args);
    va_end(args);
    size_t used = strlen(text), tail = strlen(err->detail);
    if (used > sizeof text - 3) used = sizeof text - 3;
    if (tail > sizeof text - used - 3) tail = sizeof text - used - 3;
    memmove(err->detail + used + 2, err->detail, tail);
    memcpy(err->detail, text, used);
    memcpy(err->detail + used, ": ", 2);
    err->detail[used + 2 + tail] = '\0';
    err->status = status;
    return status;
}

void error_append(keel_error *err, const char *fmt, ...) {
    if (!err) return;
    size_t used = strlen(err->detail);
    if (used + 2 >= sizeof err->detail) return;
    err->detail[used++] = '\n';
    va_list args;
    va_start(args, fmt);
    detail_format(err->detail + used, sizeof err->detail - used, fmt, args);
    va_end(args);
}

keel_status error_errno(keel_error *err, const char *path, const char *verb) {
    int e = errno;
    keel_status status = e == ENOENT ? KEEL_MISSING : e == ENOMEM ? KEEL_NOMEM : KEEL_IO;
    const char *remedy = e == ENOENT                  ? "; check the path"
                         : e == EACCES || e == EPERM  ? "; check the permissions"
                         : e == ENOSPC || e == EDQUOT ? "; free some space and try again"
                                                      : "";
    return error_set(err, status, "%s: cannot %s: %s%s", path, verb, strerror(e), remedy);
}
