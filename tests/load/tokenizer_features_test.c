/* SPDX-License-Identifier: Apache-2.0 */
/* What a tokenizer.json may ask for, one thing at a time. Expected values are what Hugging Face `tokenizers` 0.23 gave
 * for the same JSON and text. */
#include "core/buf.h"
#include "load/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>
#include <cmocka.h>

enum { MAX_IDS = 16 };

/* Of JSON with ' for ", so that it can be read here. */
static tokenizer *parsed(const char *quoted) {
    buf b = {0};
    buf_str(&b, quoted);
    for (size_t i = 0; i < b.len; i++) {
        if (b.data[i] == '\'') b.data[i] = '"';
    }
    tokenizer *t = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (tokenizer_parse("t.json", (const char *)b.data, b.len, &t, &err) != KEEL_OK) fail_msg("%s", err.detail);
    buf_free(&b);
    return t;
}

#define PLAIN "{'type':'ByteLevel','add_prefix_space':false,'trim_offsets':true,'use_regex':false}"
#define NO_FLAGS "'special':false,'normalized':false,'lstrip':false,'rstrip':false,'single_word':false"
#define STRIPS                                                                                                         \
    "'added_tokens':[{'id':28,'content':'<t>','special':false,'normalized':false,'lstrip':true,'rstrip':false,'"       \
    "single_word':false},{'id':29,'content':'<r>','special':false,'normalized':false,'lstrip':false,'rstrip':true,'"   \
    "single_word':false},{'id':30,'content':'<w>','special':false,'normalized':false,'lstrip':false,'rstrip':false,'"  \
    "single_word':true},{'id':17,'content':'ab'," NO_FLAGS "},{'id':25,'content':'abcd','special':false,'normalized':" \
    "false,'lstrip':false,'rstrip':false,'single_word':true}],"
#define MODEL                                                                                                          \
    "'type':'BPE','vocab':{'a':0,'b':1,'c':2,'d':3,'e':4,'1':5,'2':6,'\xC4\xA0':7,'\xC4\x8A':8,'.':9,'x':10,'"         \
    "\xC3\x83':11,'\xC2\xA9':12,'\xC3\x8C':13,'\xC4\xA3':14,'t':15,'T':16,'ab':17,'aa':18,'cd':19,'\xC4\xA0"           \
    "a':20,'12':21,'\xC3\x83\xC2\xA9':22,'\xC4\xA0\xC4\xA0':23,'aaaa':24,'abcd':25,'\xC4\xA0"                          \
    "ab':26,'bcd':27},'merges':[['a','b'],['a','a'],['c','d'],['\xC4\xA0','a'],['1','2'],['\xC3\x83','\xC2\xA9'],['"   \
    "\xC4\xA0','\xC4\xA0'],['aa','aa'],['ab','cd'],['\xC4\xA0"                                                         \
    "a','b']]"
#define DECODER "'decoder':{'type':'ByteLevel'}"

