/* SPDX-License-Identifier: Apache-2.0 */
/* Phase "stream": KV pages that stream through the weight ring (attention_tiled.cuh), in plans for one row a pass. How
 * a page of one KV head lies in memory, which splits have pages, and which stages these make. Common subset of C11 and
 * CUDA C++17.
 *
 * A page is kept in tiles of 16 positions × 16 elements, 512 bytes each, tiles of the same positions side by side: any
 * multiple of 16 positions from its start on is one run of bytes. In a tile thread t of a warp finds its part of
 * operands of mma.m16n8k16 (PTX ISA, "matrix fragments for mma.m16n8k16") in the 16 bytes at 16 t, so that a warp
 * reads a tile in one conflict-free access. K: two operands B side by side, k: elements, n: positions. V: one operand
 * A, rows: elements, columns: positions.
 *
 * Short contexts are one split's affair: a merge costs more than it saves. Beyond, live splits share the pages in turn.
 * How many are live follows from the newest position alone, so all tasks of a pass agree; a page may change hands from
 * one pass to the next, and the border stands between. */
#ifndef KEEL_OPS_ATTENTION_TILED_H
#define KEEL_OPS_ATTENTION_TILED_H

#include "attention.h"

enum { ATTENTION_TILE = 16, ATTENTION_TILE_SIZE = 256 };

/* Of thread `row % 8 × 4 + column % 8 / 2`; register `high` of its four pairs. */
KP_FN kp_u32 attention_operand_at(kp_u32 row, kp_u32 column, kp_u32 high) {
    return (row % 8 * 4 + column % 8 / 2) * 8 + high * 2 + column % 2;
}

KP_FN kp_u32 attention_tile_of(kp_u32 dim, kp_u32 position, kp_u32 element) {
    return (position / ATTENTION_TILE * (dim / ATTENTION_TILE) + element / ATTENTION_TILE) * ATTENTION_TILE_SIZE;
}

/* Where an element of K, of V lies; positions count from the page's start, or from any multiple of 16 in it. */
KP_FN kp_u32 attention_k_at(kp_u32 dim, kp_u32 position, kp_u32 element) {
    kp_u32 n = position % ATTENTION_TILE, k = element % ATTENTION_TILE;
    return attention_tile_of(dim, position, element) + attention_operand_at(n, k, n / 8 * 2 + k / 8);
}
KP_FN kp_u32 attention_v_at(kp_u32 dim, kp_u32 position, kp_u32 element) {
    kp_u32 row = element % ATTENTION_TILE, column = position % ATTENTION_TILE;
    return attention_tile_of(dim, position, element) + attention_operand_at(row, column, column / 8 * 2 + row / 8);
}

enum {
    ATTENTION_ALONE_PAGES = 8, /* up to so many pages one split has them all */
    ATTENTION_LEAST_PAGES = 2  /* beyond, a live split has at least so many, but for the last ones */
};

/* What a split has to do in a pass: pages split, split + n, … up to the one of the newest position. */
typedef struct attention_share {
    kp_u32 split, n; /* of n live splits */
    kp_u32 last;     /* newest position */
    kp_u32 stages;   /* 0: nothing, this split is not live */
    kp_u32 owns;     /* 1: the newest position is in a page of this one */
} attention_share;

/* stage_tokens positions of a page, K and then V, in one stage of the ring. */
typedef struct attention_stage {
    kp_u32 turn;   /* of the split's pages */
    kp_u32 token;  /* first position in the page */
    kp_u32 live;   /* positions that are attended to, from there on */
    kp_u32 copied; /* positions that come from the cache: whole tiles of those that earlier passes appended */
    kp_u32 fresh;  /* 1: the last one is this pass's, which the cache does not hold yet */
} attention_stage;

KP_FN kp_u32 attention_live_splits(const attention_params *p, kp_u32 last) {
    kp_u32 pages = last / p->page_tokens + 1, n = (pages + ATTENTION_LEAST_PAGES - 1) / ATTENTION_LEAST_PAGES;
    return pages <= ATTENTION_ALONE_PAGES ? 1 : n < p->splits ? n : p->splits;
}

/* All pages of a split are full but, at most, its last one. */
KP_FN attention_share attention_share_of(const attention_params *p, kp_u32 split, kp_u32 last) {
    kp_u32 end = last / p->page_tokens, each = p->page_tokens / p->stage_tokens;
    attention_share s = {split, attention_live_splits(p, last), last, 0, 0};
    if (split >= s.n || split > end) return s;
    kp_u32 more = (end - split) / s.n; /* pages before its last one */
    s.owns = split + more * s.n == end;
    s.stages = more * each + (s.owns ? last % p->page_tokens / p->stage_tokens + 1 : each);
    return s;
}

KP_FN attention_stage attention_stage_at(const attention_params *p, const attention_share *s, kp_u32 i) {
    kp_u32 each = p->page_tokens / p->stage_tokens;
    attention_stage g;
    g.turn = i / each;
    g.token = i % each * p->stage_tokens;
    kp_u32 left = s->last + 1 - ((s->split + g.turn * s->n) * p->page_tokens + g.token);
    g.live = left < p->stage_tokens ? left : p->stage_tokens;
    g.fresh = left == g.live;
    g.copied = (g.live - g.fresh + ATTENTION_TILE - 1) / ATTENTION_TILE * ATTENTION_TILE;
    return g;
}

/* Of a live split in the scratch: as another partial, in whole 16 bytes. */
KP_FN kp_u64 attention_left_floats(const attention_params *p) {
    return (kp_u64)(p->group * (p->head_dim + 2) + 3) / 4 * 4;
}

/* SMEM of a task. Region Q: the heads of q, q_pitch apart (so that eight rows lie in different banks), then the new
 * position's k and v, in bf16. Region ACC: a part a consumer lane, in f32: sums [part][G][acc_pitch], then the greatest
 * score and the sum of weights [part][G][2]. Scores are kept as powers of two. */
enum { ATTENTION_PARTS = 8, ATTENTION_TILED_DIM = 128, ATTENTION_TILED_GROUP = 16 }; /* at most */
KP_FN kp_u32 attention_q_pitch(const attention_params *p) { return p->head_dim + 8; }
KP_FN kp_u32 attention_acc_pitch(const attention_params *p) { return p->head_dim + 4; } /* likewise */
KP_FN kp_u32 attention_q_elements(const attention_params *p) {
    return p->group * attention_q_pitch(p) + 2 * p->head_dim;
}
KP_FN kp_u32 attention_acc_floats(const attention_params *p) {
    return p->parts * p->group * (attention_acc_pitch(p) + 2);
}

#endif
