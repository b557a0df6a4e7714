/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE from a Hugging Face tokenizer.json. Immutable after loading: encode and decode may run
 * on several threads at once, each with its own stream. */
#ifndef KEEL_LOAD_TOKENIZER_H
#define KEEL_LOAD_TOKENIZER_H

#include "core/error.h"

typedef struct tokenizer tokenizer;

/* path names a tokenizer.json. Ids come out as from Hugging Face `tokenizers`; what cannot be reproduced exactly is
 * refused. KEEL_FORMAT: missing merges, merges of unknown tokens, duplicate ids, a malformed regex, wrong types;
 * KEEL_RANGE: an id outside [0, 2^24); KEEL_UNSUPPORTED: an unknown model type, pre-tokeniser, normaliser, decoder,
 * post-processor or regex construct. All name the file and the place in it. "truncation" and "padding" are not applied.
 */
keel_status tokenizer_open(const char *path, tokenizer **out, keel_error *err);
/* The same from bytes; `file` stands in messages. For fuzzing and tests. */
keel_status tokenizer_parse(const char *file, const char *text, size_t bytes, tokenizer **out, keel_error *err);
void tokenizer_close(tokenizer *t);

/* Largest id + 1, added tokens included. */
uint32_t tokenizer_vocab(const tokenizer *t);

/* Ids of any bytes; invalid UTF-8 counts as U+FFFD, one a maximal ill-formed subpart (Unicode 3.9, as
 * Python's errors="replace"). A byte that the vocab has no token for is dropped, or unk_token where the model names
 * one, as in `tokenizers`. Added tokens in the text are matched. add_special: what the post-processor adds (BOS).
 * KEEL_RANGE: a pre-tokeniser regex that runs away on this text. *ids is the caller's, freed with keel_free(). */
keel_status tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, bool add_special, int32_t **ids,
                             size_t *n_ids, keel_error *err);

/* Id of an added token by its exact content, or -1. */
int32_t tokenizer_special(const tokenizer *t, const char *content);
bool tokenizer_is_special(const tokenizer *t, int32_t id);

/* Streaming decode: holds back an incomplete UTF-8 sequence until the next token completes it or proves it
 * invalid (then U+FFFD). Added tokens come out as their content stands in the file. */
typedef struct token_stream {
    const tokenizer *tokenizer;
    bool skip_special;
    uint8_t pending[4];
    uint8_t n_pending;
} token_stream;

/* Appends the text that id completes to out (see core/buf.h); an id without a token is KEEL_RANGE. */
struct buf;
keel_status token_stream_put(token_stream *s, int32_t id, struct buf *out, keel_error *err);
/* Flushes what is held back, as U+FFFD. */
void token_stream_end(token_stream *s, struct buf *out);

#endif
