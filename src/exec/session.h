/* SPDX-License-Identifier: Apache-2.0 */
/* A plan bound to memory: buffers, KV pages, instances; and runs of it on the CPU. */
#ifndef KEEL_EXEC_SESSION_H
#define KEEL_EXEC_SESSION_H

#include "exec/rank_group.h"
#include "load/weights.h"
#include "plan/plan.h"

typedef struct session session;

typedef struct session_options {
    uint32_t lanes;        /* lanes a role: 1 or 2; 0 = 1 */
    uint32_t seed;         /* 0: fixed order; else the CPU backend shuffles fibers and copies by it */
    uint32_t page_seed;    /* 0: KV pages in order; else the page table is a permutation drawn from it */
    uint32_t watchdog_s;   /* abort after so many seconds without progress; 0 = 10 */
    const char *cache_dir; /* GPU: compiled device code is kept in cache_dir/cubin; NULL: nowhere */
    const char *cubin;     /* GPU: a file of compiled device code; NULL: it is compiled, or in the cache */
    uint64_t gpu_memory;   /* GPU: bytes that may be taken; 0: all that are free */
    rank_group *group;     /* of a plan for several ranks: borrowed, opened with session_rank_bytes() */
} session_options;

/* Bytes of a rank's memory that the other ranks touch. */
uint64_t session_rank_bytes(const plan *p);

/* Binds p (borrowed) and w (borrowed; every weight buffer must be there in the plan's dtype). Refuses an incomplete
 * plan and one for another arch. KV pages and arena are mapped here, zeroed. */
keel_status session_open(const plan *p, const weights *w, const session_options *options, session **out,
                         keel_error *err);
void session_close(session *s);

/* Called on the thread that runs session_run, as tokens come: index from 0, and when it was emitted (CLOCK_MONOTONIC).
 */
typedef void (*session_token)(void *user, uint32_t index, uint32_t token, uint64_t ns);

typedef struct session_result {
    uint32_t n_tokens;
    uint64_t start_ns, first_ns, last_ns; /* launch, first and last token */
    bool stopped;                         /* by session_stop() */
} session_result;

/* One launch: the whole generation. request: the caller's part (page table, out, out_ns and vocab are the session's).
 * KEEL_HANG names the stuck lanes after the watchdog's time; the session can run again (not where there are other
 * ranks). KEEL_ABORTED: another rank failed or is gone. */
keel_status session_run(session *s, const kp_request *request, session_token on_token, void *user,
                        session_result *result, keel_error *err);
/* Asks the run to end after the iteration in flight. Any thread, any time. With several ranks: the one of rank 0, for
 * all of them. */
void session_stop(session *s);

/* What the device that the session runs on reads at most, bytes/s: of `bytes` bytes by the CPU, of the session's own
 * memory by a GPU. */
keel_status session_bandwidth(session *s, uint64_t bytes, uint32_t repeats, double *best, keel_error *err);

/* Logical KV page i of the sequence lies in physical page table[i], i < n: the identity, or with a seed a Fisher-Yates
 * draw. */
void session_page_table(uint32_t *table, uint32_t n, uint32_t seed);

/* Memory of a plan buffer, on a GPU in its address space: for tests. */
void *session_buffer(session *s, uint32_t buffer);
/* Bytes mapped beside the weights: activations, KV. */
uint64_t session_kv_bytes(const session *s);
/* GPU memory taken; all 0 on the CPU. */
void session_memory(const session *s, keel_session_memory *out);

#endif
