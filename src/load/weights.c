/* SPDX-License-Identifier: Apache-2.0 */
#include "load/weights.h"

#include "core/buf.h"
#include "core/mem.h"
#include "load/safetensors.h"
#include "load/synth.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct bound {
    const char *key;
    const graph_tensor *tensor; /* while binding */
    void *data;
    dtype dtype;
    uint64_t bytes;
} bound;

struct weights {
    char *dir;
    safetensors *files; /* NULL: synthetic */
    uint32_t seed;
    arena arena; /* keys */
    bound *list;
    size_t n;
    void *made; /* synthetic bytes */
    size_t made_bytes;
};

static keel_status weights_new(weights **out, keel_error *err) {
    *out = mem_calloc(1, sizeof **out);
    return *out ? KEEL_OK : KEEL_NOMEM_AT(err, "weights");
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

static keel_status check_tensor(const graph_tensor *t, const safetensor *f, keel_status so_far, keel_error *err) {
    char want[96], have[96];
    shape_text(want, sizeof want, t->rank, t->dim);
    shape_text(have, sizeof have, f->rank, f->dim);
    bool type_ok = f->dtype == DTYPE_F32 || f->dtype == DTYPE_BF16 || f->dtype == DTYPE_F16;
    if (type_ok && strcmp(want, have) == 0) return so_far;
    if (so_far == KEEL_OK) error_set(err, KEEL_FORMAT, "%s: tensors that do not fit the model:", f->file);
    if (strcmp(want, have) != 0)
        error_append(err, "  %s: shape %s, expected %s", t->key, have, want);
    else
        error_append(err, "  %s: type %s, expected F32, BF16 or F16", t->key, f->type_name);
    return KEEL_FORMAT;
}

/* Keeps a copy of the key: the graph may go before the weights. */
static keel_status add_bound(weights *w, bound b, keel_error *err) {
    b.key = arena_strdup(&w->arena, b.key);
    if (!b.key) return KEEL_NOMEM_AT(err, "weights");
    w->list[w->n++] = b;
    return KEEL_OK;
}

static keel_status bind_files(weights *w, graph *g, keel_error *err) {
    KEEL_TRY(find_missing(w, g, err));
    keel_status s = KEEL_OK;
    for (int id = 1; id <= g->n_tensors; id++) {
        graph_tensor *t = &g->tensors[id];
        if (t->kind != TENSOR_WEIGHT) continue;
        const safetensor *f = safetensors_find(w->files, t->key);
        s = check_tensor(t, f, s, err);
        t->dtype = f->dtype;
        KEEL_TRY(add_bound(w, (bound){t->key, t, (void *)(uintptr_t)f->data, f->dtype, f->bytes}, err));
    }
    return s;
}

enum { SYNTH_CHUNK = 1 << 20 };

typedef struct filler {
    weights *w;
    uint64_t next; /* chunk taken by the next free thread */
    keel_status status;
} filler;

static void *fill_main(void *argument) {
    filler *f = argument;
    uint64_t base = 0, chunk = __atomic_fetch_add(&f->next, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < f->w->n; i++) {
        const bound *b = &f->w->list[i];
        uint64_t n = b->bytes / dtype_bytes(b->dtype), chunks = (n + SYNTH_CHUNK - 1) / SYNTH_CHUNK;
        for (; chunk < base + chunks; chunk = __atomic_fetch_add(&f->next, 1, __ATOMIC_RELAXED)) {
            uint64_t first = (chunk - base) * SYNTH_CHUNK, some = n - first < SYNTH_CHUNK ? n - first : SYNTH_CHUNK;
            char *at = (char *)b->data + first * dtype_bytes(b->dtype);
            keel_status s =
                synth_fill(b->key, f->w->seed, b->tensor->rank, b->tensor->dim, b->dtype, first, some, at, NULL);
            if (s != KEEL_OK) __atomic_store_n(&f->status, s, __ATOMIC_RELAXED);
        }
        base += chunks;
    }
    return NULL;
}

static keel_status fill_all(weights *w, keel_error *err) {
    filler f = {.w = w};
    enum { MOST = 64 };
    pthread_t threads[MOST];
    long n = sysconf(_SC_NPROCESSORS_ONLN), started = 0;
    while (started < n - 1 && started < MOST && pthread_create(&threads[started], NULL, fill_main, &f) == 0) started++;
    fill_main(&f);
    for (long i = 0; i < started; i++) pthread_join(threads[i], NULL);
    return f.status == KEEL_OK ? KEEL_OK
                               : error_set(err, f.status, "synthetic weights: a tensor type that has no recipe");
}

static keel_status bind_synth(weights *w, graph *g, keel_error *err) {
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (t->kind != TENSOR_WEIGHT) continue;
        uint64_t bytes = (uint64_t)graph_elements(t) * dtype_bytes(t->dtype);
        KEEL_TRY(add_bound(w, (bound){t->key, t, (void *)w->made_bytes, t->dtype, bytes}, err));
        w->made_bytes += (bytes + 63) & ~(uint64_t)63;
    }
    void *p = mmap(NULL, w->made_bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return error_set(err, KEEL_NOMEM, "synthetic weights: cannot map %zu bytes", w->made_bytes);
    w->made = p;
    madvise(p, w->made_bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < w->n; i++) w->list[i].data = (char *)p + (uintptr_t)w->list[i].data;
    return fill_all(w, err);
}

keel_status weights_bind(weights *w, graph *g, keel_error *err) {
    w->list = mem_calloc((size_t)g->n_tensors + 1, sizeof *w->list);
    if (!w->list) return KEEL_NOMEM_AT(err, "weights");
    KEEL_TRY(w->files ? bind_files(w, g, err) : bind_synth(w, g, err));
    for (size_t i = 0; i < w->n; i++) w->list[i].tensor = NULL;
    return KEEL_OK;
}

const void *weights_find(const weights *w, const char *key, dtype *type) {
    for (size_t i = 0; i < w->n; i++) {
        if (strcmp(w->list[i].key, key) != 0) continue;
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

void weights_close(weights *w) {
    if (!w) return;
    safetensors_close(w->files);
    if (w->made) munmap(w->made, w->made_bytes + 1);
    mem_free(w->list);
    arena_free(&w->arena);
    mem_free(w);
}
