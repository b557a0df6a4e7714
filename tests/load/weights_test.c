/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of ranks against coordinates: element (i, j, k) of a test tensor has a value that tells i, j, k. */
#include "core/buf.h"
#include "core/mem.h"
#include "load/synth.h"
#include "load/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct slice_case {
    int rank;
    int64_t dim[3];
    shard_slice slice, inner;
} slice_case;

#define UNCUT                                                                                                          \
    { -1, 0, 0, 0 }
static const slice_case slices[] = {
    {2, {5, 7}, UNCUT, UNCUT},
    {2, {3, 7}, {0, 3, 3, 9}, UNCUT},
    {2, {4, 3}, {0, 4, 4, 6}, UNCUT},
    {1, {4}, {0, 8, 4, 12}, UNCUT},
    {1, {4}, {0, 8, 4, 10}, UNCUT},
    {2, {3, 4}, {1, 4, 4, 12}, UNCUT},
    {2, {3, 4}, {1, 8, 4, 10}, UNCUT},
    {2, {3, 4}, {1, 12, 4, 10}, UNCUT},
    {3, {2, 2, 5}, {1, 2, 2, 4}, UNCUT},
    {3, {2, 3, 4}, {2, 4, 4, 9}, UNCUT},
    {3, {2, 3, 4}, {2, 8, 4, 9}, UNCUT},
    {3, {1, 2, 3}, {0, 1, 1, 2}, UNCUT},
    {3, {2, 3, 4}, UNCUT, {1, 3, 3, 6}},
    {3, {2, 3, 4}, {0, 2, 2, 6}, {1, 3, 3, 6}},
    {3, {2, 3, 4}, {0, 4, 2, 6}, {2, 0, 4, 8}},
    {3, {2, 3, 4}, {0, 4, 2, 5}, {2, 4, 4, 7}},
};

static void test_slice_copy(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof slices / sizeof *slices; c++) {
        const slice_case *s = &slices[c];
        int64_t whole[3] = {1, 1, 1}, part[3] = {1, 1, 1}, from[3] = {0, 0, 0};
        for (int d = 0; d < s->rank; d++) {
            part[d] = whole[d] = s->dim[d];
            if (d == s->slice.dim) {
                whole[d] = s->slice.whole;
                from[d] = s->slice.first;
            }
            if (d == s->inner.dim) {
                whole[d] = s->inner.whole;
                from[d] = s->inner.first;
            }
        }
        uint16_t source[4096], got[4096];
        for (size_t i = 0; i < 4096; i++) source[i] = (uint16_t)(i + 1);
        memset(got, 0xee, sizeof got);
        weight_piece p = {"n", "k", DTYPE_BF16, s->rank, s->dim, s->slice, s->inner, source};
        slice_copy(&p, got);
        int64_t at = 0;
        for (int64_t i = 0; i < part[0]; i++) {
            for (int64_t j = 0; j < part[1]; j++) {
                for (int64_t k = 0; k < part[2]; k++, at++) {
                    int64_t x = i + from[0], y = j + from[1], z = k + from[2];
                    bool inside = x < whole[0] && y < whole[1] && z < whole[2];
                    int64_t want = inside ? (x * whole[1] + y) * whole[2] + z + 1 : 0;
                    if (got[at] != want)
                        fail_msg("case %zu: (%d, %d, %d) is %u, not %d", c, (int)i, (int)j, (int)k, got[at], (int)want);
                }
            }
        }
        assert_int_equal(got[at], 0xeeee);
        slice_runs r = slice_runs_of(&p);
        assert_int_equal(slice_elements(&r), at);
    }
}

typedef struct test_tensor {
    const char *name, *key;
    dtype dtype;
    int rank;
    int64_t dim[2]; /* of the whole */
    shard_rule shard;
    int shard_dim;
} test_tensor;

/* One key serves twice, whole and cut. With an even number of ranks a piece of o has an odd number of elements, and the
 * F32 ones of down would not be aligned behind it. */
