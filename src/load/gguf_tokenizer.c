/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF file's tokenizer to tokenizer.json and tokenizer_config.json. */
#include "load/gguf_internal.h"

#include "core/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Token types of tokenizer.ggml.token_type. */
enum { TOKEN_CONTROL = 3, TOKEN_USER_DEFINED = 4, TOKEN_UNUSED = 5 };

/* The published pre-tokenisers, as they stand in the models' own tokenizer.json. */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* Letters with case (as of Unicode 11). Some copies of this list went through NFC normalisation, which turned
 * U+1F7D, U+1FD3, U+1FDB, U+2126 and U+212A into other characters and ranges into nonsense; hence by number. */
#define CASED_LETTERS                                                                                                  \
    "\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"          \
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"           \
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"         \
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"                 \
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"                \
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"            \
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"           \
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"          \
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"                   \
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"                             \
    "\U0001e900-\U0001e943"

typedef struct pre_tokenizer {
    const char *names[4];  /* values of tokenizer.ggml.pre */
    const char *splits[6]; /* Split patterns, isolated, in order */
    bool digits;           /* then: each digit apart */
    bool gpt2_regex;       /* ByteLevel with its own pattern */
    bool nfc, ignore_merges;
    bool adds_bos; /* where the file does not say */
} pre_tokenizer;

static const pre_tokenizer pre_tokenizers[] = {
    {.names = {"default", "gpt-2"}, .gpt2_regex = true},
    {.names = {"smollm"}, .digits = true, .gpt2_regex = true},
    {.names = {"qwen2"}, .splits = {CONTRACTIONS "\\p{N}" REST}, .nfc = true},
    {.names = {"llama-bpe", "llama3", "llama-v3"},
     .splits = {CONTRACTIONS "\\p{N}{1,3}" REST},
     .ignore_merges = true,
     .adds_bos = true},
    {.names = {"deepseek-v3"},
     .splits = {"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
                "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}},
    {.names = {"deepseek-llm"},
     .splits = {"[\r\n]", "\\s?[A-Za-z" CASED_LETTERS "]+",
                "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$",
                "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"},
     .digits = true},
};

static keel_status pre_tokenizer_find(const gguf *g, const pre_tokenizer **out, keel_error *err) {
    gguf_string model = {"", 0}, pre = {"", 0};
    KEEL_TRY(gguf_opt_string(g, "tokenizer.ggml.model", &model, err));
    KEEL_TRY(gguf_opt_string(g, "tokenizer.ggml.pre", &pre, err));
    if (model.bytes != 4 || memcmp(model.text, "gpt2", 4) != 0) {
        return error_set(err, KEEL_UNSUPPORTED,
                         "%s: tokenizer.ggml.model is \"%.*s\"; only \"gpt2\" (byte-level BPE) can be "
                         "converted",
                         g->file, (int)(model.bytes < 64 ? model.bytes : 64), model.text);
    }
    buf list = {0};
    for (size_t i = 0; i < sizeof pre_tokenizers / sizeof *pre_tokenizers; i++) {
        for (size_t n = 0; n < 4 && pre_tokenizers[i].names[n]; n++) {
            const char *name = pre_tokenizers[i].names[n];
            if (pre.bytes == strlen(name) && memcmp(pre.text, name, pre.bytes) == 0) {
                *out = &pre_tokenizers[i];
                buf_free(&list);
                return KEEL_OK;
            }
            buf_printf(&list, "%s%s", list.len ? ", " : "", name);
        }
    }
    keel_status status =
        list.failed ? KEEL_NOMEM_AT(err, g->file)
                    : error_set(err, KEEL_UNSUPPORTED, "%s: tokenizer.ggml.pre is \"%.*s\"; can be converted: %s",
                                g->file, (int)(pre.bytes < 64 ? pre.bytes : 64), pre.text, (const char *)list.data);
    buf_free(&list);
    return status;
}

static json_t *pre_tokenizer_json(const pre_tokenizer *p) {
    json_t *list = json_array();
    for (size_t i = 0; i < 6 && p->splits[i]; i++) {
        json_array_append_new(list, json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                                              p->splits[i], "behavior", "Isolated", "invert", 0));
    }
    if (p->digits) {
        json_array_append_new(list, json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
    }
    json_t *byte_level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets",
                                   1, "use_regex", (int)p->gpt2_regex);
    if (json_array_size(list) == 0) {
        json_decref(list);
        return byte_level;
    }
    json_array_append_new(list, byte_level);
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list);
}

