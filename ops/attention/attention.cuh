/* SPDX-License-Identifier: Apache-2.0 */
/* attention: see attention.h. A warp takes a (row, head) of a task, 32 positions at a time: a lane scores one
 * position, then owns columns of V. */
#ifndef KEEL_OPS_ATTENTION_CUH
#define KEEL_OPS_ATTENTION_CUH

#include "attention.h"
#include "device/cuda_body.cuh"

#define KD_HEAD_LANE (ATTENTION_HEAD_MAX / 32) /* columns of a head that a lane owns, at most */

KP_FN kd_act *kd_cache_page(const kp_ctx *c, const attention_params *p, kp_u32 which, kp_u32 head, kp_u32 seq,
                            kp_u32 page) {
    const kp_request *q = c->worker->launch->request;
    kp_u64 physical = q->page_table[(kp_u64)seq * q->pages_per_seq + page];
    return (kd_act *)kb_buffer(c, which) + (physical * p->kv_heads + head) * p->page_tokens * p->head_dim;
}

/* A warp: to ← rope(rmsnorm(from)), in f32 by way of `work` [head_dim] in SMEM, rounded at the end. */
KP_FN void kd_prepare(const attention_params *p, const kd_act *from, int global, const kd_act *norm, const kd_act *rope,
                      float *work, kd_act *to) {
    kp_u32 lane = kd_lane_thread(), dim = p->head_dim, half = p->rotary_dim / 2;
    float sum = 0;
    for (kp_u32 i = lane; i < dim; i += KD_WARP) {
        float v = kd_f32(global ? kd_load_act(from + i) : from[i]);
        work[i] = v;
        sum += v * v;
    }
    float scale = norm ? kx_rsqrt(kd_warp_sum(sum) / (float)dim + p->eps) : 1;
    for (kp_u32 i = lane; norm && i < dim; i += KD_WARP)
        work[i] = kd_f32(kd_round(kd_f32(kd_round(work[i] * scale)) * kd_f32(norm[i])));
    kx_syncwarp();
    for (kp_u32 i = lane; i < dim; i += KD_WARP) {
        float v = work[i];
        if (i < half)
            v = v * kd_f32(rope[i]) - work[i + half] * kd_f32(rope[i + half]);
        else if (i < 2 * half)
            v = v * kd_f32(rope[i - half]) + work[i - half] * kd_f32(rope[i]);
        to[i] = kd_round(v);
    }
    kx_syncwarp();
}

KP_FN const kd_act *kd_rope_row(const kp_ctx *c, const attention_params *p, kp_u32 r) {
    return p->rotary_dim ? (const kd_act *)kb_buffer(c, ATTENTION_ROPE) + (kp_u64)r * p->rotary_dim : (const kd_act *)0;
}

/* A warp a row: this pass's K and V into the split's pages. */
KP_FN void kd_append(kp_ctx *c, const attention_params *p, float *work, kp_u32 r) {
    const kp_step *step = kb_step(c);
    kp_u32 page = step->position[r] / p->page_tokens, head = c->task->lo; /* none that appends has a share of one */
    if (page % p->splits != c->task->aux) return;
    kp_u64 from = ((kp_u64)r * p->kv_heads + head) * p->head_dim;
    kp_u64 to = (kp_u64)(step->position[r] % p->page_tokens) * p->head_dim;
    kd_prepare(p, (const kd_act *)kb_buffer(c, ATTENTION_K) + from, 1, (const kd_act *)kb_buffer(c, ATTENTION_K_NORM),
               kd_rope_row(c, p, r), work, kd_cache_page(c, p, ATTENTION_CACHE_K, head, step->seq[r], page) + to);
    const kd_act *v = (const kd_act *)kb_buffer(c, ATTENTION_V) + from;
    kd_act *cache = kd_cache_page(c, p, ATTENTION_CACHE_V, head, step->seq[r], page) + to;
    for (kp_u32 i = kd_lane_thread(); i < p->head_dim; i += KD_WARP) cache[i] = kd_load_act(v + i);
}

