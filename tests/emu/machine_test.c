/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* The emulator itself: small kernels whose results are known, and broken ones whose fault it must name. */
#include "core/file.h"
#include "exec/cuda_api.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char text[] =
    "#include \"device/cuda_ptx.cuh\"\n"
    "KP_FN void wait(kp_u64 *bar, kp_u32 parity) { while (!kx_mbar_try(bar, parity)) {} }\n"
    /* 32 threads: out[0..31] sums by shfl_xor, [32..] shfl_up, [64..] from lane 5, [96..] ballot of odd lanes */
    "KX_KERNEL(warp)(kp_u32 *out) {\n"
    "    kp_u32 me = kx_thread(), sum = me;\n"
    "    for (kp_u32 o = 16; o; o >>= 1) sum += kx_shfl_xor(sum, o);\n"
    "    out[me] = sum; out[32 + me] = kx_shfl_up(me, 3); out[64 + me] = kx_shfl(me * 7, 5);\n"
    "    out[96 + me] = kx_ballot(me & 1) ^ (kx_all(me < 32) ? 0 : 1) ^ (kx_any(me > 40) ? 1 : 0);\n"
    "}\n"
    /* a [16][16], b [16][8] and d [16][8] in registers as the manual's figures have them */
    "KX_KERNEL(mma)(const kp_u16 *a, const kp_u16 *b, float *d) {\n"
    "    kp_u32 g = kx_laneid() / 4, c = kx_laneid() % 4 * 2;\n"
    "    kx_vec v; float acc[4] = {1, 1, 1, 1}; kp_u32 w[2];\n"
    "    for (kp_u32 e = 0; e < 4; e++) {\n"
    "        const kp_u16 *p = a + (g + (e & 1) * 8) * 16 + c + (e >> 1) * 8;\n"
    "        v.w[e] = p[0] | (kp_u32)p[1] << 16;\n"
    "    }\n"
    "    for (kp_u32 e = 0; e < 2; e++) w[e] = b[(c + e * 8) * 8 + g] | (kp_u32)b[(c + e * 8 + 1) * 8 + g] << 16;\n"
    "    kx_mma_bf16(acc, v, w[0], w[1]);\n"
    "    for (kp_u32 e = 0; e < 4; e++) d[(g + (e >> 1) * 8) * 8 + c + (e & 1)] = acc[e];\n"
    "}\n"
    /* what: 0 fine; else what is broken */
    "KX_KERNEL(copy)(const kp_u8 *from, kp_u32 *out, kp_u32 what) {\n"
    "    kp_u8 *smem = kx_shared_base();\n"
    "    KX_SHARED(kp_u64, bar);\n"
    "    KX_SHARED(kp_u64, other);\n"
    "    kp_u32 me = kx_thread();\n"
    "    if (me == 0) {\n"
    "        kx_mbar_init(&bar, what == 1 ? 2 : 1);\n"
    "        if (what == 2) kx_mbar_arrive(&other);\n"
    "        kx_mbar_arrive_expect(&bar, what == 3 ? 128 : 64);\n"
    "        if (what == 8) { kx_mbar_expect(&bar, 0); kx_mbar_arrive(&bar); }\n"
    "        kx_bulk_load(smem + (what == 4 ? 8 : 0), from + (what == 5 ? 4096 : 0), 64, &bar);\n"
    "    }\n"
    "    kx_syncthreads();\n"
    "    if (what == 6) { out[me] = smem[me]; }\n"
    "    if (what == 9 && me == 3) return;\n"
    "    wait(&bar, 0);\n"
    "    if (what == 7) { if (me < 7) kx_syncwarp(); else kx_any(1); }\n"
    "    kx_syncwarp();\n"
    "    if (what != 6) out[me] = smem[me];\n"
    "    if (what == 10) out[4096 + 64] = 1;\n"
    "    if (what == 11) out[(kp_u64)1 << 32] = kx_ld32(out + ((kp_u64)1 << 32));\n"
    "    if (what == 12 && me == 0) *(kx_vec *)(smem + 68) = kx_ld128(from);\n"
    "    if (what == 13) kx_bar_sync(1, me < 16 ? 32 : 64);\n"
    "}\n"
    /* two warps: the first writes, the second reads behind a barrier. how: 0 right; 1 the writers do not meet before
     * one of them arrives; 2 nobody waits; 3 a counter in global memory, right; 4 the counter is not released */
    "KX_KERNEL(hand)(kp_u32 *out, kp_u32 *counter, kp_u32 how) {\n"
    "    KX_SHARED_ARRAY(kp_u32, v, 32);\n"
    "    KX_SHARED(kp_u64, bar);\n"
    "    kp_u32 me = kx_thread();\n"
    "    if (me == 0) kx_mbar_init(&bar, 1);\n"
    "    kx_syncthreads();\n"
    "    if (me < 32) {\n"
    "        v[me] = me;\n"
    "        if (how != 1) kx_syncwarp();\n"
    "        if (me == 0 && how < 3) kx_mbar_arrive(&bar);\n"
    "        if (me == 0 && how == 3) kx_add_release(counter, 1);\n"
    "        if (me == 0 && how == 4) kx_st32(counter, 1);\n"
    "        return;\n"
    "    }\n"
    "    if (how < 2) wait(&bar, 0);\n"
    "    while (how > 2 && kx_ld_acquire(counter) != 1) {}\n"
    "    kx_syncwarp();\n"
    "    out[me - 32] = v[63 - me];\n"
    "}\n";

