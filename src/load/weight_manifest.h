/* SPDX-License-Identifier: Apache-2.0 */
/* What stands beside a rank's cached weights, rank{r}.json: what the file was made from, and digests of what is in it.
 */
#ifndef KEEL_LOAD_WEIGHT_MANIFEST_H
#define KEEL_LOAD_WEIGHT_MANIFEST_H

#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "core/sha256.h"

enum { MANIFEST_FORMAT = 1 };

/* A file of the checkpoint. */
typedef struct manifest_source {
    const char *name; /* without its folder */
    file_id id;
} manifest_source;

typedef struct manifest_tensor {
    const char *name;
    uint64_t bytes;
    char sha256[SHA256_HEX]; /* of the bytes */
} manifest_tensor;

typedef struct manifest {
    json_t *inputs; /* the key's inputs in clear (weight_cache.h); owned */
    manifest_source *sources;
    size_t n_sources;
    manifest_tensor *tensors; /* in the order of the file */
    size_t n_tensors;
    char header_sha256[SHA256_HEX]; /* of the file's bytes before the data */
    int64_t created_s;              /* since 1970 */
    arena arena;                    /* of names and lists that were read */
} manifest;

/* Bytes of any origin. KEEL_FORMAT, KEEL_RANGE, KEEL_MISSING name file and key. Free with manifest_free() when it went
 * well. */
keel_status manifest_parse(const char *file, const char *text, size_t bytes, manifest *out, keel_error *err);
keel_status manifest_read(const char *path, manifest *out, keel_error *err);
/* Complete or not at all. */
keel_status manifest_write(const manifest *m, const char *path, keel_error *err);
void manifest_free(manifest *m);

#endif
