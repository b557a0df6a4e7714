/* SPDX-License-Identifier: Apache-2.0 */
/* What can be told from a model folder's chat template without a Jinja engine. Private to chat.c. */
#ifndef KEEL_LOAD_CHAT_TEMPLATE_H
#define KEEL_LOAD_CHAT_TEMPLATE_H

#include "core/buf.h"
#include "core/error.h"

/* A turn is: open ROLE middle CONTENT close after. Special tokens stand apart from the text between them, because that
 * text is encoded without matching any. */
typedef struct chat_format {
    const char *open;        /* special */
    const char *role_end;    /* special, or NULL */
    const char *before_text; /* plain, joined to what stands before it */
    const char *close;       /* special */
    const char *after_close; /* plain, before the next turn */
    const char *begin;       /* special at the very start where the tokenizer has it, or NULL */
} chat_format;

/* Appends the folder's template to out; nothing when it has none. chat_template.jinja wins over tokenizer_config.json,
 * as in transformers. */
keel_status chat_template_read(const char *dir, buf *out, keel_error *err);
/* Puts the default system message into out: the one literal system block that the template writes when no system
 * message is given. Two different ones, or none that can be recognised: out->data stays NULL. */
keel_status chat_template_default(const char *jinja, const chat_format *f, buf *out, keel_error *err);

#endif
