/* SPDX-License-Identifier: Apache-2.0 */
/* What the tokenizer's files share. Reference behaviour: Hugging Face `tokenizers` 0.23 (its names stand in comments as
 * HF); ids are meant to be the same for every text. */
#ifndef KEEL_LOAD_TOKENIZER_INTERNAL_H
#define KEEL_LOAD_TOKENIZER_INTERNAL_H

#include "core/arena.h"
#include "core/buf.h"
#include "core/json.h"
#include "load/tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    TOKENIZER_MAX_ID = (1 << 24) - 1,
    TOKENIZER_MAX_FILE_BYTES = 256 << 20,
    TOKENIZER_MAX_TEXT_BYTES =
        1 << 28, /* replacement triples it and a prefix space doubles that: offsets stay 32-bit */
    TOKENIZER_MAX_STAGES = 32,
    TOKENIZER_MAX_NESTING = 8, /* Sequence in Sequence */
    TOKENIZER_MAX_TEMPLATE_IDS = 64,
    TOKENIZER_MAX_ADDED_BYTES = 1024, /* bounds the work of one step of the added-token search */
    TOKENIZER_MAX_PATTERN_BYTES = 1 << 14,
    TOKENIZER_PLACE_BYTES = 1024,
    TOKENIZER_QUOTE_BYTES = 64,
};

/* Vocabulary and merges (tokenizer_vocab.c) */

typedef struct token {
    const char *text; /* as it stands in the file: byte-mapped for the model's tokens, plain for added ones */
    uint32_t bytes;
    int32_t id;
    bool in_model; /* in model.vocab: may come out of the merges */
    bool added;    /* in added_tokens: matched in the text */
    bool special;
} token;

typedef struct token_table {
    token *tokens; /* ascending ids once vocab_finish has run */
    size_t n;
    uint64_t *slots; /* open addressing by text: hash << 32 | index into tokens + 1, 0 = free */
    uint32_t mask;   /* slots − 1, a power of two ≥ 2n */
} token_table;

typedef struct merge_slot {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX = free */
    uint32_t rank;
} merge_slot;

typedef struct merge_table {
    merge_slot *slots;
    uint64_t mask;
    int32_t *new_id; /* [n], by rank */
    size_t n;
} merge_table;

/* Room for n tokens; false when memory is short. */
bool vocab_init(token_table *v, arena *a, size_t n);
/* Appends and hashes; the caller has looked that the text is new. */
void vocab_put(token_table *v, token t);
token *vocab_find(const token_table *v, const char *text, size_t bytes);
/* Sorts by id; KEEL_FORMAT when two tokens share one. */
keel_status vocab_finish(token_table *v, const char *place, keel_error *err);
const token *vocab_at(const token_table *v, int32_t id);
/* Id of a token of the model by its text, or -1. */
int32_t vocab_model_id(const token_table *v, const char *text, size_t bytes);

bool merges_init(merge_table *m, arena *a, size_t n);
/* The pair's next rank; a pair named again takes its later rank, as HF's map does. */
void merges_put(merge_table *m, int32_t left, int32_t right, int32_t new_id);
/* Rank of a pair, or UINT32_MAX. */
uint32_t merges_rank(const merge_table *m, int32_t left, int32_t right);

/* Text (tokenizer_text.c) */

/* The leading character or, when ill-formed, maximal subpart of one (Unicode 15, 3.9, table 3-7). n ≥ 1; returns ≥ 1.
 * A truncated character is a subpart that reaches the end. */
size_t utf8_scan(const uint8_t *p, size_t n, bool *well_formed);
bool text_is_ascii(const char *text, size_t n);
/* Copies with U+FFFD for ill-formed subparts. */
void text_repair(const char *text, size_t n, buf *out);
bool text_is_valid(const char *text, size_t n);
/* Unicode NFC of well-formed text, in O(n log n) whatever the order of its marks; false when memory is short. */
bool text_nfc(const char *text, size_t n, buf *out);

/* GPT-2's printable stand-in for a byte, and back; -1 when the character stands for no byte. */
uint32_t byte_to_char(uint8_t byte);
int char_to_byte(uint32_t c);
/* Appends byte-mapped text; and the bytes of byte-mapped text (as it is when some character stands for no byte). */
void text_map_bytes(const char *text, size_t n, buf *out);
void text_unmap_bytes(const char *text, size_t n, buf *out);
size_t utf8_put(uint32_t c, char out[4]);

/* Regular expressions (tokenizer_regex.c) */

/* Compiles an Oniguruma pattern, as `tokenizers` reads it, to PCRE2. Constructs whose meaning differs are rewritten;
 * those that have no exact counterpart here are KEEL_UNSUPPORTED. literal: the pattern is a plain string. */
keel_status regex_compile(const char *place, const char *pattern, bool literal, pcre2_general_context *gc,
                          pcre2_code **out, keel_error *err);
/* A PCRE2 pattern of this program's own. */
keel_status regex_compile_native(const char *place, const char *pattern, pcre2_general_context *gc, pcre2_code **out,
                                 keel_error *err);

