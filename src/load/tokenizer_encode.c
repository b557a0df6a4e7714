/* SPDX-License-Identifier: Apache-2.0 */
/* Text to ids: repair, added tokens as given, normalise, added tokens normalised, pre-tokenise, merge. */
#include "load/tokenizer_internal.h"

#include <string.h>

void ids_put(buf *ids, int32_t id) { buf_put(ids, &id, sizeof id); }

static keel_status encode_plain(encoder *e, const char *text, size_t n) {
    KEEL_TRY(pretokenize(e, &text, n));
    const span *v = (const span *)(const void *)e->spans.data;
    size_t count = e->spans.len / sizeof *v;
    for (size_t i = 0; i < count; i++) {
        if (v[i].from < v[i].to) KEEL_TRY(bpe_piece(e, text + v[i].from, v[i].to - v[i].from));
    }
    return KEEL_OK;
}

typedef keel_status (*encode_step)(encoder *e, const char *text, size_t n);

/* Emits the added tokens of one set and hands the text between them on. */
static keel_status encode_around(encoder *e, const added_set *set, const char *text, size_t n, encode_step step) {
    added_scan scan = {.set = set,
                       .word = e->t->word,
                       .match_data = e->match_data,
                       .text = text,
                       .n = n,
                       .with_control = e->with_control};
    int32_t id;
    do {
        size_t from, to;
        id = added_scan_next(&scan, &from, &to);
        if (from < to) KEEL_TRY(step(e, text + from, to - from));
        if (id >= 0) ids_put(e->ids, id);
    } while (id >= 0);
    return KEEL_OK;
}

static keel_status encode_normalized(encoder *e, const char *text, size_t n) {
    if (e->t->nfc && !text_is_ascii(text, n)) {
        e->normalized.len = 0;
        if (!text_nfc(text, n, &e->normalized)) return KEEL_NOMEM_AT(e->err, e->t->file);
        text = (const char *)e->normalized.data;
        n = e->normalized.len;
    }
    return encode_around(e, &e->t->added[1], text, n, encode_plain);
}

static keel_status encode_text(encoder *e, const char *text, size_t n) {
    if (!text_is_valid(text, n)) {
        text_repair(text, n, &e->repaired);
        if (e->repaired.failed) return KEEL_NOMEM_AT(e->err, e->t->file);
        text = (const char *)e->repaired.data;
        n = e->repaired.len;
    }
    return encode_around(e, &e->t->added[0], text, n, encode_normalized);
}

keel_status tokenizer_encode_to(const tokenizer *t, const char *text, size_t bytes, bool with_control, buf *ids,
                                keel_error *err) {
    if (bytes > TOKENIZER_MAX_TEXT_BYTES) {
        return error_set(err, KEEL_RANGE, "text to encode: %zu bytes; at most %d at once, cut it", bytes,
                         (int)TOKENIZER_MAX_TEXT_BYTES);
    }
    encoder e = {.t = t, .err = err, .with_control = with_control, .ids = ids};
    e.match_data = pcre2_match_data_create(1, t->regex_memory);
    e.match_context = pcre2_match_context_create(t->regex_memory);
    keel_status s = KEEL_OK;
    if (!e.match_data || !e.match_context) s = KEEL_NOMEM_AT(err, t->file);
    if (s == KEEL_OK) s = encode_text(&e, text, bytes);
    if (s == KEEL_OK && ids->failed) s = KEEL_NOMEM_AT(err, t->file);
    buf *const scratch[] = {&e.repaired, &e.normalized, &e.prefixed, &e.spans, &e.next, &e.symbols, &e.heap, &e.mapped};
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++) buf_free(scratch[i]);
    pcre2_match_data_free(e.match_data);
    pcre2_match_context_free(e.match_context);
    return s;
}

keel_status tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, bool add_special, int32_t **ids,
                             size_t *n_ids, keel_error *err) {
    buf out = {0};
    if (add_special) buf_put(&out, t->before, t->n_before * sizeof *t->before);
    keel_status s = tokenizer_encode_to(t, text, bytes, true, &out, err);
    if (s == KEEL_OK && add_special) buf_put(&out, t->after, t->n_after * sizeof *t->after);
    size_t n = out.len / sizeof **ids;
    int32_t *v = s == KEEL_OK ? (int32_t *)(void *)buf_take(&out) : NULL;
    if (s == KEEL_OK && !v) s = KEEL_NOMEM_AT(err, t->file);
    buf_free(&out);
    if (s != KEEL_OK) return s;
    *ids = v;
    *n_ids = n;
    return KEEL_OK;
}
