/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json's patterns are Oniguruma's (its own syntax, UTF-8). They run here on PCRE2 with UTF and UCP. The two
 * agree on most of what tokenizers use; where they do not (doc/RE of Oniguruma 6.9, pcre2pattern(3)):
 *
 *   \s      PCRE2 counts U+180E in, Oniguruma (White_Space) does not
 *   \w      Alphabetic | M | Nd | Pc, outside a class also the No of Latin-1; PCRE2 10.42: L | N | _
 *   \v      vertical tab; in PCRE2 a class of line breaks
 *   \p{Han} Script; in PCRE2 since 10.40 Script_Extensions
 *   ^ $     at every line
 *   {,n}    {0,n};   x{n,m}+ a repeat of a repeat, possessive in PCRE2: refused
 *
 * The translator passes only constructs that it knows, and refuses the rest rather than tokenise differently. */
#include "load/tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

#define SPACE_SET "\\p{Z}\\x{9}-\\x{d}\\x{85}"
#define WORD_SET "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_LATIN1 "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" /* of \w outside a class only */

enum { REGEX_MAX_GROUPS = 32 };

/* What stands before the cursor, for deciding whether and how a repeat may follow. */
typedef enum regex_before { BEFORE_NOTHING, BEFORE_ATOM, BEFORE_REPEAT, BEFORE_CLOSED } regex_before;

typedef struct regex_reader {
    const char *where, *pattern, *p;
    buf *out;
    keel_error *err;
    bool caseless[REGEX_MAX_GROUPS + 1];
    bool lookaround[REGEX_MAX_GROUPS + 1];
    int depth;
    regex_before before;
    char folded_last; /* the letter before the cursor inside (?i:…), else 0 */
} regex_reader;

static keel_status refuse(const regex_reader *r, const char *what) {
    return error_set(r->err, KEEL_UNSUPPORTED,
                     "%s: regex %s at offset %zu of \"%.300s\" is not supported; known: literals, escapes, classes "
                     "without nesting, \\p{…}, \\s \\d \\w, groups, (?i:…) on ASCII, lookaround, greedy, lazy and "
                     "possessive repeats",
                     r->where, what, (size_t)(r->p - r->pattern), r->pattern);
}

