/* SPDX-License-Identifier: Apache-2.0 */
/* Format: github.com/huggingface/safetensors, README "Format": u64 little-endian header length, JSON header, data. */
#include "load/safetensors.h"

#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LENGTH_BYTES = 8,
    HEADER_MAX_BYTES = 100 * 1000 * 1000, /* the bound of the reference implementation */
    INDEX_MAX_BYTES = 100 * 1000 * 1000
};

struct safetensors {
    arena arena; /* names, paths */
    safetensor *tensors;
    size_t count;
    file_map *maps;
    size_t n_maps;
};

/* A file being parsed. */
typedef struct shard {
    const char *file;
    const uint8_t *data; /* behind the header */
    uint64_t data_bytes;
    uint64_t data_at; /* where the data starts in the file */
} shard;

/* Sizes of dtypes that the format knows and Keel does not, so that their tensors are still checked. */
static uint64_t foreign_dtype_bytes(const char *name) {
    static const struct {
        const char *name;
        uint8_t bytes;
    } foreign[] = {{"BOOL", 1}, {"I8", 1},  {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2},
                   {"U32", 4},  {"I64", 8}, {"U64", 8},     {"F64", 8},     {"C64", 8}};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (strcmp(name, foreign[i].name) == 0) return foreign[i].bytes;
    }
    return 0;
}

static keel_status bad_tensor(const shard *f, const char *name, const char *what, keel_error *err) {
    return error_set(err, KEEL_FORMAT, "%s: tensor %s: %s; the file is damaged or its writer is at fault", f->file,
                     name, what);
}

static keel_status shape_read(const shard *f, const char *name, const json_t *shape, safetensor *t, uint64_t *elements,
                              keel_error *err) {
    if (!json_is_array(shape)) return bad_tensor(f, name, "\"shape\" is no array", err);
    size_t rank = json_array_size(shape);
    if (rank > SAFETENSORS_MAX_RANK) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: tensor %s: rank %zu; at most %d is supported", f->file, name, rank,
                         SAFETENSORS_MAX_RANK);
    }
    t->rank = (int)rank;
    *elements = 1;
    for (size_t r = 0; r < rank; r++) {
        const json_t *d = json_array_get(shape, r);
        if (!json_is_integer(d) || json_integer_value(d) < 0) {
            return bad_tensor(f, name, "a dimension in \"shape\" is no whole number from 0", err);
        }
        t->dim[r] = json_integer_value(d);
        if (__builtin_mul_overflow(*elements, (uint64_t)t->dim[r], elements)) {
            return bad_tensor(f, name, "its shape has more than 2^64 elements", err);
        }
    }
    return KEEL_OK;
}

static keel_status range_read(const shard *f, const char *name, const json_t *offsets, safetensor *t, keel_error *err) {
    const json_t *b = json_array_get(offsets, 0), *e = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(e) || json_integer_value(b) < 0 ||
        json_integer_value(e) < json_integer_value(b)) {
        return bad_tensor(f, name, "\"data_offsets\" must be [begin, end] with 0 <= begin <= end", err);
    }
    uint64_t begin = (uint64_t)json_integer_value(b), end = (uint64_t)json_integer_value(e);
    if (end > f->data_bytes) {
        return error_set(err, KEEL_FORMAT,
                         "%s: tensor %s: ends at byte %llu of the data, which has %llu (it starts at byte %llu of the "
                         "file); the file is truncated, fetch it again",
                         f->file, name, (unsigned long long)end, (unsigned long long)f->data_bytes,
                         (unsigned long long)f->data_at);
    }
    t->data = f->data + begin;
    t->bytes = end - begin;
    return KEEL_OK;
}

static keel_status tensor_read(const shard *f, const char *name, const json_t *entry, safetensor *t, keel_error *err) {
    if (!json_is_object(entry)) return bad_tensor(f, name, "its entry is no object", err);
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    if (!type) return bad_tensor(f, name, "\"dtype\" is no string", err);
    uint64_t elements = 0, bytes;
    KEEL_TRY(shape_read(f, name, json_object_get(entry, "shape"), t, &elements, err));
    KEEL_TRY(range_read(f, name, json_object_get(entry, "data_offsets"), t, err));
    t->dtype = dtype_parse(type, strlen(type));
    if (t->dtype == DTYPE_ACT) t->dtype = DTYPE_COUNT; /* a word of graphs, not of files */
    uint64_t size = t->dtype == DTYPE_COUNT ? foreign_dtype_bytes(type) : dtype_bytes(t->dtype);
    if (size && (__builtin_mul_overflow(elements, size, &bytes) || bytes != t->bytes)) {
        return error_set(err, KEEL_FORMAT,
                         "%s: tensor %s: its data_offsets span %llu bytes, but %llu elements of %s need %llu each; the "
                         "file is damaged or its writer is at fault",
                         f->file, name, (unsigned long long)t->bytes, (unsigned long long)elements, type,
                         (unsigned long long)size);
    }
    return KEEL_OK;
}

