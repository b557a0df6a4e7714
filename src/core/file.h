/* SPDX-License-Identifier: Apache-2.0 */
/* Files: read-only maps, whole reads with a size limit, and writes that appear complete or not at all. */
#ifndef KEEL_CORE_FILE_H
#define KEEL_CORE_FILE_H

#include "core/error.h"

/* What tells one version of a file from another without reading it. */
typedef struct file_id {
    uint64_t bytes, inode;
    int64_t mtime_ns, ctime_ns;
} file_id;

typedef struct file_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t bytes;
    file_id id; /* of what is mapped, taken before the first byte is read */
} file_map;

/* Maps a regular file read-only. A directory, a missing or unreadable file is an error naming path. */
keel_status file_map_open(const char *path, file_map *out, keel_error *err);
void file_map_close(file_map *m);

/* Reads a whole file of at most max_bytes; *out is zero-terminated, free with keel_free(). */
keel_status file_read(const char *path, size_t max_bytes, char **out, size_t *out_bytes, keel_error *err);
bool file_exists(const char *path);
bool file_is_dir(const char *path);

/* A file being written beside its final place (PATH.tmp.PID); nothing is at PATH until commit. */
typedef struct file_writer {
    int fd;
    char *path, *tmp_path;
    uint64_t offset; /* bytes written so far */
    uint8_t *buffer;
    size_t buffered;
} file_writer;

keel_status file_writer_open(const char *path, file_writer *w, keel_error *err);
keel_status file_writer_put(file_writer *w, const void *data, size_t bytes, keel_error *err);
/* Flushes, fsyncs, renames into place and closes. On failure the temporary file is removed. */
keel_status file_writer_commit(file_writer *w, keel_error *err);
/* Removes the temporary file; a no-op after commit. */
void file_writer_abandon(file_writer *w);
/* One-call form. */
keel_status file_write(const char *path, const void *data, size_t bytes, keel_error *err);

/* An advisory lock on a file made for it (flock): the kernel frees it when the holder dies, in whatever way. */
typedef struct file_lock {
    int fd; /* -1: none */
} file_lock;

/* Makes the file where it can and locks it, for itself or shared with others; *taken tells whether that went, out
 * counts only then. Never waits. */
keel_status file_lock_try(const char *path, bool shared, file_lock *out, bool *taken, keel_error *err);
/* A no-op without a lock. The file stays: removing it would let two holders in. */
void file_lock_release(file_lock *l);

/* Makes a folder and those above it; one that is there is fine. */
keel_status folders_make(const char *path, keel_error *err);
/* The identity of what lies at path. */
keel_status file_identify(const char *path, file_id *out, keel_error *err);

/* Joins with one slash; free with keel_free(); NULL when memory is short. */
char *path_join(const char *dir, const char *name);

#endif
