/* SPDX-License-Identifier: Apache-2.0 */
/* attention for one row a pass, phase "stream": see attention_tiled.h.
 *
 *   loader    waits for this iteration's step record, then runs ahead like the loader of weights: what it copies was
 *             appended in earlier iterations. The border lies between.
 *   launcher  behind the events: norm and rope of q and of the new k, into SMEM
 *   consumer  lane l takes the stages whose number in the ring is l modulo the lanes: S = Q Kᵀ and Oᵀ = Vᵀ Pᵀ on
 *             tensor cores; its sums are one part. Then the lanes share the heads and put the parts together; with
 *             several live splits, each leaves its sums in global memory and counts, and whoever finds that all have
 *             come merges them
 *   storer    appends k and v to the cache
 *
 * A part is a stage's place in the task modulo the lanes, not the lane: where in the ring the task began changes no
 * bit of its result, nor does which split comes last. Bytes of positions that nobody has written may be anything, NaN
 * too: scores are chosen, not masked by arithmetic, and V is cut to 0. */
#ifndef KEEL_OPS_ATTENTION_TILED_CUH
#define KEEL_OPS_ATTENTION_TILED_CUH

#include "attention_tiled.h"
#include "device/cuda_body.cuh"
#include "device/cuda_stream.cuh"
#include "device/cuda_tagged.cuh"

KP_FN attention_share kd_tiled_share(const kp_ctx *c, const attention_params *p) {
    return attention_share_of(p, c->task->aux, kb_step(c)->position[0]);
}

/* ---- loader -------------------------------------------------------------------------------------- */

/* Physical pages of the split, a thread a page: those of turns [turn, turn + 32). */
KP_FN kp_u32 kd_tiled_pages(const kp_ctx *c, const attention_params *p, const attention_share *s, kp_u32 turn) {
    const kp_request *q = c->worker->launch->request;
    kp_u32 page = s->split + (turn + kd_lane_thread()) * s->n;
    if (page > s->last / p->page_tokens) return 0;
    return q->page_table[(kp_u64)kb_step(c)->seq[0] * q->pages_per_seq + page];
}

KD_BODY(attention, stream, LOADER) {
    const attention_params *p = (const attention_params *)kb_params(c);
    if (!kd_wait_step(c)) return;
    attention_share s = kd_tiled_share(c, p);
    kp_u32 row = p->head_dim * (kp_u32)sizeof(kd_act), pages = 0;
    if (!s.stages) return;
    kx_fence_proxy_async(); /* the appends of earlier iterations went another way than the copies go */
    KP_ROLLED
    for (kp_u32 i = 0; i < s.stages; i++) {
        attention_stage g = attention_stage_at(p, &s, i);
        if (g.token == 0 && g.turn % KD_WARP == 0) pages = kd_tiled_pages(c, p, &s, g.turn);
        kp_u64 page = (kp_u64)kx_shfl(pages, g.turn % KD_WARP) * p->kv_heads + c->task->lo;
        kp_u64 at = (page * p->page_tokens + g.token) * row;
        if (!kd_push_two(c, (const kp_u8 *)kb_buffer(c, ATTENTION_CACHE_K) + at,
                         (const kp_u8 *)kb_buffer(c, ATTENTION_CACHE_V) + at, p->stage_tokens * row, g.copied * row))
            return;
    }
}

/* ---- launcher ------------------------------------------------------------------------------------ */

/* What a thread has of a head: two pairs of columns, a and a + 1, b and b + 1. The first rotary_dim / 4 threads have
 * columns that turn with each other. */
typedef struct kd_quad {
    kp_u32 a, b;
} kd_quad;
typedef struct kd_columns {
    kp_u32 a, b, turn;
} kd_columns;

KP_FN kd_columns kd_tiled_columns(const attention_params *p) {
    kp_u32 t = kd_lane_thread(), half = p->rotary_dim / 2;
    kd_columns at;
    at.turn = 2 * t < half;
    at.a = at.turn ? 2 * t : p->rotary_dim + 4 * (t - half / 2);
    at.b = at.turn ? 2 * t + half : at.a + 2;
    return at;
}

