/* SPDX-License-Identifier: Apache-2.0 */
#include "core/buf.h"
#include "core/file.h"
#include "core/mem.h"
#include "load/safetensors.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>
#include <cmocka.h>

static buf image(const char *header, size_t data_bytes) {
    buf b = {0};
    buf_u64(&b, strlen(header));
    buf_str(&b, header);
    for (size_t i = 0; i < data_bytes; i++) buf_u8(&b, (uint8_t)i);
    assert_false(b.failed);
    return b;
}

/* Parses an exact copy, so that a read past the end is seen by the sanitizers. */
static keel_status parse(const buf *b, safetensors **s, uint8_t **copy, keel_error *err) {
    *copy = malloc(b->len ? b->len : 1);
    assert_non_null(*copy);
    if (b->len) memcpy(*copy, b->data, b->len);
    return safetensors_parse("t.safetensors", *copy, b->len, s, err);
}

static void refused(const char *header, size_t data_bytes, keel_status status, const char *words) {
    buf b = image(header, data_bytes);
    safetensors *s = NULL;
    uint8_t *copy;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status got = parse(&b, &s, &copy, &err);
    if (got != status || !strstr(err.detail, words)) print_error("%s\n%s\n", header, err.detail);
    assert_int_equal(got, status);
    assert_int_equal(err.status, status);
    assert_non_null(strstr(err.detail, words));
    assert_non_null(strstr(err.detail, "t.safetensors"));
    assert_null(s);
    free(copy);
    buf_free(&b);
}

typedef struct folder {
    char path[64];
} folder;

static folder folder_make(void) {
    folder f = {"/tmp/keel_safetensors_XXXXXX"};
    assert_non_null(mkdtemp(f.path));
    return f;
}

static char *in(const folder *f, const char *name) {
    char *p = path_join(f->path, name);
    assert_non_null(p);
    return p;
}

static size_t folder_entries(const folder *f) {
    DIR *d = opendir(f->path);
    assert_non_null(d);
    size_t n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static void folder_remove(const folder *f) {
    DIR *d = opendir(f->path);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        char *p = in(f, e->d_name);
        if (unlink(p) != 0) rmdir(p);
        keel_free(p);
    }
    closedir(d);
    rmdir(f->path);
}

static void put(const folder *f, const char *name, const void *data, size_t bytes) {
    char *p = in(f, name);
    assert_int_equal(file_write(p, data, bytes, NULL), KEEL_OK);
    keel_free(p);
}

static void put_image(const folder *f, const char *name, const char *header, size_t bytes) {
    buf b = image(header, bytes);
    put(f, name, b.data, b.len);
    buf_free(&b);
}

static void tensors_in_name_order(void **state) {
    (void)state;
    buf b = image("{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"z\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                  "\"empty\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[16,16]},"
                  "\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[24,30]},"
                  "\"scalar\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[30,32]},"
                  "\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[16,24]},"
                  "\"w\":{\"dtype\":\"act\",\"shape\":[1],\"data_offsets\":[32,33]}}   ",
                  33);
    safetensors *s;
    uint8_t *copy;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status status = parse(&b, &s, &copy, &err);
    if (status != KEEL_OK) print_error("%s\n", err.detail);
    assert_int_equal(status, KEEL_OK);
    assert_int_equal(safetensors_count(s), 6);
    const char *names[] = {"a", "empty", "n", "scalar", "w", "z"};
    for (size_t i = 0; i < 6; i++) assert_string_equal(safetensors_at(s, i)->name, names[i]);
    assert_null(safetensors_at(s, 6));
    assert_null(safetensors_find(s, "b"));
    assert_null(safetensors_find(s, "__metadata__"));
    const safetensor *z = safetensors_find(s, "z"), *a = safetensors_find(s, "a");
    assert_int_equal(z->dtype, DTYPE_F32);
    assert_int_equal(z->rank, 2);
    assert_int_equal(z->dim[1], 2);
    assert_int_equal(z->bytes, 16);
    assert_int_equal(((const uint8_t *)z->data)[0], 0);
    assert_int_equal(a->dtype, DTYPE_BF16);
    assert_int_equal(((const uint8_t *)a->data)[5], 29);
    assert_string_equal(a->file, "t.safetensors");
    assert_int_equal(safetensors_find(s, "scalar")->rank, 0);
    assert_int_equal(safetensors_find(s, "n")->dtype, DTYPE_COUNT);
    assert_int_equal(safetensors_find(s, "w")->dtype, DTYPE_COUNT); /* "act" is a word of graphs only */
    safetensors_close(s);
    safetensors_close(NULL);
    free(copy);
    buf_free(&b);
}

