/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/cuda_code.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/sha256.h"
#include "exec/cuda_api.h"
#include "exec/cuda_text.h"

#include <stdio.h>
#include <string.h>

enum { CUBIN_MAX_BYTES = 64 << 20, CHECK_IN_S = 5 };

static const char *const role_words[KP_ROLES] = {
#define X(NAME, number, text) [number] = #NAME,
    KP_ROLE_MAP(X)
#undef X
};

uint32_t cuda_code_lanes(const plan *p) {
    const arch_desc *arch = arch_find(p->arch);
    uint32_t sum = 0;
    for (int r = 0; r < KP_ROLES; r++) sum += arch->lanes[r];
    return sum;
}

/* What the pages leave, in whole turns of the consumer's lanes. */
uint32_t cuda_code_stages(const plan *p) {
    const arch_desc *arch = arch_find(p->arch);
    if (p->n_pages > arch->n_pages) return 0;
    uint32_t room = (arch->n_pages - p->n_pages) * arch->page_bytes / arch->stage_bytes,
             lanes = arch->lanes[KP_CONSUMER];
    return room / lanes * lanes;
}

static void put_constants(const plan *p, buf *out) {
    const arch_desc *arch = arch_find(p->arch);
    buf_printf(out, "#define KD_LANES_OF %u, %u, %u, %u, %u\n", arch->lanes[0], arch->lanes[1], arch->lanes[2],
               arch->lanes[3], arch->lanes[4]);
    buf_printf(out, "#define KD_LANES %u\n#define KD_PAGES %u\n#define KD_PAGE_BYTES %u\n", cuda_code_lanes(p),
               p->n_pages, p->page_bytes);
    buf_printf(out, "#define KD_STAGES %u\n#define KD_STAGE_BYTES %u\n#define KP_CLAIM_ROLE 2\n", cuda_code_stages(p),
               arch->stage_bytes);
    buf_printf(out, "#define KD_CHECK_IN_NS %d000000000ull\n", CHECK_IN_S);
}

/* The body table of one role: which function a task's body number stands for. */
static void put_role(const plan *p, unsigned role, buf *out) {
    buf_printf(out, "    case KP_%s:\n        switch (c->task->body) {\n", role_words[role]);
    for (uint32_t b = 0; b < p->n_bodies; b++) {
        const op_desc *op = p->bodies[b].op;
        const char *phase = op->phases[p->bodies[b].phase].name;
        if (!*phase) phase = "main";
        for (const arch_body *a = arch_cuda_bodies; a->op; a++) {
            if (a->role != role || strcmp(a->op, op->name) != 0 || strcmp(a->phase, phase) != 0) continue;
            buf_printf(out, "        case %u: kd_%s_%s_%s(c); break;\n", b, op->name, phase, role_words[role]);
        }
    }
    buf_printf(out, "        }\n        break;\n");
}

keel_status cuda_code_source(const plan *p, buf *out, keel_error *err) {
    put_constants(p, out);
    buf_printf(out, "#include \"device/cuda_body.cuh\"\n");
    for (uint32_t b = 0; b < p->n_bodies; b++) {
        bool before = false;
        for (uint32_t a = 0; a < b; a++) before = before || p->bodies[a].op == p->bodies[b].op;
        if (!before) buf_printf(out, "#include \"%s.cuh\"\n", p->bodies[b].op->name);
    }
    buf_printf(out, "KP_FN void kp_dispatch(kp_ctx *c) {\n    switch (c->role) {\n");
    for (unsigned r = KP_LOADER; r < KP_ROLES; r++) put_role(p, r, out);
    buf_printf(out, "    }\n}\n#include \"device/cuda_main.cuh\"\n");
    buf_put(out, "", 1);
    return out->failed ? KEEL_NOMEM_AT(err, "device code") : KEEL_OK;
}

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

