/* SPDX-License-Identifier: Apache-2.0 */
/* The plan file: sections, writing, reading. docs/plan-format.md describes it. */
#include "plan/plan_file.h"
#include "plan/tiler_internal.h"

#include "core/mem.h"
#include "core/sha256.h"

#include <assert.h>
#include <string.h>

static const char magic[8] = {'K', 'E', 'E', 'L', 'P', 'L', 'A', 'N'};
enum { PREFIX_BYTES = 24, ENTRY_BYTES = 24, SECTION_ALIGN = 8 };

/* ---- sections ----------------------------------------------------------------------------------- */

/* An array of the plan. `counted`: its length follows from an earlier section. */
typedef struct section {
    const char *name;
    void (*record)(codec *, void *); /* NULL: plain bytes */
    uint32_t record_bytes;           /* in the file */
    size_t element_bytes;            /* in memory */
    size_t array, count;             /* offsetof in plan */
    uint32_t extra;                  /* elements beyond *count */
    bool counted;
} section;

#define ARRAY(name, record, bytes, field, n)                                                                           \
    name, record, bytes, sizeof *((plan *)0)->field, offsetof(plan, field), offsetof(plan, n)
enum { SECTION_HEADER, SECTION_STRINGS = 13, SECTIONS };
/* In file order; the id is the index + 1. Numbers are pinned: docs/plan-format.md. */
static const section sections[SECTIONS] = {
    {"header", plan_io_header, 100, 0, 0, 0, 0, false},
    {ARRAY("levers", plan_io_lever, 4, levers, n_levers), 0, false},
    {ARRAY("instances", plan_io_instance, 76, instances, n_instances), 0, false},
    {ARRAY("attrs", plan_io_attr, 12, attrs, n_attrs), 0, false},
    {ARRAY("bodies", plan_io_body, 8, bodies, n_bodies), 0, false},
    {ARRAY("phases", plan_io_phase, 16, phases, n_phases), 0, false},
    {ARRAY("buffers", plan_io_buffer, 92, buffers, n_buffers), 0, false},
    {ARRAY("events", plan_io_event, 16, events, n_events), 0, false},
    {ARRAY("waits", plan_io_index, 4, waits, n_waits), 0, false},
    {ARRAY("tasks", plan_io_task, 72, tasks, n_tasks), 0, false},
    {ARRAY("queue", plan_io_index, 4, queue, n_tasks), 0, true},
    {ARRAY("queue_first", plan_io_index, 4, queue_first, workers), 1, true},
    {ARRAY("consts", NULL, 1, consts, consts_bytes), 0, false},
    {"strings", NULL, 1, 1, 0, 0, 0, false},
};

/* The plan's array pointers and counts by offset; pointers to objects look alike (C11 6.2.5 does not promise it, every
 * target does). */
static void *array_get(const plan *p, const section *s) {
    void *array;
    memcpy(&array, (const char *)p + s->array, sizeof array);
    return array;
}

static uint64_t count_get(const plan *p, const section *s) {
    uint32_t n;
    memcpy(&n, (const char *)p + s->count, sizeof n);
    return (uint64_t)n + s->extra;
}

/* ---- writing ------------------------------------------------------------------------------------ */

static void write_array(codec *c, const section *s) {
    const uint8_t *from = array_get(c->p, s);
    uint64_t n = count_get(c->p, s);
    if (!s->record) {
        buf_put(&c->out, from, n);
        return;
    }
    _Alignas(16) uint8_t copy[sizeof(plan_buffer) > sizeof(kp_task) ? sizeof(plan_buffer) : sizeof(kp_task)];
    assert(s->element_bytes <= sizeof copy);
    for (uint64_t i = 0; i < n && c->status == KEEL_OK; i++) {
        c->index = (int64_t)i;
        memcpy(copy, from + i * s->element_bytes, s->element_bytes);
        s->record(c, copy);
    }
}

static void write_section(codec *c, int id) {
    c->section = sections[id].name;
    c->index = PLAN_FILE_WHOLE;
    if (id == SECTION_HEADER) {
        plan copy = *c->p;
        plan_io_header(c, &copy);
    } else if (id == SECTION_STRINGS) {
        buf_put(&c->out, c->strings.data, c->strings.len);
    } else {
        write_array(c, &sections[id]);
    }
}

