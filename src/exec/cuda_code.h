/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's device code: the text of its one translation unit (exec/cuda_compile.h compiles it). */
#ifndef KEEL_EXEC_CUDA_CODE_H
#define KEEL_EXEC_CUDA_CODE_H

#include "core/buf.h"
#include "plan/plan.h"

/* "LOADER": how the device text spells a role. */
extern const char *const cuda_role_words[KP_ROLES];

/* The source of the plan's translation unit: what the device text does not say itself. */
keel_status cuda_code_source(const plan *p, buf *out, keel_error *err);

/* The same bodies as a kernel for each role, keel_role_ROLE, under the role's own register cap: for the compiler's
 * report alone. */
keel_status cuda_code_probes(const plan *p, buf *out, keel_error *err);

/* The cases of the plan's dispatch: a role body with the parameters of an instance. Instances that differ in their
 * buffers alone share a case; kp_record.variant is its number. */
typedef struct cuda_cases {
    uint32_t n;
    uint32_t *phase;    /* [n] the first of the plan's phases of this case */
    uint32_t *of_phase; /* [n_phases] */
} cuda_cases;
keel_status cuda_cases_make(const plan *p, cuda_cases *out, keel_error *err);
void cuda_cases_free(cuda_cases *c);

/* Stages of the weight stream's ring. */
uint32_t cuda_code_stages(const plan *p);
/* Bytes of the pages and that ring: keel_run's dynamic SMEM. */
uint32_t cuda_code_smem(const plan *p);
/* Warps of a block, all roles together. */
uint32_t cuda_code_lanes(const plan *p);

#endif