KP_FN float kd_quad_squares(kd_quad v) {
    return kd_low(v.a) * kd_low(v.a) + kd_high(v.a) * kd_high(v.a) + kd_low(v.b) * kd_low(v.b) +
           kd_high(v.b) * kd_high(v.b);
}
KP_FN kp_u32 kd_pair_scaled(kp_u32 v, float scale, kp_u32 weight) {
    kp_u32 x = kd_round2(kd_low(v) * scale, kd_high(v) * scale);
    return kd_round2(kd_low(x) * kd_low(weight), kd_high(x) * kd_high(weight));
}
KP_FN kd_quad kd_quad_turned(kd_quad v, kd_quad rope) { /* rope: cosines, sines */
    kd_quad r;
    r.a = kd_round2(kd_low(v.a) * kd_low(rope.a) - kd_low(v.b) * kd_low(rope.b),
                    kd_high(v.a) * kd_high(rope.a) - kd_high(v.b) * kd_high(rope.b));
    r.b = kd_round2(kd_low(v.b) * kd_low(rope.a) + kd_low(v.a) * kd_low(rope.b),
                    kd_high(v.b) * kd_high(rope.a) + kd_high(v.a) * kd_high(rope.b));
    return r;
}

/* Unit u of the task: q heads, then k, then v. */
KP_FN kp_u32 kd_tiled_slot(const attention_params *p, kp_u32 u) {
    return u < p->group ? ATTENTION_Q : u == p->group ? ATTENTION_K : ATTENTION_V;
}
KP_FN kp_u32 kd_tiled_first(const kp_ctx *c, const attention_params *p, kp_u32 u) {
    return (u < p->group ? c->task->lo * p->group + u : c->task->lo) * p->head_dim;
}
KP_FN kd_act *kd_tiled_to(const kp_ctx *c, const attention_params *p, kp_u32 u) {
    kd_act *q = (kd_act *)kb_region(c, ATTENTION_REGION_Q);
    if (u < p->group) return q + u * attention_q_pitch(p);
    return q + p->group * attention_q_pitch(p) + (u - p->group) * p->head_dim;
}

typedef struct kd_tiled_input {
    kd_columns at;
    kd_quad rope, norm[2]; /* of q, of k */
} kd_tiled_input;

KP_FN kd_quad kd_quad_weight(const void *w, kd_columns at, int mine) {
    kd_quad v = {0, 0};
    if (w && mine) v.a = *(const kp_u32 *)((const kd_act *)w + at.a), v.b = *(const kp_u32 *)((const kd_act *)w + at.b);
    return v;
}

KP_FN void kd_tiled_unit(const kp_ctx *c, const attention_params *p, const kd_tiled_input *in, kp_u32 u, kd_quad v,
                         float squares) {
    if (u <= p->group && kb_buffer(c, u < p->group ? ATTENTION_Q_NORM : ATTENTION_K_NORM)) {
        kd_quad w = u < p->group ? in->norm[0] : in->norm[1];
        float scale = kx_rsqrt(squares / (float)p->head_dim + p->eps);
        v.a = kd_pair_scaled(v.a, scale, w.a);
        v.b = kd_pair_scaled(v.b, scale, w.b);
    }
    if (u <= p->group && in->at.turn) v = kd_quad_turned(v, in->rope);
    if (kd_lane_thread() * 4 < p->head_dim) {
        kd_act *to = kd_tiled_to(c, p, u);
        *(kp_u32 *)(to + in->at.a) = v.a;
        *(kp_u32 *)(to + in->at.b) = v.b;
    }
}

