/* SPDX-License-Identifier: Apache-2.0 */
#include "load/chat.h"

#include "load/chat_template.h"
#include "load/tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

static const chat_format chat_formats[] = {
    {"<|im_start|>", NULL, "\n", "<|im_end|>", "\n", NULL},
    {"<|start_header_id|>", "<|end_header_id|>", "\n\n", "<|eot_id|>", "", "<|begin_of_text|>"},
};
enum { CHAT_FORMATS = sizeof chat_formats / sizeof *chat_formats };

static bool has_token(const tokenizer *t, const char *content) {
    return !content || tokenizer_special(t, content) >= 0;
}

/* NULL when the tokenizer has neither set of tokens. */
static const chat_format *format_of(const tokenizer *t) {
    for (size_t i = 0; i < CHAT_FORMATS; i++) {
        const chat_format *f = &chat_formats[i];
        if (has_token(t, f->open) && has_token(t, f->role_end) && has_token(t, f->close)) return f;
    }
    return NULL;
}

static keel_status no_format(const tokenizer *t, keel_error *err) {
    keel_status s = error_set(err, KEEL_UNSUPPORTED,
                              "%s: no known chat template: the tokenizer lacks the tokens of each; give the prompt as "
                              "plain text",
                              t->file);
    for (size_t i = 0; i < CHAT_FORMATS; i++) {
        const chat_format *f = &chat_formats[i];
        const char *const names[] = {f->open, f->role_end, f->close};
        char missing[128] = "";
        for (size_t j = 0; j < 3; j++) {
            size_t n = strlen(missing);
            if (!has_token(t, names[j])) snprintf(missing + n, sizeof missing - n, " %s", names[j]);
        }
        error_append(err, "%s is missing%s", i == 0 ? "ChatML" : "Llama 3", missing);
    }
    return s;
}

typedef struct chat_writer {
    const tokenizer *t;
    const chat_format *f;
    bool trim; /* the template trims message text (Llama 3) */
    buf run;   /* plain text since the last special token: encoded as one, since it would be in the rendered template */
    buf ids;   /* int32_t */
} chat_writer;

static keel_status put_special(chat_writer *w, const char *content, keel_error *err) {
    keel_status s = KEEL_OK;
    if (w->run.failed) return KEEL_NOMEM_AT(err, w->t->file);
    if (w->run.len) s = tokenizer_encode_to(w->t, (const char *)w->run.data, w->run.len, false, &w->ids, err);
    w->run.len = 0;
    if (content) ids_put(&w->ids, tokenizer_special(w->t, content));
    return s;
}

static void trim_text(const char **text, size_t *n) {
    static const char blank[] = " \t\n\r\v\f";
    while (*n && memchr(blank, **text, sizeof blank - 1)) (*text)++, (*n)--;
    while (*n && memchr(blank, (*text)[*n - 1], sizeof blank - 1)) (*n)--;
}

static keel_status put_header(chat_writer *w, const char *role, keel_error *err) {
    KEEL_TRY(put_special(w, w->f->open, err));
    buf_str(&w->run, role);
    if (w->f->role_end) KEEL_TRY(put_special(w, w->f->role_end, err));
    buf_str(&w->run, w->f->before_text);
    return KEEL_OK;
}

static keel_status put_turn(chat_writer *w, const char *role, const char *text, size_t n, keel_error *err) {
    KEEL_TRY(put_header(w, role, err));
    if (w->trim) trim_text(&text, &n);
    buf_put(&w->run, text, n);
    KEEL_TRY(put_special(w, w->f->close, err));
    buf_str(&w->run, w->f->after_close);
    return KEEL_OK;
}

static keel_status write_chat(chat_writer *w, const buf *system, const char *user, size_t user_bytes, keel_error *err) {
    if (w->f->begin && has_token(w->t, w->f->begin)) KEEL_TRY(put_special(w, w->f->begin, err));
    if (system->data) KEEL_TRY(put_turn(w, "system", (const char *)system->data, system->len, err));
    KEEL_TRY(put_turn(w, "user", user, user_bytes, err));
    KEEL_TRY(put_header(w, "assistant", err));
    KEEL_TRY(put_special(w, NULL, err));
    return w->ids.failed ? KEEL_NOMEM_AT(err, w->t->file) : KEEL_OK;
}

keel_status chat_encode(const tokenizer *t, const char *model_dir, const char *system, const char *user,
                        size_t user_bytes, int32_t **ids, size_t *n_ids, keel_error *err) {
    chat_writer w = {.t = t, .f = format_of(t)};
    if (!w.f) return no_format(t, err);
    buf template = {0}, message = {0};
    keel_status s = model_dir ? chat_template_read(model_dir, &template, err) : (keel_status)KEEL_OK;
    const char *jinja = template.data ? (const char *)template.data : "";
    w.trim = strstr(jinja, "['content'] | trim") || strstr(jinja, "['content']|trim");
    if (s == KEEL_OK && system)
        buf_put(&message, system, strlen(system));
    else if (s == KEEL_OK)
        s = chat_template_default(jinja, w.f, &message, err);
    if (s == KEEL_OK && message.failed) s = KEEL_NOMEM_AT(err, t->file);
    if (s == KEEL_OK) s = write_chat(&w, &message, user, user_bytes, err);
    if (s == KEEL_OK) {
        *n_ids = w.ids.len / sizeof **ids;
        *ids = (int32_t *)(void *)buf_take(&w.ids);
    }
    buf *const used[] = {&template, &message, &w.run, &w.ids};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) buf_free(used[i]);
    return s;
}

int32_t chat_end_of_turn(const tokenizer *t) {
    const chat_format *f = format_of(t);
    return f ? tokenizer_special(t, f->close) : -1;
}
