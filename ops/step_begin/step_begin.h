/* SPDX-License-Identifier: Apache-2.0 */
/* step_begin: writes the step record of a pass, the next rows of the prompt or the last token. By one thread of the
 * storer, so that the task's event, which every other task waits for, follows it. */
#ifndef KEEL_OPS_STEP_BEGIN_H
#define KEEL_OPS_STEP_BEGIN_H

#include "device/task.h"

/* The next rows of the prompt. Only the pass that ends it predicts, and only its last row does. */
KP_FN void step_prefill(const kp_request *q, kp_state *s, kp_step *step) {
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

KP_FN void step_decode(kp_state *s, kp_step *step) {
    step->n_rows = 1;
    step->logit_from = 0;
    step->token[0] = s->last_token;
    step->position[0] = s->position;
    step->seq[0] = 0;
    s->position++;
}

KP_FN void step_begin(const kp_request *q, kp_state *s, kp_step *step, kp_u32 iteration) {
    step->iteration = iteration;
    if (s->cursor < q->n_prompt) {
        step_prefill(q, s, step);
    } else {
        step_decode(s, step);
    }
}

#endif