/* What the writers of both files need. */
typedef struct vocabulary {
    const gguf *g;
    const gguf_value *tokens, *types; /* types may be NULL */
    gguf_string bos, eos, pad, unk;   /* empty when the file names none */
    int64_t bos_id, eos_id;
    bool add_bos, add_eos;
} vocabulary;

static keel_status not_utf8(const gguf *g, const char *what, uint64_t i, keel_error *err) {
    return error_set(err, KEEL_FORMAT, "%s: %s %llu is not UTF-8 (or memory is short)", g->file, what,
                     (unsigned long long)i);
}

static keel_status special_read(const vocabulary *v, const char *which, gguf_string *text, int64_t *id,
                                keel_error *err) {
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", which);
    *id = -1;
    KEEL_TRY(gguf_opt_int(v->g, key, 0, (int64_t)v->tokens->count - 1, id, err));
    if (*id < 0) return KEEL_OK;
    const uint8_t *at = v->tokens->data;
    for (int64_t i = 0; i <= *id; i++) *text = gguf_string_next(&at);
    return KEEL_OK;
}

static keel_status vocabulary_read(const gguf *g, const gguf_model *m, const pre_tokenizer *p, vocabulary *v,
                                   keel_error *err) {
    int64_t id;
    *v = (vocabulary){.g = g, .add_bos = p->adds_bos};
    KEEL_TRY(gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &v->tokens, err));
    if (v->tokens->count == 0 || v->tokens->count > (uint64_t)m->vocab) {
        return error_set(err, KEEL_FORMAT,
                         "%s: tokenizer.ggml.tokens has %llu entries, token_embd.weight has rows for %lld", g->file,
                         (unsigned long long)v->tokens->count, (long long)m->vocab);
    }
    if (gguf_value_find(g, "tokenizer.ggml.token_type")) {
        KEEL_TRY(gguf_get_array(g, "tokenizer.ggml.token_type", GGUF_I32, &v->types, err));
        if (v->types->count != v->tokens->count) {
            return error_set(err, KEEL_FORMAT, "%s: tokenizer.ggml.token_type and tokens differ in length", g->file);
        }
    }
    KEEL_TRY(special_read(v, "bos", &v->bos, &v->bos_id, err));
    KEEL_TRY(special_read(v, "eos", &v->eos, &v->eos_id, err));
    KEEL_TRY(special_read(v, "padding", &v->pad, &id, err));
    KEEL_TRY(special_read(v, "unknown", &v->unk, &id, err));
    KEEL_TRY(gguf_opt_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos, err));
    KEEL_TRY(gguf_opt_bool(g, "tokenizer.ggml.add_eos_token", &v->add_eos, err));
    if ((v->add_bos && v->bos_id < 0) || (v->add_eos && v->eos_id < 0)) {
        return error_set(err, KEEL_FORMAT, "%s: a BOS or EOS token is to be added, but its id is missing", g->file);
    }
    return KEEL_OK;
}

/* Converters to GGUF fill ids without a token with "[PAD…]" of type unused; the original vocabulary has none there. */
static bool is_filler(gguf_string s, int64_t type) {
    return type == TOKEN_UNUSED && s.bytes > 5 && memcmp(s.text, "[PAD", 4) == 0 && s.text[s.bytes - 1] == ']';
}

