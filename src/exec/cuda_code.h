/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's device code: the text of its one translation unit (exec/cuda_compile.h compiles it). */
#ifndef KEEL_EXEC_CUDA_CODE_H
#define KEEL_EXEC_CUDA_CODE_H

#include "core/buf.h"
#include "plan/plan.h"

/* The source of the plan's translation unit: what the device text does not say itself. */
keel_status cuda_code_source(const plan *p, buf *out, keel_error *err);

/* Stages of the weight stream's ring. */
uint32_t cuda_code_stages(const plan *p);
/* Warps of a block, all roles together. */
uint32_t cuda_code_lanes(const plan *p);

#endif