static int by_place(const void *a, const void *b) {
    const safetensor *x = a, *y = b;
    uintptr_t p = (uintptr_t)x->data, q = (uintptr_t)y->data;
    if (p != q) return p < q ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

static int by_name(const void *a, const void *b) {
    const safetensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The data is exactly the tensors, one after the other. */
static keel_status places_check(const shard *f, safetensor *t, size_t n, keel_error *err) {
    qsort(t, n, sizeof *t, by_place);
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t begin = (uint64_t)((uintptr_t)t[i].data - (uintptr_t)f->data);
        if (begin != end) {
            return error_set(err, KEEL_FORMAT,
                             "%s: tensor %s: starts at byte %llu of the data and %s %s%s, which ends at byte %llu; the "
                             "file is damaged or its writer is at fault",
                             f->file, t[i].name, (unsigned long long)begin,
                             begin < end ? "overlaps" : "leaves a hole after", i ? "tensor " : "the header",
                             i ? t[i - 1].name : "", (unsigned long long)end);
        }
        end = begin + t[i].bytes;
    }
    if (end != f->data_bytes) {
        return error_set(
            err, KEEL_FORMAT,
            "%s: %llu bytes after the last tensor (from byte %llu of the file) belong to none; the file is "
            "damaged or its writer is at fault",
            f->file, (unsigned long long)(f->data_bytes - end), (unsigned long long)(f->data_at + end));
    }
    return KEEL_OK;
}

static keel_status header_read(safetensors *s, const shard *f, const json_t *header, keel_error *err) {
    size_t most = s->count + json_object_size(header);
    safetensor *grown = mem_realloc(s->tensors, (most ? most : 1) * sizeof *grown);
    if (!grown) return KEEL_NOMEM_AT(err, f->file);
    s->tensors = grown;
    size_t n = s->count;
    const char *key;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)header, key, entry) {
        if (strcmp(key, "__metadata__") == 0) continue;
        safetensor *t = &s->tensors[n++];
        *t = (safetensor){.name = arena_strdup(&s->arena, key), .file = f->file};
        if (!t->name) return KEEL_NOMEM_AT(err, f->file);
        KEEL_TRY(tensor_read(f, t->name, entry, t, err));
        t->type_name = arena_strdup(&s->arena, json_string_value(json_object_get(entry, "dtype")));
        if (!t->type_name) return KEEL_NOMEM_AT(err, f->file);
    }
    KEEL_TRY(places_check(f, s->tensors + s->count, n - s->count, err));
    s->count = n;
    return KEEL_OK;
}

static keel_status file_parse(safetensors *s, const char *file, const uint8_t *data, size_t bytes, keel_error *err) {
    if (bytes < LENGTH_BYTES) {
        return error_set(err, KEEL_FORMAT, "%s: %zu bytes, too short for a safetensors file; fetch it again", file,
                         bytes);
    }
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)data[i] << (8 * i);
    if (length > HEADER_MAX_BYTES) {
        return error_set(err, KEEL_FORMAT,
                         "%s: at byte 0: a header of %llu bytes, more than the %d that one may have; this is no "
                         "safetensors file",
                         file, (unsigned long long)length, HEADER_MAX_BYTES);
    }
    if (length > bytes - LENGTH_BYTES) {
        return error_set(err, KEEL_FORMAT,
                         "%s: at byte 0: a header of %llu bytes, past the end of the file (%zu bytes); the file is "
                         "truncated, fetch it again",
                         file, (unsigned long long)length, bytes);
    }
    const char *label = arena_printf(&s->arena, "%s, header from byte %d", file, LENGTH_BYTES);
    if (!label) return KEEL_NOMEM_AT(err, file);
    json_t *header;
    KEEL_TRY(json_parse(label, (const char *)data + LENGTH_BYTES, (size_t)length, &header, err));
    uint64_t at = LENGTH_BYTES + length;
    shard f = {file, data + at, bytes - at, at};
    keel_status status;
    if (json_is_object(header)) {
        status = header_read(s, &f, header, err);
    } else {
        status = error_set(err, KEEL_FORMAT, "%s: at byte %d: the header is no JSON object", file, LENGTH_BYTES);
    }
    json_decref(header);
    return status;
}

