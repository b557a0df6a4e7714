/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's piece of a checkpoint's tensor, as runs of elements that are contiguous in both. */
#ifndef KEEL_LOAD_SLICE_H
#define KEEL_LOAD_SLICE_H

#include "core/dtype.h"
#include "graph/shard.h"

/* A weight of a rank's graph and where its elements come from. Borrows everything. */
typedef struct weight_piece {
    const char *name, *key; /* in the graph; in the checkpoint */
    dtype dtype;
    int rank;
    const int64_t *dim; /* [rank] of the piece */
    shard_slice slice;  /* dim −1: not cut */
    shard_slice inner;  /* a second cut, of a later dimension (expert weights); dim −1: none */
    const void *whole;  /* the checkpoint's tensor, row-major; NULL for synthetic weights */
} weight_piece;

/* In elements. Run i of the piece lies at i × run; its first `live` elements are those of the whole from
 * first + i × step. The others, and runs from live_runs, are zero (a slice that reaches past the whole). */
typedef struct slice_runs {
    uint64_t runs, run;
    uint64_t live_runs, live;
    uint64_t first, step;
} slice_runs;

slice_runs slice_runs_of(const weight_piece *p);
/* Elements of the piece. */
uint64_t slice_elements(const slice_runs *r);
/* The piece is one run of the whole: nothing has to be copied. */
static inline bool slice_is_run(const slice_runs *r) {
    return r->live == r->run && r->live_runs == r->runs && (r->runs == 1 || r->run == r->step);
}
/* Dimensions of the whole: the piece's, with the cut ones put back. */
void slice_whole_dim(const weight_piece *p, int64_t dim[GRAPH_RANK]);
/* Writes the piece, row-major. out has slice_elements() × dtype_bytes() bytes. */
void slice_copy(const weight_piece *p, void *out);

#endif