static keel_status token_add(const vocabulary *v, uint64_t id, gguf_string s, json_t *vocab, json_t *added,
                             keel_error *err) {
    int64_t type = v->types ? gguf_int_at(v->types, id) : 1;
    if (is_filler(s, type)) return KEEL_OK;
    if (json_object_getn(vocab, s.text, (size_t)s.bytes)) {
        return error_set(err, KEEL_FORMAT, "%s: tokenizer.ggml.tokens: entry %llu stands twice", v->g->file,
                         (unsigned long long)id);
    }
    if (json_object_setn_new(vocab, s.text, (size_t)s.bytes, json_integer((json_int_t)id)) != 0) {
        return not_utf8(v->g, "token", id, err);
    }
    if (type != TOKEN_CONTROL && type != TOKEN_USER_DEFINED) return KEEL_OK;
    json_t *entry =
        json_pack("{s:I, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content", s.text, (size_t)s.bytes,
                  "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", type == TOKEN_CONTROL);
    return json_array_append_new(added, entry) == 0 ? KEEL_OK : not_utf8(v->g, "token", id, err);
}

static keel_status tokens_add(const vocabulary *v, json_t *vocab, json_t *added, keel_error *err) {
    const uint8_t *at = v->tokens->data;
    for (uint64_t id = 0; id < v->tokens->count; id++) {
        KEEL_TRY(token_add(v, id, gguf_string_next(&at), vocab, added, err));
    }
    return KEEL_OK;
}

static keel_status merges_add(const vocabulary *v, json_t *merges, keel_error *err) {
    const gguf_value *list;
    KEEL_TRY(gguf_get_array(v->g, "tokenizer.ggml.merges", GGUF_STRING, &list, err));
    const uint8_t *at = list->data;
    for (uint64_t i = 0; i < list->count; i++) {
        gguf_string s = gguf_string_next(&at);
        const char *space = memchr(s.text, ' ', (size_t)s.bytes), *end = s.text + s.bytes;
        if (!space || space == s.text || space + 1 == end || memchr(space + 1, ' ', (size_t)(end - space - 1))) {
            return error_set(err, KEEL_FORMAT,
                             "%s: tokenizer.ggml.merges: entry %llu is not two parts with one space between",
                             v->g->file, (unsigned long long)i);
        }
        if (json_array_append_new(merges, json_stringn(s.text, (size_t)s.bytes)) != 0) {
            return not_utf8(v->g, "merge", i, err);
        }
    }
    return KEEL_OK;
}

static void template_special(json_t *list, gguf_string s, int type_id) {
    json_array_append_new(
        list, json_pack("{s:{s:s%, s:i}}", "SpecialToken", "id", s.text, (size_t)s.bytes, "type_id", type_id));
}

static void template_part(const vocabulary *v, json_t *list, const char *sequence, int type_id) {
    if (v->add_bos) template_special(list, v->bos, type_id);
    json_array_append_new(list, json_pack("{s:{s:s, s:i}}", "Sequence", "id", sequence, "type_id", type_id));
    if (v->add_eos) template_special(list, v->eos, type_id);
}

static int template_token(json_t *tokens, gguf_string s, int64_t id) {
    return json_object_setn_new(tokens, s.text, (size_t)s.bytes,
                                json_pack("{s:s%, s:[I], s:[s%]}", "id", s.text, (size_t)s.bytes, "ids", (json_int_t)id,
                                          "tokens", s.text, (size_t)s.bytes));
}

static json_t *post_processor_json(const vocabulary *v) {
    if (!v->add_bos && !v->add_eos) return json_null();
    json_t *single = json_array(), *pair = json_array(), *tokens = json_object();
    template_part(v, single, "A", 0);
    template_part(v, pair, "A", 0);
    template_part(v, pair, "B", 1);
    if (v->add_bos) template_token(tokens, v->bos, v->bos_id);
    if (v->add_eos) template_token(tokens, v->eos, v->eos_id);
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single, "pair", pair,
                     "special_tokens", tokens);
}