KP_FN void kd_append_rows(kp_ctx *c, const attention_params *p) {
    float *work = (float *)kb_region(c, ATTENTION_REGION_ACC);
    for (kp_u32 r = c->lane; r < kb_rows_live(c); r += kd_lanes(KP_LAUNCHER))
        kd_append(c, p, work + (kp_u64)r * p->head_dim, r);
}

/* Waits for k, v and the rope table's rows, signals that the split's pages hold this pass; owns its working pages. */
KD_BODY(attention, append, LAUNCHER) { kd_append_rows(c, (const attention_params *)kb_params(c)); }

KD_BODY(attention, split, LAUNCHER) {
    const attention_params *p = (const attention_params *)kb_params(c);
    kp_u32 cols = p->group * p->head_dim, lo = c->task->lo * cols;
    kd_fetch(c, (kd_act *)kb_region(c, ATTENTION_REGION_Q), kb_buffer(c, ATTENTION_Q), p->q_heads * p->head_dim, lo,
             lo + cols, 0);
    if (attention_shares(p) == 1) kd_append_rows(c, p);
}

KP_FN float kd_warp_max(float v) {
    for (kp_u32 o = KD_WARP / 2; o; o >>= 1) v = kx_max(v, kx_shfl_xor(v, o));
    return v;
}

/* A lane owns eight columns of V, those of (lane modulo the lanes that make a row); lanes / row of them share the work
 * of a row of heads and are added up at the end. */
typedef struct kd_soft {
    float most, sum, acc[8];
} kd_soft;

/* Of position `lane` of the block: q · k, eight loads of 16 bytes at a time. */
KP_FN float kd_score(const kd_act *q, const kd_act *k, kp_u32 dim) {
    enum { AT_ONCE = 8 };
    float dot = 0;
    for (kp_u32 i = 0; i < dim; i += 8 * AT_ONCE) {
        kd_vec b[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            if (i + (kp_u32)j * 8 < dim) b[j] = kd_load16(k + i + j * 8);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            if (i + (kp_u32)j * 8 < dim) {
                kd_vec a = *(const kd_vec *)(q + i + j * 8);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    dot = kx_fma(kd_low(a.w[e]), kd_low(b[j].w[e]), dot);
                    dot = kx_fma(kd_high(a.w[e]), kd_high(b[j].w[e]), dot);
                }
            }
        }
    }
    return dot;
}

/* Σ weight × v over the block's positions. */
KP_FN void kd_add_values(const kd_act *v, kp_u32 n, kp_u32 dim, float weight, float *acc) {
    enum { AT_ONCE = 8 };
    kp_u32 lane = kd_lane_thread(), row_lanes = dim / 8, rows = KD_WARP / row_lanes, mine = lane / row_lanes;
    const kd_act *from = v + (lane % row_lanes) * 8;
    for (kp_u32 t0 = 0; t0 < n; t0 += rows * AT_ONCE) {
        kd_vec x[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            kp_u32 t = t0 + (kp_u32)j * rows + mine;
            if (t < n && mine < rows) x[j] = kd_load16(from + (kp_u64)t * dim);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            kp_u32 t = t0 + (kp_u32)j * rows + mine;
            float w = kx_shfl(weight, t < KD_WARP ? t : 0);
            if (t < n && mine < rows) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    acc[2 * e] = kx_fma(w, kd_low(x[j].w[e]), acc[2 * e]);
                    acc[2 * e + 1] = kx_fma(w, kd_high(x[j].w[e]), acc[2 * e + 1]);
                }
            }
        }
    }
}

