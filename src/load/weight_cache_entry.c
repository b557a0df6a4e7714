/* SPDX-License-Identifier: Apache-2.0 */
/* One entry of the weight cache: what lies there, and whether it may be used. */
#include "load/weight_cache.h"

#include "core/mem.h"
#include "load/each.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

keel_status cache_entry_name(const char *dir, const char *key, uint32_t rank, cache_entry *e, keel_error *err) {
    char name[64];
    *e = (cache_entry){.state = ENTRY_ABSENT, .folder = path_join(dir, key)};
    if (!e->folder) return KEEL_NOMEM_AT(err, dir);
    snprintf(name, sizeof name, "rank%u.safetensors", rank);
    e->data_path = path_join(e->folder, name);
    snprintf(name, sizeof name, "rank%u.json", rank);
    e->manifest_path = path_join(e->folder, name);
    e->lock_path = path_join(e->folder, "lock");
    if (e->data_path && e->manifest_path && e->lock_path) return KEEL_OK;
    cache_entry_free(e);
    return KEEL_NOMEM_AT(err, dir);
}

static void forget(cache_entry *e) {
    safetensors_close(e->data);
    manifest_free(&e->manifest);
    e->data = NULL;
    e->why[0] = '\0';
}

void cache_entry_free(cache_entry *e) {
    forget(e);
    keel_free(e->folder);
    keel_free(e->data_path);
    keel_free(e->manifest_path);
    keel_free(e->lock_path);
    *e = (cache_entry){.state = ENTRY_ABSENT};
}

void cache_entry_spoil(cache_entry *e, entry_state state, const char *why, ...) {
    va_list args;
    e->state = state;
    va_start(args, why);
    int n = vsnprintf(e->why, sizeof e->why, why, args);
    va_end(args);
    if (n < 0) e->why[0] = '\0';
}

/* *there: a regular file. Another kind of thing spoils the entry, and a folder, which is not ours to remove, stops. */
static keel_status look(cache_entry *e, const char *path, bool *there, keel_error *err) {
    struct stat st;
    *there = false;
    if (lstat(path, &st) != 0) return errno == ENOENT ? KEEL_OK : error_errno(err, path, "look at");
    if (S_ISDIR(st.st_mode))
        return error_set(err, KEEL_USAGE, "%s: is a folder, where a file of the weight cache goes; remove it", path);
    *there = S_ISREG(st.st_mode);
    if (!*there) cache_entry_spoil(e, ENTRY_DAMAGED, "%s is no regular file", path);
    return KEEL_OK;
}

/* An error that tells of what the file holds spoils the entry; others are passed on. */
static keel_status take(cache_entry *e, keel_status s, const keel_error *about, keel_error *err) {
    if (s == KEEL_OK) return KEEL_OK;
    if (s != KEEL_IO && s != KEEL_NOMEM && s != KEEL_ABORTED) {
        cache_entry_spoil(e, ENTRY_DAMAGED, "%s", about->detail);
        return KEEL_OK;
    }
    return error_set(err, s, "%s", about->detail);
}

static void match_tensors(cache_entry *e) {
    const manifest *m = &e->manifest;
    if (safetensors_count(e->data) != m->n_tensors) {
        cache_entry_spoil(e, ENTRY_DAMAGED, "%s holds %zu tensors, its manifest lists %zu", e->data_path,
                          safetensors_count(e->data), m->n_tensors);
    }
    for (size_t i = 0; i < m->n_tensors && e->state == ENTRY_READY; i++) {
        const safetensor *t = safetensors_find(e->data, m->tensors[i].name);
        if (t && t->bytes == m->tensors[i].bytes) continue;
        cache_entry_spoil(e, ENTRY_DAMAGED, "%s: tensor %s is not what its manifest lists", e->data_path,
                          m->tensors[i].name);
    }
}

keel_status cache_entry_load(cache_entry *e, keel_error *err) {
    keel_error about = KEEL_ERROR_INITIALIZER;
    bool manifest_there;
    forget(e);
    e->state = ENTRY_ABSENT;
    KEEL_TRY(look(e, e->data_path, &e->data_there, err));
    KEEL_TRY(look(e, e->manifest_path, &manifest_there, err));
    if (e->state == ENTRY_DAMAGED || !manifest_there) return KEEL_OK;
    e->state = ENTRY_READY;
    KEEL_TRY(take(e, manifest_read(e->manifest_path, &e->manifest, &about), &about, err));
    if (e->state == ENTRY_READY && !e->data_there) cache_entry_spoil(e, ENTRY_DAMAGED, "%s is gone", e->data_path);
    if (e->state != ENTRY_READY) return KEEL_OK;
    KEEL_TRY(take(e, safetensors_open_file(e->data_path, &e->data, &about), &about, err));
    if (e->state == ENTRY_READY) match_tensors(e);
    return KEEL_OK;
}