keel_status plan_write(const plan *p, buf *out, keel_error *err) {
    plan shallow = *p;
    codec c = {.writing = true, .p = &shallow, .file = "plan", .section = "strings", .err = err};
    uint64_t first[SECTIONS + 1], bytes[SECTIONS], base = PREFIX_BYTES + SECTIONS * ENTRY_BYTES;
    (void)plan_text_intern(&c, ""); /* at 0, so that a zero names nothing */
    for (int id = 0; id < SECTIONS; id++) {
        first[id] = base + c.out.len;
        write_section(&c, id);
        bytes[id] = base + c.out.len - first[id];
        buf_align(&c.out, SECTION_ALIGN);
    }
    first[SECTIONS] = base + c.out.len;
    keel_status s = c.status;
    buf_put(out, magic, sizeof magic);
    buf_u32(out, PLAN_FILE_VERSION);
    buf_u32(out, SECTIONS);
    buf_u64(out, first[SECTIONS]);
    for (uint32_t id = 0; id < SECTIONS; id++) {
        buf_u32(out, id + 1);
        buf_u32(out, sections[id].record_bytes);
        buf_u64(out, first[id]);
        buf_u64(out, bytes[id]);
    }
    buf_put(out, c.out.data, c.out.len);
    if (s == KEEL_OK && (c.out.failed || out->failed)) s = KEEL_NOMEM_AT(err, "plan file");
    buf_free(&c.out);
    buf_free(&c.strings);
    mem_free(c.slots);
    return s;
}

keel_status plan_hash(const plan *p, char hex[PLAN_HASH_HEX], keel_error *err) {
    _Static_assert((int)PLAN_HASH_HEX == (int)SHA256_HEX, "a plan's hash is a SHA-256");
    buf bytes = {0};
    keel_status s = plan_write(p, &bytes, err);
    if (s == KEEL_OK) s = sha256_hex(bytes.data, bytes.len, hex, err);
    buf_free(&bytes);
    return s;
}

/* ---- reading ------------------------------------------------------------------------------------ */

typedef struct extent {
    const uint8_t *data;
    uint64_t bytes;
} extent;

static keel_status read_prefix(codec *c, const uint8_t *data, size_t bytes) {
    c->section = "file header";
    c->index = PLAN_FILE_WHOLE;
    if (bytes < sizeof magic || memcmp(data, magic, sizeof magic) != 0) {
        return error_set(c->err, KEEL_FORMAT, "%s: not a plan file (it does not begin with KEELPLAN)", c->file);
    }
    uint64_t version = bytes < PREFIX_BYTES ? PLAN_FILE_VERSION : plan_load_le(data + 8, 4);
    if (version != PLAN_FILE_VERSION) {
        CODEC_FAIL(c, KEEL_UNSUPPORTED, "version %llu; this build reads version %d", (unsigned long long)version,
                   PLAN_FILE_VERSION);
    } else if (bytes < PREFIX_BYTES + SECTIONS * ENTRY_BYTES || plan_load_le(data + 16, 8) > bytes) {
        CODEC_FAIL(c, KEEL_FORMAT, "truncated: %zu bytes are here", bytes);
    } else if (plan_load_le(data + 16, 8) != bytes || plan_load_le(data + 12, 4) != SECTIONS) {
        CODEC_FAIL(c, KEEL_FORMAT, "%llu bytes in %llu sections announced; %zu bytes in %d expected",
                   (unsigned long long)plan_load_le(data + 16, 8), (unsigned long long)plan_load_le(data + 12, 4),
                   bytes, SECTIONS);
    }
    return c->status;
}

/* Sections stand in order, without holes. */
static keel_status read_table(codec *c, const uint8_t *data, size_t bytes, extent *extents) {
    uint64_t at = PREFIX_BYTES + SECTIONS * ENTRY_BYTES;
    for (uint32_t id = 0; id < SECTIONS && c->status == KEEL_OK; id++) {
        const uint8_t *entry = data + PREFIX_BYTES + id * ENTRY_BYTES;
        const section *s = &sections[id];
        uint64_t offset = plan_load_le(entry + 8, 8), n = plan_load_le(entry + 16, 8);
        c->section = s->name;
        if (plan_load_le(entry, 4) != id + 1 || plan_load_le(entry + 4, 4) != s->record_bytes) {
            CODEC_FAIL(c, KEEL_FORMAT, "entry %u of the section table must have id %u and records of %u bytes", id,
                       id + 1, s->record_bytes);
        } else if (offset != at || offset > bytes || n > bytes - offset) {
            CODEC_FAIL(c, KEEL_FORMAT,
                       "offset %llu, %llu bytes; it must begin at %llu and end within the file's %zu bytes",
                       (unsigned long long)offset, (unsigned long long)n, (unsigned long long)at, bytes);
        } else if (n % s->record_bytes || n / s->record_bytes >= KP_NONE ||
                   (id == SECTION_HEADER && n != s->record_bytes)) {
            CODEC_FAIL(c, KEEL_FORMAT, "%llu bytes are no count of records of %u bytes", (unsigned long long)n,
                       s->record_bytes);
        }
        extents[id] = (extent){data + at, n};
        at = (at + n + SECTION_ALIGN - 1) / SECTION_ALIGN * SECTION_ALIGN;
    }
    c->section = "file header";
    if (at != bytes) CODEC_FAIL(c, KEEL_FORMAT, "the sections end at byte %llu of %zu", (unsigned long long)at, bytes);
    return c->status;
}

