/* SPDX-License-Identifier: Apache-2.0 */
#include "load/weights.h"

#include "core/buf.h"
#include "core/mem.h"
#include "load/each.h"
#include "load/safetensors.h"
#include "load/synth.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef struct bound {
    const char *name;
    void *data;
    dtype dtype;
    uint64_t bytes;
    weight_piece piece;   /* while binding */
    uint64_t first_chunk; /* synthetic: chunks of the tensors before */
} bound;

struct weights {
    char *dir;
    safetensors *files; /* NULL: synthetic */
    uint32_t seed;
    arena arena; /* names */
    bound *list;
    size_t n;
    void *made; /* synthetic bytes, and packed copies without a cache */
    size_t made_bytes;
    const weight_recipe *recipe;
    const weight_cache_options *cache; /* while binding */
    weight_cache_options cache_options;
    weight_cache_result cached;
    safetensors *packed; /* the cache's */
};

static keel_status weights_new(weights **out, keel_error *err) {
    weights *w = mem_calloc(1, sizeof *w);
    if (!w) return KEEL_NOMEM_AT(err, "weights");
    w->recipe = weight_recipe_find("cpu");
    *out = w;
    return KEEL_OK;
}

keel_status weights_open(const char *dir, weights **out, keel_error *err) {
    weights *w;
    KEEL_TRY(weights_new(&w, err));
    w->dir = arena_strdup(&w->arena, dir);
    keel_status s = w->dir ? safetensors_open(dir, &w->files, err) : KEEL_NOMEM_AT(err, dir);
    if (s != KEEL_OK) {
        weights_close(w);
        return s;
    }
    *out = w;
    return KEEL_OK;
}

keel_status weights_open_synth(uint32_t seed, weights **out, keel_error *err) {
    KEEL_TRY(weights_new(out, err));
    (*out)->seed = seed;
    return KEEL_OK;
}

void weights_use_cache(weights *w, const weight_cache_options *o) {
    w->cache_options = *o;
    w->cache = &w->cache_options;
}

static weight_piece piece_of(const graph *g, const graph_tensor *t) {
    shard_slice whole = {.dim = -1};
    return (weight_piece){.name = t->name,
                          .key = t->key,
                          .dtype = t->dtype,
                          .rank = t->rank,
                          .dim = t->dim,
                          .slice = g->tp > 1 ? graph_weight_slice(g, t) : whole,
                          .inner = g->tp > 1 ? graph_weight_inner_slice(g, t) : whole};
}

static void shape_text(char *out, size_t cap, int rank, const int64_t *dim) {
    buf b = {0};
    for (int i = 0; i < rank; i++) buf_printf(&b, "%s%lld", i ? "," : "", (long long)dim[i]);
    snprintf(out, cap, "[%s]", b.data ? (const char *)b.data : "");
    buf_free(&b);
}

static keel_status find_missing(const weights *w, const graph *g, keel_error *err) {
    keel_status s = KEEL_OK;
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (t->kind != TENSOR_WEIGHT || safetensors_find(w->files, t->key)) continue;
        if (s == KEEL_OK)
            s = error_set(err, KEEL_MISSING, "%s: tensors that %s needs are missing:", w->dir, g->architecture);
        error_append(err, "  %s", t->key);
    }
    return s;
}

/* A weight may be stored in any type that bodies read by itself; one with scales is F8E4M3 and no other. */
static void wrong_type(const weight_piece *p, const safetensor *f, keel_error *err) {
    if (p->dtype == DTYPE_F8E4M3)
        error_append(err,
                     "  %s: type %s, expected %s; \"modules_to_not_convert\" of \"quantization_config\" in config.json "
                     "must list what is not quantised",
                     p->key, f->type_name, dtype_name(DTYPE_F8E4M3));
    else if (f->dtype == DTYPE_F8E4M3)
        error_append(
            err,
            "  %s: type %s, expected F32, BF16 or F16; FP8 is read where \"quantization_config\" in config.json "
            "says so",
            p->key, f->type_name);
    else
        error_append(err, "  %s: type %s, expected F32, BF16 or F16", p->key, f->type_name);
}

static keel_status check_tensor(const weight_piece *p, const safetensor *f, keel_status so_far, keel_error *err) {
    char want[96], have[96];
    int64_t dim[GRAPH_RANK];
    slice_whole_dim(p, dim);
    shape_text(want, sizeof want, p->rank, dim);
    shape_text(have, sizeof have, f->rank, f->dim);
    bool wide = f->dtype == DTYPE_F32 || f->dtype == DTYPE_BF16 || f->dtype == DTYPE_F16;
    bool type_ok = p->dtype == DTYPE_F8E4M3 ? f->dtype == DTYPE_F8E4M3 : wide;
    if (type_ok && strcmp(want, have) == 0) return so_far;
    if (so_far == KEEL_OK) error_set(err, KEEL_FORMAT, "%s: tensors that do not fit the model:", f->file);
    if (strcmp(want, have) != 0)
        error_append(err, "  %s: shape %s, expected %s", p->key, have, want);
    else
        wrong_type(p, f, err);
    return KEEL_FORMAT;
}