/* Positions [0, n), n ≤ 32, of one page: k and v are [n][dim]. */
KP_FN void kd_attend_block(const attention_params *p, const kd_act *q, const kd_act *k, const kd_act *v, kp_u32 n,
                           kd_soft *s) {
    kp_u32 lane = kd_lane_thread(), dim = p->head_dim;
    float score = -kx_inf();
    if (lane < n) score = kd_score(q, k + (kp_u64)lane * dim, dim) * p->scale;
    kx_syncwarp();
    float most = kx_max(s->most, kd_warp_max(score)), keep = kx_exp(s->most - most);
    float weight = lane < n ? kx_exp(score - most) : 0;
    s->sum = s->sum * keep + kd_warp_sum(weight);
    s->most = most;
#pragma unroll
    for (int e = 0; e < 8; e++) s->acc[e] *= keep;
    kd_add_values(v, n, dim, weight, s->acc);
}

/* The warp's sums into out [dim]. */
KP_FN void kd_soft_out(const kd_soft *s, kp_u32 dim, float scale, float *out) {
    kp_u32 lane = kd_lane_thread(), row_lanes = dim / 8, rows = KD_WARP / row_lanes;
    for (kp_u32 r = 0; r < rows; r++) { /* one after the other: the order of a sum is fixed */
        if (lane / row_lanes == r) {
#pragma unroll
            for (int e = 0; e < 8; e++) {
                float *to = &out[(lane % row_lanes) * 8 + e];
                *to = (r ? *to : 0) + s->acc[e] * scale;
            }
        }
        kx_syncwarp();
    }
}

KP_FN void kd_attend(const kp_ctx *c, const attention_params *p, const kd_act *q, kp_u32 r, kd_soft *s) {
    const kp_step *step = kb_step(c);
    kp_u32 last = step->position[r], tokens = p->page_tokens, head = c->task->lo / attention_shares(p);
    for (kp_u32 page = c->task->aux; page <= last / tokens; page += p->splits) {
        const kd_act *k = kd_cache_page(c, p, ATTENTION_CACHE_K, head, step->seq[r], page);
        const kd_act *v = kd_cache_page(c, p, ATTENTION_CACHE_V, head, step->seq[r], page);
        kp_u32 start = page * tokens, live = last - start + 1 < tokens ? last - start + 1 : tokens;
        for (kp_u32 t = 0; t < live; t += KD_WARP) {
            kp_u32 n = live - t < KD_WARP ? live - t : KD_WARP;
            kd_attend_block(p, q, k + (kp_u64)t * p->head_dim, v + (kp_u64)t * p->head_dim, n, s);
        }
    }
}

KD_BODY(attention, split, CONSUMER) {
    const attention_params *p = (const attention_params *)kb_params(c);
    float *all = (float *)kb_region(c, ATTENTION_REGION_ACC), *ml = all + (kp_u64)p->m_max * p->group * p->head_dim;
    for (kp_u32 u = c->lane; u < kb_rows_live(c) * p->group; u += kd_lanes(KP_CONSUMER)) {
        kd_act *q = (kd_act *)kb_region(c, ATTENTION_REGION_Q) + (kp_u64)u * p->head_dim;
        float *acc = all + (kp_u64)u * p->head_dim;
        kd_prepare(p, q, 0, (const kd_act *)kb_buffer(c, ATTENTION_Q_NORM), kd_rope_row(c, p, u / p->group), acc, q);
        kd_soft s;
        s.most = -kx_inf();
        s.sum = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) s.acc[e] = 0;
        kd_attend(c, p, q, u / p->group, &s);
        kd_soft_out(&s, p->head_dim, p->splits == 1 ? 1 / s.sum : 1, acc);
        if (kd_first()) ml[2 * (kp_u64)u] = s.most, ml[2 * (kp_u64)u + 1] = s.sum;
        kx_syncwarp();
    }
}

/* The task's columns of the output, rounded. */
KP_FN void kd_attention_out(kp_ctx *c, const attention_params *p) {
    const float *acc = (const float *)kb_region(c, ATTENTION_REGION_ACC);
    kd_act *out = (kd_act *)kb_buffer(c, ATTENTION_OUT);
    kp_u32 cols = p->group * p->head_dim, lo = c->task->lo * cols, n = kb_rows_live(c) * cols;
    for (kp_u32 i = kd_thread(c); i < n; i += kd_threads(c))
        out[(kp_u64)(i / cols) * p->q_heads * p->head_dim + lo + i % cols] = kd_round(acc[i]);
}