static json_t *tokenizer_json(const vocabulary *v, const pre_tokenizer *p, json_t *vocab, json_t *merges,
                              json_t *added) {
    json_t *model =
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:O, s:O}", "type", "BPE", "dropout", "unk_token",
                  "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges",
                  (int)p->ignore_merges, "vocab", vocab, "merges", merges);
    json_t *decoder = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1,
                                "use_regex", 1);
    json_t *normalizer = p->nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
    return json_pack("{s:s, s:n, s:n, s:O, s:o, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding",
                     "added_tokens", added, "normalizer", normalizer, "pre_tokenizer", pre_tokenizer_json(p),
                     "post_processor", post_processor_json(v), "decoder", decoder, "model", model);
}

/* jansson copies nothing twice here: vocab, merges and added are shared with the root by reference. */
static keel_status tokenizer_write(const vocabulary *v, const pre_tokenizer *p, const char *dir, keel_error *err) {
    json_t *vocab = json_object(), *merges = json_array(), *added = json_array();
    keel_status status = vocab && merges && added ? KEEL_OK : KEEL_NOMEM_AT(err, "tokenizer.json");
    if (status == KEEL_OK) status = tokens_add(v, vocab, added, err);
    if (status == KEEL_OK) status = merges_add(v, merges, err);
    if (status == KEEL_OK) {
        status =
            gguf_json_write(dir, "tokenizer.json", tokenizer_json(v, p, vocab, merges, added), JSON_INDENT(1), err);
    }
    json_decref(vocab);
    json_decref(merges);
    json_decref(added);
    return status;
}

static keel_status text_set(const vocabulary *v, json_t *root, const char *key, gguf_string s, keel_error *err) {
    if (s.bytes == 0) return KEEL_OK;
    if (json_object_set_new(root, key, json_stringn(s.text, (size_t)s.bytes)) == 0) return KEEL_OK;
    return error_set(err, KEEL_FORMAT, "%s: %s is not UTF-8 (or memory is short)", v->g->file, key);
}

static keel_status tokenizer_config_write(const vocabulary *v, const gguf_model *m, const char *dir, keel_error *err) {
    gguf_string template = {"", 0};
    KEEL_TRY(gguf_opt_string(v->g, "tokenizer.chat_template", &template, err));
    json_t *root = json_pack("{s:b, s:b, s:b, s:I, s:s}", "add_bos_token", (int)v->add_bos, "add_eos_token",
                             (int)v->add_eos, "clean_up_tokenization_spaces", 0, "model_max_length",
                             (json_int_t)m->context, "tokenizer_class", "PreTrainedTokenizerFast");
    keel_status status = root ? KEEL_OK : KEEL_NOMEM_AT(err, "tokenizer_config.json");
    if (status == KEEL_OK) status = text_set(v, root, "bos_token", v->bos, err);
    if (status == KEEL_OK) status = text_set(v, root, "eos_token", v->eos, err);
    if (status == KEEL_OK) status = text_set(v, root, "pad_token", v->pad, err);
    if (status == KEEL_OK) status = text_set(v, root, "unk_token", v->unk, err);
    if (status == KEEL_OK) status = text_set(v, root, "chat_template", template, err);
    if (status != KEEL_OK) {
        json_decref(root);
        return status;
    }
    return gguf_json_write(dir, "tokenizer_config.json", root, JSON_INDENT(2), err);
}

keel_status gguf_tokenizer_write(const gguf *g, const gguf_model *m, const char *dir, keel_error *err) {
    const pre_tokenizer *p;
    vocabulary v;
    KEEL_TRY(pre_tokenizer_find(g, &p, err));
    KEEL_TRY(vocabulary_read(g, m, p, &v, err));
    KEEL_TRY(tokenizer_write(&v, p, dir, err));
    return tokenizer_config_write(&v, m, dir, err);
}
