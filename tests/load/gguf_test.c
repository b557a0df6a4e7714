/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json.h"
#include "core/mem.h"
#include "gguf_image.h"
#include "load/gguf.h"
#include "load/gguf_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* Parses an exact copy, so that a read past the end is seen by the sanitizers. The copy is freed by the caller. */
static keel_status parse(const buf *b, gguf **g, uint8_t **copy, keel_error *err) {
    assert_false(b->failed);
    *copy = malloc(b->len ? b->len : 1);
    assert_non_null(*copy);
    if (b->len) memcpy(*copy, b->data, b->len);
    return gguf_parse("t.gguf", *copy, b->len, g, err);
}

static void refused(buf b, keel_status status, const char *words) {
    gguf *g = NULL;
    uint8_t *copy;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status got = parse(&b, &g, &copy, &err);
    if (got != status || !strstr(err.detail, words)) print_error("wanted \"%s\", got %s\n", words, err.detail);
    assert_int_equal(got, status);
    assert_non_null(strstr(err.detail, words));
    assert_non_null(strstr(err.detail, "t.gguf"));
    assert_null(g);
    free(copy);
    buf_free(&b);
}

static gguf_image sample(void) {
    static const char *const words[] = {"alpha", "", "gamma"};
    static const int32_t numbers[] = {-1, 2, 3}, equal[] = {7, 7};
    static const float data[64] = {1.5f, -2.0f};
    gguf_image m = {0};
    image_string(&m, "general.name", "sample");
    image_u32(&m, "n", 42);
    image_f32(&m, "x", 0.5f);
    image_bool(&m, "yes", 1);
    image_strings(&m, "words", words, 3);
    image_i32s(&m, "numbers", numbers, 3);
    image_i32s(&m, "equal", equal, 2);
    image_key(&m, "nested", KV_ARRAY);
    buf_u32(&m.values, KV_ARRAY);
    buf_u64(&m.values, 2);
    for (int i = 0; i < 2; i++) {
        buf_u32(&m.values, KV_U32);
        buf_u64(&m.values, 1);
        buf_u32(&m.values, 9);
    }
    image_tensor(&m, "w", 0, 16, 2, data, 128);
    image_tensor(&m, "a", 8, 32, 0, data, 34);
    return m;
}

static void values_and_tensors(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_image m = sample();
        buf b = image_finish(&m, version);
        gguf *g;
        uint8_t *copy;
        keel_error err = KEEL_ERROR_INITIALIZER;
        assert_int_equal(parse(&b, &g, &copy, &err), KEEL_OK);
        int64_t n = 0;
        double x = 0;
        bool yes = false;
        gguf_string s = {"", 0};
        const gguf_value *v;
        assert_int_equal(gguf_opt_int(g, "n", 0, 100, &n, &err), KEEL_OK);
        assert_int_equal(n, 42);
        assert_int_equal(gguf_opt_int(g, "equal", 0, 100, &n, &err), KEEL_OK);
        assert_int_equal(n, 7);
        assert_int_equal(gguf_opt_int(g, "none", 0, 100, &n, &err), KEEL_OK);
        assert_int_equal(n, 7);
        assert_int_equal(gguf_opt_int(g, "n", 0, 41, &n, &err), KEEL_RANGE);
        assert_int_equal(gguf_opt_int(g, "x", 0, 41, &n, &err), KEEL_FORMAT);
        assert_int_equal(gguf_opt_int(g, "numbers", 0, 41, &n, &err), KEEL_UNSUPPORTED);
        assert_int_equal(gguf_opt_real(g, "x", &x, &err), KEEL_OK);
        assert_true(x == 0.5);
        assert_int_equal(gguf_opt_real(g, "n", &x, &err), KEEL_FORMAT);
        assert_int_equal(gguf_opt_bool(g, "yes", &yes, &err), KEEL_OK);
        assert_true(yes);
        assert_int_equal(gguf_opt_bool(g, "n", &yes, &err), KEEL_FORMAT);
        assert_int_equal(gguf_opt_string(g, "general.name", &s, &err), KEEL_OK);
        assert_int_equal(s.bytes, 6);
        assert_memory_equal(s.text, "sample", 6);
        assert_int_equal(gguf_opt_string(g, "n", &s, &err), KEEL_FORMAT);
        assert_int_equal(gguf_get_array(g, "words", GGUF_I32, &v, &err), KEEL_FORMAT);
        assert_int_equal(gguf_get_array(g, "none", GGUF_I32, &v, &err), KEEL_MISSING);
        assert_int_equal(gguf_get_array(g, "numbers", GGUF_I32, &v, &err), KEEL_OK);
        assert_int_equal(gguf_int_at(v, 0), -1);
        assert_int_equal(gguf_get_array(g, "words", GGUF_STRING, &v, &err), KEEL_OK);
        assert_int_equal(v->count, 3);
        const uint8_t *at = v->data;
        gguf_string_next(&at);
        assert_int_equal(gguf_string_next(&at).bytes, 0);
        assert_memory_equal(gguf_string_next(&at).text, "gamma", 5);
        const gguf_tensor *w = gguf_tensor_find(g, "w"), *a = gguf_tensor_find(g, "a");
        assert_true(w && a && !gguf_tensor_find(g, "b"));
        assert_int_equal(w->dim[0], 16);
        assert_int_equal(w->dim[1], 2);
        assert_int_equal(w->dim[2], 1);
        assert_int_equal(w->bytes, 128);
        assert_int_equal(a->rank, 1);
        assert_int_equal(a->data - w->data, 128);
        gguf_close(g);
        gguf_close(NULL);
        free(copy);
        buf_free(&b);
    }
}

