/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/cuda_cubin.h"

#include "core/mem.h"

#include <string.h>

static const char magic[] = "KEELCUB1";
enum { MAGIC = sizeof magic - 1, HEX = SHA256_HEX - 1 };

/* The last bytes of a file; sha covers all in front of itself. Machines with such a GPU are little-endian. */
typedef struct trailer {
    uint64_t code_bytes, source_bytes;
    uint32_t nvrtc_major, nvrtc_minor;
    char arch[CUBIN_ARCH];
    char text[HEX], sha[HEX];
    char magic[MAGIC];
} trailer;

keel_status cubin_seal(const cubin_origin *origin, buf *cubin, keel_error *err) {
    trailer t = {.code_bytes = cubin->len,
                 .source_bytes = strlen(origin->source),
                 .nvrtc_major = origin->nvrtc_major,
                 .nvrtc_minor = origin->nvrtc_minor};
    char sha[SHA256_HEX];
    memcpy(t.arch, origin->arch, sizeof t.arch);
    memcpy(t.text, origin->text, sizeof t.text);
    memcpy(t.magic, magic, sizeof t.magic);
    buf_put(cubin, origin->source, t.source_bytes);
    buf_put(cubin, &t, offsetof(trailer, sha));
    if (cubin->failed) return KEEL_NOMEM_AT(err, "device code");
    KEEL_TRY(sha256_hex(cubin->data, cubin->len, sha, err));
    memcpy(t.sha, sha, sizeof t.sha);
    buf_put(cubin, t.sha, sizeof t - offsetof(trailer, sha));
    return cubin->failed ? KEEL_NOMEM_AT(err, "device code") : KEEL_OK;
}

keel_status cubin_take(const char *file, const void *data, size_t bytes, cubin_parts *out, keel_error *err) {
    trailer t;
    char sha[SHA256_HEX];
    const uint8_t *at = data;
    if (bytes >= sizeof t) memcpy(&t, at + bytes - sizeof t, sizeof t);
    if (bytes < sizeof t || memcmp(t.magic, magic, sizeof t.magic) != 0)
        return error_set(err, KEEL_FORMAT, "%s: is no device code of keel plan --cubin, or cut short", file);
    size_t rest = bytes - sizeof t;
    KEEL_TRY(sha256_hex(data, rest + offsetof(trailer, sha), sha, err));
    if (memcmp(sha, t.sha, sizeof t.sha) != 0 || t.code_bytes > rest || t.source_bytes != rest - t.code_bytes)
        return error_set(err, KEEL_FORMAT, "%s: is damaged: its digest is another one; make it again", file);
    *out = (cubin_parts){.code = at, .code_bytes = (size_t)t.code_bytes};
    out->source = mem_calloc((size_t)t.source_bytes + 1, 1);
    if (!out->source) return KEEL_NOMEM_AT(err, file);
    memcpy(out->source, at + t.code_bytes, (size_t)t.source_bytes);
    out->origin = (cubin_origin){.nvrtc_major = t.nvrtc_major, .nvrtc_minor = t.nvrtc_minor, .source = out->source};
    memcpy(out->origin.arch, t.arch, sizeof t.arch - 1);
    memcpy(out->origin.text, t.text, sizeof t.text);
    return KEEL_OK;
}

void cubin_parts_free(cubin_parts *p) { mem_free(p->source); }

/* The first line in which two texts differ. */
static keel_status other_plan(const char *file, const char *have, const char *want, keel_error *err) {
    size_t a, b;
    for (;;) {
        a = strcspn(have, "\n"), b = strcspn(want, "\n");
        if (a != b || memcmp(have, want, a) != 0 || !have[a] || !want[b]) break;
        have += a + 1, want += b + 1;
    }
    return error_set(err, KEEL_USAGE,
                     "%s: was compiled for another plan: it has \"%.*s\" where this one has \"%.*s\"; make it again "
                     "with keel plan --cubin and the options of this run",
                     file, (int)(a < 120 ? a : 120), have, (int)(b < 120 ? b : 120), want);
}

keel_status cubin_match(const char *file, const cubin_origin *have, const cubin_origin *want, keel_error *err) {
    if (strcmp(have->arch, want->arch) != 0)
        return error_set(err, KEEL_USAGE,
                         "%s: was compiled for %s, the plan is for %s; make it again with keel plan --arch %s --cubin",
                         file, have->arch, want->arch, want->arch);
    if (strcmp(have->text, want->text) != 0)
        return error_set(err, KEEL_USAGE,
                         "%s: was compiled by another build of keel, with other device code; make it again with this "
                         "build's keel plan --cubin",
                         file);
    return strcmp(have->source, want->source) == 0 ? KEEL_OK : other_plan(file, have->source, want->source, err);
}