/* A warp's units first + lane, first + lane + lanes, …, below n: this thread's columns of each. 0: aborted. */
template <int N>
KP_FN int kd_tiled_bring(kp_ctx *c, const attention_params *p, const kd_tiled_input *in, kp_u32 first, kp_u32 n,
                         kd_quad (&v)[N]) {
    kp_u32 lanes = KP_LANES(c, KP_LAUNCHER);
    int mine = kd_lane_thread() * 4 < p->head_dim;
    kd_vec x[N][2];
#pragma unroll
    for (kp_u32 j = 0; j < N; j++) {
        v[j].a = v[j].b = 0;
        x[j][0].w[3] = x[j][1].w[3] = ~kd_epoch(c);
    }
    for (;;) {
        int there = 1;
#pragma unroll
        for (kp_u32 j = 0; j < N; j++) {
            kp_u32 u = first + j * lanes + c->lane, slot = kd_tiled_slot(p, u), at = kd_tiled_first(c, p, u);
            if (first + j * lanes >= p->group + 2 || u >= n || !mine) continue;
            if (!kd_tagged(c, slot)) {
                v[j].a = kx_ld32((const kd_act *)kb_buffer(c, slot) + at + in->at.a);
                v[j].b = kx_ld32((const kd_act *)kb_buffer(c, slot) + at + in->at.b);
                continue;
            }
            if (!kd_tagged_there(c, x[j][0])) x[j][0] = kd_tagged_vec(c, slot, at + in->at.a);
            if (!kd_tagged_there(c, x[j][1])) x[j][1] = kd_tagged_vec(c, slot, at + in->at.b);
        }
#pragma unroll
        for (kp_u32 j = 0; j < N; j++) {
            kp_u32 u = first + j * lanes + c->lane, at = kd_tiled_first(c, p, u);
            if (first + j * lanes >= p->group + 2 || u >= n || !mine || !kd_tagged(c, kd_tiled_slot(p, u))) continue;
            v[j].a = kd_tagged_pair(x[j][0], at + in->at.a);
            v[j].b = kd_tagged_pair(x[j][1], at + in->at.b);
            there &= kd_tagged_there(c, x[j][0]) && kd_tagged_there(c, x[j][1]);
        }
        if (kx_all(there)) return 1;
        if (kd_tagged_idle(c)) return 0;
    }
}

/* A warp a unit; all loads of a warp before the first use of one. */
KD_BODY(attention, stream, LAUNCHER) {
    enum { AT_ONCE = 5 }; /* units of a warp where four share 16 query heads, k and v */
    const attention_params *p = (const attention_params *)kb_params(c);
    attention_share share = kd_tiled_share(c, p);
    if (!share.stages) return;
    kp_u32 lanes = KP_LANES(c, KP_LAUNCHER), n = p->group + (share.owns ? 2 : 0);
    int mine = kd_lane_thread() * 4 < p->head_dim;
    kd_tiled_input in;
    in.at = kd_tiled_columns(p);
    in.rope.a = in.rope.b = 0;
    if (in.at.turn) {
        const kd_act *rope = kd_rope_row(c, p, 0) + in.at.a;
        in.rope.a = kx_ld32(rope);
        in.rope.b = kx_ld32(rope + p->rotary_dim / 2);
    }
    in.norm[0] = kd_quad_weight(kb_buffer(c, ATTENTION_Q_NORM), in.at, mine);
    in.norm[1] = kd_quad_weight(kb_buffer(c, ATTENTION_K_NORM), in.at, mine);
    KP_ROLLED
    for (kp_u32 first = 0; first < p->group + 2; first += AT_ONCE * lanes) {
        kd_quad v[AT_ONCE];
        float squares[AT_ONCE];
        if (!kd_tiled_bring<AT_ONCE>(c, p, &in, first, n, v)) return;
#pragma unroll
        for (kp_u32 j = 0; j < AT_ONCE; j++)
            squares[j] = first + j * lanes < p->group + 1 ? kd_warp_sum(kd_quad_squares(v[j])) : 0;
#pragma unroll
        for (kp_u32 j = 0; j < AT_ONCE; j++) {
            kp_u32 u = first + j * lanes + c->lane;
            if (first + j * lanes < p->group + 2 && u < n) kd_tiled_unit(c, p, &in, u, v[j], squares[j]);
        }
    }
}

/* ---- consumer ------------------------------------------------------------------------------------ */

#define KD_TILES (ATTENTION_TILED_DIM / ATTENTION_TILE) /* of a head, at most */
#define KD_BLOCKS 4                                     /* of 16 positions, that a stage holds at most */

/* Register orders are those of mma.m16n8k16. Q is A, with 16 rows of which a group of up to 8 heads fills half, and
 * scores are C: thread t has heads t / 4 and t / 4 + 8, positions t % 4 × 2 and one more. That is the order of B too,
 * so that weights go on as they are: Vᵀ is A, and a group of up to 8 heads fills the whole of C, elements × heads:
 * thread t has heads t % 4 × 2 and one more. */
