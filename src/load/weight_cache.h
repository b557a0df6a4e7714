/* SPDX-License-Identifier: Apache-2.0 */
/* The weight cache: a rank's converted weights on disk, DIR/KEY/rank{r}.safetensors, made when missing and verified
 * whenever used (docs/weight-cache.md).
 *
 * KEY is the SHA-256 of the inputs: format, config.json as canonical JSON, the checkpoint folder's real path, world,
 * rank, EP, head mode, the list of what is stored (name, key, type, shape, slice) and the recipe with its fingerprint.
 * An entry counts only with its manifest (rank{r}.json, written last), when the manifest's inputs are the wanted ones,
 * the checkpoint's files are those it was made from (size, modification and change time, inode), the tensors have the
 * wanted types and shapes, and every tensor's SHA-256 is the manifest's. */
#ifndef KEEL_LOAD_WEIGHT_CACHE_H
#define KEEL_LOAD_WEIGHT_CACHE_H

#include "core/json.h"
#include "load/weight_manifest.h"
#include "load/weight_recipe.h"

enum { WEIGHT_CACHE_JOBS = 2, WEIGHT_CACHE_MOST_JOBS = 256, WEIGHT_CACHE_NOTE = 512 };

typedef struct weight_cache_options {
    const char *dir;              /* made when missing */
    const json_t *config;         /* config.json of the checkpoint */
    unsigned jobs;                /* ranks that convert at once, over all processes that say so; 0: WEIGHT_CACHE_JOBS */
    keel_cache_progress progress; /* or NULL; called on the caller's thread */
    void *user;
} weight_cache_options;

typedef struct weight_cache_result {
    bool used;  /* something is stored; otherwise the checkpoint serves as it lies, and no entry exists */
    bool built; /* by this call; otherwise it was there */
    uint32_t n_tensors;
    uint64_t bytes;               /* of the stored tensors */
    char key[SHA256_HEX];         /* with used */
    char note[WEIGHT_CACHE_NOTE]; /* why what was there could not be used; "" without */
} weight_cache_result;

/* What an entry is made of. Borrowed for the call. */
typedef struct weight_cache_request {
    const graph *g; /* of the rank; for world, rank, EP, head mode */
    const weight_recipe *recipe;
    const char *checkpoint; /* folder */
    const weight_piece *pieces;
    size_t n_pieces; /* at least one; all are stored */
    const manifest_source *sources;
    size_t n_sources;
} weight_cache_request;

/* The entry, mapped: tensors are named like the pieces. *out is the caller's (safetensors_close). Waits for processes
 * that build the same entry, and for one of the jobs. KEEL_ABORTED when progress says so. */
keel_status weight_cache_get(const weight_cache_options *o, const weight_cache_request *r, safetensors **out,
                             weight_cache_result *result, keel_error *err);

/* Every entry of DIR, by model and rank; verify: all data is read. A missing DIR has none. Stops when each returns
 * false. */
keel_status weight_cache_list(const char *dir, bool verify, keel_on_cache_entry each, void *user, keel_error *err);

/* For the two above: what stands at DIR/KEY/rank{r}. */
typedef enum entry_state { ENTRY_READY, ENTRY_ABSENT, ENTRY_STALE, ENTRY_DAMAGED } entry_state;
typedef struct cache_entry {
    char *folder, *data_path, *manifest_path, *lock_path;
    entry_state state;
    manifest manifest;           /* READY, STALE; else possibly empty */
    safetensors *data;           /* READY; else NULL */
    bool data_there;             /* a data file, in whatever state */
    char why[WEIGHT_CACHE_NOTE]; /* STALE, DAMAGED */
} cache_entry;
keel_status cache_entry_name(const char *dir, const char *key, uint32_t rank, cache_entry *e, keel_error *err);
/* Reads manifest and header and holds them against each other. An error is only what says nothing about the entry: no
 * permission, no memory, a folder in the way. */
keel_status cache_entry_load(cache_entry *e, keel_error *err);
/* A READY entry made from other files is STALE. */
void cache_entry_match(cache_entry *e, const manifest_source *sources, size_t n);
/* SHA-256 of the file's bytes before the last data_bytes. */
keel_status cache_header_digest(const char *path, uint64_t data_bytes, char hex[SHA256_HEX], keel_error *err);
/* Reads all of a READY entry; a digest that differs makes it DAMAGED. progress may be NULL. */
keel_status cache_entry_verify(cache_entry *e, uint32_t rank, keel_cache_progress progress, void *user,
                               keel_error *err);
/* Marks the entry; `why` as by printf. */
void cache_entry_spoil(cache_entry *e, entry_state state, const char *why, ...) __attribute__((format(printf, 3, 4)));
void cache_entry_free(cache_entry *e);

#endif
