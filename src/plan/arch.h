/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan can be for. One row an arch. */
#ifndef KEEL_PLAN_ARCH_H
#define KEEL_PLAN_ARCH_H

#include "core/dtype.h"
#include "graph/op.h"

typedef struct arch_desc {
    const char *name;
    dtype act_dtype;      /* activations and KV */
    uint32_t page_bytes;  /* an SMEM page */
    uint32_t n_pages;     /* pages a worker */
    uint32_t workers;     /* default worker count; 0 = ask the machine */
    uint32_t max_workers; /* more are refused */
    uint32_t tile_rows;   /* output columns a linear task takes at least; a multiple of the matrix instruction's */
} arch_desc;

/* NULL when unknown. */
const arch_desc *arch_find(const char *name);
extern const arch_desc arch_table[];
extern const unsigned arch_count;
/* Roles that `phase` needs on this arch and has no body for: a KP_ROLE_BIT mask, 0 = complete. */
unsigned arch_missing_roles(const arch_desc *arch, const op_desc *op, int phase);

#endif