static keel_status compile(const cuda_nvrtc *n, const char *source, const char *const *options, int n_options,
                           buf *cubin, buf *log, keel_error *err) {
    enum { MOST = 256 };
    const char *headers[MOST], *names[MOST];
    int n_headers = 0;
    for (; cuda_texts[n_headers].name && n_headers < MOST; n_headers++) {
        headers[n_headers] = cuda_texts[n_headers].text;
        names[n_headers] = cuda_texts[n_headers].name;
    }
    void *program = NULL;
    int result = n->create(&program, source, "plan.cu", n_headers, headers, names);
    if (result) return error_set(err, KEEL_REFUSED, "NVRTC: %s", n->error_string(result));
    result = n->compile(program, n_options, options);
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

/* SHA-256 over everything that the cubin depends on. */
static keel_status code_key(const cuda_nvrtc *n, const buf *source, const char *const *options, int n_options,
                            char key[SHA256_HEX], keel_error *err) {
    int major = 0, minor = 0;
    buf all = {0};
    n->version(&major, &minor);
    buf_printf(&all, "nvrtc %d.%d\n", major, minor);
    for (int i = 0; i < n_options; i++) buf_printf(&all, "%s\n", options[i]);
    buf_put(&all, source->data, source->len);
    for (const cuda_text *t = cuda_texts; t->name; t++) buf_printf(&all, "%s\n%s", t->name, t->text);
    keel_status s = all.failed ? KEEL_NOMEM_AT(err, "device code") : sha256_hex(all.data, all.len, key, err);
    buf_free(&all);
    return s;
}

static keel_status compile_cached(const cuda_nvrtc *n, const plan *p, const char *cache_dir, const buf *source,
                                  buf *cubin, buf *log, keel_error *err) {
    char arch[64], key[SHA256_HEX], name[SHA256_HEX + 8];
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", p->arch);
    const char *options[] = {arch, "--std=c++17", "-default-device", "-lineinfo", "--ptxas-options=-v"};
    enum { N = sizeof options / sizeof *options };
    if (!cache_dir || log) return compile(n, (const char *)source->data, options, N, cubin, log, err);
    KEEL_TRY(code_key(n, source, options, N, key, err));
    snprintf(name, sizeof name, "%s.cubin", key);
    char *path = path_join(cache_dir, name), *data = NULL;
    if (!path) return KEEL_NOMEM_AT(err, "device code");
    size_t bytes = 0;
    keel_error ignored = KEEL_ERROR_INITIALIZER;
    keel_status s = KEEL_OK;
    if (file_exists(path) && file_read(path, CUBIN_MAX_BYTES, &data, &bytes, &ignored) == KEEL_OK && bytes) {
        buf_put(cubin, data, bytes);
    } else {
        s = compile(n, (const char *)source->data, options, N, cubin, log, err);
        if (s == KEEL_OK) (void)file_write(path, cubin->data, cubin->len, &ignored); /* without a cache it is slower */
    }
    mem_free(data), mem_free(path);
    return s;
}

/* A plan of any origin may have other pages than this build's arch. */
static keel_status check_smem(const plan *p, keel_error *err) {
    const arch_desc *arch = arch_find(p->arch);
    if (p->page_bytes == arch->page_bytes && p->n_pages <= arch->n_pages && cuda_code_stages(p)) return KEEL_OK;
    return error_set(err, KEEL_UNSUPPORTED,
                     "%u pages of %u bytes leave no room for the weight stream; plan again with this build's keel plan",
                     p->n_pages, p->page_bytes);
}

keel_status cuda_code_compile(const plan *p, const char *cache_dir, buf *cubin, buf *log, keel_error *err) {
    cuda_nvrtc n;
    buf source = {0};
    KEEL_TRY(check_smem(p, err));
    KEEL_TRY(cuda_nvrtc_open(&n, err));
    keel_status s = cuda_code_source(p, &source, err);
    if (s == KEEL_OK) s = compile_cached(&n, p, cache_dir, &source, cubin, log, err);
    buf_free(&source);
    return s;
}