#define ONE(shape, offsets) "{\"w\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void malformed_headers(void **state) {
    (void)state;
    refused("", 0, KEEL_FORMAT, "header from byte 8");
    refused("[]", 0, KEEL_FORMAT, "no JSON object");
    refused("{\"w\":", 0, KEEL_FORMAT, "not valid JSON");
    refused("{\"w\":1}", 0, KEEL_FORMAT, "tensor w");
    refused("{\"w\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, KEEL_FORMAT, "dtype");
    refused("{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, KEEL_FORMAT, "shape");
    refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, KEEL_FORMAT, "data_offsets");
    refused(ONE("[-1]", "[0,4]"), 4, KEEL_FORMAT, "dimension");
    refused(ONE("[1.5]", "[0,4]"), 4, KEEL_FORMAT, "dimension");
    refused(ONE("[1]", "[0,4,8]"), 4, KEEL_FORMAT, "data_offsets");
    refused(ONE("[1]", "[4,0]"), 4, KEEL_FORMAT, "data_offsets");
    refused(ONE("[1]", "[-4,0]"), 4, KEEL_FORMAT, "data_offsets");
    refused(ONE("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, KEEL_UNSUPPORTED, "rank 9");
    refused(ONE("[4294967296,4294967296,2]", "[0,4]"), 4, KEEL_FORMAT, "2^64");
    refused(ONE("[4611686018427387905]", "[0,4]"), 4, KEEL_FORMAT, "need 4 each"); /* × 4 wraps to 4 */
    refused(ONE("[2]", "[0,4]"), 4, KEEL_FORMAT, "span 4 bytes");
    refused("{\"w\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, KEEL_FORMAT, "I64");
    refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
            "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
            8, KEEL_FORMAT, "duplicate");
}

static void places(void **state) {
    (void)state;
    refused(ONE("[2]", "[0,8]"), 4, KEEL_FORMAT, "truncated");
    refused(ONE("[2]", "[0,8]"), 7, KEEL_FORMAT, "truncated");
    refused(ONE("[1]", "[0,4]"), 5, KEEL_FORMAT, "belong to none");
    refused("{}", 5, KEEL_FORMAT, "belong to none");
    refused(ONE("[1]", "[4,8]"), 8, KEEL_FORMAT, "a hole after the header");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
            "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
            12, KEEL_FORMAT, "overlaps tensor a");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
            "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}",
            20, KEEL_FORMAT, "leaves a hole after tensor a");
    refused("{\"a\":{\"dtype\":\"X9\",\"shape\":[2],\"data_offsets\":[0,9]},"
            "\"b\":{\"dtype\":\"act\",\"shape\":[2],\"data_offsets\":[4,12]}}",
            12, KEEL_FORMAT, "overlaps tensor a");
}

static void lengths(void **state) {
    (void)state;
    safetensors *s = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    const uint8_t past[8] = {100}, absurd[8] = {0, 0, 0, 0, 1}, all[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    assert_int_equal(safetensors_parse("x", NULL, 0, &s, &err), KEEL_FORMAT);
    assert_non_null(strstr(err.detail, "too short"));
    assert_int_equal(safetensors_parse("x", past, 7, &s, &err), KEEL_FORMAT);
    assert_int_equal(safetensors_parse("x", past, 8, &s, &err), KEEL_FORMAT);
    assert_non_null(strstr(err.detail, "past the end"));
    assert_int_equal(safetensors_parse("x", absurd, 8, &s, &err), KEEL_FORMAT);
    assert_non_null(strstr(err.detail, "4294967296"));
    assert_int_equal(safetensors_parse("x", all, 8, &s, &err), KEEL_FORMAT);
    assert_int_equal(safetensors_parse("x", all, 8, &s, NULL), KEEL_FORMAT);
    assert_null(s);
}

/* Every prefix of a good file is refused. */
static void truncations(void **state) {
    (void)state;
    buf b = image("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                  "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}",
                  11);
    size_t whole = b.len;
    for (b.len = 0; b.len <= whole; b.len++) {
        safetensors *s = NULL;
        uint8_t *copy;
        assert_int_equal(parse(&b, &s, &copy, NULL), b.len == whole ? KEEL_OK : KEEL_FORMAT);
        safetensors_close(s);
        free(copy);
    }
    buf_free(&b);
}

#define TENSOR(name, begin, end) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #begin "," #end "]}"

