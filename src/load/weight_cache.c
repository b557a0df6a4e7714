/* SPDX-License-Identifier: Apache-2.0 */
#include "load/weight_cache.h"

#include "core/buf.h"
#include "core/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    POLL_FIRST_MS = 2,
    POLL_MOST_MS = 100,
    SETTLE_MS = 20 /* more than the step of the kernel's file times (a tick, at most 10 ms) */
};

/* A call of weight_cache_get(). */
typedef struct getting {
    const weight_cache_options *o;
    const weight_cache_request *r;
    cache_entry entry;
    json_t *inputs;
    char key[SHA256_HEX];
    uint64_t total; /* bytes of the stored tensors */
    weight_cache_result *result;
} getting;

static bool told(const getting *k, keel_cache_phase phase, uint64_t done, uint64_t total) {
    return !k->o->progress || k->o->progress(k->o->user, k->r->g->rank, phase, done, total);
}

static int put_text(const char *text, size_t bytes, void *user) {
    buf_put(user, text, bytes);
    return ((buf *)user)->failed ? -1 : 0;
}

/* SHA-256 of the value as text: keys sorted, no white space. */
static keel_status json_digest(const json_t *value, char hex[SHA256_HEX], keel_error *err) {
    buf b = {0};
    bool good = json_dump_callback(value, put_text, &b, JSON_COMPACT | JSON_SORT_KEYS) == 0;
    keel_status s = good ? sha256_hex(b.data, b.len, hex, err) : KEEL_NOMEM_AT(err, "weight cache");
    buf_free(&b);
    return s;
}

static void put_slice(buf *b, const shard_slice *s) {
    buf_printf(b, "\n%d %lld %lld %lld\n", s->dim, (long long)s->first, (long long)s->n, (long long)s->whole);
}

static keel_status list_digest(const weight_cache_request *r, char hex[SHA256_HEX], keel_error *err) {
    buf b = {0};
    for (size_t i = 0; i < r->n_pieces; i++) {
        const weight_piece *p = &r->pieces[i];
        buf_printf(&b, "%s\n%s\n%s", p->name, p->key, dtype_name(p->dtype));
        for (int d = 0; d < p->rank; d++) buf_printf(&b, " %lld", (long long)p->dim[d]);
        put_slice(&b, &p->slice);
        put_slice(&b, &p->inner);
    }
    keel_status s = b.failed ? KEEL_NOMEM_AT(err, "weight cache") : sha256_hex(b.data, b.len, hex, err);
    buf_free(&b);
    return s;
}

/* A path may hold any bytes, JSON only UTF-8: otherwise what is not ASCII stands as %HH. NULL when memory is short. */
static json_t *path_json(const char *path) {
    json_t *plain = json_string(path);
    if (plain) return plain;
    buf b = {0};
    for (const char *c = path; *c; c++) buf_printf(&b, (unsigned char)*c < 0x80 ? "%c" : "%%%02X", (unsigned char)*c);
    plain = b.failed ? NULL : json_string((const char *)b.data);
    buf_free(&b);
    return plain;
}

static keel_status inputs_make(getting *k, keel_error *err) {
    const weight_cache_request *r = k->r;
    const graph *g = r->g;
    char config[SHA256_HEX] = "", stored[SHA256_HEX], fingerprint[SHA256_HEX], recipe[64], where[PATH_MAX];
    if (!realpath(r->checkpoint, where)) return error_errno(err, r->checkpoint, "find the folder");
    if (k->o->config) KEEL_TRY(json_digest(k->o->config, config, err));
    KEEL_TRY(list_digest(r, stored, err));
    KEEL_TRY(weight_recipe_fingerprint(r->recipe, fingerprint, err));
    snprintf(recipe, sizeof recipe, "%s-%u", r->recipe->name, r->recipe->version);
    k->inputs =
        json_pack("{s:i,s:s,s:s,s:o,s:I,s:I,s:I,s:s,s:[i,i],s:s,s:s,s:s}", "format", MANIFEST_FORMAT, "config", config,
                  "architecture", g->architecture, "checkpoint", path_json(where), "world",
                  (json_int_t)(g->tp ? g->tp : 1), "rank", (json_int_t)g->rank, "ep", (json_int_t)(g->ep ? g->ep : 1),
                  "head", g->vocab_parallel ? "vocab-parallel" : "replicated", "layers", g->layer_first, g->n_layers,
                  "stored", stored, "recipe", recipe, "fingerprint", fingerprint);
    if (!k->inputs) return KEEL_NOMEM_AT(err, "weight cache");
    return json_digest(k->inputs, k->key, err);
}

