/* SPDX-License-Identifier: Apache-2.0 */
/* The ops' own tests in one program, for a machine with a GPU: each op alone, by the GPU backend, with poisoned outputs
 * between canaries (tests/support/op_harness.h).
 *
 *   keel-ops --list                the tests' names
 *   keel-ops --check               whether driver, compiler and GPU are there
 *   keel-ops --ahead JOBS NAME     compiles the device code of a test's cases into ./cubin, so many at a time
 *   keel-ops NAME|all              runs it
 *
 * Exit status 0: green; 1: not; 2: something is missing. The last line counts, "cases=N runs=N skipped=N". */
#include "exec/cuda_api.h"
#include "support/op_ahead.h"
#include "support/op_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops_list.h" /* OPS_MAP(X): X(NAME), whose test's main() is op_NAME_main() */

#define X(name) int op_##name##_main(void);
OPS_MAP(X)
#undef X

typedef struct test {
    const char *name;
    int (*run)(void);
} test;
static const test tests[] = {
#define X(name) {#name, op_##name##_main},
    OPS_MAP(X)
#undef X
};
enum { TESTS = sizeof tests / sizeof *tests };

static int usage(void) {
    fprintf(stderr, "keel-ops: --list | --check | --ahead JOBS NAME | NAME | all\n");
    return 2;
}

/* The tests skip what the GPU backend refuses; what it would refuse all of is missing. The context is kept over all
 * sessions: to make one takes longer than most cases. */
static keel_status open_gpu(keel_error *err) {
    cuda_driver d;
    cuda_nvrtc n;
    void *context;
    int count = 0, device = 0, major = 0;
    KEEL_TRY(cuda_driver_open(&d, err));
    KEEL_TRY(cuda_nvrtc_open(&n, err));
    CUDA_TRY(&d, "cuInit", d.init(0));
    CUDA_TRY(&d, "cuDeviceGetCount", d.device_count(&count));
    if (!count) return error_set(err, KEEL_UNSUPPORTED, "no GPU is visible");
    CUDA_TRY(&d, "cuDeviceGet", d.device_get(&device, 0));
    CUDA_TRY(&d, "cuDeviceGetAttribute", d.device_attribute(&major, CUDA_ATTRIBUTE_MAJOR, device));
    if (major != 9) return error_set(err, KEEL_UNSUPPORTED, "this GPU is sm_%d_; the ops are built for sm_90a", major);
    return cuda_check(&d, d.context_retain(&context, device), "cuDevicePrimaryCtxRetain", err);
}

static int run(const char *name) {
    int failed = 0, found = 0;
    for (int i = 0; i < TESTS; i++) {
        if (strcmp(name, "all") != 0 && strcmp(name, tests[i].name) != 0) continue;
        failed += tests[i].run();
        found++;
    }
    if (!found) {
        fprintf(stderr, "keel-ops: no test %s; --list names them\n", name);
        return 2;
    }
    return failed ? 1 : 0;
}

static int run_ahead(const char *jobs, const char *name) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    cuda_nvrtc n;
    unsigned most = (unsigned)strtoul(jobs, NULL, 10);
    if (!most || most > 1024) return usage();
    if (cuda_nvrtc_open(&n, &err) != KEEL_OK) {
        fprintf(stderr, "keel-ops: %s\n", err.detail);
        return 2;
    }
    op_ahead_begin(most);
    int status = run(name);
    op_ahead_count c = op_ahead_end();
    printf("compiled=%u failed=%u\n", c.compiled, c.failed);
    return status == 2 ? 2 : c.failed ? 1 : 0; /* what a test says of the CPU is not asked here */
}

int main(int argc, char **argv) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (setenv("KEEL_HARNESS_ARCH", "sm_90a", 1)) return 2;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < TESTS; i++) puts(tests[i].name);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "--ahead") == 0) return run_ahead(argv[2], argv[3]);
    bool check = argc == 2 && strcmp(argv[1], "--check") == 0;
    if (argc != 2 || (argv[1][0] == '-' && !check)) return usage();
    if (open_gpu(&err) != KEEL_OK) {
        fprintf(stderr, "keel-ops: %s\n", err.detail);
        return 2;
    }
    if (check) return 0;
    int status = run(argv[1]);
    harness_count c = harness_counted();
    if (status != 2) printf("cases=%u runs=%u skipped=%u\n", c.cases, c.runs, c.skipped);
    if (status == 0 && !c.cases) {
        fprintf(stderr, "keel-ops: %s: no case ran on the GPU\n", argv[1]);
        return 1;
    }
    return status;
}
