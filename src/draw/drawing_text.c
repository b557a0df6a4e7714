/* SPDX-License-Identifier: Apache-2.0 */
/* What a person reads of an HTML label. Not a parser of HTML: tags go, some of them are line breaks, entities are
 * decoded, spaces of all kinds are spaces. Linear, never larger than the label. */
#include "draw/drawing_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *text;
} entities[] = {
    {"amp", "&"},        {"lt", "<"},         {"gt", ">"},         {"quot", "\""},       {"apos", "'"},
    {"nbsp", " "},       {"ensp", " "},       {"emsp", " "},       {"thinsp", " "},      {"shy", ""},
    {"zwnj", ""},        {"zwj", ""},         {"times", "\u00d7"}, {"divide", "\u00f7"}, {"middot", "\u00b7"},
    {"minus", "\u2212"}, {"ndash", "\u2013"}, {"mdash", "\u2014"}, {"hellip", "\u2026"}, {"bull", "\u2022"},
    {"rarr", "\u2192"},  {"larr", "\u2190"},  {"uarr", "\u2191"},  {"darr", "\u2193"},   {"rArr", "\u21d2"},
    {"le", "\u2264"},    {"ge", "\u2265"},    {"ne", "\u2260"},    {"radic", "\u221a"},  {"sum", "\u2211"},
    {"infin", "\u221e"}, {"sup2", "\u00b2"},  {"deg", "\u00b0"},   {"micro", "\u00b5"},  {"plusmn", "\u00b1"},
    {"alpha", "\u03b1"}, {"beta", "\u03b2"},  {"theta", "\u03b8"}, {"sigma", "\u03c3"},  {"lambda", "\u03bb"},
};

static const char *const breaks[] = {"br", "div", "p",  "li", "ul", "ol", "tr", "table",     "pre",
                                     "hr", "h1",  "h2", "h3", "h4", "h5", "h6", "blockquote"};

typedef struct out {
    char *text;
    size_t n;
} out;

static void put(out *o, const char *s, size_t n) {
    memcpy(o->text + o->n, s, n);
    o->n += n;
}

/* Spaces beyond ASCII become one; what has no width goes. */
static void put_code(out *o, unsigned long c) {
    if (c == 0xa0 || (c >= 0x2000 && c <= 0x200a) || c == 0x202f || c == 0x205f || c == 0x3000) c = ' ';
    if (c == 0x2028 || c == 0x2029) c = '\n';
    if (c == 0xad || (c >= 0x200b && c <= 0x200d) || c == 0x2060 || c == 0xfeff || c == 0) return;
    if ((c >= 0xd800 && c < 0xe000) || c > 0x10ffff) c = 0xfffd;
    char *p = o->text + o->n;
    if (c < 0x80) {
        p[0] = (char)c;
        o->n += 1;
    } else if (c < 0x800) {
        p[0] = (char)(0xc0 | c >> 6);
        p[1] = (char)(0x80 | (c & 0x3f));
        o->n += 2;
    } else if (c < 0x10000) {
        p[0] = (char)(0xe0 | c >> 12);
        p[1] = (char)(0x80 | (c >> 6 & 0x3f));
        p[2] = (char)(0x80 | (c & 0x3f));
        o->n += 3;
    } else {
        p[0] = (char)(0xf0 | c >> 18);
        p[1] = (char)(0x80 | (c >> 12 & 0x3f));
        p[2] = (char)(0x80 | (c >> 6 & 0x3f));
        p[3] = (char)(0x80 | (c & 0x3f));
        o->n += 4;
    }
}

/* "&#8594;", "&#x2192;", "&rarr;" at p; the bytes it takes, 0 when it is none. */
static size_t put_entity(out *o, const char *p) {
    if (p[1] == '#') {
        bool hex = p[2] == 'x' || p[2] == 'X';
        const char *digits = p + (hex ? 3 : 2);
        size_t n = strspn(digits, hex ? "0123456789abcdefABCDEF" : "0123456789");
        if (n < 1 || n > 8 || digits[n] != ';') return 0;
        put_code(o, strtoul(digits, NULL, hex ? 16 : 10));
        return (size_t)(digits + n + 1 - p);
    }
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++) {
        size_t n = strlen(entities[i].name);
        if (strncmp(p + 1, entities[i].name, n) == 0 && p[1 + n] == ';') {
            put(o, entities[i].text, strlen(entities[i].text));
            return n + 2;
        }
    }
    return 0;
}

/* The bytes of the tag or comment at p; 0 where `<` begins none, SIZE_MAX where it does not end. */
static size_t tag_bytes(const char *p) {
    if (strncmp(p, "<!--", 4) == 0) {
        const char *end = strstr(p + 4, "-->");
        return end ? (size_t)(end + 3 - p) : SIZE_MAX;
    }
    char c = p[1] == '/' ? p[2] : p[1];
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z')) return 0;
    char quote = 0;
    for (const char *q = p + 1; *q; q++) {
        if (quote) {
            if (*q == quote) quote = 0;
        } else if (*q == '>') {
            return (size_t)(q + 1 - p);
        } else if (*q == '"' || *q == '\'') {
            quote = *q;
        }
    }
    return SIZE_MAX;
}

static void put_tag(out *o, const char *p) {
    const char *name = p + (p[1] == '/' ? 2 : 1);
    size_t n = strcspn(name, " \t\r\n/>");
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        if (strlen(breaks[i]) == n && strncasecmp(name, breaks[i], n) == 0) put(o, "\n", 1);
    }
    if (n == 2 && (strncasecmp(name, "td", n) == 0 || strncasecmp(name, "th", n) == 0)) put(o, " ", 1);
}

/* A character beyond ASCII, in UTF-8 that expat has checked; the bytes it takes. */
static size_t put_wide(out *o, const char *p) {
    const unsigned char *u = (const unsigned char *)p;
    size_t n = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : u[0] >= 0xc0 ? 2 : 1;
    unsigned long c = n == 1 ? u[0] : u[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((u[i] & 0xc0) != 0x80) return put(o, p, 1), 1;
        c = c << 6 | (u[i] & 0x3f);
    }
    put_code(o, c);
    return n;
}

size_t drawing_text_into(char *text, const char *html) {
    size_t take;
    out o = {.text = text};
    bool literal = false; /* a tag without an end: `<` is a character from there on */
    for (const char *p = html; *p; p += take) {
        take = *p == '&' ? put_entity(&o, p) : *p == '<' && !literal ? tag_bytes(p) : 0;
        if (take == SIZE_MAX) {
            literal = true;
            take = 0;
        } else if (take && *p == '<') {
            put_tag(&o, p);
        }
        if (take) continue;
        if ((unsigned char)*p >= 0x80) {
            take = put_wide(&o, p);
        } else {
            put(&o, *p == '\r' || *p == '\f' || *p == '\v' ? "\n" : p, 1);
            take = 1;
        }
    }
    o.text[o.n] = '\0';
    return o.n;
}

char *drawing_text(arena *a, const char *html) {
    char *text = arena_alloc(a, strlen(html) + 1);
    if (text) drawing_text_into(text, html);
    return text;
}

bool drawing_plain(const char *text, size_t most) {
    const char *p = text;
    for (; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) return false;
    }
    return (size_t)(p - text) <= most;
}