static const test_tensor tensors[] = {
    {"embed", "model.embed_tokens.weight", DTYPE_BF16, 2, {12, 5}, SHARD_REP, 0},
    {"head", "model.embed_tokens.weight", DTYPE_BF16, 2, {12, 5}, SHARD_COL, 0},
    {"norm", "model.norm.weight", DTYPE_F32, 1, {5}, SHARD_REP, 0},
    {"q", "l0.q.weight", DTYPE_BF16, 2, {24, 5}, SHARD_COL, 0},
    {"q.bias", "l0.q.bias", DTYPE_F16, 1, {24}, SHARD_COL, 0},
    {"o", "l0.o.weight", DTYPE_BF16, 2, {3, 36}, SHARD_ROW, 1},
    {"down", "l0.down.weight", DTYPE_F32, 2, {5, 12}, SHARD_ROW, 1},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static uint64_t elements(const test_tensor *t) { return (uint64_t)(t->dim[0] * (t->rank > 1 ? t->dim[1] : 1)); }

/* Value of element i, as the bits of its type. */
static uint32_t bits(const test_tensor *t, uint64_t i) {
    uint32_t tag = 0;
    for (const char *c = t->key; *c; c++) tag = tag * 31 + (uint8_t)*c;
    uint32_t v = tag * 2654435761u + (uint32_t)i * 40503u;
    return dtype_bytes(t->dtype) == 2 ? v & 0xffff : v;
}

static void write_checkpoint(const char *dir) {
    safetensor_decl decls[TENSORS];
    size_t n = 0;
    keel_error err = KEEL_ERROR_INITIALIZER;
    safetensors_writer *w;
    char *path = path_join(dir, "model.safetensors");
    for (size_t i = 0; i < TENSORS; i++) {
        const test_tensor *t = &tensors[i];
        if (i == 1) continue; /* the key that stands twice */
        decls[n++] = (safetensor_decl){t->key, t->dtype, t->rank, {t->dim[0], t->dim[1]}};
    }
    assert_int_equal(safetensors_writer_open(path, decls, n, &w, &err), KEEL_OK);
    for (size_t i = 0; i < TENSORS; i++) {
        if (i == 1) continue;
        for (uint64_t e = 0; e < elements(&tensors[i]); e++) {
            uint32_t v = bits(&tensors[i], e);
            assert_int_equal(safetensors_writer_put(w, &v, dtype_bytes(tensors[i].dtype), &err), KEEL_OK);
        }
    }
    assert_int_equal(safetensors_writer_commit(w, &err), KEEL_OK);
    keel_free(path);
}

static graph *make_graph(uint32_t tp, uint32_t rank, const test_tensor *list, size_t n) {
    graph *g = mem_calloc(1, sizeof *g);
    g->tensors = mem_calloc(n + 1, sizeof *g->tensors);
    g->n_tensors = (int)n;
    g->architecture = "Test";
    g->tp = tp;
    g->ep = 1;
    g->rank = rank;
    g->vocab_parallel = true;
    for (size_t i = 0; i < n; i++) {
        const test_tensor *t = &list[i];
        graph_tensor *to = &g->tensors[i + 1];
        *to = (graph_tensor){.name = t->name,
                             .key = t->key,
                             .kind = TENSOR_WEIGHT,
                             .dtype = t->dtype,
                             .rank = t->rank,
                             .dim = {t->dim[0], t->dim[1]},
                             .shard = t->shard,
                             .shard_dim = t->shard_dim,
                             .producer = -1};
        if (t->shard != SHARD_REP) to->dim[t->shard_dim] /= tp;
    }
    return g;
}

/* The rank's piece, by coordinates. */
static void check_piece(const test_tensor *t, uint32_t tp, uint32_t rank, const void *data, const char *what) {
    int64_t rows = t->dim[0], columns = t->rank > 1 ? t->dim[1] : 1, row = 0, column = 0, all = columns;
    if (t->shard == SHARD_COL) rows /= tp, row = rank * rows;
    if (t->shard == SHARD_ROW) columns /= tp, column = rank * columns;
    const uint8_t *at = data;
    assert_int_equal((uintptr_t)data % dtype_bytes(t->dtype), 0);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            uint32_t got = 0, want = bits(t, (uint64_t)((row + i) * all + column + j));
            memcpy(&got, at, dtype_bytes(t->dtype));
            if (got != want)
                fail_msg("%s: rank %u of %u: %s (%d, %d) is %x, not %x", what, rank, tp, t->name, (int)i, (int)j, got,
                         want);
            at += dtype_bytes(t->dtype);
        }
    }
}

