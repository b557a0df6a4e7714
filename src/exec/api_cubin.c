/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of keel.h that compile device code. */
#include "exec/api.h"
#include "core/file.h"
#include "core/mem.h"
#include "exec/cuda_code.h"
#include "exec/cuda_compile.h"

#include <string.h>

static void write_report(const plan *p, const cuda_report *r, uint64_t bytes, bool json, buf *out) {
    uint32_t smem = cuda_code_smem(p);
    if (!json) {
        buf_printf(out, "code      for %s by NVRTC %u.%u: %llu bytes, compiled in %.1f s\n", p->arch, r->nvrtc_major,
                   r->nvrtc_minor, (unsigned long long)bytes, r->seconds);
        cuda_report_text(r, smem, out);
        return;
    }
    buf_printf(out, "{\"arch\":\"%s\",\"nvrtc\":\"%u.%u\",\"bytes\":%llu,\"seconds\":%.3f,\"kernels\":", p->arch,
               r->nvrtc_major, r->nvrtc_minor, (unsigned long long)bytes, r->seconds);
    cuda_report_json(r, smem, out);
    buf_printf(out, "}");
}

keel_status keel_plan_cubin(const keel_plan *k, const char *path, bool json, char **report, keel_error *err) {
    const plan *p = k->plan;
    if (strcmp(p->arch, "cpu") == 0)
        return error_set(err, KEEL_USAGE, "a plan for the CPU has no device code; plan with --arch sm_90a");
    buf cubin = {0}, text = {0};
    cuda_report *r = mem_calloc(1, sizeof *r);
    if (!r) return KEEL_NOMEM_AT(err, path);
    keel_status s = plan_check_bodies(p, err);
    if (s == KEEL_OK) s = cuda_compile_file(p, report != NULL, &cubin, r, err);
    if (s == KEEL_OK) s = file_write(path, cubin.data, cubin.len, err);
    if (s == KEEL_OK) write_report(p, r, cubin.len, json, &text);
    if (s == KEEL_OK && report) {
        *report = buf_take(&text);
        if (!*report) s = KEEL_NOMEM_AT(err, path);
    }
    buf_free(&cubin), buf_free(&text);
    mem_free(r);
    return s;
}