static void truncations(void **state) {
    (void)state;
    gguf_image m = sample();
    buf b = image_finish(&m, 3);
    size_t whole = b.len;
    for (b.len = 0; b.len <= whole; b.len++) {
        gguf *g = NULL;
        uint8_t *copy;
        keel_status status = parse(&b, &g, &copy, NULL);
        assert_int_equal(status, b.len == whole ? KEEL_OK : KEEL_FORMAT);
        gguf_close(g);
        free(copy);
    }
    buf_free(&b);
}

/* Every byte of the header set to 0xff in turn: no crash; the sanitizers watch. */
static void damaged_bytes(void **state) {
    (void)state;
    gguf_image m = sample();
    buf b = image_finish(&m, 3);
    for (size_t i = 0; i < b.len; i++) {
        gguf *g = NULL;
        uint8_t *copy, kept = b.data[i];
        b.data[i] = 0xff;
        parse(&b, &g, &copy, NULL);
        gguf_close(g);
        free(copy);
        b.data[i] = kept;
    }
    buf_free(&b);
}

static buf with_u32(gguf_image m, const char *key, uint32_t v) {
    image_u32(&m, key, v);
    return image_finish(&m, 3);
}

static void bad_headers(void **state) {
    (void)state;
    gguf_image m = sample();
    refused(image_finish(&m, 1), KEEL_UNSUPPORTED, "version 1");
    m = sample();
    refused(image_finish(&m, 0x03000000), KEEL_UNSUPPORTED, "big-endian");
    m = sample();
    buf b = image_finish(&m, 3);
    b.data[0] = 'X';
    refused(b, KEEL_FORMAT, "not a GGUF file");
    m = sample();
    m.n_tensors = UINT64_MAX;
    refused(image_finish(&m, 3), KEEL_FORMAT, "room for");
    m = sample();
    m.n_values = UINT64_C(1) << 61;
    refused(image_finish(&m, 3), KEEL_FORMAT, "room for");
    refused(with_u32(sample(), "n", 1), KEEL_FORMAT, "n stands twice");
    refused(with_u32(sample(), "", 1), KEEL_FORMAT, "name");
    refused(with_u32(sample(), "general.alignment", 24), KEEL_FORMAT, "power of two");
    refused(with_u32(sample(), "general.alignment", 0), KEEL_RANGE, "general.alignment");
    m = sample();
    image_bool(&m, "b", 2);
    refused(image_finish(&m, 3), KEEL_FORMAT, "truth value");
    m = sample();
    image_key(&m, "b", 13);
    buf_u64(&m.values, 0);
    refused(image_finish(&m, 3), KEEL_FORMAT, "unknown type");
    m = sample();
    image_key(&m, "deep", KV_ARRAY);
    for (int i = 0; i < 6; i++) {
        buf_u32(&m.values, KV_ARRAY);
        buf_u64(&m.values, 1);
    }
    refused(image_finish(&m, 3), KEEL_FORMAT, "nested too deep");
    m = sample();
    image_key(&m, "long", KV_ARRAY);
    buf_u32(&m.values, KV_U32);
    buf_u64(&m.values, UINT64_MAX / 4 + 2); /* × 4 wraps to 4 */
    refused(image_finish(&m, 3), KEEL_FORMAT, "metadata key long");
    m = sample();
    image_key(&m, "string", KV_STRING);
    buf_u64(&m.values, UINT64_MAX);
    refused(image_finish(&m, 3), KEEL_FORMAT, "past the end");
}

