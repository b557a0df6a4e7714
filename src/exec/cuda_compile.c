/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/cuda_compile.h"

#include "core/file.h"
#include "core/mem.h"
#include "exec/cuda_api.h"
#include "exec/cuda_code.h"
#include "exec/cuda_cubin.h"
#include "exec/cuda_text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Beside the architecture. */
static const char *const flags[] = {"--std=c++17", "-default-device", "-lineinfo", "--ptxas-options=-v"};
enum { FLAGS = sizeof flags / sizeof *flags };

static keel_status take_log(const cuda_nvrtc *n, void *program, int result, keel_error *err) {
    size_t bytes = 0;
    char *log = n->log_bytes(program, &bytes) == 0 ? mem_alloc(bytes + 1) : NULL;
    if (log && n->log(program, log) != 0) log[0] = '\0';
    keel_status s = error_set(err, KEEL_REFUSED, "the device code does not compile: %s\n%.3000s",
                              n->error_string(result), log ? log : "");
    mem_free(log);
    return s;
}

static void keep_log(const cuda_nvrtc *n, void *program, buf *log) {
    size_t bytes = 0;
    char *text = n->log_bytes(program, &bytes) == 0 ? mem_alloc(bytes + 1) : NULL;
    if (text && n->log(program, text) == 0) buf_put(log, text, strnlen(text, bytes));
    mem_free(text);
}

/* The program compiled, or why not. Newer compilers keep what they made in the driver's cache, and then say nothing of
 * registers: told not to; older ones do not know the word. */
static int run_compiler(const cuda_nvrtc *n, const cubin_origin *origin, void **program) {
    enum { MOST = 256, INVALID_OPTION = 5 };
    char arch[64];
    const char *options[2 + FLAGS] = {arch};
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", origin->arch);
    memcpy(options + 1, flags, sizeof flags);
    options[1 + FLAGS] = "-no-cache";
    const char *headers[MOST], *names[MOST];
    int n_headers = 0;
    for (; cuda_texts[n_headers].name && n_headers < MOST; n_headers++) {
        headers[n_headers] = cuda_texts[n_headers].text;
        names[n_headers] = cuda_texts[n_headers].name;
    }
    int result = INVALID_OPTION;
    for (int n_options = 2 + FLAGS; result == INVALID_OPTION && n_options > FLAGS; n_options--) {
        if (*program) n->destroy(program);
        *program = NULL;
        result = n->create(program, origin->source, "plan.cu", n_headers, headers, names);
        if (result == 0) result = n->compile(*program, n_options, options);
    }
    return result;
}

static keel_status compile(const cuda_nvrtc *n, const cubin_origin *origin, buf *cubin, buf *log, keel_error *err) {
    void *program = NULL;
    int result = run_compiler(n, origin, &program);
    if (!program) return error_set(err, KEEL_REFUSED, "NVRTC: %s", n->error_string(result));
    keel_status s = result ? take_log(n, program, result, err) : KEEL_OK;
    if (log) keep_log(n, program, log);
    size_t bytes = 0;
    if (s == KEEL_OK && n->cubin_bytes(program, &bytes) == 0) {
        char *image = mem_alloc(bytes + 1);
        if (image && n->cubin(program, image) == 0) buf_put(cubin, image, bytes);
        mem_free(image);
    }
    n->destroy(&program);
    if (s == KEEL_OK && (cubin->failed || !cubin->len)) s = error_set(err, KEEL_REFUSED, "NVRTC gave no cubin");
    return s;
}

/* What the plan's device code is made from, but for the compiler. */
static keel_status origin_of(const plan *p, buf *source, cubin_origin *out, keel_error *err) {
    buf all = {0};
    *out = (cubin_origin){0};
    snprintf(out->arch, sizeof out->arch, "%s", p->arch);
    KEEL_TRY(cuda_code_source(p, source, err));
    out->source = (const char *)source->data;
    for (int i = 0; i < FLAGS; i++) buf_printf(&all, "%s\n", flags[i]);
    for (const cuda_text *t = cuda_texts; t->name; t++) buf_printf(&all, "%s\n%s", t->name, t->text);
    keel_status s = all.failed ? KEEL_NOMEM_AT(err, "device code") : sha256_hex(all.data, all.len, out->text, err);
    buf_free(&all);
    return s;
}

/* The cache's file: DIR/cubin/KEY.cubin, KEY the SHA-256 over everything that the cubin depends on. */
static keel_status cache_path(const char *dir, const cubin_origin *o, char **out, keel_error *err) {
    char key[SHA256_HEX], name[SHA256_HEX + 16];
    buf all = {0};
    buf_printf(&all, "nvrtc %u.%u\n%s\n%s\n%s", o->nvrtc_major, o->nvrtc_minor, o->arch, o->text, o->source);
    keel_status s = all.failed ? KEEL_NOMEM_AT(err, "device code") : sha256_hex(all.data, all.len, key, err);
    buf_free(&all);
    KEEL_TRY(s);
    snprintf(name, sizeof name, "cubin/%s.cubin", key);
    *out = path_join(dir, name);
    return *out ? KEEL_OK : KEEL_NOMEM_AT(err, "device code");
}

/* The code of a file, when it was made from what is wanted. */
static keel_status read_file(const char *path, const cubin_origin *want, buf *code, keel_error *err) {
    char *data;
    size_t bytes;
    cubin_parts parts;
    KEEL_TRY(file_read(path, CUBIN_MAX_BYTES, &data, &bytes, err));
    keel_status s = cubin_take(path, data, bytes, &parts, err);
    if (s == KEEL_OK) {
        s = cubin_match(path, &parts.origin, want, err);
        if (s == KEEL_OK) buf_put(code, parts.code, parts.code_bytes);
        if (s == KEEL_OK && code->failed) s = KEEL_NOMEM_AT(err, path);
        cubin_parts_free(&parts);
    }
    keel_free(data);
    return s;
}

