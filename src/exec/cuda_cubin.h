/* SPDX-License-Identifier: Apache-2.0 */
/* The file of compiled device code: the cubin as the compiler gave it, behind it the plan's own source lines, and a
 * trailer that says what both were made from. The driver looks at the cubin alone. */
#ifndef KEEL_EXEC_CUDA_CUBIN_H
#define KEEL_EXEC_CUDA_CUBIN_H

#include "core/buf.h"
#include "core/sha256.h"

enum { CUBIN_ARCH = 16, CUBIN_MAX_BYTES = 256 << 20 };

/* What device code depends on. */
typedef struct cubin_origin {
    char arch[CUBIN_ARCH];
    uint32_t nvrtc_major, nvrtc_minor;
    char text[SHA256_HEX]; /* SHA-256 of the built-in device text and the compiler's options */
    const char *source;    /* the plan's own lines */
} cubin_origin;

/* A file's parts; they point into it. */
typedef struct cubin_parts {
    const uint8_t *code;
    size_t code_bytes;
    cubin_origin origin; /* source is a copy: cubin_parts_free() */
    char *source;
} cubin_parts;

/* Appends source and trailer to the cubin. */
keel_status cubin_seal(const cubin_origin *origin, buf *cubin, keel_error *err);
/* KEEL_FORMAT: it is no such file, or damaged. */
keel_status cubin_take(const char *file, const void *data, size_t bytes, cubin_parts *out, keel_error *err);
void cubin_parts_free(cubin_parts *p);

/* KEEL_USAGE names the first thing in which the file is not what is wanted: arch, device text, the plan's lines. The
 * compiler's version does not count. */
keel_status cubin_match(const char *file, const cubin_origin *have, const cubin_origin *want, keel_error *err);

#endif