KP_FN float *kd_partial(const kp_ctx *c, const attention_params *p, kp_u32 split) {
    return (float *)kb_buffer(c, ATTENTION_PARTIAL) +
           ((kp_u64)c->task->lo * p->splits + split) * attention_partial_floats(p);
}

KD_BODY(attention, split, STORER) {
    const attention_params *p = (const attention_params *)kb_params(c);
    if (p->splits == 1) {
        kd_attention_out(c, p);
        return;
    }
    const float *acc = (const float *)kb_region(c, ATTENTION_REGION_ACC);
    float *to = kd_partial(c, p, c->task->aux);
    kp_u32 units = kb_rows_live(c) * p->group, ml = p->m_max * p->group * p->head_dim;
    for (kp_u32 i = kd_thread(c); i < units * p->head_dim; i += kd_threads(c)) to[i] = acc[i];
    for (kp_u32 i = kd_thread(c); i < 2 * units; i += kd_threads(c)) to[ml + i] = acc[ml + i];
}

/* One (row, head): lane l weighs the splits l, l + 32 …; then all lanes add up, a column each. */
KP_FN void kd_merge_unit(const kp_ctx *c, const attention_params *p, kp_u32 u, float *out) {
    kp_u32 lane = kd_lane_thread();
    kp_u64 ml = (kp_u64)p->m_max * p->group * p->head_dim + 2 * (kp_u64)u, at = (kp_u64)u * p->head_dim;
    float acc[KD_HEAD_LANE], most = -kx_inf(), sum = 0;
#pragma unroll
    for (int j = 0; j < KD_HEAD_LANE; j++) acc[j] = 0;
    for (kp_u32 s0 = 0; s0 < p->splits; s0 += KD_WARP) {
        kp_u32 n = p->splits - s0 < KD_WARP ? p->splits - s0 : KD_WARP;
        const float *mine = kd_partial(c, p, s0 + (lane < n ? lane : 0)) + ml;
        float m = kd_load_f32(mine), l = kd_load_f32(mine + 1);
        if (lane >= n || l == 0) m = -kx_inf(), l = 0; /* an empty split */
        float top = kx_max(most, kd_warp_max(m)), keep = kx_exp(most - top), weight = l != 0 ? kx_exp(m - top) : 0;
        sum = sum * keep + kd_warp_sum(weight * l);
        most = top;
#pragma unroll
        for (int j = 0; j < KD_HEAD_LANE; j++) acc[j] *= keep;
#pragma unroll 4
        for (kp_u32 s = 0; s < n; s++) {
            float w = kx_shfl(weight, s);
            if (w == 0) continue;
            const float *from = kd_partial(c, p, s0 + s) + at;
#pragma unroll
            for (int j = 0; j < KD_HEAD_LANE; j++) {
                kp_u32 i = lane + (kp_u32)j * KD_WARP;
                if (i < p->head_dim) acc[j] = kx_fma(w, kd_load_f32(from + i), acc[j]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < KD_HEAD_LANE; j++) {
        kp_u32 i = lane + (kp_u32)j * KD_WARP;
        if (i < p->head_dim) out[i] = acc[j] / sum;
    }
}

KD_BODY(attention, merge, CONSUMER) {
    const attention_params *p = (const attention_params *)kb_params(c);
    float *out = (float *)kb_region(c, ATTENTION_REGION_ACC);
    for (kp_u32 u = c->lane; u < kb_rows_live(c) * p->group; u += kd_lanes(KP_CONSUMER))
        kd_merge_unit(c, p, u, out + (kp_u64)u * p->head_dim);
}

KD_BODY(attention, merge, STORER) { kd_attention_out(c, (const attention_params *)kb_params(c)); }

#include "attention_tiled.cuh"

#endif
