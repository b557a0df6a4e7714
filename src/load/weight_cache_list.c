/* SPDX-License-Identifier: Apache-2.0 */
/* What the weight cache holds. */
#include "load/weight_cache.h"

#include "core/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct listing {
    const char *dir;
    bool verify;
    arena arena;
    keel_cache_entry *list;
    size_t n, cap;
} listing;

static const char *state_name(const cache_entry *e, bool busy) {
    if (busy) return "busy";
    switch (e->state) {
    case ENTRY_READY:
        return "ready";
    case ENTRY_STALE:
        return "stale";
    case ENTRY_DAMAGED:
        return "damaged";
    case ENTRY_ABSENT:
        break;
    }
    return "incomplete";
}

/* Somebody holds the entry's lock alone: it is being made. */
static bool is_busy(const cache_entry *e) {
    file_lock lock = {.fd = -1};
    bool taken = true;
    if (!file_exists(e->lock_path) || file_lock_try(e->lock_path, true, &lock, &taken, NULL) != KEEL_OK) return false;
    file_lock_release(&lock);
    return !taken;
}

/* STALE when a file of the checkpoint is gone or another one now. */
static keel_status match_checkpoint(cache_entry *e, const char *checkpoint, keel_error *err) {
    const manifest *m = &e->manifest;
    manifest_source *now = mem_calloc(m->n_sources + 1, sizeof *now);
    if (!now) return KEEL_NOMEM_AT(err, checkpoint);
    for (size_t i = 0; i < m->n_sources && e->state == ENTRY_READY; i++) {
        char *path = path_join(checkpoint, m->sources[i].name);
        now[i].name = m->sources[i].name;
        if (!path || file_identify(path, &now[i].id, NULL) != KEEL_OK)
            cache_entry_spoil(e, ENTRY_STALE, "the checkpoint's %s is not there", now[i].name);
        keel_free(path);
    }
    cache_entry_match(e, now, m->n_sources);
    mem_free(now);
    return KEEL_OK;
}

static keel_status match_recipe(cache_entry *e, const char *recipe, const char *fingerprint, keel_error *err) {
    char hex[SHA256_HEX];
    const weight_recipe *r;
    for (size_t i = 0; (r = weight_recipe_at(i)); i++) {
        KEEL_TRY(weight_recipe_fingerprint(r, hex, err));
        if (strcmp(hex, fingerprint) == 0) return KEEL_OK;
    }
    cache_entry_spoil(e, ENTRY_STALE, "its recipe, %s, is not one of this build", recipe);
    return KEEL_OK;
}

/* What the manifest says; keeps texts in the arena. */
static keel_status inputs_read(listing *l, const cache_entry *e, keel_cache_entry *out, const char **fingerprint,
                               keel_error *err) {
    const char *file = e->manifest_path;
    const json_t *in = e->manifest.inputs;
    int64_t tp = 0, ep = 0, rank = 0;
    const struct {
        const char *key, **to;
    } texts[] = {{"checkpoint", &out->model},
                 {"architecture", &out->architecture},
                 {"recipe", &out->recipe},
                 {"head", &out->head},
                 {"fingerprint", fingerprint}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = "";
        KEEL_TRY(json_opt_string(file, in, texts[i].key, &text, err));
        *texts[i].to = arena_strdup(&l->arena, text);
        if (!*texts[i].to) return KEEL_NOMEM_AT(err, file);
    }
    KEEL_TRY(json_get_int(file, in, "world", 1, UINT32_MAX, &tp, err));
    KEEL_TRY(json_get_int(file, in, "ep", 1, UINT32_MAX, &ep, err));
    KEEL_TRY(json_get_int(file, in, "rank", 0, UINT32_MAX, &rank, err));
    out->tp = (uint32_t)tp;
    out->ep = (uint32_t)ep;
    out->n_tensors = (uint32_t)e->manifest.n_tensors;
    out->created_s = e->manifest.created_s;
    if (rank != out->rank) return error_set(err, KEEL_FORMAT, "%s: \"rank\" is another one", file);
    return KEEL_OK;
}

static keel_status judge(listing *l, cache_entry *e, keel_cache_entry *out, keel_error *err) {
    keel_error about = KEEL_ERROR_INITIALIZER;
    const char *fingerprint = "";
    if (e->state != ENTRY_READY) return KEEL_OK;
    if (inputs_read(l, e, out, &fingerprint, &about) != KEEL_OK) {
        cache_entry_spoil(e, ENTRY_DAMAGED, "%s", about.detail);
        return KEEL_OK;
    }
    KEEL_TRY(match_checkpoint(e, out->model, err));
    if (e->state == ENTRY_READY) KEEL_TRY(match_recipe(e, out->recipe, fingerprint, err));
    return l->verify ? cache_entry_verify(e, out->rank, NULL, NULL, err) : KEEL_OK;
}

