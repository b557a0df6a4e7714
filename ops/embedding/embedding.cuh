/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_EMBEDDING_CUH
#define KEEL_OPS_EMBEDDING_CUH

#include "device/cuda_body.cuh"
#include "embedding.h"

/* Rows of the table straight to the output: they are the ones of this pass's tokens, so after the step's event. */
KD_BODY(embedding, main, STORER) {
    const embedding_params *p = (const embedding_params *)kb_params(c);
    const kp_task *t = c->task;
    const kd_act *w = (const kd_act *)kb_buffer(c, EMBEDDING_W);
    kd_act *out = (kd_act *)kb_buffer(c, EMBEDDING_OUT);
    kp_u32 width = t->hi - t->lo, rows = kb_rows_live(c);
    for (kp_u32 i = kd_thread(c); i < rows * width; i += kd_threads(c)) {
        kp_u32 r = i / width, j = t->lo + i % width;
        out[(kp_u64)r * p->hidden + j] = w[(kp_u64)kb_step(c)->token[r] * p->hidden + j];
    }
}

#endif
