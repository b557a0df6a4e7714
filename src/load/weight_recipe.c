/* SPDX-License-Identifier: Apache-2.0 */
#include "load/weight_recipe.h"

#include "core/buf.h"
#include "core/mem.h"

#include <string.h>

/* CPU bodies read rows in place, at any stride but contiguous and aligned to the element. */
static bool cpu_stores(const weight_piece *p) {
    slice_runs r = slice_runs_of(p);
    return !slice_is_run(&r) || (uintptr_t)p->whole % dtype_bytes(p->dtype) != 0;
}

static void cpu_shape(const weight_piece *p, safetensor_decl *out) {
    out->dtype = p->dtype;
    out->rank = p->rank;
    memcpy(out->dim, p->dim, (size_t)p->rank * sizeof *p->dim);
}

static const weight_recipe recipes[] = {
    {.name = "cpu", .version = 1, .arch = "cpu", .stores = cpu_stores, .shape = cpu_shape, .pack = slice_copy},
};

const weight_recipe *weight_recipe_at(size_t i) { return i < sizeof recipes / sizeof *recipes ? &recipes[i] : NULL; }

const weight_recipe *weight_recipe_find(const char *arch) {
    const weight_recipe *r;
    for (size_t i = 0; (r = weight_recipe_at(i)) && strcmp(r->arch, arch) != 0;) i++;
    return r;
}

uint64_t weight_recipe_bytes(const weight_recipe *r, const weight_piece *p) {
    safetensor_decl d = {.rank = 0};
    r->shape(p, &d);
    uint64_t n = dtype_bytes(d.dtype);
    for (int i = 0; i < d.rank; i++) n *= (uint64_t)d.dim[i];
    return n;
}

/* Every kind of slice (none, by the first, a middle and the last dimension, two, reaching past the end by part and
 * whole), every element size, and an address that is not aligned. */
typedef struct probe {
    dtype dtype;
    int rank;
    int64_t dim[GRAPH_RANK];
    shard_slice slice, inner;
    size_t offset; /* of the whole in the probe bytes */
} probe;

#define UNCUT                                                                                                          \
    { -1, 0, 0, 0 }
static const probe probes[] = {
    {DTYPE_F32, 2, {5, 7}, UNCUT, UNCUT, 0},
    {DTYPE_BF16, 2, {5, 7}, UNCUT, UNCUT, 1},
    {DTYPE_BF16, 2, {3, 8}, {0, 3, 3, 9}, UNCUT, 0},
    {DTYPE_F16, 2, {4, 3}, {0, 4, 4, 6}, UNCUT, 0},
    {DTYPE_F32, 1, {4}, {0, 8, 4, 12}, UNCUT, 4},
    {DTYPE_F32, 2, {3, 4}, {1, 4, 4, 12}, UNCUT, 0},
    {DTYPE_BF16, 2, {16, 16}, {1, 16, 16, 32}, UNCUT, 0},
    {DTYPE_BF16, 2, {3, 4}, {1, 8, 4, 10}, UNCUT, 0},
    {DTYPE_F16, 3, {2, 2, 5}, {1, 2, 2, 4}, UNCUT, 2},
    {DTYPE_F8E4M3, 3, {2, 3, 4}, {2, 12, 4, 9}, UNCUT, 0},
    {DTYPE_BF16, 3, {2, 3, 4}, {0, 2, 2, 4}, {2, 4, 4, 8}, 0},
    {DTYPE_BF16, 3, {2, 3, 4}, {0, 2, 2, 3}, {1, 3, 3, 6}, 0},
};
enum { PROBE_BYTES = 2048, PROBE_OUT_BYTES = 64 << 10 };

static void probe_put(const weight_recipe *r, const probe *q, const uint8_t *bytes, uint8_t *out, buf *b) {
    weight_piece p = {"probe", "probe", q->dtype, q->rank, q->dim, q->slice, q->inner, bytes + q->offset};
    safetensor_decl d = {.rank = 0};
    bool stores = r->stores(&p);
    buf_u8(b, stores);
    if (!stores) return;
    r->shape(&p, &d);
    buf_u32(b, (uint32_t)d.dtype);
    for (int i = 0; i < d.rank; i++) buf_u64(b, (uint64_t)d.dim[i]);
    uint64_t n = weight_recipe_bytes(r, &p);
    buf_u64(b, n);
    if (n > PROBE_OUT_BYTES) return; /* the shape alone tells */
    r->pack(&p, out);
    buf_put(b, out, n);
}

keel_status weight_recipe_fingerprint(const weight_recipe *r, char hex[SHA256_HEX], keel_error *err) {
    uint8_t *bytes = mem_aligned(64, PROBE_BYTES), *out = mem_aligned(64, PROBE_OUT_BYTES);
    buf b = {0};
    keel_status s = bytes && out ? KEEL_OK : KEEL_NOMEM_AT(err, r->name);
    if (s == KEEL_OK) {
        for (uint32_t i = 0; i < PROBE_BYTES; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 24);
        buf_printf(&b, "%s %u %s\n", r->name, r->version, r->arch);
        for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) probe_put(r, &probes[i], bytes, out, &b);
        s = b.failed ? KEEL_NOMEM_AT(err, r->name) : sha256_hex(b.data, b.len, hex, err);
    }
    buf_free(&b);
    mem_free(bytes);
    mem_free(out);
    return s;
}
