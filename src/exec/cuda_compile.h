/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's device code, compiled by NVRTC, kept in a cache or in a file. Needs no GPU. */
#ifndef KEEL_EXEC_CUDA_COMPILE_H
#define KEEL_EXEC_CUDA_COMPILE_H

#include "core/buf.h"
#include "exec/cuda_report.h"
#include "plan/plan.h"

/* Code for the driver: from `file` where it is not NULL (cuda_compile_file(); needs no compiler; KEEL_USAGE: it belongs
 * to another plan or build). Else from the cache, cache_dir/cubin, keyed by source, options, arch and compiler; what is
 * not there, or damaged, is compiled and put there. Any number of processes at once; cache_dir may be NULL.
 * KEEL_REFUSED: the compiler's log. */
keel_status cuda_compile_get(const plan *p, const char *cache_dir, const char *file, buf *code, keel_error *err);

/* Compiles to the bytes of a file (exec/cuda_cubin.h), and where roles is true every role alone for the report, which
 * takes as long again. KEEL_REFUSED: it does not compile, or something spills or lies in local memory. */
keel_status cuda_compile_file(const plan *p, bool roles, buf *sealed, cuda_report *report, keel_error *err);

/* Any source over the built-in device text, for what the compiler says of its kernels alone. */
keel_status cuda_compile_text(const char *arch, const char *source, cuda_report *report, keel_error *err);

#endif
