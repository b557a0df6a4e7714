/* SPDX-License-Identifier: Apache-2.0 */
/* attention: causal attention over the paged KV cache, with the norms and the rotary embedding of q and k and the
 * append of this pass's k and v.
 *
 *   q_i ← rope(rmsnorm(q_i)), k ← rope(rmsnorm(k)) (norm and rope where bound); k, v → cache at position[r]
 *   out[r, i] = Σ_j softmax_j(scale × q_i·K_j) V_j over the positions j ≤ position[r] of row r's sequence; query head i
 *   reads KV head i / G, G = q_heads / kv_heads
 *
 * The rotary embedding pairs element i with i + rotary_dim / 2 (Hugging Face's rotate_half); elements from rotary_dim
 * on pass through. Phase "split", a task (KV head h, split s): logical page p belongs to split p mod S, whose task
 * alone writes and reads it, so the append needs no order among tasks. The launcher's lanes append, and are joined
 * before any lane of the consumer reads. With S = 1 the split writes the output. Otherwise phase "merge", a task a KV
 * head, combines the partials (Dao et al., Flash-Decoding, 2023): out = Σ_s e^(m_s − m) acc_s / Σ_s e^(m_s − m) l_s. A
 * split without pages has l = 0 and counts for nothing.
 *
 * Where the sums of a KV head's G query heads do not fit SMEM, the heads are cut: a task of "split" and of "merge" has
 * an equal share of them, and a KV head's pages are read by several tasks. None of these may append then, as the others
 * read what it appends: phase "append", a task (KV head, split), goes before.
 *
 * Plans for a GPU that carry one row a pass have one phase "stream" in place of the two, where a head fits it:
 * attention_tiled.h.
 *
 * The softmax goes block by block of at most 64 positions, counted from the start of a page, and each (row, head) by
 * itself: for a given S the bits of out[r] do not depend on how the prompt was cut into passes, nor on lanes or
 * workers. */
#ifndef KEEL_OPS_ATTENTION_H
#define KEEL_OPS_ATTENTION_H

#include "device/types.h"

enum {
    ATTENTION_Q,       /* [M][q_heads × head_dim] */
    ATTENTION_K,       /* [M][kv_heads × head_dim] */
    ATTENTION_V,       /* [M][kv_heads × head_dim] */
    ATTENTION_ROPE,    /* [M][rotary_dim] cosines, sines (ops/rope_table); optional */
    ATTENTION_CACHE_K, /* [pages][kv_heads][page_tokens][head_dim]; "stream": the last two in tiles */
    ATTENTION_CACHE_V,
    ATTENTION_Q_NORM,  /* weight [head_dim]; optional */
    ATTENTION_K_NORM,  /* weight [head_dim]; optional */
    ATTENTION_OUT,     /* [M][q_heads × head_dim] */
    ATTENTION_PARTIAL, /* scratch, with more than one split: [shares of heads][splits] of { acc [M][group][D], m and l
                          [M][group][2] } */
    ATTENTION_ARRIVED, /* scratch of "stream", with more than one split: [kv_heads] of 16 counters, one a storer lane */
    ATTENTION_BUFFERS
};
enum {
    ATTENTION_REGION_Q,  /* split: [M][group][D] */
    ATTENTION_REGION_ACC /* split: as one partial of the scratch; merge and append have no other: [M][group][D], [M][D]
                          */
};

enum { ATTENTION_HEAD_MAX = 256 };

typedef struct attention_params {
    kp_u32 q_heads, kv_heads, head_dim;
    kp_u32 group;      /* query heads of a task, all of one KV head: G, or where they are cut a divisor of it */
    kp_u32 rotary_dim; /* 0: no rope */
    kp_u32 splits, page_tokens;
    kp_u32 m_max; /* rows the scratch has room for */
    kp_u32 q_norm_dtype, k_norm_dtype;
    kp_u32 stage_tokens; /* positions of a stage of the stream; 0: the plan has "split" and "merge" */
    kp_u32 parts;        /* consumer lanes that share the stages */
    float eps, scale;
} attention_params;

/* Tasks (of one split) that the query heads of a KV head are cut over; 1: they are not cut. Task lo has query heads
 * [lo × group, (lo + 1) × group), of KV head lo / shares. */
KP_FN kp_u32 attention_shares(const attention_params *p) { return p->q_heads / p->kv_heads / p->group; }

/* Elements of one partial. */
KP_FN kp_u64 attention_partial_floats(const attention_params *p) {
    return (kp_u64)p->m_max * p->group * (p->head_dim + 2);
}

#endif
