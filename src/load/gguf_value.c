/* SPDX-License-Identifier: Apache-2.0 */
/* Typed look-ups in a GGUF file's metadata. */
#include "load/gguf_internal.h"

#include <string.h>

static bool is_integer(gguf_value_type t) {
    switch (t) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_U16:
    case GGUF_I16:
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_U64:
    case GGUF_I64:
        return true;
    case GGUF_F32:
    case GGUF_F64:
    case GGUF_BOOL:
    case GGUF_STRING:
    case GGUF_ARRAY:
        break;
    }
    return false;
}

static keel_status wrong_type(const gguf *g, const char *key, const char *wanted, keel_error *err) {
    return error_set(err, KEEL_FORMAT, "%s: metadata key %s: must be %s", g->file, key, wanted);
}

int64_t gguf_int_at(const gguf_value *v, uint64_t i) {
    const uint8_t *p = v->data;
    switch (v->element) {
    case GGUF_U8:
    case GGUF_BOOL:
        return p[i];
    case GGUF_I8:
        return (int8_t)p[i];
    case GGUF_U16:
        return p[2 * i] | p[2 * i + 1] << 8;
    case GGUF_I16:
        return (int16_t)(p[2 * i] | p[2 * i + 1] << 8);
    case GGUF_U32:
        return le32(p + 4 * i);
    case GGUF_I32:
        return (int32_t)le32(p + 4 * i);
    case GGUF_U64:
    case GGUF_I64: /* above 2^63 it turns negative, which every range here excludes */
        return (int64_t)le64(p + 8 * i);
    case GGUF_F32:
    case GGUF_F64:
    case GGUF_STRING:
    case GGUF_ARRAY:
        break;
    }
    return 0;
}

keel_status gguf_opt_int(const gguf *g, const char *key, int64_t lo, int64_t hi, int64_t *out, keel_error *err) {
    const gguf_value *v = gguf_value_find(g, key);
    if (!v) return KEEL_OK;
    if (!is_integer(v->element) || v->count == 0) return wrong_type(g, key, "an integer", err);
    int64_t n = gguf_int_at(v, 0);
    for (uint64_t i = 1; i < v->count; i++) {
        if (gguf_int_at(v, i) != n) {
            return error_set(err, KEEL_UNSUPPORTED, "%s: metadata key %s: differs between layers", g->file, key);
        }
    }
    if (n < lo || n > hi) {
        return error_set(err, KEEL_RANGE, "%s: metadata key %s is %lld, outside %lld..%lld", g->file, key, (long long)n,
                         (long long)lo, (long long)hi);
    }
    *out = n;
    return KEEL_OK;
}

keel_status gguf_opt_real(const gguf *g, const char *key, double *out, keel_error *err) {
    const gguf_value *v = gguf_value_find(g, key);
    if (!v) return KEEL_OK;
    if (v->type == GGUF_F32) {
        uint32_t u = le32(v->data);
        float f;
        memcpy(&f, &u, sizeof f);
        *out = (double)f;
    } else if (v->type == GGUF_F64) {
        uint64_t u = le64(v->data);
        memcpy(out, &u, sizeof *out);
    } else {
        return wrong_type(g, key, "a real number", err);
    }
    return KEEL_OK;
}

keel_status gguf_opt_bool(const gguf *g, const char *key, bool *out, keel_error *err) {
    const gguf_value *v = gguf_value_find(g, key);
    if (!v) return KEEL_OK;
    if (v->type != GGUF_BOOL) return wrong_type(g, key, "a truth value", err);
    *out = v->data[0] != 0;
    return KEEL_OK;
}

keel_status gguf_opt_string(const gguf *g, const char *key, gguf_string *out, keel_error *err) {
    const gguf_value *v = gguf_value_find(g, key);
    if (!v) return KEEL_OK;
    if (v->type != GGUF_STRING) return wrong_type(g, key, "a string", err);
    const uint8_t *at = v->data;
    *out = gguf_string_next(&at);
    return KEEL_OK;
}

keel_status gguf_get_array(const gguf *g, const char *key, gguf_value_type element, const gguf_value **out,
                           keel_error *err) {
    const gguf_value *v = gguf_value_find(g, key);
    if (!v) return error_set(err, KEEL_MISSING, "%s: metadata key %s is missing", g->file, key);
    bool fits = element == GGUF_I32 ? is_integer(v->element) : v->element == element;
    if (v->type != GGUF_ARRAY || !fits) {
        return wrong_type(g, key, element == GGUF_STRING ? "an array of strings" : "an array of numbers", err);
    }
    *out = v;
    return KEEL_OK;
}

gguf_string gguf_string_next(const uint8_t **at) {
    gguf_string s = {(const char *)*at + 8, le64(*at)};
    *at += 8 + s.bytes;
    return s;
}