static keel_status read_strings(codec *c, const extent *e) {
    c->section = "strings";
    char *text = arena_array(&c->p->arena, e->bytes + 1, 1);
    if (!text) return c->status = KEEL_NOMEM_AT(c->err, c->file);
    memcpy(text, e->data, e->bytes);
    if (!e->bytes || text[0] || text[e->bytes - 1])
        CODEC_FAIL(c, KEEL_FORMAT, "must begin with the empty string and end in a zero byte");
    if (!plan_file_text(text, e->bytes)) CODEC_FAIL(c, KEEL_FORMAT, "not UTF-8 without control characters");
    c->text = text;
    c->text_bytes = e->bytes;
    return c->status;
}

/* The array's length is the section's: what is allocated is a small multiple of the file. */
static keel_status read_array(codec *c, const section *s, const extent *e) {
    uint32_t n = (uint32_t)(e->bytes / s->record_bytes);
    c->section = s->name;
    c->index = PLAN_FILE_WHOLE;
    if (s->counted && n != count_get(c->p, s)) {
        CODEC_FAIL(c, KEEL_REFUSED, "%u records, %llu expected", n, (unsigned long long)count_get(c->p, s));
        return c->status;
    }
    uint8_t *array = arena_array(&c->p->arena, n, s->element_bytes);
    if (!array) return c->status = KEEL_NOMEM_AT(c->err, c->file);
    void *pointer = array;
    memcpy((char *)c->p + s->array, &pointer, sizeof pointer);
    if (!s->counted) memcpy((char *)c->p + s->count, &n, sizeof n);
    if (!s->record) {
        memcpy(array, e->data, e->bytes);
        return KEEL_OK;
    }
    for (uint32_t i = 0; i < n && c->status == KEEL_OK; i++) {
        c->index = i;
        c->in = e->data + (uint64_t)i * s->record_bytes;
        s->record(c, array + (size_t)i * s->element_bytes);
        assert(c->status != KEEL_OK || c->in == e->data + ((uint64_t)i + 1) * s->record_bytes);
    }
    return c->status;
}

/* What the file leaves open (padding, unused and repeated strings) has one form, so that one plan has one hash. */
static keel_status check_canonical(codec *c, const uint8_t *data, size_t bytes) {
    buf again = {0};
    keel_status s = plan_write(c->p, &again, c->err);
    size_t at = 0;
    while (s == KEEL_OK && at < bytes && at < again.len && data[at] == again.data[at]) at++;
    if (s == KEEL_OK && (at < bytes || at < again.len)) {
        s = plan_file_bad(
            c->err, KEEL_REFUSED, c->file, "file header", PLAN_FILE_WHOLE,
            "byte %zu is not what the writer of version %d puts there (padding, order or repetition of strings)", at,
            PLAN_FILE_VERSION);
    }
    buf_free(&again);
    return s;
}

static keel_status read_plan(codec *c, const uint8_t *data, size_t bytes) {
    extent extents[SECTIONS];
    KEEL_TRY(read_prefix(c, data, bytes));
    KEEL_TRY(read_table(c, data, bytes, extents));
    KEEL_TRY(read_strings(c, &extents[SECTION_STRINGS]));
    c->section = sections[SECTION_HEADER].name;
    c->in = extents[SECTION_HEADER].data;
    plan_io_header(c, c->p);
    if (c->status != KEEL_OK) return c->status;
    for (int id = SECTION_HEADER + 1; id < SECTION_STRINGS; id++) KEEL_TRY(read_array(c, &sections[id], &extents[id]));
    KEEL_TRY(plan_file_check(c->file, c->p, c->err));
    KEEL_TRY(check_canonical(c, data, bytes));
    keel_status s = plan_derive(c->p, c->err);
    if (s == KEEL_OK || s == KEEL_NOMEM) return s;
    return error_prefix(c->err, KEEL_REFUSED, "%s", c->file); /* whatever an op says of it */
}

keel_status plan_read(const char *file, const uint8_t *data, size_t bytes, plan **out, keel_error *err) {
    plan *p = mem_calloc(1, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, file);
    codec c = {.p = p, .file = file, .err = err};
    keel_status s = read_plan(&c, data, bytes);
    if (s != KEEL_OK) {
        plan_close(p);
        return s;
    }
    *out = p;
    return KEEL_OK;
}
