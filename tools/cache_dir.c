/* SPDX-License-Identifier: Apache-2.0 */
#include "cache_dir.h"

#include "fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static keel_status join(const char *base, const char *tail, char **out, keel_error *err) {
    size_t n = strlen(base) + strlen(tail) + 1;
    *out = malloc(n);
    if (!*out) return fail_memory(err, base);
    snprintf(*out, n, "%s%s", base, tail);
    return KEEL_OK;
}

keel_status cache_dir_of(const args *a, char **out, keel_error *err) {
    const option_value *given = &a->value[OPT_CACHE_DIR];
    if (given->given && !*given->text) return args_refuse(a->verb, err, "--cache-dir: names no folder");
    if (given->given) return join(given->text, "", out, err);
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (base && *base == '/') return join(base, "/keel", out, err);
    if (home && *home == '/') return join(home, "/.cache/keel", out, err);
    return args_refuse(a->verb, err,
                       "neither XDG_CACHE_HOME nor HOME says where the weight cache is; give --cache-dir");
}
