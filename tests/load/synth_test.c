/* SPDX-License-Identifier: Apache-2.0 */
/* Expected words were printed by tests/synth.py, which shares nothing with the C code but the formula. */
#include "core/mem.h"
#include "load/synth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const int64_t matrix[2] = {256, 384}, vector[1] = {384}, bias[1] = {512}, embedding[2] = {4096, 384},
                     big[2] = {70000, 70000}, few_blocks[2] = {2, 3}, more_blocks[2] = {2, 33};

typedef struct words_case {
    const char *key;
    uint32_t seed;
    int rank;
    const int64_t *dim;
    dtype t;
    uint64_t first;
    size_t n;
    uint32_t words[6];
} words_case;

static const words_case cases[] = {
    {"model.layers.0.self_attn.q_proj.weight",
     0,
     2,
     matrix,
     DTYPE_BF16,
     0,
     6,
     {0x3d33, 0x3d02, 0xbd38, 0xbd36, 0x3c16, 0xbd7b}},
    {"model.layers.0.self_attn.q_proj.weight",
     7,
     2,
     matrix,
     DTYPE_F32,
     1000,
     4,
     {0xbc1856b8, 0x3ce0b520, 0xbd6777fc, 0xbb0b1e40}},
    {"model.layers.3.input_layernorm.weight",
     1,
     1,
     vector,
     DTYPE_BF16,
     0,
     6,
     {0x3f76, 0x3f85, 0x3f88, 0x3f87, 0x3f7f, 0x3f83}},
    {"model.layers.3.input_layernorm.weight",
     1,
     1,
     vector,
     DTYPE_F32,
     380,
     4,
     {0x3f82e8fd, 0x3f7100cd, 0x3f7e1434, 0x3f866206}},
    {"model.layers.3.self_attn.q_proj.bias",
     1,
     1,
     bias,
     DTYPE_BF16,
     0,
     6,
     {0x3ce9, 0x3c8d, 0x3c0e, 0x3c96, 0x3b49, 0x3c89}},
    {"model.embed_tokens.weight",
     4294967295u,
     2,
     embedding,
     DTYPE_BF16,
     0,
     6,
     {0x3f2b, 0x3f43, 0x3f04, 0xbf20, 0xbebc, 0x3f4e}},
    {"model.layers.0.mlp.up_proj.weight", 3, 2, matrix, DTYPE_F8E4M3, 70, 6, {0x6f, 0x60, 0x75, 0x65, 0x61, 0x4f}},
    {"model.layers.0.mlp.up_proj.weight_scale_inv",
     3,
     2,
     few_blocks,
     DTYPE_F32,
     0,
     4,
     {0x39503cb6, 0x3972dffe, 0x397b6805, 0x39513d62}},
    {"model.layers.0.mlp.up_proj.weight_scale_inv",
     3,
     2,
     more_blocks,
     DTYPE_F32,
     0,
     4,
     {0x38503cb6, 0x3872dffe, 0x387b6805, 0x38513d62}},
    /* across 2^32 elements, where i.hi sets in */
    {"big.weight",
     3,
     2,
     big,
     DTYPE_F32,
     4294967293u,
     6,
     {0x38ece6c0, 0xbb1da3d4, 0x3b4b5f5c, 0x3a58aa60, 0x39d71b00, 0x3ae45020}},
    {"big.weight", 3, 2, big, DTYPE_BF16, 4294967293u, 6, {0x38ed, 0xbb1e, 0x3b4b, 0x3a59, 0x39d7, 0x3ae4}},
};

static void words_as_python(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const words_case *k = &cases[c];
        keel_error err = KEEL_ERROR_INITIALIZER;
        uint32_t f32[6];
        uint16_t bf16[6];
        uint8_t f8[6];
        void *out = k->t == DTYPE_F32 ? (void *)f32 : k->t == DTYPE_BF16 ? (void *)bf16 : (void *)f8;
        assert_int_equal(synth_fill(k->key, k->seed, k->rank, k->dim, k->t, k->first, k->n, out, &err), KEEL_OK);
        for (size_t i = 0; i < k->n; i++) {
            assert_int_equal(k->t == DTYPE_F32 ? f32[i] : k->t == DTYPE_BF16 ? bf16[i] : f8[i], k->words[i]);
        }
    }
}

static uint32_t fnv32(const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 16777619u;
    return h;
}

