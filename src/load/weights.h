/* SPDX-License-Identifier: Apache-2.0 */
/* Where a graph's weights lie: in a mapped checkpoint, as its rows are, or made by the synthetic recipe. */
#ifndef KEEL_LOAD_WEIGHTS_H
#define KEEL_LOAD_WEIGHTS_H

#include "graph/graph.h"

typedef struct weights weights;

/* Maps the checkpoint in DIR. */
keel_status weights_open(const char *dir, weights **out, keel_error *err);
/* Synthetic weights (load/synth.h). */
keel_status weights_open_synth(uint32_t seed, weights **out, keel_error *err);

/* Matches every weight tensor of g: all missing keys are named at once, then all wrong shapes and types. Sets each
 * tensor's dtype to what the checkpoint holds (F32, BF16, F16). Synthetic weights are made here, in the dtype the graph
 * has, by all cores. Call once. */
keel_status weights_bind(weights *w, graph *g, keel_error *err);

/* Data of a bound tensor; NULL for an unknown key. Lives until weights_close(). */
const void *weights_find(const weights *w, const char *key, dtype *dtype);
/* Bytes of the bound tensors. */
uint64_t weights_bytes(const weights *w);
void weights_close(weights *w);

#endif