/* Name order; a name twice is an error. */
static keel_status names_check(safetensors *s, keel_error *err) {
    if (s->count) qsort(s->tensors, s->count, sizeof *s->tensors, by_name);
    for (size_t i = 1; i < s->count; i++) {
        const safetensor *a = &s->tensors[i - 1], *b = &s->tensors[i];
        if (strcmp(a->name, b->name) == 0) {
            return error_set(err, KEEL_FORMAT, "tensor %s stands twice, in %s and in %s; remove one", a->name, a->file,
                             b->file);
        }
    }
    return KEEL_OK;
}

static keel_status finish(keel_status status, safetensors *s, safetensors **out, keel_error *err) {
    if (status == KEEL_OK) status = names_check(s, err);
    if (status == KEEL_OK) {
        *out = s;
    } else {
        safetensors_close(s);
    }
    return status;
}

keel_status safetensors_parse(const char *file, const uint8_t *data, size_t bytes, safetensors **out, keel_error *err) {
    safetensors *s = mem_calloc(1, sizeof *s);
    const char *kept = s ? arena_strdup(&s->arena, file) : NULL;
    keel_status status = kept ? KEEL_OK : KEEL_NOMEM_AT(err, file);
    if (status == KEEL_OK) status = file_parse(s, kept, data, bytes, err);
    return finish(status, s, out, err);
}

static keel_status file_add(safetensors *s, const char *path, keel_error *err) {
    file_map *maps = mem_realloc(s->maps, (s->n_maps + 1) * sizeof *maps);
    if (!maps) return KEEL_NOMEM_AT(err, path);
    s->maps = maps;
    const char *kept = arena_strdup(&s->arena, path);
    if (!kept) return KEEL_NOMEM_AT(err, path);
    KEEL_TRY(file_map_open(path, &maps[s->n_maps], err));
    const file_map *m = &maps[s->n_maps++];
    return file_parse(s, kept, m->data, m->bytes, err);
}

keel_status safetensors_open_file(const char *path, safetensors **out, keel_error *err) {
    safetensors *s = mem_calloc(1, sizeof *s);
    keel_status status = s ? KEEL_OK : KEEL_NOMEM_AT(err, path);
    if (status == KEEL_OK) status = file_add(s, path, err);
    return finish(status, s, out, err);
}

/* Tells "absent" from "cannot look". */
static keel_status probe(const char *path, bool *there, keel_error *err) {
    struct stat st;
    *there = stat(path, &st) == 0;
    if (*there || errno == ENOENT) return KEEL_OK;
    return error_errno(err, path, "look at");
}

/* Shards of an index in order of first mention; *shards is freed by the caller, its strings are the index's. */
static keel_status shards_list(const char *index, const json_t *weight_map, const char ***shards, size_t *n,
                               keel_error *err) {
    const char **list = mem_alloc(json_object_size(weight_map) * sizeof *list);
    if (!list) return KEEL_NOMEM_AT(err, index);
    *shards = list;
    *n = 0;
    json_t *seen = json_object();
    keel_status status = seen ? KEEL_OK : KEEL_NOMEM_AT(err, index);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)weight_map, key, v) {
        if (status != KEEL_OK) break;
        const char *name = json_string_value(v);
        if (!name || !*name || strchr(name, '/')) {
            status =
                error_set(err, KEEL_FORMAT, "%s: \"weight_map\": %s must name a file of the same folder", index, key);
        } else if (!json_object_get(seen, name)) {
            if (json_object_set_new(seen, name, json_true()) != 0) status = KEEL_NOMEM_AT(err, index);
            list[(*n)++] = name;
        }
    }
    json_decref(seen);
    return status;
}

static keel_status shards_open(safetensors *s, const char *dir, const char *const *shards, size_t n, keel_error *err) {
    keel_status status = KEEL_OK;
    for (int pass = 0; pass < 2 && status == KEEL_OK; pass++) {
        size_t missing = 0;
        for (size_t i = 0; i < n; i++) {
            char *path = path_join(dir, shards[i]);
            bool there = false;
            keel_status one = path ? KEEL_OK : KEEL_NOMEM_AT(err, dir);
            if (one == KEEL_OK) one = probe(path, &there, err);
            if (one == KEEL_OK && pass == 1) one = file_add(s, path, err);
            keel_free(path);
            if (one != KEEL_OK) return one;
            if (there) continue;
            if (!missing++) {
                status =
                    error_set(err, KEEL_MISSING, "%s: shards that the index names are not there; fetch them:", dir);
            }
            error_append(err, "  %s", shards[i]);
        }
    }
    return status;
}