typedef struct place {
    char path[64];
} place;

static place place_make(void) {
    place p = {"/tmp/keel_weights_XXXXXX"};
    assert_non_null(mkdtemp(p.path));
    return p;
}

static void place_remove(const place *p) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", p->path);
    assert_int_equal(system(command), 0);
}

static void bind_and_check(const char *dir, uint32_t tp, uint32_t rank, const weight_cache_options *cache,
                           const char *what) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    graph *g = make_graph(tp, rank, tensors, TENSORS);
    weights *w;
    assert_int_equal(weights_open(dir, &w, &err), KEEL_OK);
    if (cache) weights_use_cache(w, cache);
    if (weights_bind(w, g, &err) != KEEL_OK) fail_msg("%s: %s", what, err.detail);
    bool packs = tp > 1;
    assert_int_equal(weights_cached(w)->used, cache && packs);
    assert_int_equal(weights_cached(w)->n_tensors, cache && packs ? 2 : 0);
    uint64_t bytes = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        dtype type = DTYPE_COUNT;
        bytes += (uint64_t)graph_elements(&g->tensors[i + 1]) * dtype_bytes(tensors[i].dtype);
        check_piece(&tensors[i], tp, rank, weights_find(w, tensors[i].name, &type), what);
        assert_int_equal(type, tensors[i].dtype);
    }
    assert_int_equal(weights_bytes(w), bytes);
    assert_null(weights_find(w, "l0.q.weight", NULL)); /* a key, no name */
    /* what is one run of the file is not copied: the cut head lies in the whole embedding */
    size_t skip = (size_t)(12 / tp * rank * 5) * 2;
    assert_ptr_equal((const char *)weights_find(w, "head", NULL), (const char *)weights_find(w, "embed", NULL) + skip);
    graph_close(g);
    weights_close(w);
}

static void test_ranks_hold_slices(void **state) {
    (void)state;
    place p = place_make();
    write_checkpoint(p.path);
    char cache[96];
    snprintf(cache, sizeof cache, "%s/cache", p.path);
    json_t *config = json_pack("{s:i}", "hidden_size", 5);
    weight_cache_options o = {.dir = cache, .config = config};
    static const uint32_t worlds[] = {1, 2, 3, 4, 12};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        for (uint32_t rank = 0; rank < worlds[i]; rank++) {
            bind_and_check(p.path, worlds[i], rank, NULL, "in memory");
            bind_and_check(p.path, worlds[i], rank, &o, "made for the cache");
            bind_and_check(p.path, worlds[i], rank, &o, "from the cache");
        }
    }
    json_decref(config);
    place_remove(&p);
}

/* A header of odd length: nothing in the file is aligned, everything is copied. */
static void test_unaligned(void **state) {
    (void)state;
    place p = place_make();
    char path[96];
    snprintf(path, sizeof path, "%s/model.safetensors", p.path);
    const char *header = "{\"q.w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}";
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    for (size_t pad = 0; pad < 5; pad++) {
        buf b = {0};
        keel_error err = KEEL_ERROR_INITIALIZER;
        buf_u64(&b, strlen(header) + pad);
        buf_str(&b, header);
        buf_put(&b, "     ", pad);
        buf_put(&b, values, sizeof values);
        assert_int_equal(file_write(path, b.data, b.len, &err), KEEL_OK);
        const test_tensor t = {"q", "q.w", DTYPE_F32, 2, {2, 3}, SHARD_REP, 0};
        graph *g = make_graph(1, 0, &t, 1);
        weights *w;
        assert_int_equal(weights_open(p.path, &w, &err), KEEL_OK);
        assert_int_equal(weights_bind(w, g, &err), KEEL_OK);
        const void *data = weights_find(w, "q", NULL);
        assert_int_equal((uintptr_t)data % 4, 0);
        assert_memory_equal(data, values, sizeof values);
        graph_close(g);
        weights_close(w);
        buf_free(&b);
    }
    place_remove(&p);
}

