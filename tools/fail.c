/* SPDX-License-Identifier: Apache-2.0 */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

keel_status fail(keel_error *err, keel_status status, const char *format, ...) {
    if (!err) return status;
    err->status = status;
    va_list list;
    va_start(list, format);
    vsnprintf(err->detail, sizeof err->detail, format, list);
    va_end(list);
    return status;
}

keel_status fail_quietly(keel_error *err, keel_status status) {
    if (err) *err = (keel_error){.status = status};
    return status;
}

keel_status fail_memory(keel_error *err, const char *what) { return fail(err, KEEL_NOMEM, "%s: out of memory", what); }
