/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json.h"

#include "core/buf.h"
#include "core/file.h"

keel_status json_parse(const char *file, const char *text, size_t bytes, json_t **out, keel_error *err) {
    json_error_t e;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
    if (!root && json_error_code(&e) == json_error_numeric_overflow) { /* "model_max_length": 10^30 */
        root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &e);
    }
    if (!root) {
        keel_status s = json_error_code(&e) == json_error_out_of_memory ? KEEL_NOMEM : KEEL_FORMAT;
        return error_set(err, s, "%s:%d:%d: not valid JSON: %s", file, e.line, e.column, e.text);
    }
    *out = root;
    return KEEL_OK;
}

keel_status json_read(const char *path, size_t max_bytes, json_t **out, keel_error *err) {
    char *text;
    size_t bytes;
    KEEL_TRY(file_read(path, max_bytes, &text, &bytes, err));
    keel_status s = json_parse(path, text, bytes, out, err);
    keel_free(text);
    return s;
}

static int put_text(const char *text, size_t bytes, void *user) {
    buf_put(user, text, bytes);
    return ((buf *)user)->failed ? -1 : 0;
}

keel_status json_write(const char *path, const json_t *value, size_t flags, keel_error *err) {
    buf b = {0};
    bool good = json_dump_callback(value, put_text, &b, flags) == 0;
    buf_str(&b, "\n");
    keel_status s = good && !b.failed ? file_write(path, b.data, b.len, err) : KEEL_NOMEM_AT(err, path);
    buf_free(&b);
    return s;
}

static const json_t *present(const json_t *obj, const char *key) {
    const json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v) ? v : NULL;
}

keel_status json_opt_int(const char *file, const json_t *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
                         keel_error *err) {
    const json_t *v = present(obj, key);
    if (!v) return KEEL_OK;
    double real = json_real_value(v); /* whole numbers come as reals from a file that holds a huge one */
    bool whole =
        json_is_real(v) && real >= -9007199254740992.0 && real <= 9007199254740992.0 && real == (double)(int64_t)real;
    if (!json_is_integer(v) && !whole) return error_set(err, KEEL_FORMAT, "%s: \"%s\" must be an integer", file, key);
    int64_t n = whole ? (int64_t)real : json_integer_value(v);
    if (n < lo || n > hi) {
        return error_set(err, KEEL_RANGE, "%s: \"%s\" is %lld, outside %lld..%lld", file, key, (long long)n,
                         (long long)lo, (long long)hi);
    }
    *out = n;
    return KEEL_OK;
}

keel_status json_get_int(const char *file, const json_t *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
                         keel_error *err) {
    if (!present(obj, key)) return error_set(err, KEEL_MISSING, "%s: \"%s\" is missing", file, key);
    return json_opt_int(file, obj, key, lo, hi, out, err);
}

keel_status json_opt_real(const char *file, const json_t *obj, const char *key, double *out, keel_error *err) {
    const json_t *v = present(obj, key);
    if (!v) return KEEL_OK;
    if (!json_is_number(v)) return error_set(err, KEEL_FORMAT, "%s: \"%s\" must be a number", file, key);
    *out = json_number_value(v);
    return KEEL_OK;
}

keel_status json_opt_bool(const char *file, const json_t *obj, const char *key, bool *out, keel_error *err) {
    const json_t *v = present(obj, key);
    if (!v) return KEEL_OK;
    if (!json_is_boolean(v)) return error_set(err, KEEL_FORMAT, "%s: \"%s\" must be true or false", file, key);
    *out = json_is_true(v);
    return KEEL_OK;
}

keel_status json_opt_string(const char *file, const json_t *obj, const char *key, const char **out, keel_error *err) {
    const json_t *v = present(obj, key);
    if (!v) return KEEL_OK;
    if (!json_is_string(v)) return error_set(err, KEEL_FORMAT, "%s: \"%s\" must be a string", file, key);
    *out = json_string_value(v);
    return KEEL_OK;
}
