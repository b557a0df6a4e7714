/* SPDX-License-Identifier: Apache-2.0 */
#include "load/safetensors.h"

#include "core/buf.h"
#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"

#include <stdlib.h>
#include <string.h>

struct safetensors_writer {
    file_writer file;
    uint64_t declared, put; /* bytes of data */
};

static keel_status decl_bytes(const char *path, const safetensor_decl *d, uint64_t *bytes, keel_error *err) {
    uint64_t n = dtype_bytes(d->dtype);
    if (n == 0) return error_set(err, KEEL_UNSUPPORTED, "%s: tensor %s: no dtype of a file", path, d->name);
    if (d->rank < 0 || d->rank > SAFETENSORS_MAX_RANK) {
        return error_set(err, KEEL_RANGE, "%s: tensor %s: rank %d, outside 0..%d", path, d->name, d->rank,
                         SAFETENSORS_MAX_RANK);
    }
    for (int r = 0; r < d->rank; r++) {
        if (d->dim[r] < 0 || __builtin_mul_overflow(n, (uint64_t)d->dim[r], &n)) {
            return error_set(err, KEEL_RANGE, "%s: tensor %s: dimension %d is %lld", path, d->name, r,
                             (long long)d->dim[r]);
        }
    }
    *bytes = n;
    return KEEL_OK;
}

static json_t *entry_json(const safetensor_decl *d, uint64_t begin, uint64_t end) {
    json_t *shape = json_array();
    for (int r = 0; r < d->rank; r++) json_array_append_new(shape, json_integer(d->dim[r]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_name(d->dtype), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

static keel_status header_json(const char *path, const safetensor_decl *decls, size_t n, json_t *root, uint64_t *total,
                               keel_error *err) {
    if (json_object_set_new(root, "__metadata__", json_pack("{s:s}", "format", "pt")) != 0) {
        return KEEL_NOMEM_AT(err, path);
    }
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t begin = end, bytes;
        KEEL_TRY(decl_bytes(path, &decls[i], &bytes, err));
        if (__builtin_add_overflow(begin, bytes, &end) || end > INT64_MAX) {
            return error_set(err, KEEL_RANGE, "%s: tensor %s: more than 2^63 bytes in all", path, decls[i].name);
        }
        if (json_object_get(root, decls[i].name)) {
            return error_set(err, KEEL_FORMAT, "%s: tensor %s is declared twice", path, decls[i].name);
        }
        json_t *entry = entry_json(&decls[i], begin, end);
        if (!entry) return KEEL_NOMEM_AT(err, path);
        if (json_object_set_new(root, decls[i].name, entry) != 0) {
            return error_set(err, KEEL_FORMAT, "%s: tensor %zu: its name is not UTF-8", path, i);
        }
    }
    *total = end;
    return KEEL_OK;
}

static keel_status header_put(const char *path, const json_t *root, file_writer *file, keel_error *err) {
    char *text = json_dumps(root, JSON_COMPACT);
    if (!text) return KEEL_NOMEM_AT(err, path);
    buf b = {0};
    size_t n = strlen(text), pad = (8 - n % 8) % 8;
    buf_u64(&b, n + pad);
    buf_put(&b, text, n);
    buf_put(&b, "        ", pad);
    keel_status status = b.failed ? KEEL_NOMEM_AT(err, path) : KEEL_OK;
    if (status == KEEL_OK) status = file_writer_put(file, b.data, b.len, err);
    buf_free(&b);
    free(text);
    return status;
}

keel_status safetensors_writer_open(const char *path, const safetensor_decl *decls, size_t n, safetensors_writer **out,
                                    keel_error *err) {
    safetensors_writer *w = mem_calloc(1, sizeof *w);
    json_t *root = json_object();
    keel_status status = w && root ? KEEL_OK : KEEL_NOMEM_AT(err, path);
    if (status == KEEL_OK) status = header_json(path, decls, n, root, &w->declared, err);
    if (status == KEEL_OK) status = file_writer_open(path, &w->file, err);
    if (status == KEEL_OK) {
        status = header_put(path, root, &w->file, err);
        if (status != KEEL_OK) file_writer_abandon(&w->file);
    }
    json_decref(root);
    if (status != KEEL_OK) {
        mem_free(w);
        return status;
    }
    *out = w;
    return KEEL_OK;
}

keel_status safetensors_writer_put(safetensors_writer *w, const void *data, size_t bytes, keel_error *err) {
    if (bytes > w->declared - w->put) {
        return error_set(err, KEEL_RANGE, "%s: more data than the %llu bytes declared", w->file.path,
                         (unsigned long long)w->declared);
    }
    KEEL_TRY(file_writer_put(&w->file, data, bytes, err));
    w->put += bytes;
    return KEEL_OK;
}

keel_status safetensors_writer_commit(safetensors_writer *w, keel_error *err) {
    keel_status status;
    if (w->put == w->declared) {
        status = file_writer_commit(&w->file, err);
    } else {
        status = error_set(err, KEEL_RANGE, "%s: %llu bytes of data put, %llu declared", w->file.path,
                           (unsigned long long)w->put, (unsigned long long)w->declared);
        file_writer_abandon(&w->file);
    }
    mem_free(w);
    return status;
}

void safetensors_writer_abandon(safetensors_writer *w) {
    if (!w) return;
    file_writer_abandon(&w->file);
    mem_free(w);
}