/* A rank's mismatch is told in the checkpoint's shapes. */
static void test_shapes_are_told_whole(void **state) {
    (void)state;
    place p = place_make();
    write_checkpoint(p.path);
    test_tensor list[TENSORS];
    memcpy(list, tensors, sizeof list);
    list[3].dim[1] = 6;
    list[5].dim[1] = 40;
    graph *g = make_graph(4, 1, list, TENSORS);
    weights *w;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(weights_open(p.path, &w, &err), KEEL_OK);
    assert_int_equal(weights_match(w, g, &err), KEEL_FORMAT);
    assert_non_null(strstr(err.detail, "l0.q.weight: shape [24,5], expected [24,6]"));
    assert_non_null(strstr(err.detail, "l0.o.weight: shape [3,36], expected [3,40]"));
    assert_int_equal(weights_bind(w, g, &err), KEEL_FORMAT);
    graph_close(g);
    g = make_graph(4, 1, tensors, TENSORS);
    for (int i = 1; i <= g->n_tensors; i++) g->tensors[i].dtype = DTYPE_ACT;
    assert_int_equal(weights_match(w, g, &err), KEEL_OK);
    for (int i = 1; i <= g->n_tensors; i++) assert_int_equal(g->tensors[i].dtype, tensors[i - 1].dtype);
    graph_close(g);
    weights_close(w);
    place_remove(&p);
}

/* Ranks hold exactly the elements that TP 1 has: here those are asked of synth_fill itself. */
static void test_synth_ranks(void **state) {
    (void)state;
    static const test_tensor list[] = {
        {"embed", "model.embed_tokens.weight", DTYPE_BF16, 2, {96, 40}, SHARD_REP, 0},
        {"head", "model.embed_tokens.weight", DTYPE_BF16, 2, {96, 40}, SHARD_COL, 0},
        {"bias", "l0.q.bias", DTYPE_F32, 1, {96}, SHARD_COL, 0},
        {"o", "l0.o.weight", DTYPE_BF16, 2, {40, 96}, SHARD_ROW, 1},
        {"down", "l0.down.weight", DTYPE_F16, 2, {30, 60}, SHARD_ROW, 1},
        {"big", "l0.big.weight", DTYPE_BF16, 2, {1500, 3000}, SHARD_ROW, 1}, /* longer than a chunk of the filling */
    };
    enum { N = sizeof list / sizeof *list, SEED = 7 };
    static uint8_t whole[1500 * 3000 * 2];
    for (uint32_t tp = 1; tp <= 4; tp++) {
        for (uint32_t rank = 0; rank < tp; rank++) {
            keel_error err = KEEL_ERROR_INITIALIZER;
            graph *g = make_graph(tp, rank, list, N);
            weights *w;
            assert_int_equal(weights_open_synth(SEED, &w, &err), KEEL_OK);
            assert_int_equal(weights_bind(w, g, &err), KEEL_OK);
            for (size_t i = 0; i < N; i++) {
                const test_tensor *t = &list[i];
                size_t e = dtype_bytes(t->dtype), columns = t->rank > 1 ? (size_t)t->dim[1] : 1, part = columns;
                size_t rows = (size_t)t->dim[0], row = 0, column = 0;
                if (t->shard == SHARD_COL) rows /= tp, row = rank * rows;
                if (t->shard == SHARD_ROW) part /= tp, column = rank * part;
                assert_int_equal(synth_fill(t->key, SEED, t->rank, t->dim, t->dtype, 0, elements(t), whole, &err),
                                 KEEL_OK);
                const uint8_t *got = weights_find(w, t->name, NULL);
                for (size_t r = 0; r < rows; r++) {
                    if (memcmp(got + r * part * e, whole + ((row + r) * columns + column) * e, part * e) != 0)
                        fail_msg("rank %u of %u: %s, row %zu", rank, tp, t->name, r);
                }
            }
            graph_close(g);
            weights_close(w);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slice_copy),  cmocka_unit_test(test_ranks_hold_slices),
        cmocka_unit_test(test_unaligned),   cmocka_unit_test(test_shapes_are_told_whole),
        cmocka_unit_test(test_synth_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
