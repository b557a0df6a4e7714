/* SPDX-License-Identifier: Apache-2.0 */
#include "load/gguf_internal.h"

#include "core/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_KEY_VALUE_BYTES = 8 + 4 + 1,      /* an empty key and a byte */
    MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8, /* an empty name and one dimension */
    MAX_NAME_BYTES = 65535,               /* docs/gguf.md, of keys */
    MAX_NESTING = 4
};

typedef struct cursor {
    const char *file;
    const uint8_t *data;
    uint64_t at, bytes; /* at <= bytes */
} cursor;

static keel_status bad(const cursor *c, const char *what, keel_error *err) {
    return error_set(err, KEEL_FORMAT, "%s: at byte %llu: %s; the file is damaged, fetch it again", c->file,
                     (unsigned long long)c->at, what);
}

static uint64_t left(const cursor *c) { return c->bytes - c->at; }

static keel_status take(cursor *c, uint64_t bytes, const uint8_t **p, keel_error *err) {
    *p = c->data + c->at;
    if (bytes > left(c)) return bad(c, "the file ends within its header (truncated)", err);
    c->at += bytes;
    return KEEL_OK;
}

static keel_status take_u32(cursor *c, uint32_t *v, keel_error *err) {
    const uint8_t *p;
    *v = 0;
    KEEL_TRY(take(c, 4, &p, err));
    *v = le32(p);
    return KEEL_OK;
}

static keel_status take_u64(cursor *c, uint64_t *v, keel_error *err) {
    const uint8_t *p;
    *v = 0;
    KEEL_TRY(take(c, 8, &p, err));
    *v = le64(p);
    return KEEL_OK;
}

static keel_status take_string(cursor *c, gguf_string *s, keel_error *err) {
    const uint8_t *p;
    s->text = "";
    KEEL_TRY(take_u64(c, &s->bytes, err));
    if (s->bytes > left(c)) return bad(c, "a string reaches past the end of the file", err);
    KEEL_TRY(take(c, s->bytes, &p, err));
    s->text = (const char *)p;
    return KEEL_OK;
}

/* A key or a tensor's name: terminated, without zero bytes. */
static keel_status take_name(cursor *c, gguf *g, const char **name, keel_error *err) {
    gguf_string s;
    KEEL_TRY(take_string(c, &s, err));
    if (s.bytes == 0 || s.bytes > MAX_NAME_BYTES) return bad(c, "a name of no or more than 65535 bytes", err);
    if (memchr(s.text, 0, (size_t)s.bytes)) return bad(c, "a name with a zero byte in it", err);
    *name = arena_strndup(&g->arena, s.text, (size_t)s.bytes);
    return *name ? KEEL_OK : KEEL_NOMEM_AT(err, c->file);
}

/* 0: no fixed size. */
static uint64_t scalar_bytes(uint32_t type) {
    switch (type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL:
        return 1;
    case GGUF_U16:
    case GGUF_I16:
        return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32:
        return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64:
        return 8;
    default:
        return 0;
    }
}

static keel_status skip_value(cursor *c, uint32_t type, int depth, keel_error *err);

static keel_status skip_elements(cursor *c, uint32_t type, uint64_t count, int depth, keel_error *err) {
    uint64_t size = scalar_bytes(type);
    if (size) {
        const uint8_t *p;
        if (count > left(c) / size) return bad(c, "an array reaches past the end of the file", err);
        return take(c, count * size, &p, err);
    }
    /* A string takes 8 bytes and an array 12, so the loop ends with the file at the latest. */
    if (count > left(c) / 8) return bad(c, "an array reaches past the end of the file", err);
    for (uint64_t i = 0; i < count; i++) KEEL_TRY(skip_value(c, type, depth, err));
    return KEEL_OK;
}

static keel_status skip_value(cursor *c, uint32_t type, int depth, keel_error *err) {
    gguf_string s;
    const uint8_t *p;
    uint32_t element;
    uint64_t count;
    if (scalar_bytes(type)) {
        KEEL_TRY(take(c, scalar_bytes(type), &p, err));
        return type == GGUF_BOOL && *p > 1 ? bad(c, "a truth value other than 0 and 1", err) : KEEL_OK;
    }
    if (type == GGUF_STRING) return take_string(c, &s, err);
    if (type != GGUF_ARRAY) return bad(c, "an unknown type of value", err);
    if (depth >= MAX_NESTING) return bad(c, "arrays nested too deep", err);
    KEEL_TRY(take_u32(c, &element, err));
    KEEL_TRY(take_u64(c, &count, err));
    return skip_elements(c, element, count, depth + 1, err);
}

