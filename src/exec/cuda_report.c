/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/cuda_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char entry[] = "Compiling entry function '";

/* The number in front of `unit` within [from, end); 0 where it does not say. */
static uint32_t number_before(const char *from, const char *end, const char *unit) {
    const char *at = strstr(from, unit);
    if (!at || at >= end) return 0;
    while (at > from && at[-1] >= '0' && at[-1] <= '9') at--;
    return (uint32_t)strtoul(at, NULL, 10);
}

static keel_status read_kernel(const char *from, const char *end, cuda_kernel *out, keel_error *err) {
    const char *name = from + strlen(entry), *stop = strchr(name, '\'');
    *out = (cuda_kernel){0};
    if (!stop || stop - name >= CUDA_KERNEL_NAME) return error_set(err, KEEL_FORMAT, "the compiler's log: %.80s", from);
    memcpy(out->name, name, (size_t)(stop - name));
    out->registers = number_before(stop, end, " registers");
    out->spill_bytes = number_before(stop, end, " bytes spill stores") + number_before(stop, end, " bytes spill loads");
    out->stack_bytes = number_before(stop, end, " bytes stack frame") + number_before(stop, end, " bytes lmem");
    out->smem_bytes = number_before(stop, end, " bytes smem");
    if (!out->registers)
        return error_set(err, KEEL_FORMAT, "the compiler's log says nothing of %s's registers:\n%.600s", out->name,
                         from);
    return KEEL_OK;
}

keel_status cuda_report_read(const char *log, cuda_report *out, keel_error *err) {
    const char *at = strstr(log, entry);
    if (!at) return error_set(err, KEEL_FORMAT, "the compiler's log names no kernel:\n%.600s", log);
    while (at) {
        const char *next = strstr(at + 1, entry);
        if (out->n == CUDA_KERNELS) return error_set(err, KEEL_FORMAT, "more than %d kernels", CUDA_KERNELS);
        KEEL_TRY(read_kernel(at, next ? next : at + strlen(at), &out->kernel[out->n], err));
        out->n++;
        at = next;
    }
    return KEEL_OK;
}

cuda_kernel *cuda_report_find(cuda_report *r, const char *name) {
    for (uint32_t i = 0; i < r->n; i++) {
        if (strcmp(r->kernel[i].name, name) == 0) return &r->kernel[i];
    }
    return NULL;
}

keel_status cuda_report_check(const cuda_report *r, keel_error *err) {
    keel_status s = KEEL_OK;
    for (uint32_t i = 0; i < r->n; i++) {
        const cuda_kernel *k = &r->kernel[i];
        if (!k->spill_bytes && !k->stack_bytes) continue;
        if (s == KEEL_OK)
            s = error_set(err, KEEL_REFUSED,
                          "the device code keeps data in local memory, which is as slow as the "
                          "GPU's own; every array needs an index known when it is compiled, and "
                          "every role its registers:");
        error_append(err, "  %s: %u bytes spilled, %u bytes of stack, %u registers%s", k->name, k->spill_bytes,
                     k->stack_bytes, k->registers, k->cap && k->registers >= k->cap ? " (all it may take)" : "");
    }
    return s;
}

void cuda_report_text(const cuda_report *r, uint32_t smem_bytes, buf *out) {
    buf_printf(out, "kernel                                 registers  at most  spilled  stack    SMEM\n");
    for (uint32_t i = 0; i < r->n; i++) {
        const cuda_kernel *k = &r->kernel[i];
        uint32_t smem = k->smem_bytes + (strcmp(k->name, "keel_run") == 0 ? smem_bytes : 0);
        char most[16] = "-";
        if (k->cap) snprintf(most, sizeof most, "%u", k->cap);
        buf_printf(out, "%-38s %9u %8s %8u %6u %7u\n", k->name, k->registers, most, k->spill_bytes, k->stack_bytes,
                   smem);
    }
}

void cuda_report_json(const cuda_report *r, uint32_t smem_bytes, buf *out) {
    buf_printf(out, "[");
    for (uint32_t i = 0; i < r->n; i++) {
        const cuda_kernel *k = &r->kernel[i];
        uint32_t smem = k->smem_bytes + (strcmp(k->name, "keel_run") == 0 ? smem_bytes : 0);
        buf_printf(out, "%s{\"name\":\"%s\",\"registers\":%u,\"registers_cap\":%u,\"spill_bytes\":%u,", i ? "," : "",
                   k->name, k->registers, k->cap, k->spill_bytes);
        buf_printf(out, "\"stack_bytes\":%u,\"smem_bytes\":%u}", k->stack_bytes, smem);
    }
    buf_printf(out, "]");
}