typedef struct kd_tiled_soft {
    float acc[2][KD_TILES][4]; /* of heads 0 … 7, 8 … 15 */
    float most[2], sum[2];     /* of heads t / 4, t / 4 + 8; sum: of this thread's positions */
} kd_tiled_soft;

KP_FN int kd_tiled_halves(const attention_params *p) { return p->group > 8 ? 2 : 1; }

/* Tile t of q. From SMEM whenever it is wanted: kept, it would take a fifth of the registers. */
KP_FN kd_vec kd_tiled_q(const kp_ctx *c, const attention_params *p, kp_u32 t) {
    kp_u32 row = kd_lane_thread() / 4, column = kd_lane_thread() % 4 * 2;
    const kd_act *q = (const kd_act *)kb_region(c, ATTENTION_REGION_Q) + column + t * ATTENTION_TILE;
    const kd_act *low = q + row * attention_q_pitch(p), *high = low + 8 * attention_q_pitch(p);
    kd_vec v;
    v.w[0] = row < p->group ? *(const kp_u32 *)low : 0;
    v.w[1] = row + 8 < p->group ? *(const kp_u32 *)high : 0;
    v.w[2] = row < p->group ? *(const kp_u32 *)(low + 8) : 0;
    v.w[3] = row + 8 < p->group ? *(const kp_u32 *)(high + 8) : 0;
    return v;
}

KP_FN void kd_tiled_begin(kd_tiled_soft *s) {
#pragma unroll
    for (kp_u32 t = 0; t < KD_TILES; t++) {
#pragma unroll
        for (int e = 0; e < 4; e++) s->acc[0][t][e] = s->acc[1][t][e] = 0;
    }
    s->most[0] = s->most[1] = -kx_inf();
    s->sum[0] = s->sum[1] = 0;
}

/* This pass's k and v into the stage, where later passes will find them in the cache. */
KP_FN void kd_tiled_fresh(const kp_ctx *c, const attention_params *p, kd_act *k, kd_act *v, kp_u32 position) {
    const kd_act *new_k = kd_tiled_to(c, p, p->group), *new_v = kd_tiled_to(c, p, p->group + 1);
    for (kp_u32 i = 2 * kd_lane_thread(); i < p->head_dim; i += 2 * KD_WARP) {
        *(kp_u32 *)(k + attention_k_at(p->head_dim, position, i)) = *(const kp_u32 *)(new_k + i);
        v[attention_v_at(p->head_dim, position, i)] = new_v[i];
        v[attention_v_at(p->head_dim, position, i + 1)] = new_v[i + 1];
    }
    kx_fence_proxy_async(); /* the next copy into these bytes goes another way */
    kx_syncwarp();
}

/* score[i]: heads × positions 8 i … 8 i + 7 of the stage. */
KP_FN void kd_tiled_scores(const kp_ctx *c, const attention_params *p, const kd_act *k, float score[2 * KD_BLOCKS][4]) {
    const kd_act *mine = k + kd_lane_thread() * 8;
    kp_u32 tiles = p->head_dim / ATTENTION_TILE;
#pragma unroll
    for (kp_u32 i = 0; i < 2 * KD_BLOCKS; i++) score[i][0] = score[i][1] = score[i][2] = score[i][3] = 0;
#pragma unroll
    for (kp_u32 t = 0; t < KD_TILES; t++) {
        if (t >= tiles) continue;
        kd_vec q = kd_tiled_q(c, p, t);
#pragma unroll
        for (kp_u32 b = 0; b < KD_BLOCKS; b++) {
            if (b * ATTENTION_TILE < p->stage_tokens) {
                kd_vec x = kx_ld128_shared(mine + (b * tiles + t) * ATTENTION_TILE_SIZE);
                kx_mma_bf16(score[2 * b], q, x.w[0], x.w[1]);
                kx_mma_bf16(score[2 * b + 1], q, x.w[2], x.w[3]);
            }
        }
    }
}

/* The greatest of a row over the four threads that share it. */
KP_FN float kd_row_max(float v) {
    v = kx_max(v, kx_shfl_xor(v, 1));
    return kx_max(v, kx_shfl_xor(v, 2));
}
KP_FN float kd_row_sum(float v) {
    v += kx_shfl_xor(v, 1);
    return v + kx_shfl_xor(v, 2);
}

