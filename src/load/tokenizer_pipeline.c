/* SPDX-License-Identifier: Apache-2.0 */
/* Normaliser, pre-tokeniser, decoder and post-processor of a tokenizer.json. What is not known is refused: guessing
 * would give other ids than the model was trained on. */
#include "load/tokenizer_internal.h"

#include <string.h>

/* The pattern of GPT-2, which ByteLevel uses when use_regex is set. */
static const char GPT2_PATTERN[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static keel_status unknown(const char *where, const char *what, const char *name, const char *known, keel_error *err) {
    return error_set(err, KEEL_UNSUPPORTED, "%s: %s \"%s\"; known: %s", where, what, quote(name).s, known);
}

static keel_status too_deep(const char *where, keel_error *err) {
    return error_set(err, KEEL_RANGE, "%s: Sequences nested more than %d deep", where, (int)TOKENIZER_MAX_NESTING);
}

static keel_status read_normalizer(tokenizer *t, const char *where, const json_t *v, int depth, keel_error *err) {
    const char *type;
    const json_t *list;
    if (!v || json_is_null(v)) return KEEL_OK;
    if (depth > TOKENIZER_MAX_NESTING) return too_deep(where, err);
    KEEL_TRY(json_kind(where, v, &type, err));
    if (strcmp(type, "NFC") == 0) {
        t->nfc = true; /* twice is as good as once */
        return KEEL_OK;
    }
    if (strcmp(type, "Sequence") != 0) return unknown(where, "normalizer type", type, "null, NFC, Sequence", err);
    KEEL_TRY(json_member(where, v, "normalizers", JSON_ARRAY, "an array", &list, err));
    place inner = place_at(where, ".", "normalizers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        KEEL_TRY(read_normalizer(t, place_item(inner.s, i).s, json_array_get(list, i), depth + 1, err));
    }
    return KEEL_OK;
}

static keel_status stage_new(tokenizer *t, const char *where, pre_stage **out, keel_error *err) {
    if (t->byte_level) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: comes after ByteLevel; known: ByteLevel last", where);
    }
    if (t->n_stages == TOKENIZER_MAX_STAGES) {
        return error_set(err, KEEL_RANGE, "%s: more than %d pre-tokenizers", where, (int)TOKENIZER_MAX_STAGES);
    }
    *out = &t->stages[t->n_stages++];
    return KEEL_OK;
}

static keel_status read_split(tokenizer *t, const char *where, const json_t *v, keel_error *err) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const json_t *pattern, *behavior;
    pre_stage *stage;
    KEEL_TRY(json_member(where, v, "pattern", JSON_OBJECT, "an object with \"Regex\" or \"String\"", &pattern, err));
    KEEL_TRY(json_member(where, v, "behavior", JSON_STRING, "a string", &behavior, err));
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *literal = json_string_value(json_object_get(pattern, "String"));
    if (!regex == !literal) {
        return error_set(err, KEEL_FORMAT, "%s: \"pattern\" must be {\"Regex\": string} or {\"String\": string}",
                         where);
    }
    size_t i = 0, n = sizeof names / sizeof *names;
    while (i < n && strcmp(names[i], json_string_value(behavior)) != 0) i++;
    if (i == n) {
        return unknown(where, "behavior", json_string_value(behavior),
                       "Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous", err);
    }
    KEEL_TRY(stage_new(t, where, &stage, err));
    stage->behavior = (split_behavior)i; /* names stand in the enum's order */
    KEEL_TRY(json_opt_bool(where, v, "invert", &stage->invert, err));
    return regex_compile(where, regex ? regex : literal, !regex, t->regex_memory, &stage->code, err);
}

static keel_status read_digits(tokenizer *t, const char *where, const json_t *v, keel_error *err) {
    pre_stage *stage;
    bool individual = false;
    KEEL_TRY(json_opt_bool(where, v, "individual_digits", &individual, err));
    KEEL_TRY(stage_new(t, where, &stage, err));
    stage->behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    return regex_compile_native(where, "\\p{N}", t->regex_memory, &stage->code, err);
}

