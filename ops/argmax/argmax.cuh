/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEEL_OPS_ARGMAX_CUH
#define KEEL_OPS_ARGMAX_CUH

#include "argmax.h"
#include "device/cuda_best.cuh"
#include "device/emit.h"

KD_BODY(argmax, partial, CONSUMER) {
    const argmax_params *p = (const argmax_params *)kb_params(c);
    if (!kp_emit_wanted(c->worker->launch)) return;
    const kd_act *x = (const kd_act *)kb_buffer(c, ARGMAX_LOGITS) + (kp_u64)(kb_rows_live(c) - 1) * p->vocab;
    argmax_best best = {-kx_inf(), c->task->lo};
    for (kp_u32 i = c->task->lo + kd_thread(c); i < c->task->hi; i += kd_threads(c)) {
        float v = kd_f32(kd_load_act(x + i));
        if (v > best.value) best = argmax_best{v, i};
    }
    best = kd_warp_best(best);
    if (kd_first()) ((argmax_best *)kb_region(c, ARGMAX_REGION_LANES))[c->lane] = best;
}

KD_BODY(argmax, partial, STORER) {
    if (kd_thread(c) != 0 || !kp_emit_wanted(c->worker->launch)) return;
    const argmax_best *lane = (const argmax_best *)kb_region(c, ARGMAX_REGION_LANES);
    argmax_best best = lane[0];
    for (kp_u32 l = 1; l < kd_lanes(KP_CONSUMER); l++) best = kd_better(best, lane[l]);
    ((argmax_best *)kb_buffer(c, ARGMAX_BEST))[c->task->aux] = best;
}

KD_BODY(argmax, reduce, CONSUMER) {
    const kp_launch *l = c->worker->launch;
    const argmax_params *p = (const argmax_params *)kb_params(c);
    if (!l->request->logits || !kp_emit_wanted(l)) return;
    const kd_act *x = (const kd_act *)kb_buffer(c, ARGMAX_LOGITS) + (kp_u64)(kb_rows_live(c) - 1) * p->vocab;
    float *to = l->request->logits + (kp_u64)l->state->n_out * p->vocab;
    for (kp_u32 i = kd_thread(c); i < p->vocab; i += kd_threads(c)) to[i] = kd_f32(kd_load_act(x + i));
}

KD_BODY(argmax, reduce, STORER) {
    const kp_launch *l = c->worker->launch;
    const argmax_params *p = (const argmax_params *)kb_params(c);
    if (c->lane != 0 || !kp_emit_wanted(l)) return;
    const argmax_best *partial = (const argmax_best *)kb_buffer(c, ARGMAX_BEST);
    argmax_best best = {-kx_inf(), 0};
    for (kp_u32 i = kd_lane_thread(); i < p->tiles; i += KD_WARP) best = kd_better(best, partial[i]);
    best = kd_warp_best(best);
    if (kd_first()) kp_emit_token(l, best.index);
}

#endif