/* Members of the JSON object beside model and decoder, and of model beside MODEL. */
static const struct {
    const char *name, *members, *model, *text;
    bool add_special;
    size_t n;
    int32_t ids[MAX_IDS];
} features[] = {
    {"rank order", "'pre_tokenizer':" PLAIN, "", "aaaaabcdab ab", false, 5, {24, 25, 17, 7, 17}},
    {"split Isolated",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b|1'},'behavior':'"
     "Isolated','invert':false}," PLAIN "]}",
     "",
     "aab1bbcd12 ab",
     false,
     10,
     {18, 1, 5, 1, 1, 19, 5, 6, 20, 1}},
    {"split inverted Isolated",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b|1'},'behavior':'"
     "Isolated','invert':true}," PLAIN "]}",
     "",
     "aab1bbcd12 ab",
     false,
     10,
     {18, 1, 5, 1, 1, 19, 5, 6, 20, 1}},
    {"split Removed",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b|1'},'behavior':'"
     "Removed','invert':false}," PLAIN "]}",
     "",
     "aab1bbcd12 ab",
     false,
     4,
     {18, 19, 6, 20}},
    {"split inverted Removed",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b|1'},'behavior':'"
     "Removed','invert':true}," PLAIN "]}",
     "",
     "aab1bbcd12 ab",
     false,
     6,
     {1, 5, 1, 1, 5, 1}},
    {"split MergedWithPrevious",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b|1'},'behavior':'"
     "MergedWithPrevious','invert':false}," PLAIN "]}",
     "",
     "aab1bbcd12 ab",
     false,
     10,
     {0, 17, 5, 1, 1, 19, 5, 6, 7, 17}},
    {"split inverted MergedWithPrevious",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b|1'},'behavior':'"
     "MergedWithPrevious','invert':true}," PLAIN "]}",
     "",
     "aab1bbcd12 ab",
     false,
     9,
     {18, 1, 5, 1, 1, 19, 21, 20, 1}},
    {"split MergedWithNext",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b|1'},'behavior':'"
     "MergedWithNext','invert':false}," PLAIN "]}",
     "",
     "aab1bbcd12 ab",
     false,
     9,
     {18, 1, 5, 1, 1, 19, 21, 20, 1}},
    {"split inverted MergedWithNext",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b|1'},'behavior':'"
     "MergedWithNext','invert':true}," PLAIN "]}",
     "",
     "aab1bbcd12 ab",
     false,
     10,
     {0, 17, 5, 1, 1, 19, 5, 6, 7, 17}},
    {"split Contiguous",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b|1'},'behavior':'"
     "Contiguous','invert':false}," PLAIN "]}",
     "",
     "aab1bbcd12 ab",
     false,
     10,
     {18, 1, 5, 1, 1, 19, 5, 6, 20, 1}},
    {"split inverted Contiguous",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b|1'},'behavior':'"
     "Contiguous','invert':true}," PLAIN "]}",
     "",
     "aab1bbcd12 ab",
     false,
     10,
     {18, 1, 5, 1, 1, 19, 5, 6, 20, 1}},
    {"split string",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'String':'a.'},'behavior':'"
     "Isolated','invert':false}," PLAIN "]}",
     "",
     "aaa.ab aba.",
     false,
     8,
     {18, 0, 9, 17, 7, 17, 0, 9}},
    {"empty matches",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'b*'},'behavior':'"
     "Isolated','invert':false}," PLAIN "]}",
     "",
     "aabbaa",
     false,
     6,
     {0, 0, 1, 1, 0, 0}},
    {"prefix space",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'[12]'},'behavior':'"
     "Removed','invert':false},{'type':'ByteLevel','add_prefix_space':true,'trim_offsets':true,'use_regex':false}]}",
     "",
     "ab1ab2 ab",
     false,
     6,
     {7, 17, 7, 17, 7, 17}},
    {"prefix space and added",
     "'added_tokens':[{'id':15,'content':'t'," NO_FLAGS
     "}],'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':true,'trim_offsets':true,'use_regex':true}",
     "",
     "abtab ab",
     false,
     7,
     {7, 17, 15, 7, 17, 7, 17}},
    {"digits",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Digits','individual_digits':true}," PLAIN "]}",
     "",
     "12ab12",
     false,
     5,
     {5, 6, 17, 5, 6}},
    {"digits together",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Digits','individual_digits':false}," PLAIN "]}",
     "",
     "12ab12",
     false,
     3,
     {21, 17, 21}},
    {"ignore_merges",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'\\\\s'},'behavior':'"
     "Isolated','invert':false}," PLAIN "]}",
     ",'ignore_merges':true",
     "bcd bcdab aaaa",
     false,
     7,
     {27, 7, 1, 19, 17, 7, 24}},
    {"merges",
     "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'\\\\s'},'behavior':'"
     "Isolated','invert':false}," PLAIN "]}",
     "",
     "bcd bcdab aaaa",
     false,
     8,
     {1, 19, 7, 1, 19, 17, 7, 24}},
    {"unk", "'pre_tokenizer':" PLAIN, ",'unk_token':'x'", "a??b", false, 4, {0, 10, 10, 1}},
    {"unk fused", "'pre_tokenizer':" PLAIN, ",'unk_token':'x','fuse_unk':true", "a??b", false, 3, {0, 10, 1}},
    {"bytes without a token", "'pre_tokenizer':" PLAIN, "", "a?b?c??d", false, 1, {25}},
    {"lstrip", STRIPS "'pre_tokenizer':" PLAIN, "", "a  <t>  b", false, 4, {0, 28, 23, 1}},
    {"rstrip", STRIPS "'pre_tokenizer':" PLAIN, "", "a  <r>  b", false, 4, {0, 23, 29, 1}},
    {"both strips", STRIPS "'pre_tokenizer':" PLAIN, "", "a <r>   <t> b", false, 6, {0, 7, 29, 28, 7, 1}},
    {"strips overlap",
     "'added_tokens':[{'id':28,'content':' "
     "','special':false,'normalized':false,'lstrip':true,'rstrip':true,'single_word':false}],'pre_tokenizer':" PLAIN,
     "",
     "a   b a",
     false,
     5,
     {0, 28, 1, 28, 0}},
    {"single_word", STRIPS "'pre_tokenizer':" PLAIN, "", "a<w> <w> <w>b <w>", false, 7, {0, 7, 30, 7, 1, 7, 30}},
    {"longest", STRIPS "'pre_tokenizer':" PLAIN, "", "abcd abcdx abab", false, 7, {25, 7, 25, 10, 7, 17, 17}},
    {"normalised added",
     "'added_tokens':[{'id':28,'content':'\xC3\xA9t','special':false,'normalized':true,'lstrip':false,'rstrip':false,'"
     "single_word':false},{'id':29,'content':'te\xCC\x81'," NO_FLAGS
     "}],'normalizer':{'type':'NFC'},'pre_tokenizer':" PLAIN,
     "",
     "e\xCC\x81t te\xCC\x81 t\xC3\xA9",
     false,
     6,
     {28, 7, 29, 7, 15, 22}},
    {"nfc",
     "'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'}]},'pre_tokenizer':" PLAIN,
     "",
     "e\xCC\x81 \xC3\xA9",
     false,
     3,
     {22, 7, 22}},
    {"no nfc", "'pre_tokenizer':" PLAIN, "", "e\xCC\x81 \xC3\xA9", false, 5, {4, 13, 14, 7, 22}},
    {"no pre-tokenizer",
     "",
     "",
     "abcd \xC3\xA9"
     "ab",
     false,
     2,
     {25, 17}},
    {"template",
     "'added_tokens':[{'id':28,'content':'<s>','special':true,'normalized':false,'lstrip':false,'rstrip':false,'single_"
     "word':false}],'pre_tokenizer':" PLAIN
     ",'post_processor':{'type':'Sequence','processors':[{'type':'ByteLevel','add_prefix_space':true,'trim_offsets':"
     "true,'use_regex':true},{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>','type_id':0}},{'"
     "Sequence':{'id':'A','type_id':0}},{'SpecialToken':{'id':'<s>','type_id':0}}],'pair':[{'Sequence':{'id':'A','type_"
     "id':0}},{'Sequence':{'id':'B','type_id':0}}],'special_tokens':{'<s>':{'id':'<s>','ids':[28],'tokens':['<s>']}}}]"
     "}",
     "",
     "ab",
     true,
     3,
     {28, 17, 28}},
};

