/* SPDX-License-Identifier: Apache-2.0 */
/* How the op that picks the next token hands it over: to the host (request.out) and to the next iteration (state).
 * Called by one lane of one task an iteration. Common subset of C11 and CUDA C++17. */
#ifndef KEEL_DEVICE_EMIT_H
#define KEEL_DEVICE_EMIT_H

#include "device/worker.h"

#ifndef __CUDACC__
/* Supplied by the backend (on the device it defines both before it includes this file): a 64-bit store-release that the
 * host sees, and a clock. */
void kb_publish64(kp_u64 *p, kp_u64 v);
kp_u64 kb_now_ns(void);
#endif

/* Does this pass predict a token? Not before its chunk ended the prompt (whatever rows have logits), not after the end,
 * and not for a prompt that is only passed through. The same answer in every task of the iteration until the emission.
 */
KP_FN int kp_emit_wanted(const kp_launch *l) {
    const kp_state *s = l->state;
    return s->cursor >= l->request->n_prompt && s->n_out < l->request->max_new && !s->finished;
}

KP_FN int kp_ends(const kp_request *q, kp_u32 token) {
    for (kp_u32 i = 0; i < q->n_stop; i++) {
        if (q->stop_id[i] == token) return 1;
    }
    return 0;
}

/* out[n] is published after out_ns[n], so that whoever acquires the token may read its time. Under teacher forcing the
 * prediction is still what the host gets; the forced token is what the next pass reads, and no prediction ends the run.
 */
KP_FN void kp_emit_token(const kp_launch *l, kp_u32 token) {
    const kp_request *q = l->request;
    kp_state *s = l->state;
    if (!kp_emit_wanted(l)) return;
    kp_u32 n = s->n_out;
    int forced = n < q->n_forced;
    q->out_ns[n] = kb_now_ns();
    kb_publish64(&q->out[n], (kp_u64)token | (kp_u64)(n + 1) << 32);
    s->last_token = forced ? q->forced[n] : token;
    s->n_out = n + 1;
    if (n + 1 == q->max_new || s->position >= q->max_seq || (!forced && kp_ends(q, token))) s->finished = 1;
}

#endif
