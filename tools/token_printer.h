/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens on their way out: collected, decoded, and printed as they come. */
#ifndef KEEL_TOOLS_TOKEN_PRINTER_H
#define KEEL_TOOLS_TOKEN_PRINTER_H

#include "keel.h"

typedef struct token_printer {
    keel_decoder *decoder; /* NULL: a model without tokenizer, the ids are printed */
    keel_session *session; /* stopped when printing fails */
    bool print;
    int32_t *ids; /* [n] of [room] */
    size_t n, room;
    char *text; /* [bytes], not terminated */
    size_t bytes, text_room;
    keel_status status; /* of the first failure; later tokens are not printed */
    keel_error *err;
} token_printer;

/* For up to `room` tokens. Close in either case. */
keel_status token_printer_open(token_printer *s, const keel_model *model, bool has_tokenizer, size_t room, bool print,
                               keel_error *err);
/* A keel_on_token, with the printer as user. */
void token_printer_put(void *printer, uint32_t index, int32_t token, uint64_t ns);
/* What is still held back, and the end of the line. Returns the first failure. */
keel_status token_printer_end(token_printer *s);
void token_printer_close(token_printer *s);

#endif
