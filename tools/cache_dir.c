/* SPDX-License-Identifier: Apache-2.0 */
#include "cache_dir.h"

#include "fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Can the folder be written, or be made in the nearest one that exists? */
static bool usable(const char *path) {
    char *at = strdup(path);
    bool yes = false;
    while (at && *at) {
        if (access(at, F_OK) == 0) {
            yes = access(at, W_OK | X_OK) == 0;
            break;
        }
        char *slash = strrchr(at, '/');
        if (!slash || slash == at) {
            yes = access(slash ? "/" : ".", W_OK | X_OK) == 0;
            break;
        }
        *slash = '\0';
    }
    free(at);
    return yes;
}

keel_status cache_dir_or_none(const args *a, char **out, keel_error *err) {
    keel_error none = KEEL_ERROR_INITIALIZER;
    if (a->value[OPT_CACHE_DIR].given) return cache_dir_of(a, out, err);
    *out = NULL;
    if (cache_dir_of(a, out, &none) == KEEL_NOMEM) return fail_memory(err, "--cache-dir");
    if (*out && !usable(*out)) {
        free(*out);
        *out = NULL;
    }
    return KEEL_OK;
}

keel_status cache_dir_to_read(const args *a, char **out, keel_error *err) {
    keel_error none = KEEL_ERROR_INITIALIZER;
    if (a->value[OPT_CACHE_DIR].given) return cache_dir_of(a, out, err);
    *out = NULL;
    return cache_dir_of(a, out, &none) == KEEL_NOMEM ? fail_memory(err, "--cache-dir") : KEEL_OK;
}