keel_status weights_match(const weights *w, graph *g, keel_error *err) {
    if (!w->files) return KEEL_OK;
    KEEL_TRY(find_missing(w, g, err));
    keel_status s = KEEL_OK;
    for (int id = 1; id <= g->n_tensors; id++) {
        graph_tensor *t = &g->tensors[id];
        if (t->kind != TENSOR_WEIGHT) continue;
        const safetensor *f = safetensors_find(w->files, t->key);
        weight_piece p = piece_of(g, t);
        s = check_tensor(&p, f, s, err);
        t->dtype = f->dtype;
    }
    return s;
}

/* Keeps copies of the names: the graph may go before the weights. */
static keel_status list_make(weights *w, const graph *g, keel_error *err) {
    w->list = mem_calloc((size_t)g->n_tensors + 1, sizeof *w->list);
    if (!w->list) return KEEL_NOMEM_AT(err, "weights");
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (t->kind != TENSOR_WEIGHT) continue;
        bound *b = &w->list[w->n++];
        *b = (bound){.name = arena_strdup(&w->arena, t->name), .dtype = t->dtype, .piece = piece_of(g, t)};
        b->bytes = (uint64_t)graph_elements(t) * dtype_bytes(t->dtype);
        if (!b->name) return KEEL_NOMEM_AT(err, "weights");
        if (w->files) b->piece.whole = safetensors_find(w->files, t->key)->data;
    }
    return KEEL_OK;
}

/* One region for those of the n tensors that have no data yet, each on a cache line. */
static keel_status region_make(weights *w, bound *const *list, size_t n, keel_error *err) {
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) w->made_bytes += (list[i]->bytes + 63) & ~(uint64_t)63;
    void *p = mmap(NULL, w->made_bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return error_set(err, KEEL_NOMEM, "weights: cannot map %zu bytes", w->made_bytes);
    w->made = p;
    madvise(p, w->made_bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < n; i++) {
        list[i]->data = (char *)p + at;
        at += (list[i]->bytes + 63) & ~(uint64_t)63;
    }
    return KEEL_OK;
}

typedef struct packing {
    const weights *w;
    bound *const *list;
} packing;

static void pack_one(void *context, size_t i, bool caller) {
    const packing *p = context;
    (void)caller;
    p->w->recipe->pack(&p->list[i]->piece, p->list[i]->data);
}

static keel_status pack_in_memory(weights *w, bound *const *list, size_t n, keel_error *err) {
    KEEL_TRY(region_make(w, list, n, err));
    packing p = {w, list};
    each_on_cores(n, pack_one, &p);
    return KEEL_OK;
}

/* The files of the checkpoint that the pieces lie in, each once. */
static size_t sources_of(const weights *w, const weight_piece *pieces, size_t n, manifest_source *out) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const safetensor *t = safetensors_find(w->files, pieces[i].key);
        const char *slash = strrchr(t->file, '/'), *name = slash ? slash + 1 : t->file;
        size_t at = 0;
        while (at < found && strcmp(out[at].name, name) != 0) at++;
        if (at < found) continue;
        out[found++] = (manifest_source){.name = name, .id = *safetensors_file_id(w->files, t)};
    }
    return found;
}

static keel_status pack_in_cache(weights *w, const graph *g, bound *const *list, size_t n, keel_error *err) {
    weight_piece *pieces = mem_calloc(n, sizeof *pieces);
    manifest_source *sources = mem_calloc(n, sizeof *sources);
    weight_cache_request r = {g, w->recipe, w->dir, pieces, n, sources, 0};
    keel_status s = pieces && sources ? KEEL_OK : KEEL_NOMEM_AT(err, "weights");
    if (s == KEEL_OK) {
        /* Wide elements first, so that in the file each tensor is aligned to its element. */
        size_t at = 0;
        for (size_t width = 4; width; width /= 2) {
            for (size_t i = 0; i < n; i++) {
                if (dtype_bytes(list[i]->dtype) == width) pieces[at++] = list[i]->piece;
            }
        }
        r.n_sources = sources_of(w, pieces, n, sources);
        s = weight_cache_get(w->cache, &r, &w->packed, &w->cached, err);
    }
    for (size_t i = 0; s == KEEL_OK && i < n; i++)
        list[i]->data = (void *)(uintptr_t)safetensors_find(w->packed, list[i]->name)->data;
    mem_free(pieces);
    mem_free(sources);
    return s;
}

