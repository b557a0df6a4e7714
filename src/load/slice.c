/* SPDX-License-Identifier: Apache-2.0 */
#include "load/slice.h"

#include <assert.h>
#include <string.h>

/* Of a cut dimension of n, what lies inside the whole. */
static uint64_t live_of(const shard_slice *s) {
    int64_t left = s->whole - s->first;
    return left <= 0 ? 0 : (uint64_t)(left < s->n ? left : s->n);
}

/* Elements between dimensions [from, to). */
static uint64_t product(const weight_piece *p, int from, int to) {
    uint64_t n = 1;
    for (int i = from; i < to; i++) n *= (uint64_t)p->dim[i];
    return n;
}

/* The innermost cut makes the runs; a cut before it, of dimension 0, shifts and shortens the series of them. */
slice_runs slice_runs_of(const weight_piece *p) {
    const shard_slice *cut = p->inner.dim >= 0 ? &p->inner : &p->slice, *outer = cut == &p->inner ? &p->slice : NULL;
    if (cut->dim < 0) {
        uint64_t n = product(p, 0, p->rank);
        return (slice_runs){.runs = 1, .run = n, .live_runs = 1, .live = n, .step = n};
    }
    uint64_t columns = product(p, cut->dim + 1, p->rank);
    slice_runs r = {.runs = product(p, 0, cut->dim), .run = (uint64_t)cut->n * columns};
    r.live = live_of(cut) * columns;
    r.live_runs = r.runs;
    r.step = (uint64_t)cut->whole * columns;
    r.first = (uint64_t)cut->first * columns;
    if (outer && outer->dim >= 0) {
        assert(outer->dim == 0 && cut->dim > 0 && "cut twice: the first dimension and a later one");
        uint64_t each = r.runs / (uint64_t)outer->n;
        r.live_runs = live_of(outer) * each;
        r.first += (uint64_t)outer->first * each * r.step;
    }
    return r;
}

uint64_t slice_elements(const slice_runs *r) { return r->runs * r->run; }

void slice_whole_dim(const weight_piece *p, int64_t dim[GRAPH_RANK]) {
    for (int i = 0; i < p->rank; i++)
        dim[i] = i == p->slice.dim ? p->slice.whole : i == p->inner.dim ? p->inner.whole : p->dim[i];
}

void slice_copy(const weight_piece *p, void *out) {
    slice_runs r = slice_runs_of(p);
    size_t element = dtype_bytes(p->dtype), live = r.live * element, pad = (r.run - r.live) * element;
    const uint8_t *from = (const uint8_t *)p->whole + r.first * element;
    uint8_t *to = out;
    for (uint64_t i = 0; i < r.live_runs; i++) {
        if (live) memcpy(to, from + i * r.step * element, live);
        if (pad) memset(to + live, 0, pad);
        to += live + pad;
    }
    memset(to, 0, (size_t)((r.runs - r.live_runs) * r.run) * element);
}
