/* SPDX-License-Identifier: Apache-2.0 */
/* Standard output, with every write checked. A reader that went away (EPIPE) is KEEL_ABORTED with an empty detail. */
#ifndef KEEL_TOOLS_OUT_H
#define KEEL_TOOLS_OUT_H

#include "keel.h"

keel_status out_bytes(const char *data, size_t bytes, keel_error *err);
keel_status out_text(const char *text, keel_error *err);
keel_status out_format(keel_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What was written so far reaches the reader. */
keel_status out_flush(keel_error *err);

/* Standard error is a terminal: progress may be shown. */
bool out_progress_wanted(void);

/* "1.19 GB": decimal units, three digits. */
typedef struct size_text {
    char text[24];
} size_text;
size_text out_size(uint64_t bytes);

#endif
