/* SPDX-License-Identifier: Apache-2.0 */
#include "load/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

static uint32_t text_hash(const char *text, size_t bytes) { /* FNV-1a */
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ (uint8_t)text[i]) * 16777619u;
    return h ^ (h >> 15);
}

static size_t slots_for(size_t n) {
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    return slots;
}

bool vocab_init(token_table *v, arena *a, size_t n) {
    size_t slots = slots_for(n);
    *v = (token_table){.mask = (uint32_t)(slots - 1)};
    v->tokens = arena_array(a, n, sizeof *v->tokens);
    v->slots = arena_array(a, slots, sizeof *v->slots);
    return v->tokens && v->slots;
}

/* The slot of a text, or the free one where it would go. A slot holds the hash too, so that most misses end there. */
static uint64_t *slot_of(const token_table *v, const char *text, size_t bytes, uint32_t hash) {
    uint32_t s = hash & v->mask;
    for (; v->slots[s]; s = (s + 1) & v->mask) {
        if (v->slots[s] >> 32 != hash) continue;
        const token *t = &v->tokens[(uint32_t)v->slots[s] - 1];
        if (t->bytes == bytes && memcmp(t->text, text, bytes) == 0) break;
    }
    return &v->slots[s];
}

static void slot_set(token_table *v, size_t i) {
    const token *t = &v->tokens[i];
    uint32_t hash = text_hash(t->text, t->bytes);
    *slot_of(v, t->text, t->bytes, hash) = (uint64_t)hash << 32 | (uint32_t)(i + 1);
}

void vocab_put(token_table *v, token t) {
    v->tokens[v->n] = t;
    slot_set(v, v->n++);
}

token *vocab_find(const token_table *v, const char *text, size_t bytes) {
    uint32_t i = (uint32_t)*slot_of(v, text, bytes, text_hash(text, bytes));
    return i ? &v->tokens[i - 1] : NULL;
}

int32_t vocab_model_id(const token_table *v, const char *text, size_t bytes) {
    const token *t = vocab_find(v, text, bytes);
    return t && t->in_model ? t->id : -1;
}

static int by_id(const void *a, const void *b) {
    int32_t x = ((const token *)a)->id, y = ((const token *)b)->id;
    return (x > y) - (x < y);
}

static void sort_by_id(token_table *v) {
    bool sorted = true;
    for (size_t i = 1; sorted && i < v->n; i++) sorted = v->tokens[i - 1].id <= v->tokens[i].id;
    if (sorted) return; /* the usual case */
    qsort(v->tokens, v->n, sizeof *v->tokens, by_id);
    memset(v->slots, 0, ((size_t)v->mask + 1) * sizeof *v->slots);
    for (size_t i = 0; i < v->n; i++) slot_set(v, i);
}

keel_status vocab_finish(token_table *v, const char *where, keel_error *err) {
    sort_by_id(v);
    for (size_t i = 1; i < v->n; i++) {
        const token *a = &v->tokens[i - 1], *b = &v->tokens[i];
        if (a->id == b->id) {
            return error_set(err, KEEL_FORMAT, "%s: tokens \"%s\" and \"%s\" have the same id %d; ids must be unique",
                             where, quote(a->text).s, quote(b->text).s, (int)a->id);
        }
    }
    return KEEL_OK;
}

const token *vocab_at(const token_table *v, int32_t id) {
    if (id < 0) return NULL;
    size_t lo = 0, hi = v->n;
    if ((size_t)id < v->n && v->tokens[id].id == id) return &v->tokens[id]; /* no gaps below it, the usual case */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (v->tokens[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < v->n && v->tokens[lo].id == id ? &v->tokens[lo] : NULL;
}

bool merges_init(merge_table *m, arena *a, size_t n) {
    size_t slots = slots_for(n);
    *m = (merge_table){.mask = slots - 1};
    m->slots = arena_array(a, slots, sizeof *m->slots);
    m->new_id = arena_array(a, n, sizeof *m->new_id);
    if (!m->slots || !m->new_id) return false;
    for (size_t i = 0; i < slots; i++) m->slots[i].pair = UINT64_MAX;
    return true;
}

static merge_slot *merge_find(const merge_table *m, int32_t left, int32_t right) {
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t s = (pair * 0x9e3779b97f4a7c15u) >> 32 & m->mask; /* Fibonacci hashing, Knuth vol. 3, 6.4 */
    while (m->slots[s].pair != pair && m->slots[s].pair != UINT64_MAX) s = (s + 1) & m->mask;
    return &m->slots[s];
}

void merges_put(merge_table *m, int32_t left, int32_t right, int32_t new_id) {
    merge_slot *s = merge_find(m, left, right);
    s->pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    s->rank = (uint32_t)m->n;
    m->new_id[m->n++] = new_id;
}

uint32_t merges_rank(const merge_table *m, int32_t left, int32_t right) {
    const merge_slot *s = merge_find(m, left, right);
    return s->pair == UINT64_MAX ? UINT32_MAX : s->rank;
}
