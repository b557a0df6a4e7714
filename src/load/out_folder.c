/* SPDX-License-Identifier: Apache-2.0 */
#include "load/out_folder.h"

#include "core/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Removes a folder that holds plain files only. */
static void folder_remove(const char *dir) {
    DIR *d = opendir(dir);
    if (!d) return;
    for (const struct dirent *e; (e = readdir(d));) unlinkat(dirfd(d), e->d_name, 0); /* "." and ".." stay */
    closedir(d);
    rmdir(dir);
}

/* A folder of that name can only be what an earlier process with this number left when it was killed. */
static keel_status folder_make(const char *dir, keel_error *err) {
    if (mkdir(dir, 0755) == 0) return KEEL_OK;
    if (errno == EEXIST) folder_remove(dir);
    return mkdir(dir, 0755) == 0 ? KEEL_OK : error_errno(err, dir, "create");
}

static keel_status already_there(const char *path, keel_error *err) {
    return error_set(err, KEEL_USAGE, "%s: already exists; name a new folder or remove it first", path);
}

/* renameat2 refuses an existing target where rename would replace an empty folder; a file system without it (EINVAL)
 * gets the plain one. */
static keel_status folder_commit(const out_folder *f, keel_error *err) {
    int fd = open(f->tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* best effort: not every file system can */
        close(fd);
    }
    if (renameat2(AT_FDCWD, f->tmp, AT_FDCWD, f->path, RENAME_NOREPLACE) == 0) return KEEL_OK;
    if (errno == EEXIST) return already_there(f->path, err);
    if ((errno == EINVAL || errno == ENOSYS) && rename(f->tmp, f->path) == 0) return KEEL_OK;
    return error_errno(err, f->path, "rename the finished folder to");
}

static void folder_free(out_folder *f) {
    mem_free(f->path), mem_free(f->tmp);
    *f = (out_folder){0};
}

keel_status out_folder_begin(const char *path, out_folder *out, keel_error *err) {
    size_t n = strlen(path);
    struct stat st;
    while (n > 1 && path[n - 1] == '/') n--;
    if (!n) return error_set(err, KEEL_USAGE, "the output folder has no name");
    *out = (out_folder){mem_alloc(n + 1), mem_alloc(n + 32)};
    keel_status s = out->path && out->tmp ? KEEL_OK : KEEL_NOMEM_AT(err, path);
    if (s == KEEL_OK) {
        memcpy(out->path, path, n);
        out->path[n] = '\0';
        snprintf(out->tmp, n + 32, "%s.tmp.%ld", out->path, (long)getpid());
        s = lstat(out->path, &st) == 0 ? already_there(out->path, err) : folder_make(out->tmp, err);
    }
    if (s != KEEL_OK) folder_free(out);
    return s;
}

keel_status out_folder_end(out_folder *f, keel_status status, keel_error *err) {
    if (status == KEEL_OK) status = folder_commit(f, err);
    if (status != KEEL_OK) folder_remove(f->tmp);
    folder_free(f);
    return status;
}