static bool same_id(const file_id *a, const file_id *b) {
    return a->bytes == b->bytes && a->inode == b->inode && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

void cache_entry_match(cache_entry *e, const manifest_source *sources, size_t n) {
    const manifest *m = &e->manifest;
    if (e->state != ENTRY_READY) return;
    if (m->n_sources != n) cache_entry_spoil(e, ENTRY_STALE, "the checkpoint has other files than before");
    for (size_t i = 0; i < n && e->state == ENTRY_READY; i++) {
        bool same = strcmp(m->sources[i].name, sources[i].name) == 0 && same_id(&m->sources[i].id, &sources[i].id);
        if (!same) cache_entry_spoil(e, ENTRY_STALE, "the checkpoint's %s has changed", sources[i].name);
    }
}

keel_status cache_header_digest(const char *path, uint64_t data_bytes, char hex[SHA256_HEX], keel_error *err) {
    file_map m = {0};
    KEEL_TRY(file_map_open(path, &m, err));
    keel_status s = m.bytes < data_bytes ? error_set(err, KEEL_FORMAT, "%s: shorter than its data", path)
                                         : sha256_hex(m.data, (size_t)(m.bytes - data_bytes), hex, err);
    file_map_close(&m);
    return s;
}

typedef struct verifying {
    cache_entry *e;
    uint32_t rank;
    keel_cache_progress progress;
    void *user;
    uint64_t done, total;
    size_t bad;   /* first tensor whose digest differs; n_tensors: none */
    bool stopped; /* by progress */
    bool failed;  /* memory was short */
} verifying;

static void verify_one(void *context, size_t i, bool caller) {
    verifying *v = context;
    const manifest_tensor *m = &v->e->manifest.tensors[i];
    const safetensor *t = safetensors_find(v->e->data, m->name);
    char hex[SHA256_HEX];
    if (__atomic_load_n(&v->stopped, __ATOMIC_RELAXED)) return;
    uint64_t done = __atomic_load_n(&v->done, __ATOMIC_RELAXED);
    if (caller && v->progress && !v->progress(v->user, v->rank, KEEL_CACHE_CHECKING, done, v->total)) {
        __atomic_store_n(&v->stopped, true, __ATOMIC_RELAXED);
        return;
    }
    if (sha256_hex(t->data, t->bytes, hex, NULL) != KEEL_OK)
        __atomic_store_n(&v->failed, true, __ATOMIC_RELAXED);
    else if (strcmp(hex, m->sha256) != 0)
        __atomic_store_n(&v->bad, i, __ATOMIC_RELAXED);
    __atomic_fetch_add(&v->done, t->bytes, __ATOMIC_RELAXED);
}

keel_status cache_entry_verify(cache_entry *e, uint32_t rank, keel_cache_progress progress, void *user,
                               keel_error *err) {
    if (e->state != ENTRY_READY) return KEEL_OK;
    verifying v = {.e = e, .rank = rank, .progress = progress, .user = user, .bad = e->manifest.n_tensors};
    for (size_t i = 0; i < e->manifest.n_tensors; i++) v.total += e->manifest.tensors[i].bytes;
    char header[SHA256_HEX];
    KEEL_TRY(cache_header_digest(e->data_path, v.total, header, err));
    if (strcmp(header, e->manifest.header_sha256) != 0) {
        cache_entry_spoil(e, ENTRY_DAMAGED, "%s: the header has another SHA-256 than its manifest", e->data_path);
        return KEEL_OK;
    }
    each_on_cores(e->manifest.n_tensors, verify_one, &v);
    if (v.stopped) return error_set(err, KEEL_ABORTED, "%s: stopped while it was checked", e->data_path);
    if (v.failed) return KEEL_NOMEM_AT(err, e->data_path);
    if (v.bad != e->manifest.n_tensors) {
        cache_entry_spoil(e, ENTRY_DAMAGED, "%s: tensor %s: the data has another SHA-256 than its manifest",
                          e->data_path, e->manifest.tensors[v.bad].name);
    }
    return KEEL_OK;
}