typedef struct bench {
    cuda_driver d;
    void *stream, *module;
    cu_ptr from, out, counter;
    char message[512];
} bench;

static void compile(bench *b) {
    cuda_nvrtc n;
    keel_error err = KEEL_ERROR_INITIALIZER;
    void *program = NULL;
    char *types = NULL, *code;
    size_t bytes;
    assert_int_equal(file_read(KEEL_SOURCE_DIR "/src/device/types.h", 1 << 16, &types, &bytes, &err), KEEL_OK);
    const char *headers[] = {types, ""}, *names[] = {"device/types.h", "device/cuda_ptx.cuh"};
    assert_int_equal(cuda_nvrtc_open(&n, &err), KEEL_OK);
    assert_int_equal(n.create(&program, text, "plan.cu", 2, headers, names), 0);
    if (n.compile(program, 0, NULL)) {
        char log[10000];
        assert_int_equal(n.log_bytes(program, &bytes), 0);
        if (bytes < sizeof log && !n.log(program, log)) print_error("%s", log);
        fail();
    }
    assert_int_equal(n.cubin_bytes(program, &bytes), 0);
    assert_non_null(code = malloc(bytes));
    assert_int_equal(n.cubin(program, code), 0);
    assert_int_equal(b->d.module_load(&b->module, code), 0);
    n.destroy(&program);
    free(code), free(types);
}

static void open_bench(bench *b) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(cuda_driver_open(&b->d, &err), KEEL_OK);
    assert_int_equal(b->d.stream_create(&b->stream, 0), 0);
    assert_int_equal(b->d.mem_alloc(&b->from, 1024), 0);
    assert_int_equal(b->d.mem_alloc(&b->out, 4096 * sizeof(uint32_t)), 0);
    assert_int_equal(b->d.mem_alloc(&b->counter, 64), 0);
    compile(b);
}

/* The driver's result; its words in b->message. */
static int launch(bench *b, const char *kernel, unsigned threads, void **params) {
    void *function = NULL;
    const char *words = "";
    assert_int_equal(b->d.set_async(b->counter, 0, 64, b->stream), 0);
    assert_int_equal(b->d.module_function(&function, b->module, kernel), 0);
    int result = b->d.launch(function, 1, 1, 1, threads, 1, 1, 1024, b->stream, params, NULL);
    b->d.error_string(result, &words);
    snprintf(b->message, sizeof b->message, "%s", words);
    b->d.stream_destroy(b->stream);
    assert_int_equal(b->d.stream_create(&b->stream, 0), 0);
    return result;
}

static void collectives(void **state) {
    bench *b = *state;
    uint32_t out[128];
    void *params[] = {&b->out};
    assert_int_equal(launch(b, "warp", 32, params), 0);
    assert_int_equal(b->d.copy_from(out, b->out, sizeof out), 0);
    for (uint32_t i = 0; i < 32; i++) {
        assert_int_equal(out[i], 496);
        assert_int_equal(out[32 + i], i < 3 ? i : i - 3);
        assert_int_equal(out[64 + i], 35);
        assert_int_equal(out[96 + i], 0xaaaaaaaau);
    }
}

/* Small whole numbers: every product and sum is exact. */
static void products(void **state) {
    bench *b = *state;
    uint16_t a[16][16], w[16][8];
    float d[16][8];
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++) {
            float x = (float)((i * 5 + k * 3) % 13 - 6), y = (float)((i + k * 7) % 11 - 5);
            uint32_t bits;
            memcpy(&bits, &x, 4);
            a[i][k] = (uint16_t)(bits >> 16);
            memcpy(&bits, &y, 4);
            if (k < 8) w[i][k] = (uint16_t)(bits >> 16);
        }
    cu_ptr at = b->out, bt = b->out + sizeof a, dt = bt + sizeof w;
    assert_int_equal(b->d.copy_to(at, a, sizeof a), 0);
    assert_int_equal(b->d.copy_to(bt, w, sizeof w), 0);
    void *params[] = {&at, &bt, &dt};
    assert_int_equal(launch(b, "mma", 32, params), 0);
    assert_int_equal(b->d.copy_from(d, dt, sizeof d), 0);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            int sum = 1;
            for (int k = 0; k < 16; k++) sum += ((i * 5 + k * 3) % 13 - 6) * ((k + j * 7) % 11 - 5);
            assert_int_equal((int)d[i][j], sum);
        }
}

