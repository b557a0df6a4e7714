/* SPDX-License-Identifier: Apache-2.0 */
#include "out.h"

#include "fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static keel_status check(bool good, keel_error *err) {
    if (good) return KEEL_OK;
    if (errno == EPIPE) return fail_quietly(err, KEEL_ABORTED);
    return fail(err, KEEL_IO, "stdout: %s", strerror(errno));
}

keel_status out_bytes(const char *data, size_t bytes, keel_error *err) {
    return check(fwrite(data, 1, bytes, stdout) == bytes, err);
}

keel_status out_text(const char *text, keel_error *err) { return out_bytes(text, strlen(text), err); }

keel_status out_format(keel_error *err, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vprintf(format, list);
    va_end(list);
    return check(n >= 0, err);
}

keel_status out_flush(keel_error *err) { return check(fflush(stdout) == 0 && !ferror(stdout), err); }

bool out_progress_wanted(void) { return isatty(STDERR_FILENO) == 1; }

size_text out_size(uint64_t bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    double n = (double)bytes;
    for (; n >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++) n /= 1000;
    size_text s;
    int digits = unit == 0 || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
    snprintf(s.text, sizeof s.text, "%.*f %s", digits, n, units[unit]);
    return s;
}
