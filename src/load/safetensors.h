/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors: mapped reading of a checkpoint folder (one file, or shards with an index) and writing. */
#ifndef KEEL_LOAD_SAFETENSORS_H
#define KEEL_LOAD_SAFETENSORS_H

#include "core/dtype.h"
#include "core/error.h"

enum { SAFETENSORS_MAX_RANK = 8 };

typedef struct safetensor {
    const char *name;
    const char *file; /* path of the shard it lies in */
    dtype dtype;
    int rank;
    int64_t dim[SAFETENSORS_MAX_RANK]; /* row-major */
    const void *data;                  /* into the map; as it lies, alignment only what the file gives */
    uint64_t bytes;
} safetensor;

typedef struct safetensors safetensors;

/* Opens DIR/model.safetensors, or the shards named by DIR/model.safetensors.index.json. Checked on the way in:
 * header length within the file, JSON object, known dtypes, offsets in order, inside the data, neither overlapping
 * nor leaving holes, size = shape × dtype, no name twice, every shard there (all missing ones named at once), every
 * index entry in the shard it names. */
keel_status safetensors_open(const char *dir, safetensors **out, keel_error *err);
/* One file. */
keel_status safetensors_open_file(const char *path, safetensors **out, keel_error *err);
void safetensors_close(safetensors *s);
size_t safetensors_count(const safetensors *s);
/* In name order. */
const safetensor *safetensors_at(const safetensors *s, size_t i);
/* NULL when absent. */
const safetensor *safetensors_find(const safetensors *s, const char *name);

/* The parser alone, over bytes: for fuzzing. data need not outlive the call if nothing is kept (out is closed). */
keel_status safetensors_parse(const char *file, const uint8_t *data, size_t bytes, safetensors **out, keel_error *err);

/* Writing: declare all tensors first, then stream each one's data in that order. Appears complete or not at all. */
typedef struct safetensors_writer safetensors_writer;
typedef struct safetensor_decl {
    const char *name;
    dtype dtype;
    int rank;
    int64_t dim[SAFETENSORS_MAX_RANK];
} safetensor_decl;
keel_status safetensors_writer_open(const char *path, const safetensor_decl *decls, size_t n, safetensors_writer **out,
                                    keel_error *err);
/* Any slicing; the writer checks that the total matches the declarations. */
keel_status safetensors_writer_put(safetensors_writer *w, const void *data, size_t bytes, keel_error *err);
/* Closes w whether or not it succeeds. */
keel_status safetensors_writer_commit(safetensors_writer *w, keel_error *err);
void safetensors_writer_abandon(safetensors_writer *w);

#endif
