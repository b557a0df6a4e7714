/* SPDX-License-Identifier: Apache-2.0 */
#include "load/chat_template.h"

#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"

#include <stdio.h>
#include <string.h>

enum { CHAT_MAX_CONFIG_BYTES = 16 << 20, CHAT_MAX_TEMPLATE_BYTES = 256 << 10 };

typedef struct jinja_reader {
    const char *p;
    bool inside; /* {{ }} or {% %}: elsewhere a quote is text */
} jinja_reader;

static bool pair_at(const char *p, char a, char b) { return p[0] == a && p[1] == b; }

/* Goes on to the next opening quote; false at the end. */
static bool next_string(jinja_reader *r) {
    for (; *r->p; r->p++) {
        if (r->inside && (*r->p == '\'' || *r->p == '"')) return true;
        if (r->inside) {
            r->inside = !pair_at(r->p, '}', '}') && !pair_at(r->p, '%', '}');
        } else if (pair_at(r->p, '{', '#')) {
            const char *end = strstr(r->p, "#}");
            if (!end) return false;
            r->p = end;
        } else {
            r->inside = pair_at(r->p, '{', '{') || pair_at(r->p, '{', '%');
        }
    }
    return false;
}

/* Reads the string literal whose opening quote is at r->p into out and goes past its closing one; false when it has
 * none or an escape is not known. */
static bool jinja_string(jinja_reader *r, buf *out) {
    static const char names[] = "nrt\\'\"", values[] = "\n\r\t\\'\"";
    const char *p = r->p;
    char quote_mark = *p++;
    for (; *p && *p != quote_mark; p++) {
        if (*p != '\\') {
            buf_u8(out, (uint8_t)*p);
            continue;
        }
        const char *name = *++p ? strchr(names, *p) : NULL;
        if (!name) return false;
        buf_u8(out, (uint8_t)values[name - names]);
    }
    r->p = *p ? p + 1 : p;
    return *p != '\0';
}

/* Does the tag at p have this keyword first ("{% if", "{%- else")? */
static bool tag_is(const char *p, const char *keyword) {
    p += 2;
    if (*p == '-' || *p == '+') p++;
    while (*p == ' ' || *p == '\n') p++;
    size_t n = strlen(keyword);
    return strncmp(p, keyword, n) == 0 && (p[n] == ' ' || p[n] == '%' || p[n] == '-');
}

static bool tag_has(const char *tag, const char *word) {
    const char *end = strstr(tag, "%}"), *at = strstr(tag, word);
    return at && (!end || at < end);
}

/* The last "{%" before p, NULL when there is none. */
static const char *tag_before(const char *start, const char *p) {
    for (p--; p >= start; p--) {
        if (p[0] == '{' && p[1] == '%') return p;
    }
    return NULL;
}

/* Does a literal at p stand where no system message was given: right under `if` with != 'system', or under the `else`
 * of an `if` with == 'system'? Anything between (a tool list, another condition) makes it unrecognised. */
static bool is_default_branch(const char *start, const char *p) {
    const char *tag = tag_before(start, p);
    if (!tag || tag_has(tag, "tools")) return false;
    if (tag_is(tag, "if")) return tag_has(tag, "!=") && tag_has(tag, "system");
    if (!tag_is(tag, "else")) return false;
    int depth = 1;
    while (depth > 0 && (tag = tag_before(start, tag))) {
        if (tag_is(tag, "endif")) depth++;
        if (tag_is(tag, "if")) depth--;
    }
    return tag && tag_has(tag, "==") && tag_has(tag, "system");
}

/* The text between the block's opening and its close when the literal is one whole system block. */
static bool block_text(const buf *literal, const char *open, const char *close, const char **text, size_t *n) {
    const char *s = (const char *)literal->data;
    size_t opening = strlen(open);
    const char *end = literal->len > opening && strncmp(s, open, opening) == 0 ? strstr(s, close) : NULL;
    if (!end) return false;
    const char *rest = end + strlen(close);
    while (*rest == '\n') rest++;
    *text = s + opening;
    *n = (size_t)(end - s) - opening;
    return *rest == '\0';
}

keel_status chat_template_default(const char *jinja, const chat_format *f, buf *out, keel_error *err) {
    char open[64];
    snprintf(open, sizeof open, "%ssystem%s%s", f->open, f->role_end ? f->role_end : "", f->before_text);
    buf literal = {0};
    jinja_reader r = {jinja, false};
    bool found = false, clash = strlen(jinja) > CHAT_MAX_TEMPLATE_BYTES;
    while (!clash && !out->failed && next_string(&r)) {
        const char *at = r.p, *text;
        size_t n;
        literal.len = 0;
        buf_put(&literal, "", 0);
        if (!jinja_string(&r, &literal) || literal.failed) break;
        if (!block_text(&literal, open, f->close, &text, &n) || !is_default_branch(jinja, at)) continue;
        clash = found && (n != out->len || memcmp(text, out->data, n) != 0);
        if (!found) buf_put(out, text, n);
        found = true;
    }
    bool failed = literal.failed || out->failed;
    buf_free(&literal);
    if (failed) return KEEL_NOMEM_AT(err, "chat template");
    if (clash) buf_free(out);
    return KEEL_OK;
}

/* "chat_template" is a string, or a list of {"name", "template"} of which "default" counts. */
static const char *template_string(const json_t *config) {
    const json_t *v = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *entry = json_array_get(v, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0) return json_string_value(json_object_get(entry, "template"));
    }
    return json_string_value(v);
}

keel_status chat_template_read(const char *dir, buf *out, keel_error *err) {
    char *jinja = path_join(dir, "chat_template.jinja"), *config = path_join(dir, "tokenizer_config.json");
    keel_status s = KEEL_OK;
    if (!jinja || !config) {
        s = KEEL_NOMEM_AT(err, dir);
    } else if (file_exists(jinja)) {
        char *text;
        s = file_read(jinja, CHAT_MAX_CONFIG_BYTES, &text, NULL, err);
        if (s == KEEL_OK) {
            buf_str(out, text);
            keel_free(text);
        }
    } else if (file_exists(config)) {
        json_t *root;
        s = json_read(config, CHAT_MAX_CONFIG_BYTES, &root, err);
        if (s == KEEL_OK) {
            const char *text = template_string(root);
            if (text) buf_str(out, text);
            json_decref(root);
        }
    }
    if (s == KEEL_OK && out->failed) s = KEEL_NOMEM_AT(err, dir);
    mem_free(jinja);
    mem_free(config);
    return s;
}
