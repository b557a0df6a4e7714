/* SPDX-License-Identifier: Apache-2.0 */
/* Expected ids come from Hugging Face `tokenizers` 0.23: tests/golden/tokenizer_ids.json (make_tokenizer_ids.py there).
 * timeout: 180 */
#include "core/buf.h"
#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"
#include "load/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <cmocka.h>

#define GOLDEN KEEL_SOURCE_DIR "/tests/golden/"

enum { MAX_JSON_BYTES = 1 << 24 };

/* JSON with ' for ", so that it can be read here. */
static buf json_text(const char *quoted) {
    buf b = {0};
    buf_str(&b, quoted);
    assert_false(b.failed);
    for (size_t i = 0; i < b.len; i++) {
        if (b.data[i] == '\'') b.data[i] = '"';
    }
    return b;
}

static keel_status parse(const char *quoted, tokenizer **t, keel_error *err) {
    buf b = json_text(quoted);
    keel_status s = tokenizer_parse("t.json", (const char *)b.data, b.len, t, err);
    buf_free(&b);
    return s;
}

static tokenizer *parsed(const char *quoted) {
    tokenizer *t = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (parse(quoted, &t, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return t;
}

static tokenizer *opened(const char *path) {
    tokenizer *t = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (tokenizer_open(path, &t, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return t;
}

static json_t *json_file(const char *path) {
    json_t *root;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (json_read(path, MAX_JSON_BYTES, &root, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return root;
}

static int base64_value(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c ? strchr(digits, c) : NULL;
    return p ? (int)(p - digits) : -1;
}

static buf base64_decode(const char *s) {
    buf b = {0};
    unsigned bits = 0, n = 0;
    for (; base64_value(*s) >= 0; s++) {
        bits = bits << 6 | (unsigned)base64_value(*s);
        n += 6;
        if (n >= 8) buf_u8(&b, (uint8_t)(bits >> (n -= 8)));
    }
    buf_put(&b, "", 0);
    assert_false(b.failed);
    return b;
}

/* What a decoder must give back: the text with U+FFFD for what is ill-formed. utf8proc finds where; that a subpart
 * counts once is checked against Python's ids, not here, so ill-formed texts are left out of the round trip. */
static bool well_formed(const uint8_t *p, size_t n) {
    while (n) {
        utf8proc_int32_t c;
        utf8proc_ssize_t k = utf8proc_iterate(p, (utf8proc_ssize_t)n, &c);
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Decodes id by id; every piece must be well-formed by itself. */
static buf decoded(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special) {
    token_stream s = {.tokenizer = t, .skip_special = skip_special};
    buf out = {0};
    buf_put(&out, "", 0);
    for (size_t i = 0; i < n; i++) {
        size_t before = out.len;
        assert_int_equal(token_stream_put(&s, ids[i], &out, NULL), KEEL_OK);
        assert_true(well_formed(out.data + before, out.len - before));
    }
    token_stream_end(&s, &out);
    assert_int_equal(s.n_pending, 0);
    assert_false(out.failed);
    return out;
}

static void check_round_trip(const tokenizer *t, const buf *text, const int32_t *ids, size_t n, bool nfc) {
    if (!well_formed(text->data, text->len)) return;
    buf want = {0};
    if (nfc) {
        utf8proc_uint8_t *composed = NULL;
        utf8proc_ssize_t k = utf8proc_map(text->data, (utf8proc_ssize_t)text->len, &composed,
                                          (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        assert_true(k >= 0);
        buf_put(&want, composed, (size_t)k);
        free(composed);
    } else {
        buf_put(&want, text->data, text->len);
    }
    buf got = decoded(t, ids, n, false);
    assert_int_equal(got.len, want.len);
    if (want.len) assert_memory_equal(got.data, want.data, want.len);
    buf_free(&got);
    buf_free(&want);
}

static void check_corpus(const char *name, const char *path, const json_t *corpus, const json_t *lists, bool lossless) {
    tokenizer *t = opened(path);
    const json_t *rows = json_object_get(lists, name);
    size_t n = json_array_size(corpus);
    assert_true(n > 0);
    assert_int_equal(json_array_size(rows), n);
    for (size_t i = 0; i < n; i++) {
        buf text = base64_decode(json_string_value(json_object_get(json_array_get(corpus, i), "b64")));
        const json_t *want = json_array_get(rows, i);
        int32_t *ids = NULL;
        size_t n_ids = 0;
        keel_error err = KEEL_ERROR_INITIALIZER;
        if (tokenizer_encode(t, (const char *)text.data, text.len, false, &ids, &n_ids, &err) != KEEL_OK) {
            fail_msg("%s, string %zu: %s", name, i, err.detail);
        }
        for (size_t k = 0; k < n_ids || k < json_array_size(want); k++) {
            long long w = k < json_array_size(want) ? json_integer_value(json_array_get(want, k)) : -1;
            long long g = k < n_ids ? ids[k] : -1;
            if (w != g) fail_msg("%s, string %zu, position %zu: id %lld, expected %lld", name, i, k, g, w);
        }
        if (lossless) check_round_trip(t, &text, ids, n_ids, strcmp(name, "qwen") == 0);
        keel_free(ids);
        buf_free(&text);
    }
    print_message("%s: %zu strings\n", name, n);
    tokenizer_close(t);
}

static void ids_are_those_of_tokenizers(void **state) {
    (void)state;
    json_t *corpus = json_file(GOLDEN "tokenizer_corpus.json"), *lists = json_file(GOLDEN "tokenizer_ids.json");
    static const struct {
        const char *name, *variable, *below; /* of files outside this repository */
        bool lossless;
    } outside[] = {{"smollm2-gguf", "KEEL_SMOLLM2_DIR", "", false},
                   {"qwen3-py-12m", "KEEL_TEST_MODELS", "/qwen3-py-12m", true}};
    const char *name;
    json_t *rows;
    json_object_foreach(lists, name, rows) {
        char path[4096];
        snprintf(path, sizeof path, GOLDEN "tokenizers/%s.json", name);
        bool lossless = true;
        for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
            if (strcmp(name, outside[i].name) != 0) continue;
            const char *dir = getenv(outside[i].variable);
            snprintf(path, sizeof path, "%s%s/tokenizer.json", dir ? dir : "", outside[i].below);
            lossless = outside[i].lossless;
            if (!dir || !file_exists(path)) {
                print_message("%s: not here, left out (%s)\n", name, outside[i].variable);
                path[0] = '\0';
            }
        }
        if (path[0]) check_corpus(name, path, corpus, lists, lossless);
    }
    json_decref(corpus);
    json_decref(lists);
}

#define PLAIN "{'type':'ByteLevel','add_prefix_space':false,'trim_offsets':true,'use_regex':false}"
#define MODEL                                                                                                          \
    "'type':'BPE','vocab':{'a':0,'b':1,'c':2,'d':3,'e':4,'1':5,'2':6,'\xC4\xA0':7,'\xC4\x8A':8,'.':9,'x':10,'"         \
    "\xC3\x83':11,'\xC2\xA9':12,'\xC3\x8C':13,'\xC4\xA3':14,'t':15,'T':16,'ab':17,'aa':18,'cd':19,'\xC4\xA0"           \
    "a':20,'12':21,'\xC3\x83\xC2\xA9':22,'\xC4\xA0\xC4\xA0':23,'aaaa':24,'abcd':25,'\xC4\xA0"                          \
    "ab':26,'bcd':27},'merges':[['a','b'],['a','a'],['c','d'],['\xC4\xA0','a'],['1','2'],['\xC3\x83','\xC2\xA9'],['"   \
    "\xC4\xA0','\xC4\xA0'],['aa','aa'],['ab','cd'],['\xC4\xA0"                                                         \
    "a','b']]"
#define DECODER "'decoder':{'type':'ByteLevel'}"

/* A tokenizer of all 256 bytes without merges: an id is a byte plus 1; 0 is a special token, 300 an added one. */
static tokenizer *bytes_tokenizer(void) {
    buf b = {0};
    buf_str(
        &b,
        "{'added_tokens':[{'id':0,'content':'<s>','special':true},{'id':300,'content':'caf\xC3\xA9','special':false}]"
        ",'pre_tokenizer':" PLAIN "," DECODER ",'model':{'merges':[],'vocab':{'<s>':0");
    int next = 0x100; /* GPT-2's bytes_to_unicode, written down a second time from its Python */
    for (int byte = 0; byte < 256; byte++) {
        bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        utf8proc_uint8_t c[4];
        utf8proc_ssize_t n = utf8proc_encode_char(printable ? byte : next++, c);
        if (byte == '"' || byte == '\\')
            buf_printf(&b, ",'\\%c':%d", byte == '"' ? '\'' : '\\', byte + 1);
        else if (byte == '\'')
            buf_printf(&b, ",'\\u0027':%d", byte + 1);
        else
            buf_printf(&b, ",'%.*s':%d", (int)n, (const char *)c, byte + 1);
    }
    buf_str(&b, "}}}");
    assert_false(b.failed);
    tokenizer *t = parsed((const char *)b.data);
    buf_free(&b);
    return t;
}

static void stream_holds_back_partial_characters(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *pieces[8]; /* a piece after each byte, then at the end */
    } cases[] = {
        {"a\xC3\xA9", {"a", "", "\xC3\xA9", ""}},
        {"\xF0\x9F\x98\x80", {"", "", "", "\xF0\x9F\x98\x80", ""}},
        {"\xE4\xBD", {"", "", "\xEF\xBF\xBD"}},
        {"\xE4\xBD"
         "a",
         {"", "",
          "\xEF\xBF\xBD"
          "a",
          ""}},
        {"\xE4\xC3\xA9", {"", "\xEF\xBF\xBD", "\xC3\xA9", ""}},
        {"\x80\xFF", {"\xEF\xBF\xBD", "\xEF\xBF\xBD", ""}},
        {"\xED\xA0\x80", {"", "\xEF\xBF\xBD\xEF\xBF\xBD", "\xEF\xBF\xBD", ""}},
        {"\xF0\x9F\x98\xF0", {"", "", "", "\xEF\xBF\xBD", "\xEF\xBF\xBD"}},
    };
    tokenizer *t = bytes_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        token_stream s = {.tokenizer = t};
        buf out = {0};
        size_t n = strlen(cases[i].bytes), k = 0;
        for (; k < n; k++) {
            out.len = 0;
            buf_put(&out, "", 0);
            assert_int_equal(token_stream_put(&s, (uint8_t)cases[i].bytes[k] + 1, &out, NULL), KEEL_OK);
            assert_string_equal((const char *)out.data, cases[i].pieces[k]);
        }
        out.len = 0;
        buf_put(&out, "", 0);
        token_stream_end(&s, &out);
        assert_string_equal((const char *)out.data, cases[i].pieces[k]);
        buf_free(&out);
    }
    tokenizer_close(t);
}

static void special_tokens_and_ids(void **state) {
    (void)state;
    tokenizer *t = bytes_tokenizer();
    assert_int_equal(tokenizer_vocab(t), 301);
    assert_int_equal(tokenizer_special(t, "<s>"), 0);
    assert_int_equal(tokenizer_special(t, "caf\xC3\xA9"), 300);
    assert_int_equal(tokenizer_special(t, "a"), -1);
    assert_int_equal(tokenizer_special(t, "nothing"), -1);
    assert_true(tokenizer_is_special(t, 0));
    assert_false(tokenizer_is_special(t, 300));
    assert_false(tokenizer_is_special(t, 'a' + 1));
    assert_false(tokenizer_is_special(t, 299));
    const int32_t ids[] = {0, 'h' + 1, 300, 0, 'i' + 1};
    buf all = decoded(t, ids, 5, false), some = decoded(t, ids, 5, true);
    assert_string_equal((const char *)all.data, "<s>hcaf\xC3\xA9<s>i");
    assert_string_equal((const char *)some.data, "hcaf\xC3\xA9i");
    buf_free(&all);
    buf_free(&some);
    token_stream s = {.tokenizer = t};
    const int32_t bad[] = {-1, 299, 301, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        buf out = {0};
        keel_error err = KEEL_ERROR_INITIALIZER;
        assert_int_equal(token_stream_put(&s, bad[i], &out, &err), KEEL_RANGE);
        assert_non_null(strstr(err.detail, "has no token"));
        assert_null(out.data);
    }
    tokenizer_close(t);
}

static void empty_text_has_no_ids(void **state) {
    (void)state;
    tokenizer *t = bytes_tokenizer();
    int32_t *ids = NULL;
    size_t n = 99;
    assert_int_equal(tokenizer_encode(t, NULL, 0, true, &ids, &n, NULL), KEEL_OK);
    assert_non_null(ids);
    assert_int_equal(n, 0);
    keel_free(ids);
    tokenizer_close(t);
    tokenizer_close(NULL);
}

/* Quadratic work on any of these would take minutes. */
static void long_runs_take_little_time(void **state) {
    (void)state;
    static const struct {
        const char *tokenizer, *unit;
    } cases[] = {{"qwen", "a"},
                 {"llama3", "a"},
                 {"deepseek", "a"},
                 {"smollm", "a"},
                 {"qwen", " "},
                 {"llama3", "\n"},
                 {"deepseek", "1"},
                 {"qwen", "<|im_star"},
                 {"qwen", "\xCC\x81\xCC\xA3"},
                 {"qwen", "\xE4\xBD"},
                 {"llama3", "<|eot_id|> "},
                 {"smollm", "'"}};
    enum { RUN_BYTES = 1 << 18 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[4096];
        snprintf(path, sizeof path, GOLDEN "tokenizers/%s.json", cases[i].tokenizer);
        tokenizer *t = opened(path);
        buf text = {0};
        while (text.len < RUN_BYTES) buf_str(&text, cases[i].unit);
        int32_t *ids = NULL;
        size_t n = 0;
        assert_int_equal(tokenizer_encode(t, (const char *)text.data, text.len, false, &ids, &n, NULL), KEEL_OK);
        assert_true(n > 0);
        keel_free(ids);
        buf_free(&text);
        tokenizer_close(t);
    }
}

static void runaway_regex_is_an_error(void **state) {
    (void)state;
    tokenizer *t =
        parsed("{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'(?:a|a|aa)+[bc]'},'behavior':'Isolated'}," DECODER
               ",'model':{'vocab':{'a':0},'merges':[]}}");
    char text[4000];
    memset(text, 'a', sizeof text);
    int32_t *ids = NULL;
    size_t n;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(tokenizer_encode(t, text, sizeof text, false, &ids, &n, &err), KEEL_RANGE);
    assert_non_null(strstr(err.detail, "t.json: pre_tokenizer: a regex gave up"));
    assert_null(ids);
    tokenizer_close(t);
}

#define V "'vocab':{'a':0,'b':1,'ab':2},'merges':['a b']"
#define REST "'pre_tokenizer':" PLAIN "," DECODER

static const struct {
    const char *json;
    keel_status status;
    const char *words;
} bad[] = {
    {"", KEEL_FORMAT, "t.json:1"},
    {"{", KEEL_FORMAT, "not valid JSON"},
    {"[]", KEEL_FORMAT, "must be a JSON object"},
    {"{}", KEEL_FORMAT, "\"model\" is missing"},
    {"{'model':[]}", KEEL_FORMAT, "\"model\" must be an object"},
    {"{" REST ",'model':{'type':'Unigram'}}", KEEL_UNSUPPORTED, "model type \"Unigram\"; known: BPE"},
    {"{" REST ",'model':{'type':3}}", KEEL_FORMAT, "\"type\" must be a string"},
    {"{" REST ",'model':{'merges':[]}}", KEEL_FORMAT, "model: \"vocab\" is missing"},
    {"{" REST ",'model':{'vocab':['a']}}", KEEL_FORMAT, "\"vocab\" must be an object"},
    {"{" REST ",'model':{'vocab':{'a':0,'b':1,'ab':2}}}", KEEL_FORMAT, "model.merges: missing or empty"},
    {"{" REST ",'model':{'vocab':{'a':0,'b':1,'ab':2},'merges':[]}}", KEEL_FORMAT, "with its merges"},
    {"{" REST ",'model':{'vocab':{'a':0},'merges':{}}}", KEEL_FORMAT, "\"merges\" must be an array"},
    {"{" REST ",'model':{'vocab':{'a':0,'b':1},'merges':['a b']}}", KEEL_FORMAT, "what this merge makes"},
    {"{" REST ",'model':{'vocab':{'a':0,'b':1,'ab':2},'merges':['a b','a x']}}", KEEL_FORMAT,
     "model.merges[1]: \"x\" is not in model.vocab"},
    {"{" REST ",'model':{'vocab':{'a':0,'b':1,'ab':2},'merges':[['a','x']]}}", KEEL_FORMAT, "not in model.vocab"},
    {"{" REST ",'model':{'vocab':{'a':0},'merges':['a']}}", KEEL_FORMAT, "a merge must be"},
    {"{" REST ",'model':{'vocab':{'a':0},'merges':['a a a']}}", KEEL_FORMAT, "a merge must be"},
    {"{" REST ",'model':{'vocab':{'a':0},'merges':[['a']]}}", KEEL_FORMAT, "a merge must be"},
    {"{" REST ",'model':{'vocab':{'a':0},'merges':[['a',1]]}}", KEEL_FORMAT, "must be strings"},
    {"{" REST ",'model':{'vocab':{'a':0},'merges':[7]}}", KEEL_FORMAT, "a merge must be"},
    {"{" REST ",'model':{'vocab':{'a':5,'b':5},'merges':[]}}", KEEL_FORMAT, "have the same id 5"},
    {"{" REST ",'model':{'vocab':{'a':0,'a':1},'merges':[]}}", KEEL_FORMAT, "duplicate object key"},
    {"{" REST ",'model':{'vocab':{'a':-1},'merges':[]}}", KEEL_RANGE, "the id of \"a\" is -1"},
    {"{" REST ",'model':{'vocab':{'a':16777216},'merges':[]}}", KEEL_RANGE, "outside 0..16777215"},
    {"{" REST ",'model':{'vocab':{'a':99999999999},'merges':[]}}", KEEL_RANGE, "99999999999"},
    {"{" REST ",'model':{'vocab':{'a':1.5},'merges':[]}}", KEEL_FORMAT, "must be an integer"},
    {"{" REST ",'model':{'vocab':{'a':'0'},'merges':[]}}", KEEL_FORMAT, "must be an integer"},
    {"{" REST ",'model':{" V ",'byte_fallback':true}}", KEEL_UNSUPPORTED, "byte_fallback"},
    {"{" REST ",'model':{" V ",'dropout':0.1}}", KEEL_UNSUPPORTED, "dropout"},
    {"{" REST ",'model':{" V ",'dropout':'x'}}", KEEL_FORMAT, "must be a number"},
    {"{" REST ",'model':{" V ",'end_of_word_suffix':'</w>'}}", KEEL_UNSUPPORTED, "end_of_word_suffix"},
    {"{" REST ",'model':{" V ",'continuing_subword_prefix':'##'}}", KEEL_UNSUPPORTED, "continuing_subword_prefix"},
    {"{" REST ",'model':{" V ",'ignore_merges':1}}", KEEL_FORMAT, "must be true or false"},
    {"{" REST ",'model':{" V ",'unk_token':1}}", KEEL_FORMAT, "must be a string"},
    {"{" REST ",'added_tokens':{},'model':{" V "}}", KEEL_FORMAT, "added_tokens: must be an array"},
    {"{" REST ",'added_tokens':[3],'model':{" V "}}", KEEL_FORMAT, "added_tokens[0]: must be an object"},
    {"{" REST ",'added_tokens':[{'id':9}],'model':{" V "}}", KEEL_FORMAT, "\"content\" is missing"},
    {"{" REST ",'added_tokens':[{'content':'x'}],'model':{" V "}}", KEEL_FORMAT, "\"id\" is missing"},
    {"{" REST ",'added_tokens':[{'id':-9,'content':'x'}],'model':{" V "}}", KEEL_RANGE, "is -9, outside"},
    {"{" REST ",'added_tokens':[{'id':1,'content':'x'}],'model':{" V "}}", KEEL_FORMAT, "have the same id 1"},
    {"{" REST ",'added_tokens':[{'id':9,'content':'a'}],'model':{" V "}}", KEEL_FORMAT, "9 here and 0 in model.vocab"},
    {"{" REST ",'added_tokens':[{'id':9,'content':'x'},{'id':8,'content':'x'}],'model':{" V "}}", KEEL_FORMAT,
     "added_tokens[1]: \"x\" is an added token already"},
    {"{" REST ",'added_tokens':[{'id':9,'content':'x','lstrip':2}],'model':{" V "}}", KEEL_FORMAT,
     "\"lstrip\" must be"},
    {"{'normalizer':{'type':'NFKC'}," REST ",'model':{" V "}}", KEEL_UNSUPPORTED,
     "normalizer: normalizer type \"NFKC\"; known: null, NFC, Sequence"},
    {"{'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'Lowercase'}]}," REST ",'model':{" V "}}",
     KEEL_UNSUPPORTED, "normalizer.normalizers[1]: normalizer type \"Lowercase\""},
    {"{'normalizer':'NFC'," REST ",'model':{" V "}}", KEEL_FORMAT, "must be an object or null"},
    {"{'normalizer':{}," REST ",'model':{" V "}}", KEEL_FORMAT, "\"type\" is missing"},
    {"{'pre_tokenizer':{'type':'Metaspace'}," DECODER ",'model':{" V "}}", KEEL_UNSUPPORTED,
     "pre_tokenizer type \"Metaspace\"; known: null, Sequence, Split, Digits, ByteLevel"},
    {"{'pre_tokenizer':{'type':'Sequence','pretokenizers':[" PLAIN ",{'type':'Digits'}]}," DECODER ",'model':{" V "}}",
     KEEL_UNSUPPORTED, "pre_tokenizer.pretokenizers[1]: comes after ByteLevel"},
    {"{'pre_tokenizer':{'type':'Sequence'}," DECODER ",'model':{" V "}}", KEEL_FORMAT, "\"pretokenizers\" is missing"},
    {"{" REST ",'post_processor':{'type':'RobertaProcessing'},'model':{" V "}}", KEEL_UNSUPPORTED, "RobertaProcessing"},
    {"{" REST ",'post_processor':{'type':'TemplateProcessing','single':[],'special_tokens':{}},'model':{" V "}}",
     KEEL_UNSUPPORTED, "the text exactly once"},
    {"{" REST
     ",'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'s'}}],'special_tokens':{}}"
     ",'model':{" V "}}",
     KEEL_FORMAT, "\"s\" is missing"},
    {"{" REST ",'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'s'}}],'special_tokens':"
     "{'s':{'ids':[77]}}},'model':{" V "}}",
     KEEL_FORMAT, "names no token"},
    {"{'pre_tokenizer':" PLAIN ",'model':{" V "}}", KEEL_UNSUPPORTED, "decoder: decoder \"null\"; known: ByteLevel"},
    {"{'pre_tokenizer':" PLAIN ",'decoder':{'type':'Metaspace'},'model':{" V "}}", KEEL_UNSUPPORTED,
     "decoder type \"Metaspace\""},
};

static void refused(const char *json, keel_status status, const char *words) {
    tokenizer *t = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status got = parse(json, &t, &err);
    if (got != status || !strstr(err.detail, words))
        print_error("%s\n%s: %s\n", json, keel_status_name(got), err.detail);
    assert_int_equal(got, status);
    assert_non_null(strstr(err.detail, words));
    assert_non_null(strstr(err.detail, "t.json"));
    assert_null(t);
    assert_int_equal(parse(json, &t, NULL), status);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused(bad[i].json, bad[i].status, bad[i].words);
}

static void bad_patterns_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *regex; /* inside JSON: each backslash twice */
        keel_status status;
        const char *words;
    } patterns[] = {
        {"(a", KEEL_FORMAT, "group without end"},
        {"a)", KEEL_FORMAT, "unmatched )"},
        {"[a", KEEL_FORMAT, "class without end"},
        {"*a", KEEL_FORMAT, "repeat of nothing"},
        {"a\\\\", KEEL_FORMAT, "lone backslash"},
        {"[b-a]", KEEL_FORMAT, "range out of order"},
        {"\\\\x{}", KEEL_FORMAT, "hexadecimal escape"},
        {"a{3,2}", KEEL_FORMAT, "bad regex"},
        {"\\\\p{Nonsense}", KEEL_FORMAT, "bad regex"},
        {"[[a]b]", KEEL_UNSUPPORTED, "class in a class"},
        {"[a&&b]", KEEL_UNSUPPORTED, "intersection"},
        {"(?i)a", KEEL_UNSUPPORTED, "group"},
        {"(?<n>a)", KEEL_UNSUPPORTED, "group"},
        {"\\\\bword", KEEL_UNSUPPORTED, "escape"},
        {"(a)\\\\1", KEEL_UNSUPPORTED, "escape"},
        {"\\\\h", KEEL_UNSUPPORTED, "escape"},
        {"\\\\p{L", KEEL_UNSUPPORTED, "property without braces"},
        {"a{1,2}+", KEEL_UNSUPPORTED, "repeat"},
        {"a**", KEEL_UNSUPPORTED, "repeat"},
        {"(?i:ss)", KEEL_UNSUPPORTED, "ligature"},
        {"(?i:\xC3\xA9)", KEEL_UNSUPPORTED, "outside ASCII"},
        {"(?i:[^a])", KEEL_UNSUPPORTED, "class other than"},
        {"[\\\\W]", KEEL_UNSUPPORTED, "escape"},
        {"\\\\x{110000}", KEEL_UNSUPPORTED, "code point"},
    };
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char json[1024];
        snprintf(json, sizeof json,
                 "{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'%s'},'behavior':'Isolated'}," DECODER
                 ",'model':{" V "}}",
                 patterns[i].regex);
        refused(json, patterns[i].status, patterns[i].words);
    }
    refused("{'pre_tokenizer':{'type':'Split','pattern':'a','behavior':'Isolated'}," DECODER ",'model':{" V "}}",
            KEEL_FORMAT, "\"pattern\" must be an object");
    refused("{'pre_tokenizer':{'type':'Split','pattern':{},'behavior':'Isolated'}," DECODER ",'model':{" V "}}",
            KEEL_FORMAT, "{\"String\": string}");
    refused("{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'a'},'behavior':'Both'}," DECODER ",'model':{" V "}}",
            KEEL_UNSUPPORTED, "behavior \"Both\"; known: Isolated");
}

static void missing_file_is_named(void **state) {
    (void)state;
    tokenizer *t = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(tokenizer_open("/nowhere/tokenizer.json", &t, &err), KEEL_MISSING);
    assert_non_null(strstr(err.detail, "/nowhere/tokenizer.json"));
    assert_null(t);
}

static const char everything[] =
    "{'added_tokens':[{'id':40,'content':'<s>','special':true,'single_word':true},"
    "{'id':41,'content':'<n>','normalized':true,'lstrip':true,'rstrip':true}],"
    "'normalizer':{'type':'NFC'},'pre_tokenizer':{'type':'Sequence','pretokenizers':["
    "{'type':'Split','pattern':{'Regex':'\\\\s+|(?i:[b])'},'behavior':'Isolated'},{'type':'Digits'},"
    "{'type':'ByteLevel','add_prefix_space':true}]}," DECODER ",'post_processor':{'type':'TemplateProcessing',"
    "'single':[{'SpecialToken':{'id':'<s>'}},{'Sequence':{'id':'A'}}],'special_tokens':{'<s>':{'ids':[40]}}},"
    "'model':{" MODEL ",'ignore_merges':true,'unk_token':'x'}}";

static void every_allocation_may_fail(void **state) {
    (void)state;
    buf json = json_text(everything);
    static const char text[] = "<s> abcd12 e\xCC\x81 <n> ab\xFF aaaa?";
    tokenizer *t = NULL;
    uint64_t n = 0, failures = 0;
    keel_status s;
    do {
        mem_fail_after(++n);
        keel_error err = KEEL_ERROR_INITIALIZER;
        s = tokenizer_parse("t.json", (const char *)json.data, json.len, &t, &err);
        mem_fail_after(0);
        failures += s == KEEL_NOMEM;
        if (s != KEEL_OK) assert_non_null(strstr(err.detail, "out of memory"));
    } while (s == KEEL_NOMEM);
    assert_int_equal(s, KEEL_OK);
    assert_true(failures > 20);
    int32_t *ids = NULL;
    size_t n_ids = 0;
    for (n = 0, failures = 0, s = KEEL_NOMEM; s == KEEL_NOMEM;) {
        mem_fail_after(++n);
        s = tokenizer_encode(t, text, sizeof text - 1, true, &ids, &n_ids, NULL);
        mem_fail_after(0);
        if (s == KEEL_NOMEM) assert_null(ids);
        failures += s == KEEL_NOMEM;
    }
    assert_int_equal(s, KEEL_OK);
    assert_true(failures > 10);
    for (n = 0, s = KEEL_NOMEM; s == KEEL_NOMEM;) {
        token_stream stream = {.tokenizer = t};
        buf out = {0};
        mem_fail_after(++n);
        s = KEEL_OK;
        for (size_t i = 0; i < n_ids && s == KEEL_OK; i++) s = token_stream_put(&stream, ids[i], &out, NULL);
        mem_fail_after(0);
        buf_free(&out);
    }
    assert_int_equal(s, KEEL_OK);
    assert_true(n > 2);
    keel_free(ids);
    buf_free(&json);
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_tokenizers), cmocka_unit_test(stream_holds_back_partial_characters),
        cmocka_unit_test(special_tokens_and_ids),      cmocka_unit_test(empty_text_has_no_ids),
        cmocka_unit_test(long_runs_take_little_time),  cmocka_unit_test(runaway_regex_is_an_error),
        cmocka_unit_test(bad_files_are_refused),       cmocka_unit_test(bad_patterns_are_refused),
        cmocka_unit_test(missing_file_is_named),       cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
