/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of doc_open(), in the order in which they run, and what they and the writers have in common. When memory is
 * short a part sets nomem. */
#ifndef KEEL_PLAN_DOC_PARTS_H
#define KEEL_PLAN_DOC_PARTS_H

#include "plan/doc.h"
#include "plan/tiler_internal.h"

void doc_find_rows(doc *d);
/* t: plan_describe() of the plan. */
void doc_find_kernels(doc *d, const tiler *t);
void doc_find_fused(doc *d);
void doc_find_chain(doc *d);
void doc_find_floor(doc *d, const doc_options *o);
void doc_find_risks(doc *d);
void doc_find_ladder(doc *d);

/* In the document's arena; "" when memory is short. */
const char *doc_text(doc *d, const char *fmt, ...) KEEL_PRINTF(2, 3);
/* The same of a buffer's text, which is freed. */
const char *doc_take(doc *d, buf *b);
void *doc_array(doc *d, size_t count, size_t size);

doc_port doc_port_of(const op_desc *op);
void doc_span_add(doc_span *s, uint64_t v, bool first);
/* "0-3,7" of a sorted list. */
void doc_ranges(buf *b, const int *layers, uint32_t n);
/* "[M, 4096]"; a cache: "[8, 128] a position". */
void doc_shape(buf *b, const graph_tensor *t);
/* "linear", "attention.split". */
const char *doc_phase_name(doc *d, const op_desc *op, uint32_t phase);
/* Weight bytes that the busiest worker moves in [first_task, first_task + n_tasks) of every phase in the list, summed
 * over phases, times the workers. */
uint64_t doc_busiest(doc *d, uint32_t phase);
/* Layers of one kind: how many kinds, and how many layers of the commonest. */
typedef struct doc_layers {
    uint32_t kinds, common;
    int first; /* layer of the commonest kind */
} doc_layers;
doc_layers doc_count_layers(doc *d);

#endif
