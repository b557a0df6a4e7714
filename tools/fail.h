/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the program itself, told the same way as the library's. */
#ifndef KEEL_TOOLS_FAIL_H
#define KEEL_TOOLS_FAIL_H

#include "keel.h"

/* Sets *err (may be NULL) and returns status. An empty detail means: say nothing, only exit. */
keel_status fail(keel_error *err, keel_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
keel_status fail_quietly(keel_error *err, keel_status status);
keel_status fail_memory(keel_error *err, const char *what);

/* Returns from the caller with the status of a call that did not go well. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        keel_status try_status_ = (call);                                                                              \
        if (try_status_ != KEEL_OK) return try_status_;                                                                \
    } while (0)

#endif
