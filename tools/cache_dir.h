/* SPDX-License-Identifier: Apache-2.0 */
/* Where the weight cache is. */
#ifndef KEEL_TOOLS_CACHE_DIR_H
#define KEEL_TOOLS_CACHE_DIR_H

#include "args.h"

/* --cache-dir, else $XDG_CACHE_HOME/keel, else $HOME/.cache/keel (XDG Base Directory Specification: a path that is not
 * absolute counts as not set). *out is the caller's (free). KEEL_USAGE when none of them is known. */
keel_status cache_dir_of(const args *a, char **out, keel_error *err);

/* The same, or NULL where none can be written and none was asked for: weights are then packed in memory. */
keel_status cache_dir_or_none(const args *a, char **out, keel_error *err);

/* The same for compiled device code, which may also be read from a folder that cannot be written: NULL where no folder
 * is known. */
keel_status cache_dir_to_read(const args *a, char **out, keel_error *err);

#endif
