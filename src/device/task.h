/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker is given: the task descriptor, and the record of one iteration. Plain data, no pointers in what a
 * plan file holds. */
#ifndef KEEL_DEVICE_TASK_H
#define KEEL_DEVICE_TASK_H

#include "device/types.h"

enum {
    KP_SPANS = 3,   /* page spans a task may claim, one a releasing role */
    KP_REGIONS = 4, /* named SMEM regions a task may have */
    KP_M_MAX = 16,  /* rows a pass may carry (SPEC: M ≤ 16 until batches come) */
};

/* A run of physical pages, claimed by the loader, released by release_role after its body. */
typedef struct kp_span {
    kp_u16 first_page, n_pages;
    kp_u32 release_role; /* KP_CONSUMER or KP_STORER (KP_LOADER, KP_LAUNCHER are possible) */
} kp_span;

/* One tile of an op on one worker. What lo, hi and aux mean is the op's affair; usually output columns [lo, hi). */
typedef struct kp_task {
    kp_u32 instance; /* which op of the graph: index into the plan's instances */
    kp_u32 body;     /* which role bodies: index into the plan's body table (op kind and phase) */
    kp_u32 lo, hi, aux;
    kp_u32 wait_first; /* into the plan's wait list: events that must be satisfied before dependent data is read */
    kp_u16 n_waits;
    kp_u8 n_spans, n_regions;
    kp_u32 trigger; /* event that this task adds 1 to when its results are visible; KP_NONE without */
    kp_span span[KP_SPANS];
    kp_u32 region_offset[KP_REGIONS]; /* bytes from the worker's SMEM base */
} kp_task;

/* What an iteration computes, written by the step_begin task, read by every body. Row r is token[r] of sequence
 * seq[r] at position[r]. Logits are wanted for rows [logit_from, n_rows). */
typedef struct kp_step {
    kp_u32 iteration;
    kp_u32 n_rows, logit_from;
    kp_u32 token[KP_M_MAX], position[KP_M_MAX], seq[KP_M_MAX];
} kp_step;

/* A generation, written by the host before the launch and constant during it. */
typedef struct kp_request {
    const kp_u32 *prompt; /* [n_prompt] */
    kp_u32 n_prompt;
    kp_u32 chunk;          /* rows a prefill pass carries, 1..KP_M_MAX */
    kp_u32 max_new;        /* stop after this many tokens; 0: the prompt is passed through and nothing is emitted */
    kp_u32 start;          /* position of the first prompt token: what lies before is in the KV pages already */
    kp_u32 all_logits;     /* 1: logits of every row, not only of the rows that predict */
    kp_u32 max_seq;        /* positions the KV pages hold */
    const kp_u32 *stop_id; /* [n_stop] tokens that end the generation */
    kp_u32 n_stop;
    const kp_u32 *forced; /* [n_forced] teacher forcing: token i+1 is fed from here, not from the prediction; or null */
    kp_u32 n_forced;
    float temperature, top_p; /* read by the sample op alone */
    kp_u32 top_k, seed;
    kp_u32 vocab;
    const kp_u32 *page_table; /* [n_seq][pages_per_seq] physical KV page of each logical one */
    kp_u32 pages_per_seq;
    float *logits;  /* [max_new][vocab], or null */
    kp_u64 *out;    /* [max_new] token | (index + 1) << 32: data that carries its epoch */
    kp_u64 *out_ns; /* [max_new] when it was emitted */
} kp_request;

/* Where the generation stands. Written by step_begin and by the op that picks the token, in event order. */
typedef struct kp_state {
    kp_u32 cursor;   /* prompt tokens consumed */
    kp_u32 position; /* next position to fill */
    kp_u32 n_out;
    kp_u32 last_token;
    kp_u32 finished; /* 1 after the token that ends the generation */
} kp_state;

#endif
