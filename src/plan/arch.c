/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/arch.h"

#include <string.h>

/* cpu: 64 pages of 64 KiB hold 16 rows of 25,600 f32 activations and an output tile; the last-level cache holds two
 * such workers. sm_90a: 227 KiB of SMEM less 3 KiB for slots and barriers; 16,384
 * registers for each of four partitions, of which one has three warps of eleven, give a thread 168 at most; the roles
 * that only move things stay well below. */
const arch_desc arch_table[] = {
    {.name = "cpu",
     .act_dtype = DTYPE_F32,
     .page_bytes = 64 * 1024,
     .n_pages = 64,
     .workers = 0,
     .max_workers = 512,
     .tile_rows = 8},
    {.name = "sm_90a",
     .act_dtype = DTYPE_BF16,
     .page_bytes = 4 * 1024,
     .n_pages = 56,
     .few_pages = 8,
     .row_pages = 24,
     .most_pages = 28,
     .stage_bytes = 16 * 1024,
     .smem_bytes = 227 * 1024,
     .tags = true,
     .workers = 132,
     .max_workers = 4096,
     .tile_rows = 16,
     .lanes = {1, 1, 4, 4, 1},
     .registers = {64, 64, 168, 168, 128}},
};
const unsigned arch_count = sizeof arch_table / sizeof *arch_table;

const arch_desc *arch_find(const char *name) {
    for (unsigned i = 0; i < arch_count; i++) {
        if (strcmp(arch_table[i].name, name) == 0) return &arch_table[i];
    }
    return NULL;
}

static bool cuda_has(const op_desc *op, const char *phase, unsigned role) {
    for (const arch_body *b = arch_cuda_bodies; b->op; b++) {
        if (b->role == role && strcmp(b->op, op->name) == 0 && strcmp(b->phase, *phase ? phase : "main") == 0)
            return true;
    }
    return false;
}

/* An op may give roles other work on other archs: any body of a GPU phase that stores is the whole of it. */
unsigned arch_missing_roles(const arch_desc *arch, const op_desc *op, int phase) {
    const op_phase *p = &op->phases[phase];
    bool cpu = strcmp(arch->name, "cpu") == 0;
    unsigned have = 0;
    if (cpu && p->gpu_only) return 0;
    for (unsigned r = 0; r < KP_ROLES; r++) {
        if (cpu ? p->cpu[r] != NULL : cuda_has(op, p->name, r)) have |= KP_ROLE_BIT(r);
    }
    if (!cpu && (have & KP_ROLE_BIT(KP_STORER))) return 0;
    return p->needs & ~have;
}