static keel_status read_byte_level(tokenizer *t, const char *where, const json_t *v, keel_error *err) {
    pre_stage *stage;
    bool prefix_space = true, use_regex = true;
    KEEL_TRY(json_opt_bool(where, v, "add_prefix_space", &prefix_space, err));
    KEEL_TRY(json_opt_bool(where, v, "use_regex", &use_regex, err));
    if (t->byte_level || prefix_space) KEEL_TRY(stage_new(t, where, &stage, err));
    if (use_regex) {
        KEEL_TRY(stage_new(t, where, &stage, err));
        stage->behavior = SPLIT_ISOLATED;
        KEEL_TRY(regex_compile(where, GPT2_PATTERN, false, t->regex_memory, &stage->code, err));
    }
    t->byte_level = true;
    return KEEL_OK;
}

static keel_status read_pre_tokenizer(tokenizer *t, const char *where, const json_t *v, int depth, keel_error *err) {
    const char *type;
    const json_t *list;
    if (!v || json_is_null(v)) return KEEL_OK;
    if (depth > TOKENIZER_MAX_NESTING) return too_deep(where, err);
    KEEL_TRY(json_kind(where, v, &type, err));
    if (strcmp(type, "Split") == 0) return read_split(t, where, v, err);
    if (strcmp(type, "Digits") == 0) return read_digits(t, where, v, err);
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(t, where, v, err);
    if (strcmp(type, "Sequence") != 0) {
        return unknown(where, "pre_tokenizer type", type, "null, Sequence, Split, Digits, ByteLevel", err);
    }
    KEEL_TRY(json_member(where, v, "pretokenizers", JSON_ARRAY, "an array", &list, err));
    place inner = place_at(where, ".", "pretokenizers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        KEEL_TRY(read_pre_tokenizer(t, place_item(inner.s, i).s, json_array_get(list, i), depth + 1, err));
    }
    return KEEL_OK;
}

static keel_status check_decoder(const char *where, const json_t *v, int depth, keel_error *err) {
    const char *type;
    const json_t *list;
    static const char known[] = "ByteLevel, or a Sequence of it alone";
    if (!v || json_is_null(v)) return unknown(where, "decoder", "null", known, err);
    if (depth > TOKENIZER_MAX_NESTING) return too_deep(where, err);
    KEEL_TRY(json_kind(where, v, &type, err));
    if (strcmp(type, "ByteLevel") == 0) return KEEL_OK;
    if (strcmp(type, "Sequence") != 0) return unknown(where, "decoder type", type, known, err);
    KEEL_TRY(json_member(where, v, "decoders", JSON_ARRAY, "an array", &list, err));
    if (json_array_size(list) != 1) return unknown(where, "decoder", "Sequence of several", known, err);
    return check_decoder(place_at(where, ".", "decoders[0]").s, json_array_get(list, 0), depth + 1, err);
}

/* Contents of the tokens that are matched in normalised text; and the tables for single bytes. */
static keel_status prepare(tokenizer *t, keel_error *err) {
    added_set *set = &t->added[1];
    for (size_t i = 0; t->nfc && i < set->n; i++) {
        buf out = {0};
        added_token *a = &set->v[i];
        bool ok = text_nfc(a->match, a->bytes, &out);
        a->bytes = (uint32_t)out.len;
        a->match = ok ? arena_strndup(&t->arena, (const char *)out.data, out.len) : NULL;
        buf_free(&out);
        if (!a->match) return KEEL_NOMEM_AT(err, t->file);
    }
    added_set_finish(&t->added[0]);
    added_set_finish(&t->added[1]);
    for (int b = 0; b < 256; b++) {
        char c[4];
        t->byte_id[b] = vocab_model_id(&t->vocab, c, utf8_put(byte_to_char((uint8_t)b), c));
    }
    return KEEL_OK;
}

keel_status tokenizer_read_pipeline(tokenizer *t, const json_t *root, keel_error *err) {
    KEEL_TRY(read_normalizer(t, place_at(t->file, ": ", "normalizer").s, json_object_get(root, "normalizer"), 0, err));
    KEEL_TRY(read_pre_tokenizer(t, place_at(t->file, ": ", "pre_tokenizer").s, json_object_get(root, "pre_tokenizer"),
                                0, err));
    KEEL_TRY(check_decoder(place_at(t->file, ": ", "decoder").s, json_object_get(root, "decoder"), 0, err));
    return prepare(t, err);
}