static keel_status pause_for(const getting *k, unsigned *ms, const char *what, keel_error *err) {
    if (!told(k, KEEL_CACHE_WAITING, 0, 0)) return error_set(err, KEEL_ABORTED, "%s: stopped while waiting", what);
    struct timespec t = {.tv_nsec = (long)*ms * 1000000};
    nanosleep(&t, NULL);
    *ms = 2 * *ms < POLL_MOST_MS ? 2 * *ms : POLL_MOST_MS;
    return KEEL_OK;
}

/* The folder is made again each time: somebody may clear the cache meanwhile. */
static keel_status entry_lock(const getting *k, bool shared, file_lock *lock, keel_error *err) {
    unsigned ms = POLL_FIRST_MS;
    for (bool taken = false;;) {
        KEEL_TRY(folders_make(k->entry.folder, err));
        KEEL_TRY(file_lock_try(k->entry.lock_path, shared, lock, &taken, err));
        if (taken) return KEEL_OK;
        KEEL_TRY(pause_for(k, &ms, k->entry.lock_path, err));
    }
}

/* One of the files jobs/0 … jobs/K−1. Whoever holds one waits for nothing, so that waiting here with the entry's lock
 * cannot become a circle. */
static keel_status job_lock(const getting *k, file_lock *lock, keel_error *err) {
    char *folder = path_join(k->o->dir, "jobs");
    unsigned jobs = k->o->jobs ? k->o->jobs : WEIGHT_CACHE_JOBS, ms = POLL_FIRST_MS;
    bool taken = false;
    keel_status s = folder ? folders_make(folder, err) : KEEL_NOMEM_AT(err, k->o->dir);
    while (s == KEEL_OK && !taken) {
        for (unsigned i = 0; i < jobs && i < WEIGHT_CACHE_MOST_JOBS && !taken && s == KEEL_OK; i++) {
            char name[16];
            snprintf(name, sizeof name, "%u", i);
            char *path = path_join(folder, name);
            s = path ? file_lock_try(path, false, lock, &taken, err) : KEEL_NOMEM_AT(err, folder);
            keel_free(path);
        }
        if (s == KEEL_OK && !taken) s = pause_for(k, &ms, folder, err);
    }
    keel_free(folder);
    return s;
}

/* The stored tensors have the types and shapes that the recipe gives today. */
static void match_shapes(getting *k) {
    for (size_t i = 0; i < k->r->n_pieces && k->entry.state == ENTRY_READY; i++) {
        const weight_piece *p = &k->r->pieces[i];
        const safetensor *t = safetensors_find(k->entry.data, p->name);
        safetensor_decl d = {.rank = 0};
        k->r->recipe->shape(p, &d);
        if (t && t->dtype == d.dtype && t->rank == d.rank && memcmp(t->dim, d.dim, (size_t)d.rank * sizeof *d.dim) == 0)
            continue;
        cache_entry_spoil(&k->entry, ENTRY_DAMAGED, "%s: tensor %s is not there in the wanted shape",
                          k->entry.data_path, p->name);
    }
}

