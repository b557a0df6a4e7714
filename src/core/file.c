/* SPDX-License-Identifier: Apache-2.0 */
#include "core/file.h"

#include "core/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_WRITER_BUFFER_BYTES = 1 << 20 };

static int64_t nanoseconds(struct timespec t) { return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }

static file_id id_of(const struct stat *st) {
    return (file_id){(uint64_t)st->st_size, st->st_ino, nanoseconds(st->st_mtim), nanoseconds(st->st_ctim)};
}

static keel_status regular_open(const char *path, int *fd, file_id *id, keel_error *err) {
    int f = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) /* a FIFO must not block */;
    if (f < 0) return error_errno(err, path, "open");
    struct stat st;
    if (fstat(f, &st) != 0) {
        keel_status s = error_errno(err, path, "stat");
        close(f);
        return s;
    }
    if (!S_ISREG(st.st_mode)) {
        close(f);
        return error_set(err, KEEL_IO, "%s: not a regular file", path);
    }
    *fd = f;
    *id = id_of(&st);
    return KEEL_OK;
}

keel_status file_identify(const char *path, file_id *out, keel_error *err) {
    struct stat st;
    if (stat(path, &st) != 0) return error_errno(err, path, "look at");
    *out = id_of(&st);
    return KEEL_OK;
}

keel_status file_map_open(const char *path, file_map *out, keel_error *err) {
    int fd = -1;
    file_id id = {0};
    KEEL_TRY(regular_open(path, &fd, &id, err));
    size_t bytes = (size_t)id.bytes;
    void *p = bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    keel_status s = p == MAP_FAILED ? error_errno(err, path, "map") : KEEL_OK;
    close(fd);
    if (s == KEEL_OK) *out = (file_map){p, bytes, id};
    return s;
}

void file_map_close(file_map *m) {
    if (m->data) munmap((void *)(uintptr_t)m->data, m->bytes);
    *m = (file_map){0};
}

keel_status file_read(const char *path, size_t max_bytes, char **out, size_t *out_bytes, keel_error *err) {
    int fd = -1;
    file_id id = {0};
    KEEL_TRY(regular_open(path, &fd, &id, err));
    size_t bytes = (size_t)id.bytes, got = 0;
    char *p = bytes > max_bytes ? NULL : mem_alloc(bytes + 1);
    keel_status s = KEEL_OK;
    if (bytes > max_bytes) {
        s = error_set(err, KEEL_RANGE, "%s: %zu bytes, more than the %zu that such a file may have", path, bytes,
                      max_bytes);
    } else if (!p) {
        s = KEEL_NOMEM_AT(err, path);
    }
    while (s == KEEL_OK && got < bytes) {
        ssize_t n = read(fd, p + got, bytes - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) s = error_errno(err, path, "read");
        if (n <= 0) break;
        got += (size_t)n;
    }
    close(fd);
    if (s != KEEL_OK) {
        mem_free(p);
        return s;
    }
    p[got] = '\0';
    *out = p;
    if (out_bytes) *out_bytes = got;
    return KEEL_OK;
}

bool file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

keel_status file_writer_open(const char *path, file_writer *w, keel_error *err) {
    struct stat st;
    *w = (file_writer){.fd = -1};
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return error_set(err, KEEL_USAGE, "%s: exists and is no regular file; name another", path);
    }
    char *target = realpath(path, NULL); /* the file behind a link is replaced, not the link */
    size_t n = strlen(target ? target : path) + 32;
    w->path = mem_alloc(n);
    w->tmp_path = mem_alloc(n);
    w->buffer = mem_alloc(FILE_WRITER_BUFFER_BYTES);
    keel_status s = KEEL_OK;
    if (!w->path || !w->tmp_path || !w->buffer) {
        s = KEEL_NOMEM_AT(err, path);
    } else {
        snprintf(w->path, n, "%s", target ? target : path);
        snprintf(w->tmp_path, n, "%s.tmp.%ld", w->path, (long)getpid());
        w->fd = open(w->tmp_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (w->fd < 0) s = error_errno(err, w->tmp_path, "create");
    }
    keel_free(target);
    if (s != KEEL_OK) file_writer_abandon(w);
    return s;
}

