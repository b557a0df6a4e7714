/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_memory.h"

#include "core/mem.h"

#include <inttypes.h>
#include <string.h>

enum { ALIGN = 256, ZONE = 4096, CANARY = 0xa5 };

static uint64_t rounded(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static bool guarded(const plan_buffer *b) {
    return b->kind == BUFFER_CACHE || (buffer_placed(b->kind) && b->kind != BUFFER_SYMMETRIC);
}

keel_status op_memory_open(op_memory *m, plan *p, keel_error *err) {
    *m = (op_memory){.p = p, .device = strcmp(p->arch, "cpu") != 0};
    p->arena_bytes = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        plan_buffer *b = &p->buffers[i];
        if (b->kind == BUFFER_CACHE) {
            b->bytes += ZONE;
        } else if (guarded(b)) { /* each has bytes of its own: plans of the harness share none */
            b->offset = p->arena_bytes + ZONE;
            p->arena_bytes = b->offset + rounded(b->bytes) + ZONE;
        }
    }
    return m->device ? cuda_driver_open(&m->d, err) : KEEL_OK;
}

uint64_t op_memory_bytes(const op_memory *m, uint32_t buffer) {
    const plan_buffer *b = &m->p->buffers[buffer];
    return b->bytes - (b->kind == BUFFER_CACHE ? ZONE : 0);
}

static keel_status take(const op_memory *m, const uint8_t *at, void *to, uint64_t bytes, keel_error *err) {
    if (m->device) return cuda_check(&m->d, m->d.copy_from(to, (cu_ptr)(uintptr_t)at, bytes), "copy back", err);
    memcpy(to, at, bytes);
    return KEEL_OK;
}

/* A copy from pageable memory may still be on its way when it returns, and sessions run on a stream of their own. */
static keel_status put(const op_memory *m, uint8_t *at, const void *from, uint64_t bytes, keel_error *err) {
    if (!m->device) {
        memcpy(at, from, bytes);
        return KEEL_OK;
    }
    CUDA_TRY(&m->d, "copy to the GPU", m->d.copy_to((cu_ptr)(uintptr_t)at, from, bytes));
    return cuda_check(&m->d, m->d.stream_wait(NULL), "copy to the GPU", err);
}

keel_status op_memory_read(const op_memory *m, session *s, uint32_t buffer, void *to, keel_error *err) {
    return take(m, session_buffer(s, buffer), to, op_memory_bytes(m, buffer), err);
}

keel_status op_memory_write(const op_memory *m, session *s, uint32_t buffer, const void *from, keel_error *err) {
    return put(m, session_buffer(s, buffer), from, op_memory_bytes(m, buffer), err);
}

keel_status op_memory_fill(const op_memory *m, session *s, uint32_t buffer, int value, keel_error *err) {
    uint64_t bytes = op_memory_bytes(m, buffer);
    void *image = mem_alloc(bytes + 1);
    if (!image) return KEEL_NOMEM_AT(err, "op memory");
    memset(image, value, bytes);
    keel_status status = op_memory_write(m, s, buffer, image, err);
    mem_free(image);
    return status;
}

/* The zone before a buffer (side 0; none of a cache) or behind it, as bytes from the buffer's begin. */
static int64_t zone(const op_memory *m, uint32_t buffer, int side, uint64_t early, uint64_t *bytes) {
    const plan_buffer *b = &m->p->buffers[buffer];
    uint64_t end = op_memory_bytes(m, buffer);
    if (side == 0) {
        *bytes = b->kind == BUFFER_CACHE ? 0 : ZONE;
        return -(int64_t)*bytes;
    }
    uint64_t until = (b->kind == BUFFER_CACHE ? end : rounded(end)) + ZONE;
    if (b->kind == BUFFER_ACTIVATION && !b->external) end -= early * dtype_bytes(b->dtype);
    *bytes = until - end;
    return (int64_t)end;
}

/* How many of n bytes are no canaries, and the first. */
static uint64_t strays(const uint8_t *bytes, uint64_t n, uint64_t *first) {
    uint64_t found = 0;
    for (uint64_t i = n; i-- > 0;) {
        if (bytes[i] == CANARY) continue;
        *first = i;
        found++;
    }
    return found;
}

static keel_status look(const op_memory *m, session *s, uint32_t buffer, int side, uint64_t early, keel_error *err) {
    uint8_t image[ALIGN + ZONE + 64];
    uint64_t bytes, first = 0;
    int64_t at = zone(m, buffer, side, early, &bytes);
    const plan_buffer *b = &m->p->buffers[buffer];
    const uint8_t *begin = session_buffer(s, buffer);
    KEEL_TRY(take(m, begin + at, image, bytes, err));
    uint64_t found = strays(image, bytes, &first);
    if (!found) return KEEL_OK;
    return error_set(err, KEEL_REFUSED,
                     "canaries %s %s (%" PRIu64 " bytes) are damaged: %" PRIu64 " bytes, the first at %" PRId64,
                     side ? "behind" : "before", b->name, op_memory_bytes(m, buffer), found, at + (int64_t)first);
}

static keel_status draw(const op_memory *m, session *s, uint32_t buffer, int side, uint64_t early, keel_error *err) {
    uint8_t image[ALIGN + ZONE + 64];
    uint64_t bytes;
    int64_t at = zone(m, buffer, side, early, &bytes);
    memset(image, CANARY, sizeof image);
    return put(m, (uint8_t *)session_buffer(s, buffer) + at, image, bytes, err);
}

keel_status op_memory_guard(const op_memory *m, session *s, uint64_t early, keel_error *err) {
    for (uint32_t i = 0; i < m->p->n_buffers; i++) {
        for (int side = 0; side < 2 && guarded(&m->p->buffers[i]); side++) KEEL_TRY(draw(m, s, i, side, early, err));
    }
    return KEEL_OK;
}

keel_status op_memory_check(const op_memory *m, session *s, uint64_t early, keel_error *err) {
    for (uint32_t i = 0; i < m->p->n_buffers; i++) {
        for (int side = 0; side < 2 && guarded(&m->p->buffers[i]); side++) KEEL_TRY(look(m, s, i, side, early, err));
    }
    return KEEL_OK;
}