static void shards(void **state) {
    (void)state;
    folder f = folder_make();
    keel_error err = KEEL_ERROR_INITIALIZER;
    safetensors *s = NULL;
    const char *index = "{\"metadata\":{},\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\","
                        "\"c\":\"m-1.safetensors\",\"d\":\"m-3.safetensors\"}}";
    put(&f, "model.safetensors.index.json", index, strlen(index));
    put_image(&f, "m-1.safetensors", "{" TENSOR("a", 0, 4) "," TENSOR("c", 4, 8) "}", 8);
    assert_int_equal(safetensors_open(f.path, &s, &err), KEEL_MISSING);
    assert_non_null(strstr(err.detail, "m-2.safetensors"));
    assert_non_null(strstr(err.detail, "m-3.safetensors"));
    assert_null(strstr(err.detail, "m-1.safetensors"));
    put_image(&f, "m-2.safetensors", "{" TENSOR("b", 0, 4) "," TENSOR("extra", 4, 8) "}", 8);
    put_image(&f, "m-3.safetensors", "{" TENSOR("d", 0, 4) "}", 4);
    assert_int_equal(safetensors_open(f.path, &s, &err), KEEL_OK);
    assert_int_equal(safetensors_count(s), 5);
    assert_non_null(strstr(safetensors_find(s, "b")->file, "/m-2.safetensors"));
    assert_int_equal(((const uint8_t *)safetensors_find(s, "c")->data)[0], 4);
    safetensors_close(s);
    s = NULL;
    put_image(&f, "m-3.safetensors", "{" TENSOR("e", 0, 4) "}", 4);
    assert_int_equal(safetensors_open(f.path, &s, &err), KEEL_FORMAT);
    assert_non_null(strstr(err.detail, "tensor d is not in m-3.safetensors"));
    put_image(&f, "m-3.safetensors", "{" TENSOR("b", 0, 4) "}", 4);
    assert_int_equal(safetensors_open(f.path, &s, &err), KEEL_FORMAT);
    assert_non_null(strstr(err.detail, "tensor b stands twice"));
    put(&f, "m-3.safetensors", "", 0);
    assert_int_equal(safetensors_open(f.path, &s, &err), KEEL_FORMAT);
    assert_non_null(strstr(err.detail, "m-3.safetensors: 0 bytes"));
    static const char *const bad[] = {"[]",
                                      "{}",
                                      "{\"weight_map\":{}}",
                                      "{\"weight_map\":{\"a\":1}}",
                                      "{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}",
                                      "{\"weight_map\":{\"a\":\"\"}}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put(&f, "model.safetensors.index.json", bad[i], strlen(bad[i]));
        assert_int_equal(safetensors_open(f.path, &s, &err), KEEL_FORMAT);
        assert_non_null(strstr(err.detail, "weight_map"));
    }
    assert_null(s);
    folder_remove(&f);
}

static void folders_without_weights(void **state) {
    (void)state;
    keel_error err = KEEL_ERROR_INITIALIZER;
    safetensors *s = NULL;
    folder f = folder_make();
    assert_int_equal(safetensors_open(f.path, &s, &err), KEEL_MISSING);
    assert_non_null(strstr(err.detail, "neither model.safetensors nor"));
    put(&f, "m.gguf", "x", 1);
    assert_int_equal(safetensors_open(f.path, &s, &err), KEEL_MISSING);
    assert_non_null(strstr(err.detail, "keel convert"));
    char *file = in(&f, "m.gguf"), *none = in(&f, "none"), *beneath = in(&f, "m.gguf/x");
    assert_int_equal(safetensors_open(file, &s, &err), KEEL_IO);
    assert_non_null(strstr(err.detail, "not a folder"));
    assert_int_equal(safetensors_open(none, &s, &err), KEEL_MISSING);
    assert_int_equal(safetensors_open(beneath, &s, &err), KEEL_IO);
    assert_int_equal(safetensors_open_file(none, &s, &err), KEEL_MISSING);
    keel_free(file);
    keel_free(none);
    keel_free(beneath);
    char *dir = in(&f, "model.safetensors");
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(safetensors_open(f.path, &s, &err), KEEL_IO);
    keel_free(dir);
    assert_null(s);
    folder_remove(&f);
}

static void folder_without_permission(void **state) {
    (void)state;
    folder f = folder_make();
    if (geteuid() == 0 && seteuid(65534) != 0) skip(); /* root sees everything */
    keel_error err = KEEL_ERROR_INITIALIZER;
    safetensors *s = NULL;
    keel_status own = KEEL_IO;
    if (geteuid() != 65534) own = chmod(f.path, 0) == 0 ? KEEL_IO : KEEL_OK;
    keel_status status = safetensors_open(f.path, &s, &err);
    if (geteuid() == 65534) assert_int_equal(seteuid(0), 0);
    chmod(f.path, 0700);
    folder_remove(&f);
    assert_int_equal(status, own);
    assert_non_null(strstr(err.detail, "check the permissions"));
}

