/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-pair merging of one piece: the lowest rank first, among equals the leftmost. Symbols are a linked list and the
 * possible merges a heap, so a piece of n bytes takes O(n log n). */
#include "load/tokenizer_internal.h"

#include "core/mem.h"

/* A possible merge as one number, so that its order is the numbers': rank << 32 | position of the left symbol. */
static uint64_t merge_key(uint32_t rank, size_t at) { return (uint64_t)rank << 32 | (uint32_t)at; }

static void heap_down(uint64_t *heap, size_t n, size_t i) {
    uint64_t v = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= v) break;
        heap[i] = heap[child];
    }
    heap[i] = v;
}

static void heap_up(uint64_t *heap, size_t i) {
    uint64_t v = heap[i];
    for (; i > 0 && heap[(i - 1) / 2] > v; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = v;
}

static void symbol_put(encoder *e, int32_t id) {
    int32_t at = (int32_t)(e->symbols.len / sizeof(bpe_symbol));
    buf_put(&e->symbols, &(bpe_symbol){id, at - 1, at + 1}, sizeof(bpe_symbol));
}

/* A character without a token is dropped, or becomes unk_token where the model has one: HF does either silently. */
static keel_status unknown_put(encoder *e, bool *unk_before) {
    const tokenizer *t = e->t;
    if (t->unk == UNK_DROP) return KEEL_OK;
    if (t->unk == UNK_ERROR) {
        return error_set(e->err, KEEL_FORMAT,
                         "%s: model.unk_token: the text has a character without a token, and unk_token is not in "
                         "model.vocab",
                         t->file);
    }
    if (!(t->fuse_unk && *unk_before)) symbol_put(e, t->unk_id);
    *unk_before = true;
    return KEEL_OK;
}

static keel_status symbols_begin(encoder *e, const char *piece, size_t n) {
    const tokenizer *t = e->t;
    bool unk_before = false;
    e->symbols.len = 0;
    for (size_t i = 0, step; i < n; i += step) {
        bool ok;
        step = t->byte_level ? 1 : utf8_scan((const uint8_t *)piece + i, n - i, &ok);
        int32_t id = t->byte_level ? t->byte_id[(uint8_t)piece[i]] : vocab_model_id(&t->vocab, piece + i, step);
        if (id < 0) {
            KEEL_TRY(unknown_put(e, &unk_before));
        } else {
            symbol_put(e, id);
            unk_before = false;
        }
    }
    if (e->symbols.failed) return KEEL_NOMEM_AT(e->err, t->file);
    return KEEL_OK;
}

/* Makes room for the most entries there can be: one a pair at first and two more a merge. */
static uint64_t *heap_begin(encoder *e, size_t n_symbols) {
    size_t need = 3 * n_symbols * sizeof(uint64_t);
    if (e->heap.cap < need) {
        e->heap.len = 0;
        size_t cap = e->heap.cap ? e->heap.cap : 4096;
        while (cap < need) cap *= 2;
        uint8_t *p = mem_realloc(e->heap.data, cap);
        if (!p) return NULL;
        e->heap.data = p;
        e->heap.cap = cap;
    }
    return (uint64_t *)(void *)e->heap.data;
}

static size_t heap_fill(const merge_table *m, const bpe_symbol *s, size_t n, uint64_t *heap) {
    size_t used = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        uint32_t rank = merges_rank(m, s[i].id, s[i + 1].id);
        if (rank != UINT32_MAX) heap[used++] = merge_key(rank, i);
    }
    for (size_t i = used / 2; i-- > 0;) heap_down(heap, used, i);
    return used;
}

static void merge_all(const merge_table *m, bpe_symbol *s, size_t n, uint64_t *heap) {
    size_t used = heap_fill(m, s, n, heap);
    while (used) {
        uint32_t rank = (uint32_t)(heap[0] >> 32);
        size_t at = (uint32_t)heap[0];
        heap[0] = heap[--used];
        if (used) heap_down(heap, used, 0);
        size_t right = (size_t)s[at].next;
        if (s[at].id < 0 || right >= n) continue;
        /* Stale entries are those whose pair no longer makes the same token; the test is HF's. */
        uint32_t now = merges_rank(m, s[at].id, s[right].id);
        if (now == UINT32_MAX || m->new_id[now] != m->new_id[rank]) continue;
        s[at].id = m->new_id[rank];
        s[at].next = s[right].next;
        s[right].id = -1;
        size_t next = (size_t)s[at].next;
        if (next < n) s[next].prev = (int32_t)at;
        int32_t prev = s[at].prev;
        if (prev >= 0 && (rank = merges_rank(m, s[prev].id, s[at].id)) != UINT32_MAX) {
            heap[used] = merge_key(rank, (size_t)prev);
            heap_up(heap, used++);
        }
        if (next < n && (rank = merges_rank(m, s[at].id, s[next].id)) != UINT32_MAX) {
            heap[used] = merge_key(rank, at);
            heap_up(heap, used++);
        }
    }
}

/* ignore_merges: a piece that is a token as a whole. */
static int32_t whole_piece(encoder *e, const char *piece, size_t n) {
    if (!e->t->ignore_merges) return -1;
    if (!e->t->byte_level) return vocab_model_id(&e->t->vocab, piece, n);
    e->mapped.len = 0;
    text_map_bytes(piece, n, &e->mapped);
    return e->mapped.failed ? -1 : vocab_model_id(&e->t->vocab, (const char *)e->mapped.data, e->mapped.len);
}

keel_status bpe_piece(encoder *e, const char *piece, size_t n) {
    int32_t whole = whole_piece(e, piece, n);
    if (e->mapped.failed) return KEEL_NOMEM_AT(e->err, e->t->file);
    if (whole >= 0) {
        ids_put(e->ids, whole);
        return KEEL_OK;
    }
    KEEL_TRY(symbols_begin(e, piece, n));
    bpe_symbol *s = (bpe_symbol *)(void *)e->symbols.data;
    size_t count = e->symbols.len / sizeof *s;
    if (count > 1) {
        uint64_t *heap = heap_begin(e, count);
        if (!heap) return KEEL_NOMEM_AT(e->err, e->t->file);
        merge_all(&e->t->merges, s, count, heap);
    }
    for (size_t i = 0; i < count; i = (size_t)s[i].next) ids_put(e->ids, s[i].id);
    return KEEL_OK;
}
