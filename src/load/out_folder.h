/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of files that appears complete or not at all: it is filled as PATH.tmp.PID. */
#ifndef KEEL_LOAD_OUT_FOLDER_H
#define KEEL_LOAD_OUT_FOLDER_H

#include "core/error.h"

typedef struct out_folder {
    char *path, *tmp; /* tmp: where to write */
} out_folder;

/* path must not exist (KEEL_USAGE); slashes at its end do not count. out_folder_end() must follow success. */
keel_status out_folder_begin(const char *path, out_folder *out, keel_error *err);
/* status KEEL_OK: the folder takes its place; else, or when that fails, it is removed. Returns what came of it. */
keel_status out_folder_end(out_folder *f, keel_status status, keel_error *err);

#endif