static keel_status entry_check(getting *k, keel_error *err) {
    cache_entry *e = &k->entry;
    KEEL_TRY(cache_entry_load(e, err));
    if (e->state == ENTRY_READY && !json_equal(e->manifest.inputs, k->inputs))
        cache_entry_spoil(e, ENTRY_DAMAGED, "%s: its inputs are not those of its key", e->manifest_path);
    cache_entry_match(e, k->r->sources, k->r->n_sources);
    if (e->state == ENTRY_READY && safetensors_count(e->data) != k->r->n_pieces)
        cache_entry_spoil(e, ENTRY_DAMAGED, "%s: holds other tensors than wanted", e->data_path);
    match_shapes(k);
    KEEL_TRY(cache_entry_verify(e, k->r->g->rank, k->o->progress, k->o->user, err));
    if (e->state == ENTRY_STALE || e->state == ENTRY_DAMAGED) memcpy(k->result->note, e->why, sizeof e->why);
    return KEEL_OK;
}

/* With the entry's lock: what is there now was left by the dead, or must not be used. */
static keel_status entry_clear(const cache_entry *e, keel_error *err) {
    if (unlink(e->manifest_path) != 0 && errno != ENOENT) return error_errno(err, e->manifest_path, "remove");
    if (unlink(e->data_path) != 0 && errno != ENOENT) return error_errno(err, e->data_path, "remove");
    DIR *d = opendir(e->folder);
    if (!d) return error_errno(err, e->folder, "read the folder");
    for (const struct dirent *f; (f = readdir(d));) {
        if (strncmp(f->d_name, "rank", 4) == 0 && strstr(f->d_name, ".tmp.")) unlinkat(dirfd(d), f->d_name, 0);
    }
    closedir(d);
    return KEEL_OK;
}

/* A file that changes within one step of its times after we looked has the same identity as before. Waiting until its
 * step is over makes every later change show; earlier ones are read. */
static void settle(const weight_cache_request *r) {
    struct timespec now, rest = {.tv_nsec = SETTLE_MS * 1000000L};
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t fresh = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - rest.tv_nsec;
    for (size_t i = 0; i < r->n_sources; i++) {
        if (r->sources[i].id.mtime_ns < fresh && r->sources[i].id.ctime_ns < fresh) continue;
        nanosleep(&rest, NULL);
        return;
    }
}

static keel_status tensors_write(getting *k, safetensors_writer *w, manifest_tensor *list, void *buffer,
                                 keel_error *err) {
    uint64_t done = 0;
    for (size_t i = 0; i < k->r->n_pieces; i++) {
        const weight_piece *p = &k->r->pieces[i];
        if (!told(k, KEEL_CACHE_CONVERTING, done, k->total))
            return error_set(err, KEEL_ABORTED, "%s: stopped while it was made", k->entry.data_path);
        list[i] = (manifest_tensor){.name = p->name, .bytes = weight_recipe_bytes(k->r->recipe, p)};
        k->r->recipe->pack(p, buffer);
        KEEL_TRY(sha256_hex(buffer, list[i].bytes, list[i].sha256, err));
        KEEL_TRY(safetensors_writer_put(w, buffer, list[i].bytes, err));
        done += list[i].bytes;
    }
    (void)told(k, KEEL_CACHE_CONVERTING, done, k->total);
    return KEEL_OK;
}

static keel_status data_write(getting *k, safetensor_decl *decls, manifest_tensor *list, keel_error *err) {
    const weight_cache_request *r = k->r;
    safetensors_writer *w;
    uint64_t most = 64;
    for (size_t i = 0; i < r->n_pieces; i++) {
        uint64_t bytes = weight_recipe_bytes(r->recipe, &r->pieces[i]);
        if (bytes > most) most = bytes;
        decls[i].name = r->pieces[i].name;
        r->recipe->shape(&r->pieces[i], &decls[i]);
    }
    void *buffer = mem_aligned(64, most);
    if (!buffer) return KEEL_NOMEM_AT(err, k->entry.data_path);
    keel_status s = safetensors_writer_open(k->entry.data_path, decls, r->n_pieces, &w, err);
    if (s == KEEL_OK) {
        s = tensors_write(k, w, list, buffer, err);
        if (s == KEEL_OK)
            s = safetensors_writer_commit(w, err);
        else
            safetensors_writer_abandon(w);
    }
    mem_free(buffer);
    return s;
}

