/* SPDX-License-Identifier: Apache-2.0 */
#include "load/tokenizer_internal.h"

#include "core/file.h"
#include "core/mem.h"

#include <string.h>

static void *regex_alloc(PCRE2_SIZE bytes, void *user) {
    (void)user;
    return mem_alloc(bytes);
}

static void regex_free(void *p, void *user) {
    (void)user;
    mem_free(p);
}

static keel_status tokenizer_read(tokenizer *t, const char *file, const json_t *root, keel_error *err) {
    if (!json_is_object(root)) {
        return error_set(err, KEEL_FORMAT, "%s: a tokenizer.json must be a JSON object", file);
    }
    t->regex_memory = pcre2_general_context_create(regex_alloc, regex_free, NULL);
    t->file = arena_strdup(&t->arena, file);
    if (!t->regex_memory || !t->file) return KEEL_NOMEM_AT(err, file);
    KEEL_TRY(tokenizer_read_model(t, root, err));
    KEEL_TRY(tokenizer_read_pipeline(t, root, err));
    return tokenizer_read_post_processor(t, root, err);
    /* "truncation" and "padding" are left aside, as transformers does unless a call asks for them. */
}

keel_status tokenizer_parse(const char *file, const char *text, size_t bytes, tokenizer **out, keel_error *err) {
    json_t *root;
    KEEL_TRY(json_parse(file, text, bytes, &root, err));
    tokenizer *t = mem_calloc(1, sizeof *t);
    keel_status s;
    if (t)
        s = tokenizer_read(t, file, root, err);
    else
        s = KEEL_NOMEM_AT(err, file);
    json_decref(root);
    if (s != KEEL_OK) {
        tokenizer_close(t);
        return s;
    }
    *out = t;
    return KEEL_OK;
}

keel_status tokenizer_open(const char *path, tokenizer **out, keel_error *err) {
    char *text;
    size_t bytes;
    KEEL_TRY(file_read(path, TOKENIZER_MAX_FILE_BYTES, &text, &bytes, err));
    keel_status s = tokenizer_parse(path, text, bytes, out, err);
    keel_free(text);
    return s;
}

void tokenizer_close(tokenizer *t) {
    if (!t) return;
    for (size_t i = 0; i < t->n_stages; i++) pcre2_code_free(t->stages[i].code);
    pcre2_code_free(t->word);
    pcre2_general_context_free(t->regex_memory);
    arena_free(&t->arena);
    mem_free(t);
}

uint32_t tokenizer_vocab(const tokenizer *t) {
    return t->vocab.n ? (uint32_t)t->vocab.tokens[t->vocab.n - 1].id + 1 : 0;
}

int32_t tokenizer_special(const tokenizer *t, const char *content) {
    const token *k = vocab_find(&t->vocab, content, strlen(content));
    return k && k->added ? k->id : -1;
}

bool tokenizer_is_special(const tokenizer *t, int32_t id) {
    const token *k = vocab_at(&t->vocab, id);
    return k && k->special;
}

/* Adds one byte to what is held back and gives out what that settles. A subpart that reaches the end of what is held
 * and begins with a lead byte may still become a character. */
static void stream_byte(token_stream *s, uint8_t byte, buf *out) {
    s->pending[s->n_pending++] = byte;
    while (s->n_pending) {
        bool ok;
        size_t n = utf8_scan(s->pending, s->n_pending, &ok);
        bool lead = s->pending[0] >= 0xC2 && s->pending[0] <= 0xF4;
        if (!ok && lead && n == s->n_pending) return;
        text_repair((const char *)s->pending, n, out);
        s->n_pending = (uint8_t)(s->n_pending - n);
        memmove(s->pending, s->pending + n, s->n_pending);
    }
}

keel_status token_stream_put(token_stream *s, int32_t id, buf *out, keel_error *err) {
    const token *k = vocab_at(&s->tokenizer->vocab, id);
    if (!k) {
        return error_set(err, KEEL_RANGE, "%s: id %d has no token; ids go up to %u", s->tokenizer->file, (int)id,
                         (unsigned)tokenizer_vocab(s->tokenizer));
    }
    if (k->special && s->skip_special) return KEEL_OK;
    buf bytes = {0};
    /* HF unmaps added tokens too, which garbles those of Latin-1 letters; here they come out as they went in. */
    if (k->added)
        buf_put(&bytes, k->text, k->bytes);
    else
        text_unmap_bytes(k->text, k->bytes, &bytes);
    for (size_t i = 0; i < bytes.len && !bytes.failed; i++) stream_byte(s, bytes.data[i], out);
    bool failed = bytes.failed || out->failed;
    buf_free(&bytes);
    return failed ? KEEL_NOMEM_AT(err, s->tokenizer->file) : KEEL_OK;
}

void token_stream_end(token_stream *s, buf *out) {
    text_repair((const char *)s->pending, s->n_pending, out);
    s->n_pending = 0;
}
