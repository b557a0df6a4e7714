/* SPDX-License-Identifier: Apache-2.0 */
/* What the compiler says of each kernel, read from its log (ptxas -v). */
#ifndef KEEL_EXEC_CUDA_REPORT_H
#define KEEL_EXEC_CUDA_REPORT_H

#include "core/buf.h"
#include "core/error.h"

#include <stdint.h>

enum { CUDA_KERNEL_NAME = 64, CUDA_KERNELS = 256 };

typedef struct cuda_kernel {
    char name[CUDA_KERNEL_NAME];
    uint32_t registers; /* a thread */
    uint32_t cap;       /* that it may take; 0: not known here */
    uint32_t spill_bytes, stack_bytes;
    uint32_t smem_bytes; /* static */
} cuda_kernel;

typedef struct cuda_report {
    cuda_kernel kernel[CUDA_KERNELS];
    uint32_t n;
    uint32_t nvrtc_major, nvrtc_minor;
    double seconds; /* that the plan's code took to compile, the roles alone not counted */
} cuda_report;

/* Appends the kernels of a log. KEEL_FORMAT: it is no such log, or more kernels than a report holds. */
keel_status cuda_report_read(const char *log, cuda_report *out, keel_error *err);
/* NULL: there is none. */
cuda_kernel *cuda_report_find(cuda_report *r, const char *name);
/* KEEL_REFUSED names the first kernel that spills or keeps anything in local memory, with all others behind it. */
keel_status cuda_report_check(const cuda_report *r, keel_error *err);
/* One line a kernel; smem_bytes are the dynamic ones of keel_run. */
void cuda_report_text(const cuda_report *r, uint32_t smem_bytes, buf *out);
/* [{"name": …}, …] */
void cuda_report_json(const cuda_report *r, uint32_t smem_bytes, buf *out);

#endif