/* The manifest comes last: without it there is no entry. */
static keel_status entry_write(getting *k, keel_error *err) {
    const weight_cache_request *r = k->r;
    safetensor_decl *decls = mem_calloc(r->n_pieces, sizeof *decls);
    manifest_tensor *list = mem_calloc(r->n_pieces, sizeof *list);
    manifest m = {.inputs = k->inputs,
                  .sources = (manifest_source *)(uintptr_t)r->sources,
                  .n_sources = r->n_sources,
                  .tensors = list,
                  .n_tensors = r->n_pieces,
                  .created_s = time(NULL)};
    keel_status s = decls && list ? KEEL_OK : KEEL_NOMEM_AT(err, k->entry.data_path);
    if (s == KEEL_OK) s = data_write(k, decls, list, err);
    if (s == KEEL_OK) s = cache_header_digest(k->entry.data_path, k->total, m.header_sha256, err);
    if (s == KEEL_OK) s = manifest_write(&m, k->entry.manifest_path, err);
    mem_free(decls);
    mem_free(list);
    return s;
}

static keel_status entry_build(getting *k, keel_error *err) {
    file_lock job = {.fd = -1};
    KEEL_TRY(entry_clear(&k->entry, err));
    KEEL_TRY(job_lock(k, &job, err));
    settle(k->r);
    keel_status s = entry_write(k, err);
    file_lock_release(&job);
    KEEL_TRY(s);
    /* What was written a moment ago is read back for its header only. */
    KEEL_TRY(cache_entry_load(&k->entry, err));
    match_shapes(k);
    if (k->entry.state != ENTRY_READY) {
        return error_set(err, KEEL_IO, "%s: cannot be read back as it was written%s%s; check the disk",
                         k->entry.data_path, k->entry.why[0] ? ": " : "", k->entry.why);
    }
    k->result->built = true;
    return KEEL_OK;
}

/* Readers share the lock; who builds has it alone, and looks again first, since another may have built meanwhile. */
static keel_status use_or_build(getting *k, keel_error *err) {
    for (int alone = 0; alone < 2; alone++) {
        file_lock lock = {.fd = -1};
        KEEL_TRY(entry_lock(k, !alone, &lock, err));
        keel_status s = entry_check(k, err);
        if (s == KEEL_OK && alone && k->entry.state != ENTRY_READY) s = entry_build(k, err);
        file_lock_release(&lock);
        KEEL_TRY(s);
        if (k->entry.state == ENTRY_READY) break;
    }
    return KEEL_OK;
}

keel_status weight_cache_get(const weight_cache_options *o, const weight_cache_request *r, safetensors **out,
                             weight_cache_result *result, keel_error *err) {
    getting k = {.o = o, .r = r, .result = result};
    *result = (weight_cache_result){.used = true, .n_tensors = (uint32_t)r->n_pieces};
    for (size_t i = 0; i < r->n_pieces; i++) k.total += weight_recipe_bytes(r->recipe, &r->pieces[i]);
    result->bytes = k.total;
    keel_status s = inputs_make(&k, err);
    if (s == KEEL_OK) {
        memcpy(result->key, k.key, sizeof k.key);
        s = cache_entry_name(o->dir, k.key, r->g->rank, &k.entry, err);
    }
    if (s == KEEL_OK) {
        s = use_or_build(&k, err);
        if (s == KEEL_OK) {
            *out = k.entry.data;
            k.entry.data = NULL;
        }
        cache_entry_free(&k.entry);
    }
    json_decref(k.inputs);
    return s;
}