static keel_status take_key_value(cursor *c, gguf *g, gguf_value *v, keel_error *err) {
    uint32_t type, element;
    KEEL_TRY(take_name(c, g, &v->key, err));
    KEEL_TRY(take_u32(c, &type, err));
    if (type > GGUF_F64) return bad(c, "an unknown type of value", err);
    element = type;
    v->count = 1;
    keel_status status;
    if (type == GGUF_ARRAY) {
        KEEL_TRY(take_u32(c, &element, err));
        if (element > GGUF_F64) return bad(c, "an unknown type of value", err);
        KEEL_TRY(take_u64(c, &v->count, err));
        v->data = c->data + c->at;
        status = skip_elements(c, element, v->count, 1, err);
    } else {
        v->data = c->data + c->at;
        status = skip_value(c, type, 0, err);
    }
    v->type = (gguf_value_type)type;
    v->element = (gguf_value_type)element;
    return status == KEEL_OK ? KEEL_OK : error_prefix(err, status, "metadata key %s", v->key);
}

static keel_status take_tensor_info(cursor *c, gguf *g, gguf_tensor *t, uint64_t *offset, keel_error *err) {
    uint32_t rank;
    uint64_t elements = 1;
    char scratch[16];
    KEEL_TRY(take_name(c, g, &t->name, err));
    KEEL_TRY(take_u32(c, &rank, err));
    if (rank < 1 || rank > GGUF_MAX_RANK) return bad(c, "a tensor of a rank outside 1..4", err);
    t->rank = (int)rank;
    for (uint32_t r = 0; r < GGUF_MAX_RANK; r++) {
        t->dim[r] = 1;
        if (r < rank) KEEL_TRY(take_u64(c, &t->dim[r], err));
        if (t->dim[r] == 0 || __builtin_mul_overflow(elements, t->dim[r], &elements) || elements > INT64_MAX / 16) {
            return error_prefix(err, bad(c, "a dimension of 0, or more than 2^59 elements", err), "tensor %s", t->name);
        }
    }
    KEEL_TRY(take_u32(c, &t->type, err));
    KEEL_TRY(take_u64(c, offset, err));
    if (!gguf_type_bytes(t->type, 0) && !gguf_type_bytes(t->type, 256)) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: tensor %s: %s is unknown to this build", c->file, t->name,
                         gguf_type_name(t->type, scratch));
    }
    uint64_t row = gguf_type_bytes(t->type, t->dim[0]);
    if (!row) {
        return error_set(err, KEEL_FORMAT, "%s: tensor %s: a row of %llu elements is no whole number of %s blocks",
                         c->file, t->name, (unsigned long long)t->dim[0], gguf_type_name(t->type, scratch));
    }
    t->bytes = row * (elements / t->dim[0]); /* < 2^63: a block takes at most 16 bytes an element */
    return KEEL_OK;
}

static int value_by_key(const void *a, const void *b) {
    return strcmp(((const gguf_value *)a)->key, ((const gguf_value *)b)->key);
}

static int tensor_by_name(const void *a, const void *b) {
    return strcmp(((const gguf_tensor *)a)->name, ((const gguf_tensor *)b)->name);
}

