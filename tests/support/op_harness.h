/* SPDX-License-Identifier: Apache-2.0 */
/* Test mode: a graph of one op (or a few), planned and run once by the real planner and the real CPU runtime. Outputs
 * are poisoned with NaN before each run, canaries stand around all buffers (support/op_memory.h), and inputs must come
 * out of it as they went in. Any failure prints the reason and fails the cmocka test.
 *
 * KEEL_HARNESS_ARCH=sm_90a runs the same cases through the GPU backend, on a GPU (tests/gpu/ops.c) or under the
 * emulator (docs/emulator.md): weights are BF16 whatever a case asks for, activations are rounded to it, tolerances are
 * those of such a rounding. Cases that the GPU backend refuses are skipped. */
#ifndef KEEL_TESTS_OP_HARNESS_H
#define KEEL_TESTS_OP_HARNESS_H

#include "graph/build.h"
#include "plan/tiler.h"

typedef struct harness harness;

typedef struct harness_config {
    unsigned seed;      /* printed on failure */
    uint32_t workers;   /* default 2 */
    uint32_t lanes;     /* default 2 */
    uint32_t m_max;     /* default 16 */
    uint32_t max_seq;   /* default 256 */
    uint32_t kv_splits; /* 0: the op chooses */
    dtype weight_dtype; /* DTYPE_F32 (0) by default */
    int64_t vocab;      /* for ops that pick tokens */
    bool planted;       /* outputs are one element too long for their canaries: each run must find them damaged */
} harness_config;

harness *harness_new(harness_config config);
/* Building the graph: harness_input for activations, then build_op(harness_build(h), …) with weights by key. */
build *harness_build(harness *h);
int harness_input(harness *h, const char *name, int64_t cols);
/* Plans and binds. Inputs and weights are filled with uniform values in [−1, 1) by the seed; caches are zero. */
void harness_ready(harness *h);
/* [m_max][row elements] of an activation (f32), writable for inputs; NULL for an id that has no buffer of its own. */
float *harness_tensor(harness *h, int id);
/* The f32 value of a weight after rounding to its dtype: [elements]; and a way to set it (rounds to the dtype). */
const float *harness_weight(harness *h, const char *key);
void harness_set_weight(harness *h, const char *key, const float *values);
/* One pass of n_rows rows with tokens[r] (NULL: r) at positions start … start + n_rows − 1. logits_last: only the last
 * row belongs to M_LOGIT tensors, otherwise all rows do. KV pages are mapped through a permuted page table. */
void harness_run(harness *h, uint32_t n_rows, uint32_t start, const int32_t *tokens, bool logits_last);
/* The same with a request to generate tokens; returns how many came and stores them. */
typedef struct harness_sampling {
    float temperature, top_p;
    uint32_t top_k, seed;
} harness_sampling;
uint32_t harness_generate(harness *h, uint32_t n_rows, const int32_t *tokens, harness_sampling sampling,
                          uint32_t max_new, int32_t *out);
void harness_close(harness *h);

/* Comparison by the op's own tolerances: cosine, max|Δ|/max|ref|, no NaN; [rows][cols] with row strides. Prints
 * figures. */
void harness_compare(const op_desc *op, const char *what, const float *got, const double *want, uint32_t rows,
                     uint32_t cols, uint32_t ld_got, uint32_t ld_want);
/* What a number may differ by where the test says so itself: cpu, or what the GPU's rounding allows of numbers up to 1.
 */
double harness_tolerance(double cpu);
/* Has the plan tasks of a phase of that name? */
bool harness_has_phase(const harness *h, const char *phase);
bool harness_on_gpu(void);
/* Of this process, so far. */
typedef struct harness_count {
    unsigned cases, runs, skipped;
} harness_count;
harness_count harness_counted(void);
/* Uniform in [−1, 1) from a counter. */
float harness_uniform(unsigned seed, uint64_t i);

#endif
