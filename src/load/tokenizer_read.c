/* SPDX-License-Identifier: Apache-2.0 */
/* The model and the added tokens of a tokenizer.json. */
#include "load/tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

place place_at(const char *base, const char *sep, const char *key) {
    place p;
    snprintf(p.s, sizeof p.s, "%.900s%s%.100s", base, sep, key);
    return p;
}

place place_item(const char *base, size_t i) {
    place p;
    snprintf(p.s, sizeof p.s, "%.980s[%zu]", base, i);
    return p;
}

quoted quote(const char *text) {
    quoted q;
    size_t n = strlen(text);
    bool cut = n > sizeof q.s - 4;
    if (cut) {
        for (n = sizeof q.s - 4; n > 0 && ((uint8_t)text[n] & 0xC0) == 0x80;) n--;
    }
    snprintf(q.s, sizeof q.s, "%.*s%s", (int)n, text, cut ? "..." : "");
    return q;
}

keel_status json_member(const char *where, const json_t *obj, const char *key, json_type type, const char *what,
                        const json_t **out, keel_error *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v) return error_set(err, KEEL_FORMAT, "%s: \"%s\" is missing; it must be %s", where, key, what);
    if (json_typeof(v) != type) return error_set(err, KEEL_FORMAT, "%s: \"%s\" must be %s", where, key, what);
    *out = v;
    return KEEL_OK;
}

keel_status json_kind(const char *where, const json_t *obj, const char **out, keel_error *err) {
    const json_t *v;
    if (!json_is_object(obj)) return error_set(err, KEEL_FORMAT, "%s: must be an object or null", where);
    KEEL_TRY(json_member(where, obj, "type", JSON_STRING, "a string", &v, err));
    *out = json_string_value(v);
    return KEEL_OK;
}

static keel_status check_id(const char *where, const char *content, const json_t *v, int32_t *id, keel_error *err) {
    if (!json_is_integer(v)) {
        return error_set(err, KEEL_FORMAT, "%s: the id of \"%s\" must be an integer", where, quote(content).s);
    }
    json_int_t n = json_integer_value(v);
    if (n < 0 || n > TOKENIZER_MAX_ID) {
        return error_set(err, KEEL_RANGE, "%s: the id of \"%s\" is %lld, outside 0..%d; is the file damaged?", where,
                         quote(content).s, (long long)n, (int)TOKENIZER_MAX_ID);
    }
    *id = (int32_t)n;
    return KEEL_OK;
}

static keel_status read_vocab(tokenizer *t, const json_t *vocab, size_t n_added, keel_error *err) {
    place where = place_at(t->file, ": ", "model.vocab");
    if (!vocab_init(&t->vocab, &t->arena, json_object_size(vocab) + n_added)) return KEEL_NOMEM_AT(err, where.s);
    json_t *walk = (json_t *)(uintptr_t)vocab; /* jansson's iterator takes no const */
    for (void *it = json_object_iter(walk); it; it = json_object_iter_next(walk, it)) {
        const char *text = json_object_iter_key(it);
        size_t bytes = strlen(text);
        token k = {.bytes = (uint32_t)bytes, .in_model = true};
        KEEL_TRY(check_id(where.s, text, json_object_iter_value(it), &k.id, err));
        k.text = arena_strndup(&t->arena, text, bytes);
        if (!k.text) return KEEL_NOMEM_AT(err, where.s);
        vocab_put(&t->vocab, k);
    }
    return KEEL_OK;
}

static const char *text_or_empty(const json_t *obj, const char *key) {
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : "";
}

/* Parts of BPE that change ids and that no byte-level model uses. */
static keel_status check_model(const char *where, const json_t *model, keel_error *err) {
    const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        if (*text_or_empty(model, affixes[i])) {
            return error_set(err, KEEL_UNSUPPORTED, "%s: \"%s\" is set; known: null (byte-level BPE has none)", where,
                             affixes[i]);
        }
    }
    bool byte_fallback = false;
    double dropout = 0;
    KEEL_TRY(json_opt_bool(where, model, "byte_fallback", &byte_fallback, err));
    KEEL_TRY(json_opt_real(where, model, "dropout", &dropout, err));
    if (byte_fallback) {
        return error_set(err, KEEL_UNSUPPORTED,
                         "%s: \"byte_fallback\" is true; known: false. This is a SentencePiece model; only byte-level "
                         "BPE can be read",
                         where);
    }
    if (dropout > 0) {
        return error_set(err, KEEL_UNSUPPORTED,
                         "%s: \"dropout\" is set: encoding would be random; set it to null in the file", where);
    }
    return KEEL_OK;
}

static keel_status read_unk(tokenizer *t, const char *where, const json_t *model, keel_error *err) {
    const char *unk = NULL;
    KEEL_TRY(json_opt_string(where, model, "unk_token", &unk, err));
    KEEL_TRY(json_opt_bool(where, model, "fuse_unk", &t->fuse_unk, err));
    if (!unk) return KEEL_OK;
    t->unk_id = vocab_model_id(&t->vocab, unk, strlen(unk));
    t->unk = t->unk_id >= 0 ? UNK_ID : UNK_ERROR;
    return KEEL_OK;
}