static int tensor_by_place(const void *a, const void *b) {
    const gguf_tensor *x = a, *y = b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static keel_status header_read(cursor *c, gguf *g, keel_error *err) {
    const uint8_t *magic;
    uint32_t version;
    uint64_t n_tensors, n_values;
    if (c->bytes < 4 || memcmp(c->data, "GGUF", 4) != 0) {
        return error_set(err, KEEL_FORMAT, "%s: at byte 0: not a GGUF file (it does not begin with \"GGUF\")", c->file);
    }
    KEEL_TRY(take(c, 4, &magic, err));
    KEEL_TRY(take_u32(c, &version, err));
    if (version != 2 && version != 3) {
        return error_set(err, KEEL_UNSUPPORTED,
                         "%s: GGUF version %u%s; versions 2 and 3 in little-endian are supported", c->file, version,
                         version && (version & 0xffff) == 0 ? " (a big-endian file)" : "");
    }
    KEEL_TRY(take_u64(c, &n_tensors, err));
    KEEL_TRY(take_u64(c, &n_values, err));
    if (n_values > left(c) / MIN_KEY_VALUE_BYTES || n_tensors > left(c) / MIN_TENSOR_BYTES) {
        return bad(c, "more tensors or metadata than the file has room for (truncated)", err);
    }
    g->n_values = (size_t)n_values;
    g->n_tensors = (size_t)n_tensors;
    g->values = mem_calloc(g->n_values, sizeof *g->values);
    g->tensors = mem_calloc(g->n_tensors, sizeof *g->tensors);
    return g->values && g->tensors ? KEEL_OK : KEEL_NOMEM_AT(err, c->file);
}

static keel_status values_read(cursor *c, gguf *g, keel_error *err) {
    for (size_t i = 0; i < g->n_values; i++) KEEL_TRY(take_key_value(c, g, &g->values[i], err));
    qsort(g->values, g->n_values, sizeof *g->values, value_by_key);
    for (size_t i = 1; i < g->n_values; i++) {
        if (strcmp(g->values[i].key, g->values[i - 1].key) == 0) {
            return error_set(err, KEEL_FORMAT, "%s: metadata key %s stands twice", c->file, g->values[i].key);
        }
    }
    return KEEL_OK;
}

/* Bytes from the last info to the data are padding; offsets count from the data. */
static keel_status tensors_read(cursor *c, gguf *g, keel_error *err) {
    int64_t alignment = 32;
    KEEL_TRY(gguf_opt_int(g, "general.alignment", 1, 1 << 30, &alignment, err));
    if (alignment & (alignment - 1)) {
        return error_set(err, KEEL_FORMAT, "%s: general.alignment is %lld, no power of two", c->file,
                         (long long)alignment);
    }
    uint64_t *offsets = mem_alloc(g->n_tensors * sizeof *offsets), mask = (uint64_t)alignment - 1;
    keel_status status = offsets ? KEEL_OK : KEEL_NOMEM_AT(err, c->file);
    for (size_t i = 0; status == KEEL_OK && i < g->n_tensors; i++) {
        status = take_tensor_info(c, g, &g->tensors[i], &offsets[i], err);
    }
    uint64_t start = (c->at + mask) & ~mask, room = start < c->bytes ? c->bytes - start : 0;
    for (size_t i = 0; status == KEEL_OK && i < g->n_tensors; i++) {
        gguf_tensor *t = &g->tensors[i];
        if (offsets[i] & mask) {
            status = error_set(err, KEEL_FORMAT, "%s: tensor %s: offset %llu is no multiple of the alignment %lld",
                               c->file, t->name, (unsigned long long)offsets[i], (long long)alignment);
        } else if (offsets[i] > room || t->bytes > room - offsets[i]) {
            status =
                error_set(err, KEEL_FORMAT,
                          "%s: tensor %s: its %llu bytes from byte %llu reach past the end of the file (%llu bytes); "
                          "the file is truncated, fetch it again",
                          c->file, t->name, (unsigned long long)t->bytes, (unsigned long long)(start + offsets[i]),
                          (unsigned long long)c->bytes);
        } else {
            t->data = c->data + start + offsets[i];
        }
    }
    mem_free(offsets);
    return status;
}

static keel_status tensors_check(const char *file, gguf *g, keel_error *err) {
    gguf_tensor *t = g->tensors;
    qsort(t, g->n_tensors, sizeof *t, tensor_by_place);
    for (size_t i = 1; i < g->n_tensors; i++) {
        if (t[i].data < t[i - 1].data + t[i - 1].bytes) {
            return error_set(err, KEEL_FORMAT, "%s: tensors %s and %s overlap; the file is damaged, fetch it again",
                             file, t[i - 1].name, t[i].name);
        }
    }
    qsort(t, g->n_tensors, sizeof *t, tensor_by_name);
    for (size_t i = 1; i < g->n_tensors; i++) {
        if (strcmp(t[i].name, t[i - 1].name) == 0) {
            return error_set(err, KEEL_FORMAT, "%s: tensor %s stands twice", file, t[i].name);
        }
    }
    return KEEL_OK;
}

static keel_status parse(gguf *g, const char *file, const uint8_t *data, size_t bytes, keel_error *err) {
    g->file = arena_strdup(&g->arena, file);
    if (!g->file) return KEEL_NOMEM_AT(err, file);
    cursor c = {g->file, data, 0, bytes};
    KEEL_TRY(header_read(&c, g, err));
    KEEL_TRY(values_read(&c, g, err));
    KEEL_TRY(tensors_read(&c, g, err));
    return tensors_check(g->file, g, err);
}

keel_status gguf_parse(const char *file, const uint8_t *data, size_t bytes, gguf **out, keel_error *err) {
    gguf *g = mem_calloc(1, sizeof *g);
    keel_status status = g ? KEEL_OK : KEEL_NOMEM_AT(err, file);
    if (status == KEEL_OK) status = parse(g, file, data, bytes, err);
    if (status == KEEL_OK) {
        *out = g;
    } else {
        gguf_close(g);
    }
    return status;
}

keel_status gguf_open(const char *path, gguf **out, keel_error *err) {
    file_map map;
    gguf *g;
    KEEL_TRY(file_map_open(path, &map, err));
    keel_status status = gguf_parse(path, map.data, map.bytes, &g, err);
    if (status != KEEL_OK) {
        file_map_close(&map);
        return status;
    }
    g->map = map;
    *out = g;
    return KEEL_OK;
}

void gguf_close(gguf *g) {
    if (!g) return;
    file_map_close(&g->map);
    mem_free(g->values);
    mem_free(g->tensors);
    arena_free(&g->arena);
    mem_free(g);
}

const gguf_value *gguf_value_find(const gguf *g, const char *key) {
    gguf_value wanted = {.key = key};
    return g->n_values ? bsearch(&wanted, g->values, g->n_values, sizeof wanted, value_by_key) : NULL;
}

const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name) {
    gguf_tensor wanted = {.name = name};
    return g->n_tensors ? bsearch(&wanted, g->tensors, g->n_tensors, sizeof wanted, tensor_by_name) : NULL;
}