/* Added tokens (tokenizer_added.c) */

typedef struct added_token {
    const char *match; /* what is looked for: the content, normalised if `normalized` */
    uint32_t bytes;
    uint32_t order; /* in the file; the first of two that normalise to the same counts (HF takes either, at random) */
    int32_t id;
    bool control; /* special, or of the look of one (<|…|>): not matched in a chat's message text */
    bool special, single_word, lstrip, rstrip, normalized;
} added_token;

typedef struct added_set {
    added_token *v; /* by bytes, then order */
    size_t n;
    bool first[256]; /* bytes that a match may begin with */
} added_set;

void added_set_finish(added_set *s);

/* One pass over a text: alternately the plain text before a match and the match. */
typedef struct added_scan {
    const added_set *set;
    const pcre2_code *word; /* one word character; for single_word */
    pcre2_match_data *match_data;
    const char *text;
    size_t n, at, plain_from;
    size_t stripped_to; /* end of the white space that rstrip has taken; keeps the scan linear */
    bool with_control;
} added_scan;

/* The plain text [*from, *to) that comes next and the id after it, -1 at the end of the text. */
int32_t added_scan_next(added_scan *s, size_t *from, size_t *to);

/* The tokenizer */

typedef enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
} split_behavior;

typedef struct pre_stage {
    pcre2_code *code; /* NULL: this stage puts a space before each piece that begins with none */
    split_behavior behavior;
    bool invert;
} pre_stage;

typedef enum unk_rule { UNK_DROP, UNK_ID, UNK_ERROR } unk_rule;

struct tokenizer {
    arena arena;
    pcre2_general_context *regex_memory;
    char *file; /* for messages at encoding */

    token_table vocab;
    merge_table merges;
    bool ignore_merges;
    bool byte_level;
    int32_t byte_id[256]; /* byte_level: the token of one byte, -1 when the vocab has none (such a byte is dropped) */
    unk_rule unk;
    bool fuse_unk;
    int32_t unk_id;

    added_set added[2]; /* matched in the text as given; matched after normalising */
    pcre2_code *word;   /* NULL unless a token wants single_word */
    bool nfc;
    pre_stage stages[TOKENIZER_MAX_STAGES];
    size_t n_stages;

    int32_t *before, *after; /* what the post-processor adds */
    size_t n_before, n_after;
};

/* tokenizer_read.c, tokenizer_pipeline.c: from the file's root object. */
keel_status tokenizer_read_model(tokenizer *t, const json_t *root, keel_error *err);
keel_status tokenizer_read_pipeline(tokenizer *t, const json_t *root, keel_error *err);
keel_status tokenizer_read_post_processor(tokenizer *t, const json_t *root, keel_error *err);

/* "file: what.ever[3]" for messages. */
typedef struct place {
    char s[TOKENIZER_PLACE_BYTES];
} place;
place place_at(const char *base, const char *sep, const char *key);
place place_item(const char *base, size_t i);
/* A token's text, cut at a character's border, for messages. */
typedef struct quoted {
    char s[TOKENIZER_QUOTE_BYTES];
} quoted;
quoted quote(const char *text);
/* obj[key], which must be there and of the type; `what` names the type. */
keel_status json_member(const char *where, const json_t *obj, const char *key, json_type type, const char *what,
                        const json_t **out, keel_error *err);
/* The "type" string of an object. */
keel_status json_kind(const char *where, const json_t *obj, const char **out, keel_error *err);

/* Encoding (tokenizer_encode.c, tokenizer_pretokenize.c, tokenizer_bpe.c) */

typedef struct span {
    uint32_t from, to;
} span;

typedef struct bpe_symbol {
    int32_t id; /* -1: merged away */
    int32_t prev, next;
} bpe_symbol;

/* Scratch of one encode call. The bufs are vectors of what their comments say. */
typedef struct encoder {
    const tokenizer *t;
    keel_error *err;
    bool with_control; /* match control tokens too */
    pcre2_match_data *match_data;
    pcre2_match_context *match_context;
    buf *ids;        /* int32_t */
    buf repaired;    /* bytes */
    buf normalized;  /* bytes */
    buf prefixed;    /* bytes: the pieces with their prefix spaces */
    buf spans, next; /* span */
    buf symbols;     /* bpe_symbol */
    buf heap;        /* uint64_t */
    buf mapped;      /* bytes */
} encoder;

/* Splits text[0, n) (n > 0) into e->spans (empty ones are to be skipped); *text may be replaced. */
keel_status pretokenize(encoder *e, const char **text, size_t n);
/* Appends the ids of one piece. */
keel_status bpe_piece(encoder *e, const char *piece, size_t n);

/* Appends the ids of text; control tokens are matched only with_control, other added tokens (<think>) always. *ids is a
 * vector of int32_t. Nothing is appended for BOS. Used by chat.c for message text. */
keel_status tokenizer_encode_to(const tokenizer *t, const char *text, size_t bytes, bool with_control, buf *ids,
                                keel_error *err);
/* Appends one id. */
void ids_put(buf *ids, int32_t id);

#endif