/* The two sides of a merge: ["a", "b"] or "a b". Messages get their place from read_merges: naming it for each of some
 * 100,000 merges would take a tenth of the loading time. */
static keel_status merge_sides(const json_t *m, const char **side, size_t *bytes, keel_error *err) {
    if (json_is_array(m) && json_array_size(m) == 2) {
        for (size_t i = 0; i < 2; i++) {
            side[i] = json_string_value(json_array_get(m, i));
            if (!side[i]) return error_set(err, KEEL_FORMAT, "both sides of a merge must be strings");
            bytes[i] = strlen(side[i]);
        }
        return KEEL_OK;
    }
    const char *s = json_string_value(m), *space = s ? strchr(s, ' ') : NULL;
    if (!space || strchr(space + 1, ' ')) {
        return error_set(err, KEEL_FORMAT, "a merge must be [\"a\", \"b\"] or \"a b\" with one space");
    }
    side[0] = s;
    bytes[0] = (size_t)(space - s);
    side[1] = space + 1;
    bytes[1] = strlen(space + 1);
    return KEEL_OK;
}

static keel_status read_merge(tokenizer *t, const json_t *m, buf *joined, keel_error *err) {
    const char *side[3];
    size_t bytes[3];
    int32_t id[3];
    KEEL_TRY(merge_sides(m, side, bytes, err));
    joined->len = 0;
    buf_put(joined, side[0], bytes[0]);
    buf_put(joined, side[1], bytes[1]);
    if (joined->failed) return KEEL_NOMEM_AT(err, "joining a merge");
    side[2] = (const char *)joined->data;
    bytes[2] = joined->len;
    for (size_t i = 0; i < 3; i++) {
        id[i] = vocab_model_id(&t->vocab, side[i], bytes[i]);
        if (id[i] < 0) {
            char text[TOKENIZER_QUOTE_BYTES * 2];
            snprintf(text, sizeof text, "%.*s", (int)(bytes[i] < 100 ? bytes[i] : 100), side[i]);
            return error_set(err, KEEL_FORMAT,
                             "\"%s\"%s is not in model.vocab; vocab and merges belong to different tokenizers?",
                             quote(text).s, i == 2 ? ", what this merge makes," : "");
        }
    }
    merges_put(&t->merges, id[0], id[1], id[2]);
    return KEEL_OK;
}

static bool is_version_line(const json_t *m) { /* HF skips it in files of the old spelling */
    const char *s = json_string_value(m);
    return s && strncmp(s, "#version", 8) == 0;
}

static keel_status read_merges(tokenizer *t, const json_t *merges, keel_error *err) {
    place where = place_at(t->file, ": ", "model.merges");
    if (!merges_init(&t->merges, &t->arena, json_array_size(merges))) return KEEL_NOMEM_AT(err, where.s);
    buf joined = {0};
    buf_put(&joined, "", 0);
    keel_status s = KEEL_OK;
    for (size_t i = 0; s == KEEL_OK && i < json_array_size(merges); i++) {
        const json_t *m = json_array_get(merges, i);
        if (is_version_line(m)) continue;
        s = read_merge(t, m, &joined, err);
        if (s != KEEL_OK) error_prefix(err, s, "%s[%zu]", where.s, i);
    }
    buf_free(&joined);
    return s;
}

/* A BPE vocabulary without merges never gets beyond single characters: the file has lost them. */
static keel_status check_merges(const tokenizer *t, keel_error *err) {
    for (size_t i = 0; t->merges.n == 0 && i < t->vocab.n; i++) {
        const token *k = &t->vocab.tokens[i];
        bool one;
        if (k->added || !k->bytes || utf8_scan((const uint8_t *)k->text, k->bytes, &one) == k->bytes) continue;
        return error_set(err, KEEL_FORMAT,
                         "%s: model.merges: missing or empty, but model.vocab has tokens of several characters "
                         "(\"%s\") that no text could reach; export tokenizer.json again with its merges",
                         t->file, quote(k->text).s);
    }
    return KEEL_OK;
}

static keel_status check_model_type(const char *where, const json_t *model, keel_error *err) {
    const char *type = "BPE"; /* old files have none; their only model with merges is BPE */
    KEEL_TRY(json_opt_string(where, model, "type", &type, err));
    if (strcmp(type, "BPE") == 0) return KEEL_OK;
    return error_set(err, KEEL_UNSUPPORTED, "%s: model type \"%s\"; known: BPE (byte-level)", where, quote(type).s);
}

static keel_status enter_added(tokenizer *t, const char *where, const char *content, added_token *a, keel_error *err) {
    token *known = vocab_find(&t->vocab, content, a->bytes);
    if (known && known->added) {
        return error_set(err, KEEL_FORMAT, "%s: \"%s\" is an added token already; remove one", where, quote(content).s);
    }
    if (known && known->id != a->id) {
        return error_set(err, KEEL_FORMAT, "%s: \"%s\" has id %d here and %d in model.vocab; they must agree", where,
                         quote(content).s, (int)a->id, (int)known->id);
    }
    if (known) {
        known->added = true;
        known->special = a->special;
        a->match = known->text;
        return KEEL_OK;
    }
    a->match = arena_strndup(&t->arena, content, a->bytes);
    if (!a->match) return KEEL_NOMEM_AT(err, where);
    vocab_put(&t->vocab, (token){a->match, a->bytes, a->id, false, true, a->special});
    return KEEL_OK;
}

