/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of a session, in the host's memory or a GPU's, and canaries: zones before and behind each activation,
 * scratch buffer and KV cache that nothing may touch. */
#ifndef KEEL_TESTS_OP_MEMORY_H
#define KEEL_TESTS_OP_MEMORY_H

#include "exec/cuda_api.h"
#include "exec/session.h"

typedef struct op_memory {
    plan *p;
    bool device; /* buffers lie where only the driver's copies reach them */
    cuda_driver d;
} op_memory;

/* Makes room for the zones in a plan that nobody has opened yet. */
keel_status op_memory_open(op_memory *m, plan *p, keel_error *err);

/* Bytes of a buffer without the zone behind it. */
uint64_t op_memory_bytes(const op_memory *m, uint32_t buffer);
keel_status op_memory_read(const op_memory *m, session *s, uint32_t buffer, void *to, keel_error *err);
keel_status op_memory_write(const op_memory *m, session *s, uint32_t buffer, const void *from, keel_error *err);
/* All bytes of a buffer. */
keel_status op_memory_fill(const op_memory *m, session *s, uint32_t buffer, int value, keel_error *err);

/* Draws all zones; those behind outputs begin `early` elements before the output's end: a planted fault. */
keel_status op_memory_guard(const op_memory *m, session *s, uint64_t early, keel_error *err);
/* KEEL_REFUSED names the first buffer with a zone that is no longer as it was drawn. */
keel_status op_memory_check(const op_memory *m, session *s, uint64_t early, keel_error *err);

#endif
