/* SPDX-License-Identifier: Apache-2.0 */
/* Where a graph's weights lie: in a mapped checkpoint, as its rows are; in a packed copy, where a rank's piece is not
 * one run of the checkpoint's bytes; or made by the synthetic recipe. */
#ifndef KEEL_LOAD_WEIGHTS_H
#define KEEL_LOAD_WEIGHTS_H

#include "graph/graph.h"
#include "load/weight_cache.h"

typedef struct weights weights;

/* Maps the checkpoint in DIR. */
keel_status weights_open(const char *dir, weights **out, keel_error *err);
/* Synthetic weights (load/synth.h). */
keel_status weights_open_synth(uint32_t seed, weights **out, keel_error *err);

/* Before weights_bind(): packed copies come from a weight cache, which gets them where it has none. Without, they are
 * made in memory. What o points to is borrowed until weights_bind() returns. Synthetic weights use no cache. */
void weights_use_cache(weights *w, const weight_cache_options *o);

/* Matches every weight tensor of g, the global graph or a rank's, with the checkpoint: all missing keys are named at
 * once, then all wrong shapes and types. Sets each tensor's dtype to what the checkpoint holds (F32, BF16, F16; what
 * the graph has as F8E4M3 is that in the checkpoint too). A
 * checkpoint's shape is a rank's with the cut dimension put back (graph_weight_slice). Synthetic weights: nothing to
 * do. Enough to plan. */
keel_status weights_match(const weights *w, graph *g, keel_error *err);
/* weights_match(), and the data: replicated tensors and slices of rows point into the map; others, and what is not
 * aligned to its element, are packed copies; what a slice has past the end of the whole is zeros. Synthetic weights
 * are made here, in the dtype the graph has: a rank's are the elements that the whole model's have. By all cores. Call
 * once. */
keel_status weights_bind(weights *w, graph *g, keel_error *err);

/* Data of a bound tensor, by its name in the graph; NULL for an unknown one. Lives until weights_close(). */
const void *weights_find(const weights *w, const char *name, dtype *dtype);
/* Bytes of the bound tensors. */
uint64_t weights_bytes(const weights *w);
/* What weights_bind() did with the cache; all zero without one. */
const weight_cache_result *weights_cached(const weights *w);
void weights_close(weights *w);

#endif