/* Long enough for the vector body and its tail. */
static void whole_tensor_as_python(void **state) {
    (void)state;
    const int64_t dim[3] = {3, 50, 257};
    enum { N = 3 * 50 * 257 };
    float *out = mem_alloc(N * sizeof *out);
    assert_non_null(out);
    assert_int_equal(synth_fill("experts.w", 5, 3, dim, DTYPE_BF16, 0, N, out, NULL), KEEL_OK);
    assert_int_equal(fnv32(out, N * 2), 0x622ff628u);
    assert_int_equal(synth_fill("experts.w", 5, 3, dim, DTYPE_F32, 0, N, out, NULL), KEEL_OK);
    assert_int_equal(fnv32(out, N * 4), 0x9b2f3f83u);
    assert_int_equal(synth_fill("experts.w", 5, 3, dim, DTYPE_F8E4M3, 0, N, out, NULL), KEEL_OK);
    assert_int_equal(fnv32(out, N), 0x14c4df4eu);
    mem_free(out);
}

static void slices_agree_with_the_whole(void **state) {
    (void)state;
    enum { N = 256 * 384, STEP = 1009 };
    uint16_t *whole = mem_alloc(N * 2), *slices = mem_alloc(N * 2);
    assert_true(whole && slices);
    assert_int_equal(synth_fill("a.weight", 9, 2, matrix, DTYPE_BF16, 0, N, whole, NULL), KEEL_OK);
    for (size_t i = 0; i < N; i += STEP) {
        size_t n = N - i < STEP ? N - i : STEP;
        assert_int_equal(synth_fill("a.weight", 9, 2, matrix, DTYPE_BF16, i, n, slices + i, NULL), KEEL_OK);
    }
    assert_memory_equal(whole, slices, N * 2);
    mem_free(whole);
    mem_free(slices);
}

/* The header's promise: a row's dot product with unit-variance input has variance between 1/3 and 4/3. */
static void row_variance(void **state) {
    (void)state;
    static const int64_t widths[] = {64, 96, 128, 200, 1000, 4096};
    float out[64 * 1024];
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        int64_t dim[2] = {1 << 20, widths[w]};
        enum { N = 64 * 1024 };
        assert_int_equal(synth_fill("v.weight", 1, 2, dim, DTYPE_F32, 0, N, out, NULL), KEEL_OK);
        double sum = 0;
        for (size_t i = 0; i < N; i++) sum += (double)out[i] * (double)out[i];
        double variance = sum / N * (double)widths[w];
        assert_true(variance > 0.32 && variance < 1.36);
    }
}

static void refusals(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    uint8_t out[16] = {0};
    int64_t none[2] = {4, 0}, huge[2] = {INT64_MAX, 4};
    assert_int_equal(synth_fill("a.weight", 0, 2, matrix, DTYPE_U8, 0, 1, out, &err), KEEL_UNSUPPORTED);
    assert_non_null(strstr(err.detail, "a.weight"));
    assert_int_equal(synth_fill("a.weight", 0, 2, matrix, DTYPE_F32, 256 * 384, 1, out, &err), KEEL_RANGE);
    assert_int_equal(synth_fill("a.weight", 0, 2, matrix, DTYPE_F32, UINT64_MAX, 2, out, &err), KEEL_RANGE);
    assert_int_equal(synth_fill("a.weight", 0, 2, none, DTYPE_F32, 0, 0, out, &err), KEEL_RANGE);
    assert_int_equal(synth_fill("a.weight", 0, 2, huge, DTYPE_F32, 0, 1, out, &err), KEEL_RANGE);
    assert_int_equal(synth_fill("a.weight", 0, 0, huge, DTYPE_F32, 0, 1, out, &err), KEEL_RANGE);
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(out[i], 0);
    assert_int_equal(synth_fill("a.weight", 0, 2, matrix, DTYPE_F32, 256 * 384, 0, out, &err), KEEL_OK);
}

/* Halves are the f32 values rounded, whatever the slice. */
static void halves_are_the_rounded_values(void **state) {
    (void)state;
    enum { N = 1000, FROM = 77 };
    float values[N];
    uint16_t halves[N];
    assert_int_equal(synth_fill("a.weight", 9, 2, matrix, DTYPE_F32, FROM, N, values, NULL), KEEL_OK);
    assert_int_equal(synth_fill("a.weight", 9, 2, matrix, DTYPE_F16, FROM, N, halves, NULL), KEEL_OK);
    for (int i = 0; i < N; i++) assert_int_equal(halves[i], f16_from_f32(values[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_as_python),
        cmocka_unit_test(whole_tensor_as_python),
        cmocka_unit_test(slices_agree_with_the_whole),
        cmocka_unit_test(halves_are_the_rounded_values),
        cmocka_unit_test(row_variance),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