static keel_status bind_files(weights *w, const graph *g, keel_error *err) {
    bound **packed = mem_calloc(w->n + 1, sizeof(bound *));
    if (!packed) return KEEL_NOMEM_AT(err, "weights");
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++) {
        bound *b = &w->list[i];
        slice_runs r = slice_runs_of(&b->piece);
        if (w->recipe->stores(&b->piece))
            packed[n++] = b;
        else
            b->data = (char *)(uintptr_t)b->piece.whole + r.first * dtype_bytes(b->dtype);
    }
    keel_status s = KEEL_OK;
    if (n) s = w->cache ? pack_in_cache(w, g, packed, n, err) : pack_in_memory(w, packed, n, err);
    mem_free(packed);
    return s;
}

enum { SYNTH_CHUNK = 1 << 20 };

typedef struct filling {
    const weights *w;
    keel_status status;
} filling;

/* Elements [from, to) of a rank's piece: those of its runs that lie in the whole; the others stay zero. */
static keel_status synth_piece(const bound *b, uint32_t seed, uint64_t from, uint64_t to) {
    const weight_piece *p = &b->piece;
    slice_runs r = slice_runs_of(p);
    int64_t dim[GRAPH_RANK];
    slice_whole_dim(p, dim);
    while (from < to) {
        uint64_t run = from / r.run, at = from % r.run, end = to - run * r.run;
        if (end > r.live) end = r.live;
        if (run >= r.live_runs) break;
        if (at < end) {
            KEEL_TRY(synth_fill(p->key, seed, p->rank, dim, b->dtype, r.first + run * r.step + at, end - at,
                                (char *)b->data + from * dtype_bytes(b->dtype), NULL));
        }
        from = (run + 1) * r.run;
    }
    return KEEL_OK;
}

static void fill_chunk(void *context, size_t chunk, bool caller) {
    filling *f = context;
    size_t low = 0, high = f->w->n; /* the last tensor that begins at or before the chunk */
    (void)caller;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (f->w->list[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle;
    }
    const bound *b = &f->w->list[low];
    uint64_t n = b->bytes / dtype_bytes(b->dtype), from = (chunk - b->first_chunk) * SYNTH_CHUNK;
    keel_status s = synth_piece(b, f->w->seed, from, n - from < SYNTH_CHUNK ? n : from + SYNTH_CHUNK);
    if (s != KEEL_OK) __atomic_store_n(&f->status, s, __ATOMIC_RELAXED);
}

static keel_status bind_synth(weights *w, keel_error *err) {
    uint64_t chunks = 0;
    bound **all = mem_calloc(w->n + 1, sizeof(bound *));
    if (!all) return KEEL_NOMEM_AT(err, "weights");
    for (size_t i = 0; i < w->n; i++) {
        all[i] = &w->list[i];
        all[i]->first_chunk = chunks;
        chunks += (all[i]->bytes / dtype_bytes(all[i]->dtype) + SYNTH_CHUNK - 1) / SYNTH_CHUNK;
    }
    keel_status s = region_make(w, all, w->n, err);
    filling f = {.w = w};
    if (s == KEEL_OK) each_on_cores(chunks, fill_chunk, &f);
    mem_free(all);
    if (f.status != KEEL_OK)
        return error_set(err, f.status, "synthetic weights: a tensor type or a shape that has no recipe");
    return s;
}

keel_status weights_bind(weights *w, graph *g, keel_error *err) {
    KEEL_TRY(weights_match(w, g, err));
    KEEL_TRY(list_make(w, g, err));
    keel_status s = w->files ? bind_files(w, g, err) : bind_synth(w, err);
    for (size_t i = 0; i < w->n; i++) w->list[i].piece = (weight_piece){0};
    w->cache = NULL;
    return s;
}

const void *weights_find(const weights *w, const char *name, dtype *type) {
    for (size_t i = 0; i < w->n; i++) {
        if (strcmp(w->list[i].name, name) != 0) continue;
        if (type) *type = w->list[i].dtype;
        return w->list[i].data;
    }
    return NULL;
}

uint64_t weights_bytes(const weights *w) {
    uint64_t sum = 0;
    for (size_t i = 0; i < w->n; i++) sum += w->list[i].bytes;
    return sum;
}

const weight_cache_result *weights_cached(const weights *w) { return &w->cached; }

void weights_close(weights *w) {
    if (!w) return;
    safetensors_close(w->files);
    safetensors_close(w->packed);
    if (w->made) munmap(w->made, w->made_bytes + 1);
    mem_free(w->list);
    arena_free(&w->arena);
    mem_free(w);
}