static buf with_tensor(const char *name, uint32_t type, uint64_t dim0, uint64_t dim1, size_t bytes) {
    static const uint8_t zeros[256];
    gguf_image m = sample();
    image_tensor(&m, name, type, dim0, dim1, zeros, bytes);
    return image_finish(&m, 3);
}

static void bad_tensors(void **state) {
    (void)state;
    refused(with_tensor("w", 0, 4, 4, 64), KEEL_FORMAT, "tensor w stands twice");
    refused(with_tensor("z", 0, 4, 4, 60), KEEL_FORMAT, "tensor z");
    refused(with_tensor("z", 99, 4, 4, 64), KEEL_UNSUPPORTED, "type 99");
    refused(with_tensor("z", 2, 48, 1, 64), KEEL_FORMAT, "Q4_0 blocks");
    refused(with_tensor("z", 0, 0, 1, 64), KEEL_FORMAT, "tensor z");
    refused(with_tensor("z", 0, UINT64_C(1) << 40, UINT64_C(1) << 40, 64), KEEL_FORMAT, "2^59");
    refused(with_tensor("z", 0, UINT64_C(1) << 61, 2, 64), KEEL_FORMAT, "2^59"); /* × 4 bytes wraps to 0 */
    refused(with_tensor("z", 0, UINT64_C(1) << 58, 1, 64), KEEL_FORMAT, "past the end");
    gguf_image m = sample();
    image_text(&m.infos, "five");
    buf_u32(&m.infos, 5);
    for (int i = 0; i < 5; i++) buf_u64(&m.infos, 1);
    buf_u32(&m.infos, 0);
    buf_u64(&m.infos, 0);
    m.n_tensors++;
    refused(image_finish(&m, 3), KEEL_FORMAT, "rank");
    m = sample();
    image_text(&m.infos, "odd");
    buf_u32(&m.infos, 1);
    buf_u64(&m.infos, 1);
    buf_u32(&m.infos, 0);
    buf_u64(&m.infos, 4);
    m.n_tensors++;
    refused(image_finish(&m, 3), KEEL_FORMAT, "multiple of the alignment 32");
    m = sample();
    image_text(&m.infos, "over");
    buf_u32(&m.infos, 1);
    buf_u64(&m.infos, 8);
    buf_u32(&m.infos, 0);
    buf_u64(&m.infos, 96); /* within w */
    m.n_tensors++;
    refused(image_finish(&m, 3), KEEL_FORMAT, "w and over overlap");
}

static int base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static buf base64(const char *text) {
    buf b = {0};
    uint32_t bits = 0;
    int n = 0;
    for (; *text && *text != '='; text++) {
        assert_true(base64_value(*text) >= 0);
        bits = bits << 6 | (uint32_t)base64_value(*text);
        n += 6;
        if (n >= 8) buf_u8(&b, (uint8_t)(bits >> (n -= 8)));
    }
    return b;
}