static void project_checkpoint(void **state) {
    (void)state;
    const char *dir = KEEL_SOURCE_DIR "/../shared/models/qwen3-py-12m";
    if (!file_is_dir(dir)) skip();
    safetensors *s;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(safetensors_open(dir, &s, &err), KEEL_OK);
    assert_true(safetensors_count(s) > 60);
    const safetensor *e = safetensors_find(s, "model.embed_tokens.weight");
    assert_non_null(e);
    assert_int_equal(e->dim[0], 4096);
    assert_int_equal(e->dim[1], 384);
    safetensors_close(s);
}

static const safetensor_decl decls[] = {
    {"model.b", DTYPE_F32, 2, {2, 3}}, {"model.a", DTYPE_BF16, 1, {3}}, {"quote\"d", DTYPE_U8, 0, {0}}};
enum { DECLS = 3, DECL_BYTES = 24 + 6 + 1 };

static void write_then_read(void **state) {
    (void)state;
    folder f = folder_make();
    char *path = in(&f, "model.safetensors");
    uint8_t data[DECL_BYTES];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(200 - i);
    for (size_t slice = 1; slice <= sizeof data; slice += 10) {
        safetensors_writer *w;
        assert_int_equal(safetensors_writer_open(path, decls, DECLS, &w, NULL), KEEL_OK);
        for (size_t i = 0; i < sizeof data; i += slice) {
            size_t n = sizeof data - i < slice ? sizeof data - i : slice;
            assert_int_equal(safetensors_writer_put(w, data + i, n, NULL), KEEL_OK);
        }
        assert_int_equal(safetensors_writer_commit(w, NULL), KEEL_OK);
        safetensors *s;
        keel_error err = KEEL_ERROR_INITIALIZER;
        assert_int_equal(safetensors_open(f.path, &s, &err), KEEL_OK);
        assert_int_equal(safetensors_count(s), 3);
        const safetensor *b = safetensors_find(s, "model.b"), *a = safetensors_find(s, "model.a"),
                         *q = safetensors_find(s, "quote\"d");
        assert_true(a && b && q);
        assert_int_equal((uintptr_t)b->data % 8, 0);
        assert_memory_equal(b->data, data, 24);
        assert_memory_equal(a->data, data + 24, 6);
        assert_memory_equal(q->data, data + 30, 1);
        assert_int_equal(b->rank, 2);
        assert_int_equal(b->dim[1], 3);
        safetensors_close(s);
    }
    assert_int_equal(folder_entries(&f), 1);
    keel_free(path);
    folder_remove(&f);
}

/* The bytes themselves, written out from the format's description. */
static void header_bytes(void **state) {
    (void)state;
    folder f = folder_make();
    char *path = in(&f, "x");
    safetensors_writer *w;
    safetensor_decl d = {"w", DTYPE_U8, 1, {2}};
    assert_int_equal(safetensors_writer_open(path, &d, 1, &w, NULL), KEEL_OK);
    assert_int_equal(safetensors_writer_put(w, "\1\2", 2, NULL), KEEL_OK);
    assert_int_equal(safetensors_writer_commit(w, NULL), KEEL_OK);
    static const char want[] =
        "\x58\0\0\0\0\0\0\0"
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}    "
        "\1\2";
    char *got;
    size_t bytes;
    assert_int_equal(file_read(path, 1000, &got, &bytes, NULL), KEEL_OK);
    assert_int_equal(bytes, sizeof want - 1);
    assert_memory_equal(got, want, bytes);
    keel_free(got);
    keel_free(path);
    folder_remove(&f);
}