/* Online softmax over the stage's `live` positions, of heads 8 × half + t / 4: scores become weights. */
KP_FN void kd_tiled_soften(const attention_params *p, kd_tiled_soft *s, int half, kp_u32 live,
                           float score[2 * KD_BLOCKS][4]) {
    kp_u32 column = kd_lane_thread() % 4 * 2;
    float most = s->most[half], sum = 0, scale = p->scale * 1.4426950408889634f; /* log2 e */
#pragma unroll
    for (kp_u32 i = 0; i < 2 * KD_BLOCKS; i++) {
#pragma unroll
        for (kp_u32 e = 0; e < 2; e++) {
            float *x = &score[i][2 * half + e];
            if (i * 8 < p->stage_tokens) *x = i * 8 + column + e < live ? *x * scale : -kx_inf();
            if (i * 8 < p->stage_tokens) most = kx_max(most, *x);
        }
    }
    most = kd_row_max(most);
    float keep = kx_exp2(s->most[half] - most);
#pragma unroll
    for (kp_u32 i = 0; i < 2 * KD_BLOCKS; i++) {
#pragma unroll
        for (kp_u32 e = 0; e < 2; e++) {
            float *x = &score[i][2 * half + e];
            if (i * 8 < p->stage_tokens) *x = kx_exp2(*x - most);
            if (i * 8 < p->stage_tokens) sum += *x;
        }
    }
    s->most[half] = most;
    s->sum[half] = s->sum[half] * keep + sum;
    float even = kx_shfl(keep, column * 4), odd = kx_shfl(keep, column * 4 + 4);
#pragma unroll
    for (kp_u32 t = 0; t < KD_TILES; t++) {
        if (t * ATTENTION_TILE >= p->head_dim) continue;
        s->acc[half][t][0] *= even, s->acc[half][t][1] *= odd;
        s->acc[half][t][2] *= even, s->acc[half][t][3] *= odd;
    }
}

/* Of the pair of positions `at`, at + 1: the bits that are live. */
KP_FN kp_u32 kd_live_bits(kp_u32 at, kp_u32 live) {
    return (at < live ? 0xffffu : 0) | (at + 1 < live ? 0xffff0000u : 0);
}

KP_FN void kd_tiled_values(const attention_params *p, kd_tiled_soft *s, const kd_act *v, kp_u32 live,
                           float weight[2 * KD_BLOCKS][4]) {
    const kd_act *mine = v + kd_lane_thread() * 8;
    kp_u32 tiles = p->head_dim / ATTENTION_TILE, column = kd_lane_thread() % 4 * 2;
#pragma unroll
    for (kp_u32 b = 0; b < KD_BLOCKS; b++) {
        if (b * ATTENTION_TILE >= p->stage_tokens) continue;
        kp_u32 near = kd_live_bits(b * ATTENTION_TILE + column, live);
        kp_u32 far = kd_live_bits(b * ATTENTION_TILE + 8 + column, live);
#pragma unroll
        for (kp_u32 t = 0; t < KD_TILES; t++) {
            if (t >= tiles) continue;
            kd_vec x = kx_ld128_shared(mine + (b * tiles + t) * ATTENTION_TILE_SIZE);
            x.w[0] &= near, x.w[1] &= near, x.w[2] &= far, x.w[3] &= far;
#pragma unroll
            for (int half = 0; half < kd_tiled_halves(p); half++)
                kx_mma_bf16(s->acc[half][t], x, kd_round2(weight[2 * b][2 * half], weight[2 * b][2 * half + 1]),
                            kd_round2(weight[2 * b + 1][2 * half], weight[2 * b + 1][2 * half + 1]));
        }
    }
}

struct alignas(8) kd_two {
    float a, b;
};