/* After names_check: every entry of the index lies where the index says. */
static keel_status index_check(const safetensors *s, const char *index, const json_t *weight_map, keel_error *err) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)weight_map, key, v) {
        const safetensor *t = safetensors_find(s, key);
        const char *shard_name = json_string_value(v), *slash = t ? strrchr(t->file, '/') : NULL;
        if (!t || strcmp(slash ? slash + 1 : t->file, shard_name) != 0) {
            return error_set(err, KEEL_FORMAT, "%s: tensor %s is not in %s, as the index says, %s%s; fetch both again",
                             index, key, shard_name, t ? "but in " : "nor in another shard", t ? t->file : "");
        }
    }
    return KEEL_OK;
}

static keel_status index_open(const char *dir, const char *index, safetensors **out, keel_error *err) {
    json_t *root;
    KEEL_TRY(json_read(index, INDEX_MAX_BYTES, &root, err));
    const json_t *weight_map = json_object_get(root, "weight_map");
    const char **shards = NULL;
    size_t n = 0;
    safetensors *s = mem_calloc(1, sizeof *s);
    keel_status status = s ? KEEL_OK : KEEL_NOMEM_AT(err, index);
    if (status == KEEL_OK && (!json_is_object(weight_map) || json_object_size(weight_map) == 0)) {
        status =
            error_set(err, KEEL_FORMAT, "%s: \"weight_map\" must be an object that names tensors and shards", index);
    }
    if (status == KEEL_OK) status = shards_list(index, weight_map, &shards, &n, err);
    if (status == KEEL_OK) status = shards_open(s, dir, shards, n, err);
    if (status == KEEL_OK) status = names_check(s, err);
    if (status == KEEL_OK) status = index_check(s, index, weight_map, err);
    mem_free(shards);
    json_decref(root);
    return finish(status, s, out, err);
}

static bool ends_in(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* The folder can be read but has neither file: say what it has instead. */
static keel_status no_weights(const char *dir, keel_error *err) {
    DIR *d = opendir(dir);
    if (!d) return error_errno(err, dir, "open");
    const char *remedy = "name a folder with a checkpoint in safetensors form";
    for (const struct dirent *e; (e = readdir(d));) {
        if (ends_in(e->d_name, ".gguf")) remedy = "it holds a GGUF file: import that with `keel convert`";
        if (ends_in(e->d_name, ".bin")) remedy = "it holds .bin weights: save the model in safetensors form first";
        if (ends_in(e->d_name, ".safetensors")) {
            remedy = "it holds safetensors files of other names: fetch the index that belongs to them";
            break;
        }
    }
    closedir(d);
    return error_set(err, KEEL_MISSING, "%s: neither model.safetensors nor model.safetensors.index.json is there; %s",
                     dir, remedy);
}

keel_status safetensors_open(const char *dir, safetensors **out, keel_error *err) {
    struct stat st;
    if (stat(dir, &st) != 0) return error_errno(err, dir, "look at");
    if (!S_ISDIR(st.st_mode)) {
        return error_set(err, KEEL_IO, "%s: not a folder; name the folder that holds model.safetensors", dir);
    }
    char *one = path_join(dir, "model.safetensors"), *index = path_join(dir, "model.safetensors.index.json");
    bool has_one = false, has_index = false;
    keel_status status = one && index ? KEEL_OK : KEEL_NOMEM_AT(err, dir);
    if (status == KEEL_OK) status = probe(one, &has_one, err);
    if (status == KEEL_OK) status = probe(index, &has_index, err);
    if (status == KEEL_OK) {
        if (has_one) {
            status = safetensors_open_file(one, out, err);
        } else if (has_index) {
            status = index_open(dir, index, out, err);
        } else {
            status = no_weights(dir, err);
        }
    }
    keel_free(one);
    keel_free(index);
    return status;
}

void safetensors_close(safetensors *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_maps; i++) file_map_close(&s->maps[i]);
    mem_free(s->maps);
    mem_free(s->tensors);
    arena_free(&s->arena);
    mem_free(s);
}

const file_id *safetensors_file_id(const safetensors *s, const safetensor *t) {
    const uint8_t *at = t->data;
    size_t i = 0;
    while (i + 1 < s->n_maps && (at < s->maps[i].data || at > s->maps[i].data + s->maps[i].bytes)) i++;
    return &s->maps[i].id;
}

size_t safetensors_count(const safetensors *s) { return s->count; }

const safetensor *safetensors_at(const safetensors *s, size_t i) { return i < s->count ? &s->tensors[i] : NULL; }

const safetensor *safetensors_find(const safetensors *s, const char *name) {
    safetensor key = {.name = name};
    return s->count ? bsearch(&key, s->tensors, s->count, sizeof key, by_name) : NULL;
}
