/* SPDX-License-Identifier: Apache-2.0 */
/* What the compiler says of kernels, read from logs as ptxas 13.0 and 12.2 write them. */
#include "exec/cuda_report.h"

#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char clean[] = "ptxas info    : 24 bytes gmem\n"
                            "ptxas info    : Compiling entry function 'keel_run' for 'sm_90a'\n"
                            "ptxas info    : Function properties for keel_run\n"
                            "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                            "ptxas info    : Used 158 registers, used 5 barriers, 3072 bytes smem\n"
                            "ptxas info    : Compile time = 35517.832 ms\n"
                            "ptxas info    : Compiling entry function 'keel_read' for 'sm_90a'\n"
                            "ptxas info    : Function properties for keel_read\n"
                            "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                            "ptxas info    : Used 4 registers, used 0 barriers, 1024 bytes smem\n";
static const char dirty[] =
    "ptxas info    : Compiling entry function 'keel_run' for 'sm_90a'\n"
    "ptxas info    : Function properties for keel_run\n"
    "    48 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 156 registers, 48 bytes cumulative stack size, 712 bytes smem, 400 bytes cmem[0]\n"
    "ptxas info    : Compiling entry function 'keel_role_CONSUMER' for 'sm_90a'\n"
    "ptxas info    : Function properties for keel_role_CONSUMER\n"
    "    16 bytes stack frame, 20 bytes spill stores, 36 bytes spill loads\n"
    "ptxas info    : Used 168 registers, 400 bytes cmem[0]\n";

static cuda_report *read(const char *log) {
    cuda_report *r = mem_calloc(1, sizeof *r);
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_non_null(r);
    if (cuda_report_read(log, r, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return r;
}

static void numbers_of_every_kernel(void **state) {
    (void)state;
    cuda_report *r = read(clean);
    assert_int_equal(r->n, 2);
    const cuda_kernel *run = cuda_report_find(r, "keel_run"), *second = cuda_report_find(r, "keel_read");
    assert_int_equal(run->registers, 158);
    assert_int_equal(run->smem_bytes, 3072);
    assert_int_equal(second->registers, 4);
    assert_int_equal(second->smem_bytes, 1024);
    assert_null(cuda_report_find(r, "keel_pack"));
    assert_int_equal(cuda_report_check(r, NULL), KEEL_OK);
    buf text = {0};
    cuda_report_json(r, 1000, &text);
    assert_string_equal(
        (char *)text.data,
        "[{\"name\":\"keel_run\",\"registers\":158,\"registers_cap\":0,\"spill_bytes\":0,\"stack_bytes\":0,"
        "\"smem_bytes\":4072},{\"name\":\"keel_read\",\"registers\":4,\"registers_cap\":0,"
        "\"spill_bytes\":0,\"stack_bytes\":0,\"smem_bytes\":1024}]");
    buf_free(&text);
    mem_free(r);
}

static void local_memory_is_refused_by_name(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    cuda_report *r = read(dirty);
    r->kernel[1].cap = 168;
    assert_int_equal(cuda_report_check(r, &err), KEEL_REFUSED);
    assert_non_null(strstr(err.detail, "  keel_run: 0 bytes spilled, 48 bytes of stack, 156 registers\n"));
    assert_non_null(strstr(err.detail,
                           "  keel_role_CONSUMER: 56 bytes spilled, 16 bytes of stack, 168 registers (all it "
                           "may take)"));
    mem_free(r);
}

static void what_is_no_log(void **state) {
    (void)state;
    static const char *const logs[] = {"", "nothing", "Compiling entry function 'x", "Compiling entry function 'x' no"};
    for (unsigned i = 0; i < sizeof logs / sizeof *logs; i++) {
        keel_error err = KEEL_ERROR_INITIALIZER;
        cuda_report *r = mem_calloc(1, sizeof *r);
        assert_non_null(r);
        assert_int_equal(cuda_report_read(logs[i], r, &err), KEEL_FORMAT);
        assert_true(strlen(err.detail) > 10);
        mem_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_every_kernel),
        cmocka_unit_test(local_memory_is_refused_by_name),
        cmocka_unit_test(what_is_no_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