/* The lane's part into region ACC. */
KP_FN void kd_tiled_part(const kp_ctx *c, const attention_params *p, const kd_tiled_soft *s, kp_u32 part) {
    kp_u32 pitch = attention_acc_pitch(p), lane = kd_lane_thread();
    float *acc = (float *)kb_region(c, ATTENTION_REGION_ACC), *ml = acc + p->parts * p->group * pitch;
#pragma unroll
    for (int half = 0; half < kd_tiled_halves(p); half++) {
        kp_u32 row = 8 * (kp_u32)half + lane / 4, head = 8 * (kp_u32)half + lane % 4 * 2;
        kd_two v = {s->most[half], kd_row_sum(s->sum[half])};
        if (row < p->group && lane % 4 == 0) *(kd_two *)(ml + 2 * (part * p->group + row)) = v;
        float *to = acc + (part * p->group + head) * pitch + lane / 4;
#pragma unroll
        for (kp_u32 t = 0; t < KD_TILES; t++) {
            const float *x = s->acc[half][t];
            if (t * ATTENTION_TILE >= p->head_dim) continue;
            if (head < p->group) to[t * ATTENTION_TILE] = x[0], to[t * ATTENTION_TILE + 8] = x[2];
            if (head + 1 < p->group) to[pitch + t * ATTENTION_TILE] = x[1], to[pitch + t * ATTENTION_TILE + 8] = x[3];
        }
    }
    kx_syncwarp();
}

/* ---- the parts put together ---------------------------------------------------------------------- */

/* A thread has columns 4 t to 4 t + 3 of a head. */
KP_FN int kd_tiled_mine(const attention_params *p) { return kd_lane_thread() * 4 < p->head_dim; }

/* Behind the consumer, which has taken the last copy: nothing reads this page now. The loader that copies it next has
 * a fence between. */
KP_FN void kd_tiled_append(const kp_ctx *c, const attention_params *p) {
    const kp_step *step = kb_step(c);
    kp_u32 page = step->position[0] / p->page_tokens, at = step->position[0] % p->page_tokens;
    kd_act *k = kd_cache_page(c, p, ATTENTION_CACHE_K, c->task->lo, step->seq[0], page);
    kd_act *v = kd_cache_page(c, p, ATTENTION_CACHE_V, c->task->lo, step->seq[0], page);
    const kd_act *new_k = kd_tiled_to(c, p, p->group), *new_v = kd_tiled_to(c, p, p->group + 1);
    KP_ROLLED
    for (kp_u32 i = 2 * kd_thread(c); i < p->head_dim; i += 2 * kd_threads(c)) {
        *(kp_u32 *)(k + attention_k_at(p->head_dim, at, i)) = *(const kp_u32 *)(new_k + i);
        v[attention_v_at(p->head_dim, at, i)] = new_v[i];
        v[attention_v_at(p->head_dim, at, i + 1)] = new_v[i + 1];
    }
}

/* A head's sums over some positions, as far as this thread has columns of them. */
typedef struct kd_sums {
    float most, sum, acc[4];
} kd_sums;

/* Of the parts of unit u. A part without a stage has sum 0, "not > 0": a NaN must come through. */
KP_FN kd_sums kd_tiled_sums(const kp_ctx *c, const attention_params *p, kp_u32 u) {
    kp_u32 pitch = attention_acc_pitch(p), column = kd_tiled_mine(p) ? kd_lane_thread() * 4 : 0;
    const float *acc = (const float *)kb_region(c, ATTENTION_REGION_ACC), *ml = acc + p->parts * p->group * pitch;
    kd_two part[ATTENTION_PARTS];
    kd_vec x[ATTENTION_PARTS];
    kd_sums s = {-kx_inf(), 0, {0, 0, 0, 0}};
#pragma unroll
    for (kp_u32 i = 0; i < ATTENTION_PARTS; i++) {
        if (i >= p->parts) continue;
        part[i] = *(const kd_two *)(ml + 2 * (i * p->group + u));
        x[i] = kx_ld128_shared(acc + (i * p->group + u) * pitch + column);
    }
#pragma unroll
    for (kp_u32 i = 0; i < ATTENTION_PARTS; i++) {
        if (i < p->parts && part[i].b != 0) s.most = kx_max(s.most, part[i].a);
    }
#pragma unroll
    for (kp_u32 i = 0; i < ATTENTION_PARTS; i++) {
        if (i >= p->parts || part[i].b == 0) continue;
        float weight = kx_exp2(part[i].a - s.most);
        s.sum = kx_fma(weight, part[i].b, s.sum);
#pragma unroll
        for (int e = 0; e < 4; e++) s.acc[e] = kx_fma(weight, kx_f32_of_bits(x[i].w[e]), s.acc[e]);
    }
    return s;
}