/* tests/golden/gguf_blocks.json comes from the gguf Python package (make_gguf_blocks.py). Equal to the bit. */
static void blocks_as_python(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t number;
    } types[] = {{"F32", 0},  {"F16", 1},  {"BF16", 30}, {"Q8_0", 8},  {"Q4_0", 2}, {"Q4_1", 3},
                 {"Q5_0", 6}, {"Q5_1", 7}, {"Q4_K", 12}, {"Q5_K", 13}, {"Q6_K", 14}};
    json_t *root;
    assert_int_equal(json_read(KEEL_SOURCE_DIR "/tests/golden/gguf_blocks.json", 1 << 24, &root, NULL), KEEL_OK);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const json_t *o = json_object_get(root, types[i].name);
        assert_non_null(o);
        buf blocks = base64(json_string_value(json_object_get(o, "blocks")));
        buf values = base64(json_string_value(json_object_get(o, "values")));
        size_t n = values.len / 4;
        float *got = mem_alloc(n * 4);
        assert_non_null(got);
        assert_int_equal(gguf_type_bytes(types[i].number, n), blocks.len);
        assert_int_equal(gguf_dequantize(types[i].number, blocks.data, n, got, NULL), KEEL_OK);
        for (size_t k = 0; k < n; k++) {
            if (memcmp(got + k, values.data + 4 * k, 4) != 0) fail_msg("%s: element %zu differs", types[i].name, k);
        }
        mem_free(got);
        buf_free(&blocks);
        buf_free(&values);
    }
    json_decref(root);
}

/* All 65536 halves against core's conversion by bits. */
static void every_half(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint8_t le[2] = {(uint8_t)h, (uint8_t)(h >> 8)};
        float got, want = f16_to_f32((uint16_t)h);
        assert_int_equal(gguf_dequantize(1, le, 1, &got, NULL), KEEL_OK);
        assert_memory_equal(&got, &want, 4);
    }
}

static void types(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    float out[256];
    uint8_t blocks[300] = {0};
    assert_int_equal(gguf_type_bytes(12, 512), 288);
    assert_int_equal(gguf_type_bytes(12, 100), 0);
    assert_int_equal(gguf_type_bytes(4, 32), 0); /* a number that was withdrawn */
    assert_int_equal(gguf_type_bytes(28, UINT64_MAX), 0);
    assert_int_equal(gguf_dequantize(10, blocks, 256, out, &err), KEEL_UNSUPPORTED);
    assert_non_null(strstr(err.detail, "Q2_K"));
    assert_int_equal(gguf_dequantize(77, blocks, 256, out, &err), KEEL_UNSUPPORTED);
    assert_non_null(strstr(err.detail, "type 77"));
    assert_int_equal(gguf_dequantize(8, blocks, 33, out, &err), KEEL_RANGE);
    assert_int_equal(gguf_dequantize(8, blocks, 0, NULL, &err), KEEL_OK);
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    gguf_image m = sample();
    buf b = image_finish(&m, 3);
    keel_status status = KEEL_NOMEM;
    uint64_t n = 0;
    while (status != KEEL_OK) {
        gguf *g = NULL;
        keel_error err = KEEL_ERROR_INITIALIZER;
        mem_fail_after(++n);
        status = gguf_parse("t.gguf", b.data, b.len, &g, &err);
        mem_fail_after(0);
        if (status != KEEL_OK) assert_int_equal(status, KEEL_NOMEM);
        gguf_close(g);
        assert_true(n < 100);
    }
    assert_true(n > 3);
    buf_free(&b);
}

static void no_file(void **state) {
    (void)state;
    gguf *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(gguf_open("/nowhere/x.gguf", &g, &err), KEEL_MISSING);
    assert_int_equal(gguf_open("/tmp", &g, &err), KEEL_IO);
    assert_null(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_tensors),
        cmocka_unit_test(truncations),
        cmocka_unit_test(damaged_bytes),
        cmocka_unit_test(bad_headers),
        cmocka_unit_test(bad_tensors),
        cmocka_unit_test(blocks_as_python),
        cmocka_unit_test(every_half),
        cmocka_unit_test(types),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
