/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's device code: one translation unit of the built-in text, compiled by NVRTC for the plan's bodies. */
#ifndef KEEL_EXEC_CUDA_CODE_H
#define KEEL_EXEC_CUDA_CODE_H

#include "core/buf.h"
#include "plan/plan.h"

/* The source of the plan's translation unit: what the device text does not say itself. */
keel_status cuda_code_source(const plan *p, buf *out, keel_error *err);

/* Compiles; needs no GPU. KEEL_REFUSED: the compiler's log. With cache_dir (may be NULL) a cubin made from the same
 * source, options and compiler is taken from there, and a new one is put there. log (may be NULL): what the compiler
 * says of registers, spills and SMEM; then nothing is taken from the cache. */
keel_status cuda_code_compile(const plan *p, const char *cache_dir, buf *cubin, buf *log, keel_error *err);

/* Stages of the weight stream's ring. */
uint32_t cuda_code_stages(const plan *p);
/* Warps of a block, all roles together. */
uint32_t cuda_code_lanes(const plan *p);

#endif