static void features_are_those_of_tokenizers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        char text[8192];
        const char *members = features[i].members;
        snprintf(text, sizeof text, "{%s%s" DECODER ",'model':{" MODEL "%s}}", members, *members ? "," : "",
                 features[i].model);
        tokenizer *t = parsed(text);
        int32_t *ids = NULL;
        size_t n = 0;
        assert_int_equal(
            tokenizer_encode(t, features[i].text, strlen(features[i].text), features[i].add_special, &ids, &n, NULL),
            KEEL_OK);
        bool same = n == features[i].n && memcmp(ids, features[i].ids, n * sizeof *ids) == 0;
        for (size_t k = 0; !same && k < n; k++) print_error("%d ", (int)ids[k]);
        if (!same) fail_msg("%s", features[i].name);
        keel_free(ids);
        tokenizer_close(t);
    }
}

/* Split with a pattern, its matches removed, what remains put together. Patterns as inside JSON. */
static const struct {
    const char *regex, *remains;
} patterns[] = {
    {"\\\\s", "ab\xE1\xA0\x8E\xE2\x80\x8B"
              "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5"
              "abaaab'\xC5\xBF'S\xE2\x84\xAA"
              "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83"
              "bb"},
    {"[^\\\\S]", "ab\xE1\xA0\x8E\xE2\x80\x8B"
                 "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5"
                 "abaaab'\xC5\xBF'S\xE2\x84\xAA"
                 "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83"
                 "bb"},
    {"[\\\\s]", "ab\xE1\xA0\x8E\xE2\x80\x8B"
                "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5"
                "abaaab'\xC5\xBF'S\xE2\x84\xAA"
                "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83"
                "bb"},
    {"\\\\S", " \xE3\x80\x80\xC2\x85\n\x0B \n"},
    {"[\\\\S]", " \xE3\x80\x80\xC2\x85\n\x0B \n"},
    {"\\\\w", " \xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85\xE3\x80\x81\n\x0B''-.+] \n"},
    {"[\\\\w]", " \xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85\xC2\xB2\xE3\x80\x81\n\x0B''-.+] \n"},
    {"\\\\W", "abc\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE4\xB8\x80\xE9\xBE\xA5"
              "abaaab\xC5\xBFS\xE2\x84\xAA"
              "AB_5ac\xC3\xA9\xEF\xAC\x83"
              "bb"},
    {"\\\\d", "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
              "c\xC2\xB2\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
              "AB_-.+]ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"\\\\D", "\xD9\xA1\xE0\xA5\xA7"
              "5"},
    {"\\\\v", "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
              "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab'\xC5\xBF'S\xE2\x84\xAA"
              "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"\\\\p{Han}", "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
                   "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
                   "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"\\\\p{^Lu}", "S\xE2\x84\xAA"
                   "AB"},
    {"\\\\P{L}", "abc\xE4\xB8\x80\xE9\xBE\xA5"
                 "abaaab\xC5\xBFS\xE2\x84\xAA"
                 "ABac\xC3\xA9\xEF\xAC\x83"
                 "bb"},
    {"[^\\\\p{L}\\\\p{N}]", "abc\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE4\xB8\x80\xE9\xBE\xA5"
                            "abaaab\xC5\xBFS\xE2\x84\xAA"
                            "AB5ac\xC3\xA9\xEF\xAC\x83"
                            "bb"},
    {"^a|b$", " b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
              "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nbaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
              "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 \n"},
    {"a{,2}b", "a \xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
               "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\na\x0B'\xC5\xBF'S\xE2\x84\xAA"
               "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 \n"},
    {"a++b?", " b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
              "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\n\x0B'\xC5\xBF'S\xE2\x84\xAA"
              "AB_-.+5]c\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"(?<=a)b", "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
                "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\naaaa\x0B'\xC5\xBF'S\xE2\x84\xAA"
                "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"(?<!a)b", "a \xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
                "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
                "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 \n"},
    {"(?i:[sk])", "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
                  "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B''AB_-.+5]"
                  "ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"(?i:\\u0027s|k)", "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
                        "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B"
                        "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"[\\\\x{80}-\\\\u00ff]",
     "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B"
     "c\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
     "AB_-.+5]ac\xEF\xAC\x83 b\nb"},
    {".", "\n\n"},
    {"[+\\\\--9]",
     "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
     "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
     "AB_]ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"[-a]", " b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
             "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nbb\x0B'\xC5\xBF'S\xE2\x84\xAA"
             "AB_.+5]c\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"\\\\.", "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
              "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
              "AB_-+5]ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"]", "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
          "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
          "AB_-.+5ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"\\\\Aa", " b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
               "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
               "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"b\\\\z", "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
               "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
               "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 b\n"},
    {"(?>a+)ab", "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
                 "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
                 "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 b\nb"},
    {"(a|b)c?", " \xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
                "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\n\x0B'\xC5\xBF'S\xE2\x84\xAA"
                "AB_-.+5]\xC3\xA9\xEF\xAC\x83 \n"},
};

