/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/arch.h"

#include <string.h>

/* cpu: 64 pages of 64 KiB hold 16 rows of 25,600 f32 activations and an output tile; the last-level cache holds two
 * such workers. sm_90a: 227 KiB of SMEM less 3 KiB for slots and barriers. */
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
     .page_bytes = 16 * 1024,
     .n_pages = 14,
     .workers = 132,
     .max_workers = 4096,
     .tile_rows = 16},
};
const unsigned arch_count = sizeof arch_table / sizeof *arch_table;

const arch_desc *arch_find(const char *name) {
    for (unsigned i = 0; i < arch_count; i++) {
        if (strcmp(arch_table[i].name, name) == 0) return &arch_table[i];
    }
    return NULL;
}

/* CUDA bodies do not exist yet: on every arch but the CPU all needed roles are missing. */
unsigned arch_missing_roles(const arch_desc *arch, const op_desc *op, int phase) {
    const op_phase *p = &op->phases[phase];
    unsigned have = 0;
    for (int r = 0; r < KP_ROLES; r++) {
        if (p->cpu[r] && strcmp(arch->name, "cpu") == 0) have |= KP_ROLE_BIT(r);
    }
    return p->needs & ~have;
}