static keel_status fd_write_all(file_writer *w, const uint8_t *data, size_t bytes, keel_error *err) {
    while (bytes) {
        ssize_t n = write(w->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_errno(err, w->path, "write");
        data += n;
        bytes -= (size_t)n;
    }
    return KEEL_OK;
}

static keel_status writer_flush(file_writer *w, keel_error *err) {
    size_t n = w->buffered;
    w->buffered = 0;
    return fd_write_all(w, w->buffer, n, err);
}

keel_status file_writer_put(file_writer *w, const void *data, size_t bytes, keel_error *err) {
    w->offset += bytes;
    if (bytes > FILE_WRITER_BUFFER_BYTES - w->buffered) KEEL_TRY(writer_flush(w, err));
    if (bytes >= FILE_WRITER_BUFFER_BYTES) return fd_write_all(w, data, bytes, err);
    if (bytes) memcpy(w->buffer + w->buffered, data, bytes);
    w->buffered += bytes;
    return KEEL_OK;
}

keel_status file_writer_commit(file_writer *w, keel_error *err) {
    keel_status s = writer_flush(w, err);
    if (s == KEEL_OK && fsync(w->fd) != 0) s = error_errno(err, w->path, "sync");
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 && s == KEEL_OK) s = error_errno(err, w->path, "close");
    if (s == KEEL_OK && rename(w->tmp_path, w->path) != 0) s = error_errno(err, w->path, "rename into place");
    if (s != KEEL_OK) {
        unlink(w->tmp_path);
    }
    mem_free(w->tmp_path);
    w->tmp_path = NULL;
    file_writer_abandon(w);
    return s;
}

void file_writer_abandon(file_writer *w) {
    if (w->fd >= 0) close(w->fd);
    if (w->tmp_path && w->fd >= 0) unlink(w->tmp_path);
    mem_free(w->path);
    mem_free(w->tmp_path);
    mem_free(w->buffer);
    *w = (file_writer){.fd = -1};
}

keel_status file_write(const char *path, const void *data, size_t bytes, keel_error *err) {
    file_writer w;
    KEEL_TRY(file_writer_open(path, &w, err));
    keel_status s = file_writer_put(&w, data, bytes, err);
    if (s == KEEL_OK) return file_writer_commit(&w, err);
    file_writer_abandon(&w);
    return s;
}

static keel_status lock_open(const char *path, int *fd, keel_error *err) {
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    *fd = open(path, O_RDWR | O_CREAT | flags, 0644);
    /* Somebody else's file, or a file system for reading, can be locked all the same. */
    if (*fd < 0 && (errno == EACCES || errno == EROFS || errno == EPERM)) *fd = open(path, O_RDONLY | flags);
    return *fd < 0 ? error_errno(err, path, "open the lock file") : KEEL_OK;
}

/* The file locked is still the one at path: else its folder was removed meanwhile, and others lock a new one. */
static bool lock_in_place(int fd, const char *path) {
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

keel_status file_lock_try(const char *path, bool shared, file_lock *out, bool *taken, keel_error *err) {
    int fd, got;
    KEEL_TRY(lock_open(path, &fd, err));
    do got = flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
    while (got != 0 && errno == EINTR);
    keel_status s = got != 0 && errno != EWOULDBLOCK ? error_errno(err, path, "lock") : KEEL_OK;
    *taken = got == 0 && lock_in_place(fd, path);
    if (*taken)
        out->fd = fd;
    else
        close(fd);
    return s;
}

void file_lock_release(file_lock *l) {
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}

keel_status folders_make(const char *path, keel_error *err) {
    if (file_is_dir(path)) return KEEL_OK;
    size_t n = strlen(path);
    char *part = mem_alloc(n + 1);
    if (!part) return KEEL_NOMEM_AT(err, path);
    memcpy(part, path, n + 1);
    keel_status s = KEEL_OK;
    for (size_t i = 1; i <= n && s == KEEL_OK; i++) {
        if (part[i] != '/' && part[i]) continue;
        part[i] = '\0';
        int e = mkdir(part, 0755) != 0 ? errno : 0;
        if (e && !file_is_dir(part)) {
            errno = e;
            s = e == EEXIST || e == ENOTDIR
                    ? error_set(err, KEEL_USAGE, "%s: is in the way of a folder; remove it or name another", part)
                    : error_errno(err, part, "create the folder");
        }
        part[i] = path[i];
    }
    mem_free(part);
    return s;
}

char *path_join(const char *dir, const char *name) {
    size_t n = strlen(dir), m = strlen(name);
    char *p = mem_alloc(n + m + 2);
    if (!p) return NULL;
    const char *slash = n && dir[n - 1] == '/' ? "" : "/";
    snprintf(p, n + m + 2, "%s%s%s", dir, slash, name);
    return p;
}
