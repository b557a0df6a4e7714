/* SPDX-License-Identifier: Apache-2.0 */
#include "token_printer.h"

#include "fail.h"
#include "interrupt.h"
#include "out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

keel_status token_printer_open(token_printer *s, const keel_model *model, bool has_tokenizer, size_t room, bool print,
                               keel_error *err) {
    *s = (token_printer){.room = room, .print = print, .err = err};
    s->ids = calloc(room + 1, sizeof *s->ids);
    if (!s->ids) return fail_memory(err, "tokens");
    return has_tokenizer ? keel_decoder_open(model, true, &s->decoder, err) : KEEL_OK;
}

static keel_status keep_text(token_printer *s, const char *text, size_t bytes) {
    if (s->bytes + bytes > s->text_room) {
        size_t room = 2 * s->text_room + bytes + 256;
        char *more = realloc(s->text, room);
        if (!more) return fail_memory(s->err, "text");
        s->text = more;
        s->text_room = room;
    }
    if (bytes) memcpy(s->text + s->bytes, text, bytes);
    s->bytes += bytes;
    return KEEL_OK;
}

static keel_status put_text(token_printer *s, const char *text, size_t bytes) {
    TRY(keep_text(s, text, bytes));
    if (!s->print || !bytes) return KEEL_OK;
    TRY(out_bytes(text, bytes, s->err));
    return out_flush(s->err);
}

static keel_status put(token_printer *s, int32_t token) {
    const char *text;
    size_t bytes;
    if (s->n < s->room) s->ids[s->n++] = token;
    if (s->decoder) {
        TRY(keel_decoder_put(s->decoder, token, &text, &bytes, s->err));
        return put_text(s, text, bytes);
    }
    if (!s->print) return KEEL_OK;
    TRY(out_format(s->err, "%s%d", s->n > 1 ? " " : "", token));
    return out_flush(s->err);
}

void token_printer_put(void *printer, uint32_t index, int32_t token, uint64_t ns) {
    token_printer *s = printer;
    (void)index, (void)ns;
    if (s->status == KEEL_OK) s->status = put(s, token);
    /* A signal between the watch and the launch is not lost this way. */
    if (s->status != KEEL_OK || interrupt_seen()) keel_session_stop(s->session);
}

keel_status token_printer_end(token_printer *s) {
    const char *text;
    size_t bytes;
    if (s->status == KEEL_OK && s->decoder) s->status = keel_decoder_end(s->decoder, &text, &bytes, s->err);
    if (s->status == KEEL_OK && s->decoder) s->status = put_text(s, text, bytes);
    if (s->status == KEEL_OK && s->print && s->n) s->status = out_text("\n", s->err);
    if (s->status == KEEL_OK) s->status = out_flush(s->err);
    return s->status;
}

void token_printer_close(token_printer *s) {
    keel_decoder_close(s->decoder);
    free(s->ids);
    free(s->text);
}