static int copy(bench *b, uint32_t what, uint32_t out[64]) {
    uint8_t bytes[1024];
    for (int i = 0; i < 1024; i++) bytes[i] = (uint8_t)(i * 3);
    assert_int_equal(b->d.copy_to(b->from, bytes, sizeof bytes), 0);
    void *params[] = {&b->from, &b->out, &what};
    int result = launch(b, "copy", 64, params);
    assert_int_equal(b->d.copy_from(out, b->out, 64 * sizeof *out), 0);
    return result;
}

static void copies(void **state) {
    uint32_t out[64], early[64];
    assert_int_equal(copy(*state, 0, out), 0);
    for (uint32_t i = 0; i < 64; i++) assert_int_equal(out[i], (uint8_t)(i * 3));
    /* who does not wait reads rubbish, at least under this seed */
    assert_int_equal(copy(*state, 6, early), 0);
    assert_memory_not_equal(out, early, sizeof out);
}

static void broken(void **state) {
    static const struct {
        uint32_t what;
        const char *words;
    } list[] = {{1, "stuck"},
                {2, "other+0x0 is no mbarrier that was initialised"},
                {3, "stuck"},
                {4, "all must be multiples of 16"},
                {5, "not device memory"},
                {7, "at different places: thread"},
                {8, "an arrival more than a phase has"},
                {9, "stuck"},
                {11, "no memory of the device"},
                {12, "misaligned"},
                {13, "others came to it for"}};
    bench *b = *state;
    uint32_t out[64];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        print_message("fault %u\n", list[i].what);
        assert_int_not_equal(copy(b, list[i].what, out), 0);
        if (!strstr(b->message, list[i].words)) print_error("%s\n", b->message);
        assert_non_null(strstr(b->message, list[i].words));
    }
}

/* A plain write behind an allocation is seen after the launch, and when the memory is freed. */
static void canary(void **state) {
    bench *b = *state;
    uint32_t out[64];
    assert_int_not_equal(copy(b, 10, out), 0);
    assert_int_not_equal(b->d.mem_free(b->out), 0);
    assert_int_equal(b->d.mem_alloc(&b->out, 4096 * sizeof(uint32_t)), 0);
    assert_int_equal(copy(b, 0, out), 0);
}

static int hand(bench *b, uint32_t how) {
    void *params[] = {&b->out, &b->counter, &how};
    return launch(b, "hand", 64, params);
}

static void races(void **state) {
    bench *b = *state;
    assert_int_equal(hand(b, 0), 0);
    assert_int_equal(hand(b, 3), 0);
    for (uint32_t how = 1; how <= 4; how += how == 2 ? 2 : 1) {
        assert_int_not_equal(hand(b, how), 0);
        assert_non_null(strstr(b->message, how == 2 ? "race: a " : "race: a read by block 0 thread"));
        assert_non_null(strstr(b->message, "shared v+0x"));
    }
}

int main(int argc, char **argv) {
    static bench plain, watched;
    char folder[4096];
    (void)argc;
    snprintf(folder, sizeof folder, "%s", argv[0]);
    char *slash = strrchr(folder, '/');
    if (!slash) return 77;
    snprintf(slash, sizeof folder - (size_t)(slash - folder), "/../emu/libcuda.so.1");
    void *driver = dlopen(folder, RTLD_NOW); /* so that their names are found without LD_LIBRARY_PATH */
    snprintf(slash, sizeof folder - (size_t)(slash - folder), "/../emu/libnvrtc.so.13");
    if (!driver || !dlopen(folder, RTLD_NOW)) {
        puts("left out: a build under a sanitizer has no emulator");
        return 77;
    }
    setenv("KEEL_EMU_SEED", "1", 1);
    unsetenv("KEEL_EMU_RACES");
    open_bench(&plain);
    setenv("KEEL_EMU_RACES", "1", 1);
    open_bench(&watched);
    unsetenv("KEEL_EMU_RACES");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(collectives, &plain), cmocka_unit_test_prestate(products, &plain),
        cmocka_unit_test_prestate(copies, &plain), cmocka_unit_test_prestate(broken, &plain),
        cmocka_unit_test_prestate(canary, &plain)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    setenv("KEEL_EMU_RACES", "1", 1);
    const struct CMUnitTest more[] = {cmocka_unit_test_prestate(races, &watched)};
    return failed + cmocka_run_group_tests(more, NULL, NULL);
}