/* <|…|> or <｜…｜>: some files leave "special" off turn markers, which a user must not be able to write either. */
static bool looks_special(const char *text, size_t n) {
    static const char wide[] = "\xEF\xBD\x9C"; /* U+FF5C */
    if (n >= 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + n - 2, "|>", 2) == 0) return true;
    return n >= 8 && text[0] == '<' && memcmp(text + 1, wide, 3) == 0 && memcmp(text + n - 4, wide, 3) == 0 &&
           text[n - 1] == '>';
}

static keel_status read_added_token(tokenizer *t, const char *where, const json_t *v, added_token *a, keel_error *err) {
    const json_t *content, *id;
    if (!json_is_object(v)) return error_set(err, KEEL_FORMAT, "%s: must be an object", where);
    KEEL_TRY(json_member(where, v, "content", JSON_STRING, "a string", &content, err));
    KEEL_TRY(json_member(where, v, "id", JSON_INTEGER, "an integer", &id, err));
    const char *text = json_string_value(content);
    size_t bytes = strlen(text);
    if (bytes > TOKENIZER_MAX_ADDED_BYTES) {
        return error_set(err, KEEL_RANGE, "%s: a content of %zu bytes; at most %d are supported", where, bytes,
                         (int)TOKENIZER_MAX_ADDED_BYTES);
    }
    a->bytes = (uint32_t)bytes;
    KEEL_TRY(check_id(where, text, id, &a->id, err));
    KEEL_TRY(json_opt_bool(where, v, "special", &a->special, err));
    a->control = a->special || looks_special(text, bytes);
    a->normalized = !a->special; /* HF's default */
    KEEL_TRY(json_opt_bool(where, v, "normalized", &a->normalized, err));
    KEEL_TRY(json_opt_bool(where, v, "single_word", &a->single_word, err));
    KEEL_TRY(json_opt_bool(where, v, "lstrip", &a->lstrip, err));
    KEEL_TRY(json_opt_bool(where, v, "rstrip", &a->rstrip, err));
    return enter_added(t, where, text, a, err);
}

static keel_status read_added(tokenizer *t, const json_t *root, keel_error *err) {
    const json_t *list = json_object_get(root, "added_tokens");
    place where = place_at(t->file, ": ", "added_tokens");
    if (!list || json_is_null(list)) return KEEL_OK;
    if (!json_is_array(list)) return error_set(err, KEEL_FORMAT, "%s: must be an array", where.s);
    size_t n = json_array_size(list);
    for (size_t i = 0; i < 2; i++) {
        t->added[i].v = arena_array(&t->arena, n, sizeof *t->added[i].v);
        if (!t->added[i].v) return KEEL_NOMEM_AT(err, where.s);
    }
    for (size_t i = 0; i < n; i++) {
        added_token a = {.order = (uint32_t)i};
        KEEL_TRY(read_added_token(t, place_item(where.s, i).s, json_array_get(list, i), &a, err));
        added_set *set = &t->added[a.normalized];
        if (a.bytes) set->v[set->n++] = a; /* HF never matches an empty one */
        if (a.single_word && !t->word) {
            /* Rust regex's \w, which HF asks here. */
            KEEL_TRY(regex_compile_native(where.s, "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]",
                                          t->regex_memory, &t->word, err));
        }
    }
    return KEEL_OK;
}

/* The vocab first, then the added tokens (they take part in ids and in the check of the merges), then the merges. */
keel_status tokenizer_read_model(tokenizer *t, const json_t *root, keel_error *err) {
    const json_t *model, *vocab, *merges = NULL;
    place where = place_at(t->file, ": ", "model");
    KEEL_TRY(json_member(t->file, root, "model", JSON_OBJECT, "an object", &model, err));
    KEEL_TRY(check_model_type(where.s, model, err));
    KEEL_TRY(check_model(where.s, model, err));
    KEEL_TRY(json_member(where.s, model, "vocab", JSON_OBJECT, "an object of token: id", &vocab, err));
    if (json_object_get(model, "merges")) {
        KEEL_TRY(json_member(where.s, model, "merges", JSON_ARRAY, "an array", &merges, err));
    }
    KEEL_TRY(json_opt_bool(where.s, model, "ignore_merges", &t->ignore_merges, err));
    const json_t *added = json_object_get(root, "added_tokens");
    KEEL_TRY(read_vocab(t, vocab, json_array_size(added), err));
    KEEL_TRY(read_added(t, root, err));
    KEEL_TRY(vocab_finish(&t->vocab, t->file, err));
    KEEL_TRY(read_unk(t, where.s, model, err));
    KEEL_TRY(read_merges(t, merges, err));
    return check_merges(t, err);
}
