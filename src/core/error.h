/* SPDX-License-Identifier: Apache-2.0 */
/* Filling a keel_error. Every failing function ends in one of these calls. */
#ifndef KEEL_CORE_ERROR_H
#define KEEL_CORE_ERROR_H

#include "keel.h"

#if defined(__GNUC__)
#define KEEL_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define KEEL_PRINTF(fmt, first)
#endif

/* Sets *err (when not NULL) and returns status, so that callers write `return error_set(err, …)`.
 * The text says what, where and what to do. Arguments may point into err->detail. */
void error_put(keel_error *err, keel_status status, const char *fmt, ...) KEEL_PRINTF(3, 4);
/* A macro over an inline function, so that the compiler knows that the result is `status`. */
static inline keel_status error_status(keel_status status, int put) {
    (void)put;
    return status;
}
#define error_set(err, status, ...) error_status((status), (error_put((err), (status), __VA_ARGS__), 0))

/* Puts "prefix: " before the detail already there; returns err's status. For adding the file or the
 * tensor on the way up. */
keel_status error_prefix(keel_error *err, keel_status status, const char *fmt, ...) KEEL_PRINTF(3, 4);

/* Appends a line to the detail (for messages that name all offenders at once). */
void error_append(keel_error *err, const char *fmt, ...) KEEL_PRINTF(2, 3);

/* Sets KEEL_IO (or KEEL_MISSING for ENOENT, KEEL_NOMEM for ENOMEM) from errno:
 * "path: cannot VERB: strerror; remedy". */
keel_status error_errno(keel_error *err, const char *path, const char *verb);

/* Returns the status on failure; for chains of calls. */
#define KEEL_TRY(call)                                                                                                 \
    do {                                                                                                               \
        keel_status try_status_ = (call);                                                                              \
        if (try_status_ != KEEL_OK) return try_status_;                                                                \
    } while (0)

#define KEEL_NOMEM_AT(err, what) error_set((err), KEEL_NOMEM, "%s: out of memory", (what))

#endif
