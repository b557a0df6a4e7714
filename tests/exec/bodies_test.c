/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 240 */
/* Every role body of every op compiles for a GPU as a kernel of its own, under its role's register cap, and keeps
 * nothing in local memory. Skipped (77) without NVRTC. */
#include "exec/cuda_code.h"
#include "exec/cuda_compile.h"
#include "keel.h"
#include "plan/arch.h"

#include "core/mem.h"
#include "exec/api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char arch[] = "sm_90a";

/* The constants of a plan with 16 rows a pass, which bodies may use. */
static void put_defines(buf *out) {
    keel_model_options open = KEEL_MODEL_OPTIONS_INITIALIZER;
    keel_plan_options options = KEEL_PLAN_OPTIONS_INITIALIZER;
    keel_model *model;
    keel_plan *made;
    keel_error err = KEEL_ERROR_INITIALIZER;
    buf source = {0};
    open.synth = "tiny-qwen3";
    open.graph_only = true;
    options.arch = arch;
    options.batch = 16;
    if (keel_model_open(&open, &model, &err) != KEEL_OK) fail_msg("%s", err.detail);
    if (keel_plan_build(model, &options, &made, &err) != KEEL_OK) fail_msg("%s", err.detail);
    if (cuda_code_source(made->plan, &source, &err) != KEEL_OK) fail_msg("%s", err.detail);
    for (const char *at = (const char *)source.data; at && *at; at = strchr(at, '\n') + 1) {
        if (strncmp(at, "#define ", 8) == 0) buf_put(out, at, (size_t)(strchr(at, '\n') + 1 - at));
    }
    buf_free(&source);
    keel_plan_close(made);
    keel_model_close(model);
}

static const char *role_of(const arch_body *b) { return b->role < KP_ROLES ? cuda_role_words[b->role] : "EARLY"; }
static unsigned cap_of(const arch_body *b) {
    return arch_find(arch)->registers[b->role < KP_ROLES ? b->role : KP_LAUNCHER];
}

static void put_source(buf *out) {
    put_defines(out);
    buf_printf(out, "#include \"device/cuda_body.cuh\"\n");
    for (const arch_body *b = arch_cuda_bodies; b->op; b++) {
        if (b == arch_cuda_bodies || strcmp(b->op, b[-1].op) != 0) buf_printf(out, "#include \"%s.cuh\"\n", b->op);
    }
    buf_printf(out, "KP_FN void kp_dispatch(kp_ctx *) {}\nKP_FN void kp_dispatch_early(kp_ctx *) {}\n"
                    "#include \"device/protocol.h\"\n");
    for (const arch_body *b = arch_cuda_bodies; b->op; b++) {
        buf_printf(out,
                   "KX_KERNEL_CAPPED(body_%s_%s_%s, %u)(KX_PARAM(kp_ctx, given)) {\n"
                   "    kp_ctx c = given;\n    kd_%s_%s_%s(&c);\n}\n",
                   b->op, b->phase, role_of(b), cap_of(b), b->op, b->phase, role_of(b));
    }
    buf_put(out, "", 1);
    assert_false(out->failed);
}

/* Every body as a kernel of its own; the caller frees *r. */
static keel_status compile_bodies(const char *chip, cuda_report **r, keel_error *err) {
    buf source = {0};
    *r = mem_calloc(1, sizeof **r);
    assert_non_null(*r);
    put_source(&source);
    keel_status s = cuda_compile_text(chip, (const char *)source.data, *r, err);
    buf_free(&source);
    return s;
}

static void every_body_compiles_and_spills_nothing(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    cuda_report *r = NULL;
    keel_status s = compile_bodies(arch, &r, &err);
    if (s == KEEL_UNSUPPORTED) {
        mem_free(r);
        skip();
    }
    if (s != KEEL_OK) fail_msg("%s", err.detail);
    uint32_t bodies = 0;
    for (const arch_body *b = arch_cuda_bodies; b->op; b++, bodies++) {
        char name[CUDA_KERNEL_NAME];
        snprintf(name, sizeof name, "body_%s_%s_%s", b->op, b->phase, role_of(b));
        cuda_kernel *k = cuda_report_find(r, name);
        if (!k) fail_msg("%s was not compiled", name);
        k->cap = cap_of(b);
        assert_true(k->registers <= k->cap);
    }
    assert_true(bodies >= 30 && r->n == bodies);
    if (cuda_report_check(r, &err) != KEEL_OK) fail_msg("%s", err.detail);
    buf text = {0};
    cuda_report_text(r, 0, &text);
    printf("%s", (const char *)text.data);
    buf_free(&text);
    mem_free(r);
}

/* The next chip has all the instructions that bodies take; what they take in registers there is not asked yet. */
static void every_body_compiles_for_sm_100a(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    cuda_report *r = NULL;
    keel_status s = compile_bodies("sm_100a", &r, &err);
    uint32_t compiled = r->n;
    mem_free(r);
    if (s == KEEL_UNSUPPORTED) skip();
    if (s != KEEL_OK) fail_msg("%s", err.detail);
    assert_true(compiled >= 30);
}

/* Ampere has neither bulk copies nor barriers that count their bytes: the compiler says so, and keel plan has no such
 * arch. */
static void sm_80_has_no_bulk_copies(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    cuda_report *r = mem_calloc(1, sizeof *r);
    assert_non_null(r);
    keel_status s = cuda_compile_text(
        "sm_80",
        "#define KD_STAGES 8\n#define KD_STAGE_BYTES 16384\n#define KD_LANES_OF 1, 1, 4, 4, 1\n"
        "#define KD_LANES 11\n#define KD_M_MAX 1\n"
        "#include \"device/cuda_prim.cuh\"\n"
        "KX_KERNEL(keel_bulk)(kp_u64 *bar, void *to, const void *from) { kx_bulk_load(to, from, 16, bar); }\n",
        r, &err);
    mem_free(r);
    if (s == KEEL_UNSUPPORTED) skip();
    assert_int_equal(s, KEEL_REFUSED);
    if (!strstr(err.detail, "cp.async.bulk") && !strstr(err.detail, "sm_90")) fail_msg("%s", err.detail);
    assert_null(arch_find("sm_80"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_body_compiles_and_spills_nothing),
                                       cmocka_unit_test(every_body_compiles_for_sm_100a),
                                       cmocka_unit_test(sm_80_has_no_bulk_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