static keel_status add_entry(listing *l, const char *key, uint32_t rank, keel_error *err) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 16;
        keel_cache_entry *list = mem_realloc(l->list, cap * sizeof *list);
        if (!list) return KEEL_NOMEM_AT(err, l->dir);
        l->list = list;
        l->cap = cap;
    }
    cache_entry e;
    file_id id = {0};
    keel_error about = KEEL_ERROR_INITIALIZER;
    keel_cache_entry *out = &l->list[l->n];
    *out = (keel_cache_entry){
        .rank = rank, .model = "", .architecture = "", .recipe = "", .head = "", .state = "", .why = ""};
    KEEL_TRY(cache_entry_name(l->dir, key, rank, &e, err));
    bool busy = is_busy(&e);
    keel_status s = cache_entry_load(&e, &about);
    if (s == KEEL_OK)
        s = judge(l, &e, out, err);
    else if (s == KEEL_NOMEM)
        s = error_set(err, s, "%s", about.detail);
    else { /* not readable, or a folder in the way: told, and the list goes on */
        cache_entry_spoil(&e, ENTRY_DAMAGED, "%s", about.detail);
        s = KEEL_OK;
    }
    if (e.data_there && file_identify(e.data_path, &id, NULL) == KEEL_OK) out->bytes = id.bytes;
    out->state = state_name(&e, busy);
    out->key = arena_strdup(&l->arena, key);
    out->path = arena_strdup(&l->arena, e.data_path);
    out->why = arena_strdup(&l->arena, e.why);
    if (s == KEEL_OK && (!out->key || !out->path || !out->why)) s = KEEL_NOMEM_AT(err, l->dir);
    cache_entry_free(&e);
    l->n++;
    return s;
}

static bool is_key(const char *name) {
    return strlen(name) == SHA256_HEX - 1 && !name[strspn(name, "0123456789abcdef")];
}

/* "rank12.json" or "rank12.safetensors", spelled as we do. */
static bool rank_of(const char *name, uint32_t *rank) {
    char again[64];
    static const char *const suffix[] = {"json", "safetensors"};
    if (strncmp(name, "rank", 4) != 0) return false;
    *rank = (uint32_t)strtoul(name + 4, NULL, 10);
    for (size_t i = 0; i < 2; i++) {
        snprintf(again, sizeof again, "rank%u.%s", *rank, suffix[i]);
        if (strcmp(again, name) == 0) return true;
    }
    return false;
}

static bool listed(const listing *l, size_t from, uint32_t rank) {
    for (size_t i = from; i < l->n; i++) {
        if (l->list[i].rank == rank) return true;
    }
    return false;
}

static keel_status add_folder(listing *l, const char *key, keel_error *err) {
    char *path = path_join(l->dir, key);
    if (!path) return KEEL_NOMEM_AT(err, l->dir);
    DIR *d = opendir(path);
    keel_free(path);
    if (!d) return KEEL_OK; /* removed meanwhile, or no folder */
    size_t from = l->n;
    uint32_t rank = 0;
    keel_status s = KEEL_OK;
    for (const struct dirent *f; s == KEEL_OK && (f = readdir(d));) {
        if (rank_of(f->d_name, &rank) && !listed(l, from, rank)) s = add_entry(l, key, rank, err);
    }
    closedir(d);
    return s;
}

static int by_model(const void *a, const void *b) {
    const keel_cache_entry *x = a, *y = b;
    int order = strcmp(x->model, y->model);
    if (order == 0) order = x->tp < y->tp ? -1 : x->tp > y->tp;
    if (order == 0) order = x->rank < y->rank ? -1 : x->rank > y->rank;
    return order ? order : strcmp(x->key, y->key);
}

keel_status weight_cache_list(const char *dir, bool verify, keel_on_cache_entry each, void *user, keel_error *err) {
    listing l = {.dir = dir, .verify = verify};
    DIR *d = opendir(dir);
    if (!d) return errno == ENOENT ? KEEL_OK : error_errno(err, dir, "read the folder");
    keel_status s = KEEL_OK;
    for (const struct dirent *f; s == KEEL_OK && (f = readdir(d));) {
        if (is_key(f->d_name)) s = add_folder(&l, f->d_name, err);
    }
    closedir(d);
    if (l.n) qsort(l.list, l.n, sizeof *l.list, by_model);
    for (size_t i = 0; s == KEEL_OK && i < l.n && each(user, &l.list[i]);) i++;
    mem_free(l.list);
    arena_free(&l.arena);
    return s;
}
