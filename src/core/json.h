/* SPDX-License-Identifier: Apache-2.0 */
/* jansson with errors that name the file and the key. Values are borrowed from the root. */
#ifndef KEEL_CORE_JSON_H
#define KEEL_CORE_JSON_H

#include "core/error.h"

#include <jansson.h>

/* Parses bytes; duplicate keys and malformed text are KEEL_FORMAT naming file, line and column.
 * Depth is bounded by jansson. A file with an integer beyond 64 bits has all its integers read as reals. Caller owns
 * *out (json_decref). */
keel_status json_parse(const char *file, const char *text, size_t bytes, json_t **out, keel_error *err);
keel_status json_read(const char *path, size_t max_bytes, json_t **out, keel_error *err);
/* The value as text with a line end behind it, complete or not at all. flags: jansson's, for the dump. */
keel_status json_write(const char *path, const json_t *value, size_t flags, keel_error *err);

/* Typed look-ups in an object. A present key of the wrong type or outside [lo, hi] is KEEL_FORMAT or
 * KEEL_RANGE naming file and key; an absent (or null) key leaves *out at its value for _opt, and is
 * KEEL_MISSING otherwise. */
keel_status json_get_int(const char *file, const json_t *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
                         keel_error *err);
keel_status json_opt_int(const char *file, const json_t *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
                         keel_error *err);
keel_status json_opt_real(const char *file, const json_t *obj, const char *key, double *out, keel_error *err);
keel_status json_opt_bool(const char *file, const json_t *obj, const char *key, bool *out, keel_error *err);
keel_status json_opt_string(const char *file, const json_t *obj, const char *key, const char **out, keel_error *err);

#endif
