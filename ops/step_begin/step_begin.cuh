/* SPDX-License-Identifier: Apache-2.0 */
/* step_begin: see step_begin.c. One thread; the event that every task waits for follows it. */
#ifndef KEEL_OPS_STEP_BEGIN_CUH
#define KEEL_OPS_STEP_BEGIN_CUH

#include "device/cuda_body.cuh"

KP_FN void kd_step_prefill(const kp_request *q, kp_state *s, kp_step *step) {
    kp_u32 left = q->n_prompt - s->cursor, n = left < q->chunk ? left : q->chunk;
    step->n_rows = n;
    step->logit_from = q->all_logits ? 0 : n < left ? n : n - 1;
    for (kp_u32 r = 0; r < n; r++) {
        step->token[r] = q->prompt[s->cursor + r];
        step->position[r] = s->position + r;
        step->seq[r] = 0;
    }
    s->cursor += n;
    s->position += n;
    if (s->cursor == q->n_prompt && q->max_new == 0) s->finished = 1;
}

KD_BODY(step_begin, main, STORER) {
    const kp_launch *l = c->worker->launch;
    if (kd_thread(c) != 0) return;
    kp_state *s = l->state;
    kp_step *step = l->step;
    step->iteration = c->iteration;
    if (s->cursor < l->request->n_prompt) {
        kd_step_prefill(l->request, s, step);
        return;
    }
    step->n_rows = 1;
    step->logit_from = 0;
    step->token[0] = s->last_token;
    step->position[0] = s->position;
    step->seq[0] = 0;
    s->position++;
}

#endif