struct alignas(8) kd_four {
    kp_u32 low, high;
};

/* Four threads have a unit, two words each. */
KP_FN void kd_tiled_out_tagged(const kp_ctx *c, kp_u32 column, int mine, kd_four x) {
    kp_u32 me = kd_lane_thread(), part = me % 4;
    kd_vec v;
#pragma unroll
    for (kp_u32 i = 0; i < 3; i++) {
        kp_u32 word = part * 3 + i, from = (me & ~3u) + (word < 8 ? word / 2 : 0);
        kp_u32 low = kx_shfl(x.low, from), high = kx_shfl(x.high, from);
        v.w[i] = word & 1 ? high : low;
    }
    v.w[3] = kd_epoch(c);
    if (mine && part < KP_TAGGED_VECS) kx_st128_whole(kd_tagged_unit(c, ATTENTION_OUT, column) + part, v);
}

KP_FN void kd_tiled_out(const kp_ctx *c, const attention_params *p, kp_u32 u, const kd_sums *s) {
    kp_u32 first = (c->task->lo * p->group + u) * p->head_dim;
    kd_act *out = (kd_act *)kb_buffer(c, ATTENTION_OUT) + first;
    float scale = 1 / s->sum;
    kd_four v = {kd_round2(s->acc[0] * scale, s->acc[1] * scale), kd_round2(s->acc[2] * scale, s->acc[3] * scale)};
    if (kd_tagged(c, ATTENTION_OUT))
        kd_tiled_out_tagged(c, first + kd_lane_thread() * 4, kd_tiled_mine(p), v);
    else if (kd_tiled_mine(p))
        *(kd_four *)(out + kd_lane_thread() * 4) = v;
}

KP_FN float *kd_tiled_left(const kp_ctx *c, const attention_params *p, kp_u32 split) {
    return (float *)kb_buffer(c, ATTENTION_PARTIAL) + (c->task->lo * p->splits + split) * attention_left_floats(p);
}

KP_FN void kd_tiled_leave(const kp_ctx *c, const attention_params *p, kp_u32 u, const kd_sums *s) {
    float *to = kd_tiled_left(c, p, c->task->aux);
    kd_vec v;
    kd_two ml = {s->most, s->sum};
#pragma unroll
    for (int e = 0; e < 4; e++) v.w[e] = kx_bits_of_f32(s->acc[e]);
    if (kd_tiled_mine(p)) kx_st128(to + u * p->head_dim + kd_lane_thread() * 4, v);
    if (kd_first()) *(kd_two *)(to + p->group * p->head_dim + 2 * u) = ml;
}

/* Each lane counts for the heads that are its own. True for the last of this iteration's splits, live or not. */
KP_FN int kd_tiled_last(const kp_ctx *c, const attention_params *p) {
    kp_u32 *arrived = (kp_u32 *)kb_buffer(c, ATTENTION_ARRIVED) + c->task->lo * 16 + c->lane, before = 0;
    kx_syncwarp();
    if (kd_first()) before = kx_add_acq_rel(arrived, 1);
    before = kx_shfl(before, 0);
    kx_syncwarp();
    return (before + 1) % p->splits == 0;
}

