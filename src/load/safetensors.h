/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors: mapped reading of a checkpoint folder (one file, or shards with an index) and writing. */
#ifndef KEEL_LOAD_SAFETENSORS_H
#define KEEL_LOAD_SAFETENSORS_H

#include "core/dtype.h"
#include "core/error.h"
#include "core/file.h"

enum { SAFETENSORS_MAX_RANK = 8 };

typedef struct safetensor {
    const char *name;
    const char *file; /* path of the shard it lies in */
    dtype dtype; /* DTYPE_COUNT: one that Keel does not know (I64, BOOL, …); whoever needs the tensor refuses it then */
    const char *type_name; /* the dtype as the file spells it */
    int rank;
    int64_t dim[SAFETENSORS_MAX_RANK]; /* [rank], row-major; 0 is allowed */
    const void *data;                  /* into the map; as it lies, alignment only what the file gives */
    uint64_t bytes;
} safetensor;

typedef struct safetensors safetensors;

/* Opens DIR/model.safetensors, or else the shards named by DIR/model.safetensors.index.json. Checked on the way in:
 * header length within the file and at most 100 MB, JSON object, offsets in order, inside the data, neither overlapping
 * nor leaving holes, size = shape × dtype, no name twice (over all shards), every shard there (all missing ones named
 * at once), every index entry in the shard it names. Tensors that the index does not list are kept. Only headers are
 * read; the data stays mapped until safetensors_close(). */
keel_status safetensors_open(const char *dir, safetensors **out, keel_error *err);
/* One file. */
keel_status safetensors_open_file(const char *path, safetensors **out, keel_error *err);
void safetensors_close(safetensors *s);
size_t safetensors_count(const safetensors *s);
/* In name order. */
const safetensor *safetensors_at(const safetensors *s, size_t i);
/* NULL when absent. */
const safetensor *safetensors_find(const safetensors *s, const char *name);

/* Identity of the mapped file that the tensor of an opened folder or file lies in. */
const file_id *safetensors_file_id(const safetensors *s, const safetensor *t);

/* The parser alone, over bytes that outlive *out: for fuzzing and tests. `file` stands in messages. */
keel_status safetensors_parse(const char *file, const uint8_t *data, size_t bytes, safetensors **out, keel_error *err);

/* Writing: declare all tensors first, then stream each one's data in that order. Appears complete or not at all. The
 * same declarations give the same header bytes, padded so that the data starts on a multiple of 8. */
typedef struct safetensors_writer safetensors_writer;
typedef struct safetensor_decl {
    const char *name;
    dtype dtype;
    int rank;
    int64_t dim[SAFETENSORS_MAX_RANK];
} safetensor_decl;
keel_status safetensors_writer_open(const char *path, const safetensor_decl *decls, size_t n, safetensors_writer **out,
                                    keel_error *err);
/* Any slicing. More bytes than declared: KEEL_RANGE here; fewer: KEEL_RANGE at commit. After a failure only
 * safetensors_writer_abandon() may follow. */
keel_status safetensors_writer_put(safetensors_writer *w, const void *data, size_t bytes, keel_error *err);
/* Closes w whether or not it succeeds. */
keel_status safetensors_writer_commit(safetensors_writer *w, keel_error *err);
void safetensors_writer_abandon(safetensors_writer *w);

#endif