static void writer_refusals(void **state) {
    (void)state;
    folder f = folder_make();
    char *path = in(&f, "x"), *nowhere = in(&f, "none/x");
    keel_error err = KEEL_ERROR_INITIALIZER;
    safetensors_writer *w = NULL;
    uint8_t data[64] = {0};
    safetensor_decl twice[2] = {{"w", DTYPE_U8, 1, {2}}, {"w", DTYPE_U8, 1, {2}}};
    safetensor_decl act = {"w", DTYPE_ACT, 1, {2}}, negative = {"w", DTYPE_U8, 1, {-2}}, rank = {"w", DTYPE_U8, 9, {1}},
                    huge = {"w", DTYPE_F32, 1, {INT64_MAX}}, latin = {"\xe9", DTYPE_U8, 1, {2}};
    assert_int_equal(safetensors_writer_open(path, twice, 2, &w, &err), KEEL_FORMAT);
    assert_int_equal(safetensors_writer_open(path, &act, 1, &w, &err), KEEL_UNSUPPORTED);
    assert_int_equal(safetensors_writer_open(path, &negative, 1, &w, &err), KEEL_RANGE);
    assert_int_equal(safetensors_writer_open(path, &rank, 1, &w, &err), KEEL_RANGE);
    assert_int_equal(safetensors_writer_open(path, &huge, 1, &w, &err), KEEL_RANGE);
    assert_int_equal(safetensors_writer_open(path, &latin, 1, &w, &err), KEEL_FORMAT);
    assert_int_equal(safetensors_writer_open(nowhere, decls, DECLS, &w, &err), KEEL_MISSING);
    assert_null(w);
    assert_int_equal(safetensors_writer_open(path, decls, DECLS, &w, &err), KEEL_OK);
    assert_int_equal(safetensors_writer_put(w, data, DECL_BYTES + 1, &err), KEEL_RANGE);
    assert_int_equal(safetensors_writer_put(w, data, DECL_BYTES - 1, &err), KEEL_OK);
    assert_int_equal(safetensors_writer_commit(w, &err), KEEL_RANGE);
    assert_int_equal(safetensors_writer_open(path, decls, DECLS, &w, &err), KEEL_OK);
    safetensors_writer_abandon(w);
    safetensors_writer_abandon(NULL);
    assert_int_equal(folder_entries(&f), 0);
    keel_free(path);
    keel_free(nowhere);
    folder_remove(&f);
}

/* A file-size limit stands in for a full disk. */
static void no_space(void **state) {
    (void)state;
    folder f = folder_make();
    char *path = in(&f, "x");
    enum { BYTES = 3 << 20 };
    safetensor_decl d = {"w", DTYPE_U8, 1, {BYTES}};
    uint8_t *data = calloc(1, BYTES);
    assert_non_null(data);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){1 << 20, old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    keel_error err = KEEL_ERROR_INITIALIZER;
    safetensors_writer *w = NULL;
    keel_status status = safetensors_writer_open(path, &d, 1, &w, &err);
    if (status == KEEL_OK) status = safetensors_writer_put(w, data, BYTES, &err);
    safetensors_writer_abandon(w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, KEEL_IO);
    assert_int_equal(folder_entries(&f), 0);
    free(data);
    keel_free(path);
    folder_remove(&f);
}

static keel_status round_trip(const folder *f, const char *path, keel_error *err) {
    static const uint8_t data[DECL_BYTES];
    safetensors_writer *w = NULL;
    safetensors *s = NULL;
    KEEL_TRY(safetensors_writer_open(path, decls, DECLS, &w, err));
    keel_status status = safetensors_writer_put(w, data, sizeof data, err);
    keel_status last = safetensors_writer_commit(w, err);
    if (status == KEEL_OK) status = last;
    if (status == KEEL_OK) status = safetensors_open(f->path, &s, err);
    safetensors_close(s);
    return status;
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    folder f = folder_make();
    const char *index = "{\"weight_map\":{\"model.a\":\"a.safetensors\"}}";
    put(&f, "model.safetensors.index.json", index, strlen(index));
    char *path = in(&f, "a.safetensors");
    keel_status status = KEEL_NOMEM;
    uint64_t n = 0;
    while (status != KEEL_OK) {
        keel_error err = KEEL_ERROR_INITIALIZER;
        mem_fail_after(++n);
        status = round_trip(&f, path, &err);
        mem_fail_after(0);
        if (status != KEEL_OK) assert_int_equal(status, KEEL_NOMEM);
        if (status != KEEL_OK) assert_int_equal(err.status, KEEL_NOMEM);
        assert_true(folder_entries(&f) <= 2);
        assert_true(n < 1000);
    }
    assert_true(n > 10);
    keel_free(path);
    folder_remove(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_in_name_order),
        cmocka_unit_test(malformed_headers),
        cmocka_unit_test(places),
        cmocka_unit_test(lengths),
        cmocka_unit_test(truncations),
        cmocka_unit_test(shards),
        cmocka_unit_test(folders_without_weights),
        cmocka_unit_test(folder_without_permission),
        cmocka_unit_test(project_checkpoint),
        cmocka_unit_test(write_then_read),
        cmocka_unit_test(header_bytes),
        cmocka_unit_test(writer_refusals),
        cmocka_unit_test(no_space),
        cmocka_unit_test(every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
