/* SPDX-License-Identifier: Apache-2.0 */
/* What a role body may use. Around each body the protocol has already waited, and will signal afterwards:
 *
 *   loader    pages claimed before; may start copies of data that no task of this run writes (weights)
 *   launcher  pages claimed and events satisfied before; starts the copies of activations (kb_bulk, kb_fetch_rows)
 *   consumer  all copies landed before; computes from regions and buffers into regions
 *   storer    all consumer lanes done before; moves results to buffers (kb_store_rows); the event is triggered after
 *
 * Each body runs on every lane of its role: split the work with kb_share(). Buffers that other tasks write may be read
 * by launcher, consumer and storer, never by the loader. Only buffers that the op's tile function declared are touched.
 */
#ifndef KEEL_DEVICE_BODY_H
#define KEEL_DEVICE_BODY_H

#include "device/worker.h"

typedef void (*kb_body)(kp_ctx *c);

/* Supplied by the backend: asynchronous copy; the consumer of this task does not start before it has landed.
 * From a launcher (or loader) body only. */
void kb_bulk(kp_ctx *c, void *dst, const void *src, kp_u32 bytes);

/* On the GPU parameters are constants of the plan's code; buffers and step record are read from copies in SMEM. */
#ifdef __CUDACC__
KP_FN void *kb_region(const kp_ctx *c, kp_u32 i) { return kd_pages() + c->task->region_offset[i]; }
KP_FN const void *kb_params(const kp_ctx *c) { return c->params; }
KP_FN void *kb_buffer(const kp_ctx *c, kp_u32 i) { return c->slot->record.buffer[i]; }
KP_FN const kp_step *kb_step(const kp_ctx *c) { return &c->worker->step; }
#else
KP_FN void *kb_region(const kp_ctx *c, kp_u32 i) { return c->worker->smem + c->task->region_offset[i]; }
KP_FN const void *kb_params(const kp_ctx *c) { return c->worker->launch->instances[c->task->instance].params; }
/* By position: inputs, weights, outputs, scratch, as the op's header numbers them. Null where the graph bound none. */
KP_FN void *kb_buffer(const kp_ctx *c, kp_u32 i) { return c->worker->launch->instances[c->task->instance].buffer[i]; }
KP_FN const kp_step *kb_step(const kp_ctx *c) { return c->worker->launch->step; }
#endif
/* The same buffer on rank r; it lies in symmetric memory. */
KP_FN const void *kb_buffer_of(const kp_ctx *c, kp_u32 i, kp_u32 r) {
    const kp_launch *l = c->worker->launch;
    return l->world <= 1 ? kb_buffer(c, i)
                         : l->rank_memory[r] + ((const kp_u8 *)kb_buffer(c, i) - l->rank_memory[l->rank]);
}
#ifdef KD_M_MAX
KP_FN kp_u32 kb_rows_live(const kp_ctx *c) { return KD_M_MAX == 1 ? 1 : kb_step(c)->n_rows; }
#else
KP_FN kp_u32 kb_rows_live(const kp_ctx *c) { return kb_step(c)->n_rows; }
#endif

/* Rows that a tensor of the given row space holds in this iteration: [*lo, n). */
KP_FN kp_u32 kb_rows_from(const kp_ctx *c, kp_u32 logit_rows) { return logit_rows ? kb_step(c)->logit_from : 0; }

/* This lane's share [*a, *b) of [lo, hi), whole multiples of `grain` but for the end. */
KP_FN void kb_share(const kp_ctx *c, kp_u32 lo, kp_u32 hi, kp_u32 grain, kp_u32 *a, kp_u32 *b) {
    kp_u32 lanes = KP_LANES(c, c->role), units = (hi - lo + grain - 1) / grain, each = (units + lanes - 1) / lanes;
    kp_u32 from = lo + each * c->lane * grain, to = from + each * grain;
    *a = from < hi ? from : hi;
    *b = to < hi ? to : hi;
}

#endif
