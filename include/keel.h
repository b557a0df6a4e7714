/* SPDX-License-Identifier: Apache-2.0
 *
 * keel.h: the only public header of Keel.
 *
 * Keel runs a transformer's decode as one persistent program under a static plan:
 *
 *     model (folder, or synthetic weights) -> plan -> session -> tokens
 *
 * Rules that hold for every function below:
 *  - A function that can fail returns keel_status and takes a keel_error as its last argument. On
 *    failure *err holds what went wrong, where (file, offset, tensor, task) and what to do; out
 *    parameters are left untouched. err may be NULL.
 *  - Handles are opaque. Who made a handle closes it; closing NULL is a no-op. A plan and a session
 *    keep no reference to the options they were made with. A session borrows its model and its plan:
 *    close the session first.
 *  - Option structs carry their own size: fill them with the INITIALIZER, then set fields. A later
 *    version may append fields; a zero field always means the documented default.
 *  - Threads: distinct handles may be used from distinct threads. One handle is used by one thread at
 *    a time, except keel_session_stop(), which any thread (or a signal handler) may call.
 *  - Strings are UTF-8, zero-terminated, owned by the handle they came from, unless said otherwise.
 *    Strings returned through `char **` are the caller's: free them with keel_free().
 *  - Nothing here prints, exits or reads the network.
 */
#ifndef KEEL_H
#define KEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_VERSION_MAJOR 0
#define KEEL_VERSION_MINOR 1
#define KEEL_VERSION_STRING "0.1.0"

/* ---- status ------------------------------------------------------------------------------------ */

/* X(name, value, exit status of the program, text). */
#define KEEL_STATUS_MAP(X)                                                                                             \
    X(OK, 0, 0, "fine")                                                                                                \
    X(REFUSED, 1, 1, "a gate or a proof says no")                                                                      \
    X(USAGE, 2, 2, "wrong use")                                                                                        \
    X(FORMAT, 3, 2, "malformed input")                                                                                 \
    X(UNSUPPORTED, 4, 2, "well-formed input that this build cannot handle")                                            \
    X(MISSING, 5, 2, "something named does not exist")                                                                 \
    X(IO, 6, 2, "the operating system refused a read or a write")                                                      \
    X(RANGE, 7, 2, "a value outside its limits")                                                                       \
    X(NOMEM, 8, 2, "out of memory")                                                                                    \
    X(HANG, 9, 3, "the run made no progress and was aborted")                                                          \
    X(ABORTED, 10, 3, "the run was aborted")

/* What a call came to. Values are pinned. */
typedef enum keel_status {
#define X(name, value, exit_status, text) KEEL_##name = value,
    KEEL_STATUS_MAP(X)
#undef X
} keel_status;

#define KEEL_ERROR_DETAIL_BYTES 4096

/* The detail of the last failure. Plain data, owned by the caller; start with KEEL_ERROR_INITIALIZER. */
typedef struct keel_error {
    keel_status status;
    char detail[KEEL_ERROR_DETAIL_BYTES]; /* one or more lines, zero-terminated, no trailing newline */
} keel_error;
#define KEEL_ERROR_INITIALIZER                                                                                         \
    {                                                                                                                  \
        KEEL_OK, { 0 }                                                                                                 \
    }

/* Name ("FORMAT"), text and the program's exit status (0..3) of a status; never NULL. */
const char *keel_status_name(keel_status status);
const char *keel_status_text(keel_status status);
int keel_status_exit(keel_status status);

/* Frees a string or array that a function handed over. NULL is fine. */
void keel_free(void *p);

#ifdef __cplusplus
}
#endif
#endif /* KEEL_H */