/* A cache that cannot be written costs time only. */
static void keep(const char *dir, const char *path, const cubin_origin *origin, const buf *code) {
    char *folder = path_join(dir, "cubin");
    buf sealed = {0};
    keel_error ignored = KEEL_ERROR_INITIALIZER;
    buf_put(&sealed, code->data, code->len);
    if (folder && cubin_seal(origin, &sealed, &ignored) == KEEL_OK && folders_make(folder, &ignored) == KEEL_OK)
        (void)file_write(path, sealed.data, sealed.len, &ignored);
    buf_free(&sealed);
    mem_free(folder);
}

static keel_status compile_cached(const char *dir, cubin_origin *origin, buf *code, keel_error *err) {
    cuda_nvrtc n;
    char *path = NULL;
    keel_error ignored = KEEL_ERROR_INITIALIZER;
    KEEL_TRY(cuda_nvrtc_open(&n, err));
    cuda_nvrtc_version(&n, &origin->nvrtc_major, &origin->nvrtc_minor);
    if (dir) KEEL_TRY(cache_path(dir, origin, &path, err));
    keel_status s = KEEL_OK;
    if (!path || read_file(path, origin, code, &ignored) != KEEL_OK) { /* not there, damaged, not to be read */
        s = compile(&n, origin, code, NULL, err);
        if (s == KEEL_OK && path) keep(dir, path, origin, code);
    }
    mem_free(path);
    return s;
}

/* What each thread of a block of so many warps may have: four partitions of 16,384 registers share the warps, in eights
 * a thread. */
static uint32_t warp_registers(uint32_t warps) { return 16384 / ((warps + 3) / 4 * 32) / 8 * 8; }

/* A plan of any origin may have other pages than this build's arch. */
static keel_status check_smem(const plan *p, keel_error *err) {
    const arch_desc *arch = arch_find(p->arch);
    if (p->page_bytes == arch->page_bytes && p->n_pages <= arch->most_pages && cuda_code_stages(p)) return KEEL_OK;
    return error_set(err, KEEL_UNSUPPORTED,
                     "%u pages of %u bytes leave no room for the weight stream; plan again with this build's keel plan",
                     p->n_pages, p->page_bytes);
}

keel_status cuda_compile_get(const plan *p, const char *cache_dir, const char *file, buf *code, keel_error *err) {
    buf source = {0};
    cubin_origin origin;
    KEEL_TRY(check_smem(p, err));
    keel_status s = origin_of(p, &source, &origin, err);
    if (s == KEEL_OK) s = file ? read_file(file, &origin, code, err) : compile_cached(cache_dir, &origin, code, err);
    buf_free(&source);
    return s;
}

static keel_status compile_reported(const cuda_nvrtc *n, const cubin_origin *origin, buf *code, cuda_report *report,
                                    keel_error *err) {
    buf log = {0};
    keel_status s = compile(n, origin, code, &log, err);
    if (s == KEEL_OK && (log.failed || !log.data)) s = KEEL_NOMEM_AT(err, "the compiler's log");
    if (s == KEEL_OK) s = cuda_report_read((const char *)log.data, report, err);
    buf_free(&log);
    return s;
}

keel_status cuda_compile_text(const char *arch, const char *source, cuda_report *report, keel_error *err) {
    cuda_nvrtc n;
    buf code = {0};
    cubin_origin origin = {.source = source};
    KEEL_TRY(cuda_nvrtc_open(&n, err));
    snprintf(origin.arch, sizeof origin.arch, "%s", arch);
    keel_status s = compile_reported(&n, &origin, &code, report, err);
    buf_free(&code);
    return s;
}

/* Each role alone, under its own cap. */
static keel_status probe(const plan *p, cuda_report *report, keel_error *err) {
    buf source = {0};
    keel_status s = cuda_code_probes(p, &source, err);
    if (s == KEEL_OK) s = cuda_compile_text(p->arch, (const char *)source.data, report, err);
    for (unsigned r = 0; s == KEEL_OK && r < KP_ROLES; r++) {
        char name[CUDA_KERNEL_NAME];
        snprintf(name, sizeof name, "keel_role_%s", cuda_role_words[r]);
        cuda_kernel *k = cuda_report_find(report, name);
        if (k) k->cap = arch_find(p->arch)->registers[r];
    }
    buf_free(&source);
    return s;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

keel_status cuda_compile_file(const plan *p, bool roles, buf *sealed, cuda_report *report, keel_error *err) {
    cuda_nvrtc n;
    buf source = {0};
    cubin_origin origin;
    *report = (cuda_report){0};
    KEEL_TRY(check_smem(p, err));
    KEEL_TRY(cuda_nvrtc_open(&n, err));
    keel_status s = origin_of(p, &source, &origin, err);
    cuda_nvrtc_version(&n, &origin.nvrtc_major, &origin.nvrtc_minor);
    double from = now_s();
    if (s == KEEL_OK) s = compile_reported(&n, &origin, sealed, report, err);
    report->seconds = now_s() - from;
    cuda_kernel *run = s == KEEL_OK ? cuda_report_find(report, "keel_run") : NULL;
    if (run) run->cap = warp_registers(cuda_code_lanes(p));
    if (s == KEEL_OK && roles) s = probe(p, report, err);
    if (s == KEEL_OK) s = cuda_report_check(report, err);
    if (s == KEEL_OK) s = cubin_seal(&origin, sealed, err);
    report->nvrtc_major = origin.nvrtc_major, report->nvrtc_minor = origin.nvrtc_minor;
    buf_free(&source);
    return s;
}