static void patterns_match_as_in_oniguruma(void **state) {
    (void)state;
    static const char text[] =
        "a b\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\xC2\x85"
        "c\xC2\xB2\xD9\xA1\xE0\xA5\xA7\xE3\x80\x81\xE4\xB8\x80\xE9\xBE\xA5\nabaaab\x0B'\xC5\xBF'S\xE2\x84\xAA"
        "AB_-.+5]ac\xC3\xA9\xEF\xAC\x83 b\nb";
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        buf b = {0};
        buf_printf(&b,
                   "{'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'%s'},"
                   "'behavior':'Removed'}," PLAIN "]}," DECODER ",'model':{'merges':[],'vocab':{'!':33",
                   patterns[i].regex);
        int next = 0x100; /* every byte has a token: GPT-2's bytes_to_unicode */
        for (int byte = 0; byte < 256; byte++) {
            bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
            int c = printable ? byte : next++;
            if (byte != '!') buf_printf(&b, ",'\\u%04x':%d", (unsigned)c, byte);
        }
        buf_str(&b, "}}}");
        tokenizer *t = parsed((const char *)b.data);
        int32_t *ids = NULL;
        size_t n = 0;
        assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, false, &ids, &n, NULL), KEEL_OK);
        bool same = n == strlen(patterns[i].remains);
        for (size_t k = 0; same && k < n; k++) same = ids[k] == (uint8_t)patterns[i].remains[k];
        if (!same) fail_msg("%s", patterns[i].regex);
        keel_free(ids);
        tokenizer_close(t);
        buf_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_those_of_tokenizers),
        cmocka_unit_test(patterns_match_as_in_oniguruma),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
