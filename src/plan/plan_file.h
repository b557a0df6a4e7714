/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the plan file share: plan_codec.c has the records, plan_file.c the sections, plan_file_check.c
 * looks at what was decoded. */
#ifndef KEEL_PLAN_PLAN_FILE_H
#define KEEL_PLAN_PLAN_FILE_H

#include "core/error.h"
#include "plan/plan.h"

enum { PLAN_FILE_VERSION = 4 };

/* "FILE: section SECTION[INDEX]: what; plan again …". Without an index: PLAN_FILE_WHOLE. Returns status. */
enum { PLAN_FILE_WHOLE = -1 };
keel_status plan_file_bad(keel_error *err, keel_status status, const char *file, const char *section, int64_t index,
                          const char *fmt, ...) KEEL_PRINTF(6, 7);

/* May these bytes be names? UTF-8 without control characters but for the zeros that end strings. */
bool plan_file_text(const char *text, size_t bytes);

/* Every length, count, index and offset of a decoded plan. KEEL_REFUSED. */
keel_status plan_file_check(const char *file, const plan *p, keel_error *err);

/* Writing: `out` holds the section in hand, p is never changed. Reading: `in` is the next byte of the record in hand.
 * The first failure sticks. */
typedef struct codec {
    bool writing;
    plan *p;
    const char *file, *section;
    int64_t index;
    keel_status status;
    keel_error *err;
    buf out;
    const uint8_t *in;
    buf strings;     /* writing: the string table so far */
    uint32_t *slots; /* writing: hash slots, offset + 1 of a string */
    uint32_t n_strings, n_slots;
    const char *text; /* reading: the string table */
    size_t text_bytes;
} codec;

#define CODEC_FAIL(c, what, ...)                                                                                       \
    do {                                                                                                               \
        if ((c)->status == KEEL_OK)                                                                                    \
            (c)->status = plan_file_bad((c)->err, (what), (c)->file, (c)->section, (c)->index, __VA_ARGS__);           \
    } while (0)

/* Little-endian. */
uint64_t plan_load_le(const uint8_t *at, unsigned bytes);
/* Writing: offset of s in the string table, where each string stands once, in the order of first use. */
uint32_t plan_text_intern(codec *c, const char *s);
/* One record each way; `record` is the plan itself for the header, else an element of its array. */
void plan_io_header(codec *c, void *record);
void plan_io_lever(codec *c, void *record);
void plan_io_instance(codec *c, void *record);
void plan_io_body(codec *c, void *record);
void plan_io_phase(codec *c, void *record);
void plan_io_buffer(codec *c, void *record);
void plan_io_event(codec *c, void *record);
void plan_io_task(codec *c, void *record);
void plan_io_attr(codec *c, void *record);
void plan_io_index(codec *c, void *record);

#endif
