/* SPDX-License-Identifier: Apache-2.0 */
#include "load/weight_manifest.h"

#include "core/buf.h"

#include <string.h>

enum { MANIFEST_MAX_BYTES = 64 << 20, NAME_MAX_BYTES = 4096 };

static keel_status text_of(const char *file, const json_t *object, const char *key, arena *a, const char **out,
                           keel_error *err) {
    const char *text = NULL;
    KEEL_TRY(json_opt_string(file, object, key, &text, err));
    if (!text || !*text || strlen(text) > NAME_MAX_BYTES)
        return error_set(err, KEEL_FORMAT, "%s: \"%s\" must be a text", file, key);
    *out = arena_strdup(a, text);
    return *out ? KEEL_OK : KEEL_NOMEM_AT(err, file);
}

static keel_status int_of(const char *file, const json_t *object, const char *key, int64_t low, int64_t *out,
                          keel_error *err) {
    return json_get_int(file, object, key, low, INT64_MAX, out, err);
}

static keel_status source_read(const char *file, const json_t *object, arena *a, manifest_source *out,
                               keel_error *err) {
    int64_t bytes = 0, inode = 0;
    KEEL_TRY(text_of(file, object, "file", a, &out->name, err));
    KEEL_TRY(int_of(file, object, "bytes", 0, &bytes, err));
    KEEL_TRY(int_of(file, object, "inode", INT64_MIN, &inode, err));
    KEEL_TRY(int_of(file, object, "mtime_ns", INT64_MIN, &out->id.mtime_ns, err));
    KEEL_TRY(int_of(file, object, "ctime_ns", INT64_MIN, &out->id.ctime_ns, err));
    if (strchr(out->name, '/')) return error_set(err, KEEL_FORMAT, "%s: \"file\" must be a name without /", file);
    out->id.bytes = (uint64_t)bytes;
    out->id.inode = (uint64_t)inode;
    return KEEL_OK;
}

static keel_status digest_of(const char *file, const json_t *object, const char *key, char out[SHA256_HEX],
                             keel_error *err) {
    const char *digest = "";
    KEEL_TRY(json_opt_string(file, object, key, &digest, err));
    if (strlen(digest) != SHA256_HEX - 1 || digest[strspn(digest, "0123456789abcdef")])
        return error_set(err, KEEL_FORMAT, "%s: \"%s\" must be 64 hexadecimal digits", file, key);
    memcpy(out, digest, SHA256_HEX);
    return KEEL_OK;
}

static keel_status tensor_read(const char *file, const json_t *object, arena *a, manifest_tensor *out,
                               keel_error *err) {
    int64_t bytes = 0;
    KEEL_TRY(text_of(file, object, "name", a, &out->name, err));
    KEEL_TRY(int_of(file, object, "bytes", 0, &bytes, err));
    KEEL_TRY(digest_of(file, object, "sha256", out->sha256, err));
    out->bytes = (uint64_t)bytes;
    return KEEL_OK;
}

static keel_status list_of(const char *file, const json_t *root, const char *key, const json_t **out, size_t *n,
                           keel_error *err) {
    *out = json_object_get(root, key);
    if (!json_is_array(*out)) return error_set(err, KEEL_FORMAT, "%s: \"%s\" must be a list", file, key);
    *n = json_array_size(*out);
    return KEEL_OK;
}

