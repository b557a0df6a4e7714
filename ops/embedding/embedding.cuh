/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_EMBEDDING_CUH
#define KEEL_OPS_EMBEDDING_CUH

#include "device/cuda_tagged.cuh"
#include "embedding.h"

/* Rows of the table straight to the output: they are the ones of this pass's tokens, so after the step's event. */
KD_BODY(embedding, main, STORER) {
    const embedding_params *p = (const embedding_params *)kb_params(c);
    const kp_task *t = c->task;
    const kd_act *w = (const kd_act *)kb_buffer(c, EMBEDDING_W);
    kd_act *out = (kd_act *)kb_buffer(c, EMBEDDING_OUT);
    kp_u32 width = t->hi - t->lo, rows = kb_rows_live(c);
    if (kd_tagged(c, EMBEDDING_OUT)) {
        const kd_act *row = w + (kp_u64)kb_step(c)->token[0] * p->hidden;
        kd_tagged_store(
            c, width, [=](kp_u32 j) { return kd_tagged_unit(c, EMBEDDING_OUT, t->lo + j); },
            [=](kp_u32 j) { return row[t->lo + j]; });
        return;
    }
    for (kp_u32 i = kd_thread(c); i < rows * width; i += kd_threads(c)) {
        kp_u32 r = i / width, j = t->lo + i % width;
        out[(kp_u64)r * p->hidden + j] = w[(kp_u64)kb_step(c)->token[r] * p->hidden + j];
    }
}

#endif
