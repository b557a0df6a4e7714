/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion recipes: which pieces of a rank's weights an arch wants in another form than the checkpoint has, and that
 * form. A new arch with a form of its own is a new entry of the table. */
#ifndef KEEL_LOAD_WEIGHT_RECIPE_H
#define KEEL_LOAD_WEIGHT_RECIPE_H

#include "core/sha256.h"
#include "load/safetensors.h"
#include "load/slice.h"

typedef struct weight_recipe {
    const char *name;
    uint32_t version; /* counted up by whoever changes the functions below; the fingerprint notices it otherwise too */
    const char *arch;
    /* A copy is needed; otherwise the checkpoint's rows serve as they lie, from the slice's first. */
    bool (*stores)(const weight_piece *p);
    /* Type and shape of the copy; the name is set by the caller. */
    void (*shape)(const weight_piece *p, safetensor_decl *out);
    /* Makes it: a pure function of p and the bytes at p->whole. */
    void (*pack)(const weight_piece *p, void *out);
} weight_recipe;

/* NULL for an arch without one. */
const weight_recipe *weight_recipe_find(const char *arch);
/* All of them; NULL past the last. */
const weight_recipe *weight_recipe_at(size_t i);
/* Bytes of the copy. */
uint64_t weight_recipe_bytes(const weight_recipe *r, const weight_piece *p);
/* SHA-256 over the declared name, version and arch AND over what the functions do with a fixed set of small pieces, so
 * that changed code shows even where nobody counted the version up. Some microseconds. */
keel_status weight_recipe_fingerprint(const weight_recipe *r, char hex[SHA256_HEX], keel_error *err);

#endif