static keel_status root_read(const char *file, const json_t *root, manifest *m, keel_error *err) {
    int64_t format = 0;
    const json_t *sources, *tensors;
    KEEL_TRY(int_of(file, root, "format", INT64_MIN, &format, err));
    if (format != MANIFEST_FORMAT) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: \"format\" is %lld, this build knows %d", file, (long long)format,
                         MANIFEST_FORMAT);
    }
    KEEL_TRY(int_of(file, root, "created_s", INT64_MIN, &m->created_s, err));
    KEEL_TRY(digest_of(file, root, "header_sha256", m->header_sha256, err));
    m->inputs = json_incref(json_object_get(root, "inputs"));
    if (!json_is_object(m->inputs)) return error_set(err, KEEL_FORMAT, "%s: \"inputs\" must be an object", file);
    KEEL_TRY(list_of(file, root, "sources", &sources, &m->n_sources, err));
    KEEL_TRY(list_of(file, root, "tensors", &tensors, &m->n_tensors, err));
    m->sources = arena_array(&m->arena, m->n_sources + 1, sizeof *m->sources);
    m->tensors = arena_array(&m->arena, m->n_tensors + 1, sizeof *m->tensors);
    if (!m->sources || !m->tensors) return KEEL_NOMEM_AT(err, file);
    for (size_t i = 0; i < m->n_sources; i++)
        KEEL_TRY(source_read(file, json_array_get(sources, i), &m->arena, &m->sources[i], err));
    for (size_t i = 0; i < m->n_tensors; i++)
        KEEL_TRY(tensor_read(file, json_array_get(tensors, i), &m->arena, &m->tensors[i], err));
    return KEEL_OK;
}

keel_status manifest_parse(const char *file, const char *text, size_t bytes, manifest *out, keel_error *err) {
    json_t *root;
    manifest m = {0};
    KEEL_TRY(json_parse(file, text, bytes, &root, err));
    keel_status s = json_is_object(root) ? root_read(file, root, &m, err)
                                         : error_set(err, KEEL_FORMAT, "%s: must be an object", file);
    json_decref(root);
    if (s == KEEL_OK)
        *out = m;
    else
        manifest_free(&m);
    return s;
}

keel_status manifest_read(const char *path, manifest *out, keel_error *err) {
    char *text;
    size_t bytes;
    KEEL_TRY(file_read(path, MANIFEST_MAX_BYTES, &text, &bytes, err));
    keel_status s = manifest_parse(path, text, bytes, out, err);
    keel_free(text);
    return s;
}

static json_t *sources_json(const manifest *m) {
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_sources; i++) {
        const manifest_source *f = &m->sources[i];
        if (json_array_append_new(list,
                                  json_pack("{s:s,s:I,s:I,s:I,s:I}", "file", f->name, "bytes", (json_int_t)f->id.bytes,
                                            "inode", (json_int_t)f->id.inode, "mtime_ns", (json_int_t)f->id.mtime_ns,
                                            "ctime_ns", (json_int_t)f->id.ctime_ns)) != 0)
            break;
    }
    return list;
}

static json_t *tensors_json(const manifest *m) {
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_tensors; i++) {
        const manifest_tensor *t = &m->tensors[i];
        if (json_array_append_new(list, json_pack("{s:s,s:I,s:s}", "name", t->name, "bytes", (json_int_t)t->bytes,
                                                  "sha256", t->sha256)) != 0)
            break;
    }
    return list;
}

static int put_text(const char *text, size_t bytes, void *user) {
    buf_put(user, text, bytes);
    return ((buf *)user)->failed ? -1 : 0;
}

keel_status manifest_write(const manifest *m, const char *path, keel_error *err) {
    json_t *sources = sources_json(m), *tensors = tensors_json(m);
    bool whole = json_array_size(sources) == m->n_sources && json_array_size(tensors) == m->n_tensors;
    json_t *root =
        json_pack("{s:i,s:I,s:s,s:O,s:o,s:o}", "format", MANIFEST_FORMAT, "created_s", (json_int_t)m->created_s,
                  "header_sha256", m->header_sha256, "inputs", m->inputs, "sources", sources, "tensors", tensors);
    buf b = {0};
    keel_status s = KEEL_NOMEM;
    if (root && whole && json_dump_callback(root, put_text, &b, JSON_INDENT(1)) == 0) {
        buf_str(&b, "\n");
        s = b.failed ? KEEL_NOMEM : KEEL_OK;
    }
    s = s == KEEL_OK ? file_write(path, b.data, b.len, err) : KEEL_NOMEM_AT(err, path);
    buf_free(&b);
    json_decref(root);
    return s;
}

void manifest_free(manifest *m) {
    json_decref(m->inputs);
    arena_free(&m->arena);
    *m = (manifest){0};
}