/* Adds splits [s0, s0 + 32) of n to *a: thread t weighs split s0 + t, then adds up columns of all of them. */
KP_FN void kd_tiled_merge(const kp_ctx *c, const attention_params *p, kp_u32 u, kp_u32 s0, kp_u32 n, kd_sums *a) {
    enum { AT_ONCE = 16 };
    kp_u32 lane = kd_lane_thread(), column = kd_tiled_mine(p) ? lane * 4 : 0, mine = s0 + lane < n ? s0 + lane : s0;
    kp_u64 each = attention_left_floats(p);
    const float *from = kd_tiled_left(c, p, s0) + u * p->head_dim + column;
    kp_u64 ml = kx_ld64((const kp_u64 *)(kd_tiled_left(c, p, mine) + p->group * p->head_dim + 2 * u));
    float most = kx_f32_of_bits((kp_u32)ml), sum = kx_f32_of_bits((kp_u32)(ml >> 32)), weight = 0;
    KP_ROLLED
    for (kp_u32 s = 0; s < KD_WARP && s0 + s < n; s += AT_ONCE) {
        kd_vec x[AT_ONCE];
#pragma unroll
        for (kp_u32 j = 0; j < AT_ONCE; j++) {
            x[j].w[0] = x[j].w[1] = x[j].w[2] = x[j].w[3] = 0;
            if (s0 + s + j < n) x[j] = kd_load16(from + (s + j) * each);
        }
        if (s == 0) { /* behind the first loads */
            if (s0 + lane >= n) most = -kx_inf(), sum = 0;
            float top = kx_max(a->most, kd_warp_max(most)), keep = a->sum != 0 ? kx_exp2(a->most - top) : 0;
            weight = sum != 0 ? kx_exp2(most - top) : 0;
            a->sum = a->sum * keep + kd_warp_sum(weight * sum);
            a->most = top;
#pragma unroll
            for (int e = 0; e < 4; e++) a->acc[e] *= keep;
        }
#pragma unroll
        for (kp_u32 j = 0; j < AT_ONCE; j++) {
            float w = kx_shfl(weight, s + j); /* 0 from n on */
#pragma unroll
            for (int e = 0; e < 4; e++) a->acc[e] = kx_fma(w, kx_f32_of_bits(x[j].w[e]), a->acc[e]);
        }
    }
}

/* The consumer's lanes share the heads: what comes of their parts. */
KP_FN void kd_tiled_results(kp_ctx *c, const attention_params *p, const attention_share *share) {
    KP_ROLLED
    for (kp_u32 u = c->lane; u < p->group && share->stages; u += KP_LANES(c, KP_CONSUMER)) {
        kd_sums s = kd_tiled_sums(c, p, u);
        if (share->n == 1)
            kd_tiled_out(c, p, u, &s);
        else
            kd_tiled_leave(c, p, u, &s);
    }
    if (share->n == 1 || !kd_tiled_last(c, p)) return;
    KP_ROLLED
    for (kp_u32 u = c->lane; u < p->group; u += KP_LANES(c, KP_CONSUMER)) {
        kd_sums s = {-kx_inf(), 0, {0, 0, 0, 0}};
        KP_ROLLED
        for (kp_u32 s0 = 0; s0 < share->n; s0 += KD_WARP) kd_tiled_merge(c, p, u, s0, share->n, &s);
        kd_tiled_out(c, p, u, &s);
    }
}

/* The lane's stages, into its part. */
KP_FN void kd_tiled_consume(kp_ctx *c, const attention_params *p, const attention_share *share) {
    kp_u32 k0 = c->stream, part = (c->lane + p->parts - k0 % p->parts) % p->parts;
    kd_tiled_soft s;
    kd_tiled_begin(&s);
    KP_ROLLED
    for (kp_u32 i = part; i < share->stages; i += p->parts) {
        attention_stage g = attention_stage_at(p, share, i);
        float score[2 * KD_BLOCKS][4];
        if (!kd_take(c, k0 + i)) break; /* aborted: the others must not be left at the barrier */
        kd_act *k = (kd_act *)kd_stage(k0 + i), *v = k + p->stage_tokens * p->head_dim;
        if (g.fresh) kd_tiled_fresh(c, p, k, v, g.live - 1);
        kd_tiled_scores(c, p, k, score);
#pragma unroll
        for (int half = 0; half < kd_tiled_halves(p); half++) kd_tiled_soften(p, &s, half, g.live, score);
        kd_tiled_values(p, &s, v, g.live, score);
        kd_give(c, k0 + i);
    }
    kd_tiled_part(c, p, &s, part);
    c->stream = k0 + share->stages;
}

KD_BODY(attention, stream, CONSUMER) {
    const attention_params *p = (const attention_params *)kb_params(c);
    attention_share share = kd_tiled_share(c, p);
    if (share.stages) {
        kd_tiled_consume(c, p, &share);
        kd_role_sync(c);
    }
    kd_tiled_results(c, p, &share);
}

/* ---- storer -------------------------------------------------------------------------------------- */

KD_BODY(attention, stream, STORER) {
    const attention_params *p = (const attention_params *)kb_params(c);
    if (kd_tiled_share(c, p).owns) kd_tiled_append(c, p);
}

#endif