/* ids of one {"SpecialToken": {"id": NAME}} of a template, looked up in special_tokens. */
static keel_status read_template_ids(tokenizer *t, const char *where, const json_t *piece, const json_t *tokens,
                                     int32_t *ids, size_t *n, keel_error *err) {
    const json_t *name, *entry, *list;
    KEEL_TRY(json_member(where, piece, "id", JSON_STRING, "a string", &name, err));
    KEEL_TRY(
        json_member(where, tokens, json_string_value(name), JSON_OBJECT, "an entry of special_tokens", &entry, err));
    KEEL_TRY(json_member(where, entry, "ids", JSON_ARRAY, "an array of ids", &list, err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > TOKENIZER_MAX_ID || !vocab_at(&t->vocab, (int32_t)id)) {
            return error_set(err, KEEL_FORMAT, "%s: special_tokens: an id of \"%s\" names no token", where,
                             quote(json_string_value(name)).s);
        }
        if (*n == TOKENIZER_MAX_TEMPLATE_IDS) {
            return error_set(err, KEEL_RANGE, "%s: adds more than %d tokens", where, (int)TOKENIZER_MAX_TEMPLATE_IDS);
        }
        ids[(*n)++] = (int32_t)id;
    }
    return KEEL_OK;
}

/* Puts a template's ids around those that an earlier post-processor of the Sequence adds. */
static keel_status template_wrap(tokenizer *t, const char *where, int32_t ids[2][TOKENIZER_MAX_TEMPLATE_IDS],
                                 const size_t n[2], keel_error *err) {
    int32_t *before = arena_array(&t->arena, n[0] + t->n_before, sizeof *before);
    int32_t *after = arena_array(&t->arena, n[1] + t->n_after, sizeof *after);
    if (!before || !after) return KEEL_NOMEM_AT(err, where);
    memcpy(before, ids[0], n[0] * sizeof *before);
    if (t->n_before) memcpy(before + n[0], t->before, t->n_before * sizeof *before);
    if (t->n_after) memcpy(after, t->after, t->n_after * sizeof *after);
    memcpy(after + t->n_after, ids[1], n[1] * sizeof *after);
    t->before = before;
    t->after = after;
    t->n_before += n[0];
    t->n_after += n[1];
    return KEEL_OK;
}

static keel_status read_template(tokenizer *t, const char *where, const json_t *v, keel_error *err) {
    const json_t *single, *tokens;
    int32_t ids[2][TOKENIZER_MAX_TEMPLATE_IDS];
    size_t n[2] = {0}, sequences = 0;
    KEEL_TRY(json_member(where, v, "single", JSON_ARRAY, "an array", &single, err));
    KEEL_TRY(json_member(where, v, "special_tokens", JSON_OBJECT, "an object", &tokens, err));
    place inner = place_at(where, ".", "single");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i), *special = json_object_get(item, "SpecialToken");
        place here = place_item(inner.s, i);
        if (json_is_object(special)) {
            size_t side = sequences > 0;
            KEEL_TRY(read_template_ids(t, here.s, special, tokens, ids[side], &n[side], err));
        } else if (json_is_object(json_object_get(item, "Sequence"))) {
            sequences++;
        } else {
            return error_set(err, KEEL_FORMAT, "%s: must be {\"SpecialToken\": …} or {\"Sequence\": …}", here.s);
        }
    }
    if (sequences != 1) return unknown(inner.s, "template", "without one Sequence", "the text exactly once", err);
    return template_wrap(t, where, ids, n, err);
}

static keel_status read_post_processor(tokenizer *t, const char *where, const json_t *v, int depth, keel_error *err) {
    const char *type;
    const json_t *list;
    if (!v || json_is_null(v)) return KEEL_OK;
    if (depth > TOKENIZER_MAX_NESTING) return too_deep(where, err);
    KEEL_TRY(json_kind(where, v, &type, err));
    if (strcmp(type, "ByteLevel") == 0) return KEEL_OK; /* offsets only */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(t, where, v, err);
    if (strcmp(type, "Sequence") != 0) {
        return unknown(where, "post_processor type", type, "null, ByteLevel, TemplateProcessing, Sequence", err);
    }
    KEEL_TRY(json_member(where, v, "processors", JSON_ARRAY, "an array", &list, err));
    place inner = place_at(where, ".", "processors");
    for (size_t i = 0; i < json_array_size(list); i++) {
        KEEL_TRY(read_post_processor(t, place_item(inner.s, i).s, json_array_get(list, i), depth + 1, err));
    }
    return KEEL_OK;
}

keel_status tokenizer_read_post_processor(tokenizer *t, const json_t *root, keel_error *err) {
    return read_post_processor(t, place_at(t->file, ": ", "post_processor").s, json_object_get(root, "post_processor"),
                               0, err);
}