static keel_status malformed(const regex_reader *r, const char *what) {
    return error_set(r->err, KEEL_FORMAT, "%s: bad regex: %s at offset %zu of \"%.300s\"", r->where, what,
                     (size_t)(r->p - r->pattern), r->pattern);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_punct(char c) { return c > ' ' && c < 0x7F && !is_digit(c) && !is_letter(c); }

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One character as PCRE2 reads it everywhere. */
static void put_char(regex_reader *r, uint32_t c) { buf_printf(r->out, "\\x{%x}", (unsigned)c); }

/* \xHH, \x{H…}, \uHHHH: p stands on the x or u. */
static keel_status read_code(regex_reader *r, uint32_t *c) {
    const char *p = r->p + 1;
    bool braces = *r->p == 'x' && *p == '{';
    int most = braces ? 6 : *r->p == 'u' ? 4 : 2, n = 0;
    uint32_t v = 0;
    for (p += braces; n < most && hex_value(*p) >= 0; n++, p++) v = v * 16 + (uint32_t)hex_value(*p);
    if (n == 0 || (braces && *p != '}') || (*r->p == 'u' && n < 4)) return malformed(r, "hexadecimal escape");
    if (!braces && *r->p == 'x' && v > 0x7F) return refuse(r, "raw byte escape");
    if (v == 0 || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) return refuse(r, "code point");
    r->p = p + braces;
    *c = v;
    return KEEL_OK;
}

/* \p{NAME}, \p{^NAME}, \P{NAME}: p stands on the p. */
static keel_status read_property(regex_reader *r) {
    static const char categories[] =
        " C Cc Cf Cn Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S "
        "Sc Sk Sm So Z Zl Zp Zs ";
    bool negate = *r->p == 'P';
    const char *name = r->p + 1, *end;
    if (*name++ != '{' || !(end = strchr(name, '}'))) return refuse(r, "property without braces");
    if (*name == '^') {
        negate = !negate;
        name++;
    }
    char text[40];
    size_t n = (size_t)(end - name);
    if (n == 0 || n + 3 > sizeof text) return refuse(r, "property name");
    for (size_t i = 0; i < n; i++) {
        if (!is_letter(name[i]) && name[i] != '_') return refuse(r, "property name");
    }
    snprintf(text, sizeof text, " %.*s ", (int)n, name);
    const char *prefix = strstr(categories, text) ? "" : "sc:";
    buf_printf(r->out, "\\%c{%s%.*s}", negate ? 'P' : 'p', prefix, (int)n, name);
    r->p = end + 1;
    return KEEL_OK;
}

/* A set written with one letter, outside (in_class false) or inside a class; false: the letter is none. A negated set
 * inside a class is the complement of PCRE2's own set plus what that has too much. */
static bool put_shorthand(regex_reader *r, bool in_class) {
    const char *text = NULL;
    switch (*r->p) {
    case 's':
        text = in_class ? SPACE_SET : "[" SPACE_SET "]";
        break;
    case 'S':
        text = in_class ? "\\S\\x{180e}" : "[^" SPACE_SET "]";
        break;
    case 'd':
        text = "\\p{Nd}";
        break;
    case 'D':
        text = "\\P{Nd}";
        break;
    case 'w':
        text = in_class ? WORD_SET : "[" WORD_SET WORD_LATIN1 "]";
        break;
    case 'W':
        text = in_class ? NULL : "[^" WORD_SET WORD_LATIN1 "]";
        break;
    default:
        break;
    }
    if (!text) return false;
    buf_str(r->out, text);
    r->p++;
    return true;
}

/* An escape; p stands after the backslash. *c is the one character that it means, or UINT32_MAX after a set has been
 * put out. */
static keel_status read_escape(regex_reader *r, bool in_class, uint32_t *c) {
    static const char names[] = "rntfvae";
    static const char values[] = "\r\n\t\f\v\a\x1b";
    *c = UINT32_MAX;
    if (put_shorthand(r, in_class)) return KEEL_OK;
    if (*r->p == 'p' || *r->p == 'P') return read_property(r);
    if (*r->p == 'x' || *r->p == 'u') return read_code(r, c);
    if (*r->p == '\0') return malformed(r, "lone backslash");
    const char *name = strchr(names, *r->p);
    if (!name && !is_punct(*r->p) && *r->p != ' ') return refuse(r, "escape");
    *c = name ? (uint8_t)values[name - names] : (uint8_t)*r->p;
    r->p++;
    return KEEL_OK;
}

/* The UTF-8 character under the cursor. JSON strings are well-formed; the scan keeps within the string even if not. */
static uint32_t read_literal(regex_reader *r) {
    bool ok;
    const uint8_t *p = (const uint8_t *)r->p;
    size_t n = utf8_scan(p, strnlen(r->p, 4), &ok);
    uint32_t c = p[0];
    if (n > 1) c &= 0x7Fu >> n;
    for (size_t i = 1; i < n; i++) c = c << 6 | (p[i] & 0x3Fu);
    r->p += n;
    return c;
}

/* One member of a class: a character, a range, or a set. */
static keel_status read_member(regex_reader *r, bool first) {
    uint32_t c = UINT32_MAX, last;
    if (*r->p == '[') return refuse(r, "class in a class");
    if (r->p[0] == '&' && r->p[1] == '&') return refuse(r, "intersection of classes");
    bool hyphen = *r->p == '-';
    if (*r->p == '\\') {
        r->p++;
        KEEL_TRY(read_escape(r, true, &c));
    } else {
        c = read_literal(r);
    }
    if (hyphen && !first && *r->p != ']') return refuse(r, "hyphen within a class");
    if (c != UINT32_MAX) put_char(r, c);
    if (hyphen || r->p[0] != '-' || r->p[1] == ']') return KEEL_OK;
    if (c == UINT32_MAX || r->p[1] == '[' || r->p[1] == '\0') return refuse(r, "range in a class");
    r->p++;
    buf_u8(r->out, '-');
    if (*r->p == '\\') {
        r->p++;
        KEEL_TRY(read_escape(r, true, &last));
        if (last == UINT32_MAX) return refuse(r, "range in a class");
    } else {
        last = read_literal(r);
    }
    if (last < c) return malformed(r, "range out of order");
    put_char(r, last);
    return KEEL_OK;
}

/* p stands after the '['. */
static keel_status read_class(regex_reader *r) {
    const char *start = r->p;
    bool negated = *r->p == '^';
    r->p += negated;
    buf_str(r->out, negated ? "[^" : "[");
    if (*r->p == ']') return refuse(r, "class that begins with ]");
    for (bool first = true; *r->p != ']'; first = false) {
        if (*r->p == '\0') return malformed(r, "class without end");
        KEEL_TRY(read_member(r, first));
    }
    buf_u8(r->out, ']');
    if (r->caseless[r->depth]) {
        /* Oniguruma also folds to several characters (ß and ss) inside classes. */
        for (const char *p = start; p < r->p; p++) {
            if (negated || !is_letter(*p)) return refuse(r, "class other than of ASCII letters in (?i:…)");
        }
    }
    r->p++;
    return KEEL_OK;
}

/* p stands after the '('. */
static keel_status read_group(regex_reader *r) {
    static const struct {
        const char *text;
        bool lookaround;
    } kinds[] = {{"?:", false}, {"?=", true},  {"?!", true},  {"?<=", true},
                 {"?<!", true}, {"?>", false}, {"?i:", false}};
    size_t i = 0, n = sizeof kinds / sizeof *kinds;
    while (i < n && strncmp(r->p, kinds[i].text, strlen(kinds[i].text)) != 0) i++;
    if (i == n && *r->p == '?') return refuse(r, "group");
    if (r->depth == REGEX_MAX_GROUPS) return refuse(r, "nesting of groups");
    const char *text = i < n ? kinds[i].text : "?:"; /* captures are of no use here */
    buf_printf(r->out, "(%s", text);
    r->depth++;
    r->caseless[r->depth] = r->caseless[r->depth - 1] || text[1] == 'i';
    r->lookaround[r->depth] = i < n && kinds[i].lookaround;
    if (i < n) r->p += strlen(text);
    r->before = BEFORE_NOTHING;
    return KEEL_OK;
}

/* {n}, {n,}, {n,m}, {,m}: p stands after the '{'. Sets *n to the interval's length, 0 when it is none. */
static size_t interval_length(const char *p) {
    const char *s = p;
    while (is_digit(*s)) s++;
    bool low = s > p, comma = *s == ',';
    const char *high = s += comma;
    while (is_digit(*s)) s++;
    return *s == '}' && (low || s > high) ? (size_t)(s + 1 - p) : 0;
}

static keel_status read_interval(regex_reader *r) {
    size_t n = interval_length(r->p + 1);
    if (n == 0) return refuse(r, "brace");
    if (r->before != BEFORE_ATOM) return refuse(r, "repeat");
    r->p++;
    buf_printf(r->out, "{%s%.*s", *r->p == ',' ? "0" : "", (int)n, r->p);
    r->p += n;
    r->before = BEFORE_CLOSED;
    return KEEL_OK;
}

static keel_status read_repeat(regex_reader *r) {
    if (r->before == BEFORE_NOTHING) return malformed(r, "repeat of nothing");
    bool second = r->before == BEFORE_REPEAT && *r->p != '*'; /* lazy or possessive */
    if (r->before != BEFORE_ATOM && !second) return refuse(r, "repeat of a repeat");
    buf_u8(r->out, (uint8_t)*r->p++);
    r->before = second ? BEFORE_CLOSED : BEFORE_REPEAT;
    return KEEL_OK;
}

/* A literal under (?i:…): one-to-one folding is the same in both, folding to several characters is not. */
static keel_status check_folded(regex_reader *r, uint32_t c) {
    if (c >= 0x80) return refuse(r, "letter outside ASCII in (?i:…)");
    char lower = is_letter((char)c) ? (char)(c | 0x20) : '\0';
    char last = r->folded_last;
    if ((last == 's' && (lower == 's' || lower == 't')) ||
        (last == 'f' && (lower == 'f' || lower == 'i' || lower == 'l'))) {
        return refuse(r, "pair of letters that a ligature folds to, in (?i:…),");
    }
    r->folded_last = lower;
    return KEEL_OK;
}

static keel_status read_atom(regex_reader *r) {
    uint32_t c;
    if (*r->p == '\\' && r->p[1] && strchr("AzZ", r->p[1])) {
        buf_put(r->out, r->p, 2);
        r->p += 2;
        r->before = BEFORE_NOTHING;
        return KEEL_OK;
    }
    if (*r->p == '\\') {
        r->p++;
        KEEL_TRY(read_escape(r, false, &c));
        if (c == UINT32_MAX && r->caseless[r->depth]) return refuse(r, "set in (?i:…)");
    } else {
        c = read_literal(r);
    }
    char last = r->folded_last;
    r->folded_last = 0;
    if (c != UINT32_MAX) {
        put_char(r, c);
        r->folded_last = last;
        if (r->caseless[r->depth])
            KEEL_TRY(check_folded(r, c));
        else
            r->folded_last = 0;
    }
    r->before = BEFORE_ATOM;
    return KEEL_OK;
}

static keel_status read_close(regex_reader *r) {
    if (r->depth == 0) return malformed(r, "unmatched )");
    r->before = r->lookaround[r->depth] ? BEFORE_NOTHING : BEFORE_ATOM;
    r->depth--;
    buf_u8(r->out, ')');
    r->p++;
    return KEEL_OK;
}

static keel_status read_one(regex_reader *r) {
    switch (*r->p) {
    case '[':
        r->p++;
        r->folded_last = 0;
        r->before = BEFORE_ATOM;
        return read_class(r);
    case '(':
        r->p++;
        return read_group(r);
    case ')':
        return read_close(r);
    case '|':
    case '^':
    case '$':
        r->folded_last = 0;
        r->before = BEFORE_NOTHING;
        buf_u8(r->out, (uint8_t)*r->p++);
        return KEEL_OK;
    case '.':
        r->folded_last = 0;
        r->before = BEFORE_ATOM;
        buf_u8(r->out, (uint8_t)*r->p++);
        return KEEL_OK;
    case '*':
    case '+':
    case '?':
        return read_repeat(r);
    case '{':
        return read_interval(r);
    default:
        return read_atom(r);
    }
}

static keel_status regex_translate(const char *where, const char *pattern, buf *out, keel_error *err) {
    regex_reader r = {.where = where, .pattern = pattern, .p = pattern, .out = out, .err = err};
    while (*r.p) KEEL_TRY(read_one(&r));
    if (r.depth) return malformed(&r, "group without end");
    return KEEL_OK;
}

keel_status regex_compile_native(const char *where, const char *pattern, pcre2_general_context *gc, pcre2_code **out,
                                 keel_error *err) {
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(gc);
    if (!context) return KEEL_NOMEM_AT(err, where);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, REGEX_MAX_GROUPS + 1);
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!compiled) {
        PCRE2_UCHAR text[256] = "";
        pcre2_get_error_message(code, text, sizeof text);
        if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY) return KEEL_NOMEM_AT(err, where);
        return error_set(err, KEEL_FORMAT, "%s: bad regex: %s at offset %zu of its PCRE2 form \"%.300s\"", where, text,
                         (size_t)at, pattern);
    }
    /* Only speed hangs on it: where executable memory is forbidden the interpreter does the same. */
    (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    *out = compiled;
    return KEEL_OK;
}

keel_status regex_compile(const char *where, const char *pattern, bool literal, pcre2_general_context *gc,
                          pcre2_code **out, keel_error *err) {
    size_t n = strlen(pattern);
    if (n > TOKENIZER_MAX_PATTERN_BYTES) {
        return error_set(err, KEEL_RANGE, "%s: a pattern of %zu bytes; at most %d are supported", where, n,
                         (int)TOKENIZER_MAX_PATTERN_BYTES);
    }
    buf native = {0};
    buf_put(&native, "", 0);
    keel_status s = KEEL_OK;
    if (literal) {
        regex_reader r = {.p = pattern, .out = &native};
        while (*r.p) put_char(&r, read_literal(&r));
    } else {
        s = regex_translate(where, pattern, &native, err);
    }
    if (s == KEEL_OK && native.failed) s = KEEL_NOMEM_AT(err, where);
    if (s == KEEL_OK) s = regex_compile_native(where, (const char *)native.data, gc, out, err);
    buf_free(&native);
    return s;
}
