/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a label: `key=value` with spaces where a person puts them, notes, shapes, ranges of layers. */
#include "draw/drawing_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static const char *skip_space(const char *p) {
    while (is_space(*p)) p++;
    return p;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

dtype drawing_dtype(const char *text, size_t n) {
    for (int t = 0; t < DTYPE_COUNT; t++) {
        const char *name = dtype_name((dtype)t);
        if (strlen(name) == n && strncasecmp(name, text, n) == 0) return (dtype)t;
    }
    return DTYPE_COUNT;
}

static size_t type_bytes(const char *p) {
    size_t n = 0;
    while (is_digit(p[n]) || p[n] == '_' || (lower(p[n]) >= 'a' && lower(p[n]) <= 'z')) n++;
    return n;
}

/* ---- values: where one ends ---------------------------------------------------------------------- */

/* Which spaces a value may have: in a shape, in parentheses, between the numbers of a list. */
typedef enum value_kind { VALUE_PLAIN, VALUE_SHAPES, VALUE_WEIGHT, VALUE_CALL, VALUE_LIST } value_kind;

static value_kind kind_of_value(const char *key) {
    static const struct {
        const char *key;
        value_kind kind;
    } table[] = {{"in", VALUE_SHAPES},
                 {"out", VALUE_SHAPES},
                 {"w", VALUE_WEIGHT},
                 {"shard", VALUE_CALL},
                 {"values", VALUE_LIST}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].key, key) == 0) return table[i].kind;
    }
    return VALUE_PLAIN;
}

static bool begins_number(const char *p) {
    if (*p == '-' || *p == '+') p++;
    return is_digit(*p) || (*p == '.' && is_digit(p[1]));
}

/* Whether the value goes on behind spaces: `before` is its last character so far, p the next word. Sets *gap where one
 * space stays. */
static bool goes_on(value_kind kind, char before, const char *p, bool *gap) {
    *gap = false;
    bool shapes = kind == VALUE_SHAPES || kind == VALUE_WEIGHT;
    if (shapes && *p == '[') return kind == VALUE_WEIGHT ? before != ']' : before == ',' || before == '=';
    if (kind == VALUE_SHAPES && *p == ',') return *skip_space(p + 1) == '[';
    if (shapes && before == ']') {
        size_t n = type_bytes(p);
        return n && drawing_dtype(p, n) != DTYPE_COUNT && *skip_space(p + n) != '=';
    }
    if (*p == '(') return kind == VALUE_CALL || kind == VALUE_LIST;
    *gap = kind == VALUE_LIST && before != '=';
    return kind == VALUE_LIST && (begins_number(p) || *p == ',');
}

static bool is_part(char c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || strchr("_.-+", c) != NULL; }

/* Whether spaces inside brackets stand within a number, or where a separator is missing: one stays, and is refused. */
static bool splits_number(value_kind kind, char before, char after) {
    bool shapes = kind == VALUE_SHAPES || kind == VALUE_WEIGHT;
    return shapes ? is_part(before) && lower(before) != 'x' && is_digit(after) : is_part(before) && is_part(after);
}

/* The end of the value at p. What counts of it goes to out (NULL: is counted only), *bytes says how much. */
static const char *value_end(value_kind kind, const char *p, char *out, size_t *bytes) {
    char before = '=';
    int depth = 0;
    size_t n = 0;
    while (*p) {
        if (is_space(*p)) {
            const char *next = skip_space(p);
            bool gap = false;
            if (!*next || (!depth && !goes_on(kind, before, next, &gap))) break;
            if (depth) gap = splits_number(kind, before, *next);
            if (gap && out) out[n] = ' ';
            n += gap;
            p = next;
            continue;
        }
        if (kind != VALUE_PLAIN) depth += (*p == '[' || *p == '(') - (*p == ']' || *p == ')');
        if (depth < 0) depth = 0;
        before = *p++;
        if (out) out[n] = before;
        n++;
    }
    *bytes = n && before == ',' && kind != VALUE_PLAIN ? n - 1 : n;
    return p;
}

/* ---- words --------------------------------------------------------------------------------------- */

static const char *raw_text(arena *a, const char *from, const char *to) {
    char *text = arena_alloc(a, (size_t)(to - from) + 1);
    size_t n = 0;
    for (const char *p = from; text && p < to; p++) {
        if (!is_space(*p)) {
            text[n++] = *p;
        } else if (n && text[n - 1] != ' ') {
            text[n++] = ' ';
        }
    }
    return text;
}

static keel_status take_value(drawing *d, drawing_word *w, const char *key, size_t key_bytes, const char **at) {
    char *name = arena_strndup(&d->arena, key, key_bytes);
    if (!name) return drawing_nomem(d);
    char *colon = strchr(name, ':');
    for (char *p = name; *p && p != colon; p++) *p = lower(*p);
    if (colon && strncmp(name, "w:", 2) == 0) {
        w->slot = colon + 1;
        *colon = '\0';
    }
    const char *from = skip_space(*at + 1);
    value_kind kind = kind_of_value(name);
    size_t bytes;
    value_end(kind, from, NULL, &bytes);
    char *value = arena_alloc(&d->arena, bytes + 2);
    if (!value) return drawing_nomem(d);
    *at = value_end(kind, from, value, &bytes);
    value[bytes] = '\0';
    w->key = name;
    w->value = value;
    return KEEL_OK;
}

keel_status drawing_word_next(drawing *d, const char **at, drawing_word *out, bool *found) {
    const char *from = skip_space(*at), *p = from;
    *out = (drawing_word){0};
    *found = *from != '\0';
    if (!*found) return KEEL_OK;
    while (*p && !is_space(*p) && *p != '=') p++;
    const char *equals = skip_space(p);
    size_t key_bytes = (size_t)(p - from);
    if (*equals == '=' && key_bytes) {
        p = equals;
        KEEL_TRY(take_value(d, out, from, key_bytes, &p));
    } else {
        while (*p && !is_space(*p)) p++;
    }
    *at = p;
    out->raw = raw_text(&d->arena, from, p);
    return out->raw ? KEEL_OK : drawing_nomem(d);
}

const char *drawing_number(const char *text, double *out) {
    char *end;
    if (!begins_number(text)) return "is not a number";
    double v = strtod(text, &end);
    if (*end) return "is not a number";
    if (!isfinite(v)) return "is not a finite number";
    *out = v;
    return NULL;
}

/* ---- shapes -------------------------------------------------------------------------------------- */

/* The separators: `,` `x` `*` `×`. */
static size_t separator_bytes(const char *p) {
    if (*p == ',' || *p == '*' || lower(*p) == 'x') return 1;
    return strncmp(p, "\u00d7", 2) == 0 ? 2 : 0;
}

static const char *dimension(const char **at, int64_t *out) {
    enum { MOST = 1 << 30 }; /* as in the graph's JSON */
    const char *p = *at;
    if (strncasecmp(p, "M_logit", 7) == 0) {
        *out = GRAPH_M_LOGIT;
        *at = p + 7;
        return NULL;
    }
    if (lower(*p) == 'm') {
        *out = GRAPH_M;
        *at = p + 1;
        return NULL;
    }
    int64_t n = 0;
    if (!is_digit(*p)) return "a dimension is a number, M or M_logit";
    for (; is_digit(*p); p++) {
        n = 10 * n + (*p - '0');
        if (n > MOST) return "a dimension is too large";
    }
    if (n == 0) return "a dimension is 0";
    *out = n;
    *at = p;
    return NULL;
}

const char *drawing_shape_read(const char **at, drawing_shape *out) {
    const char *p = *at;
    drawing_shape s = {.dtype = DTYPE_ACT};
    if (*p++ != '[') return "expected [dimensions]dtype";
    do {
        if (s.rank) p += separator_bytes(p);
        if (s.rank == GRAPH_RANK) return "a shape has at most 4 dimensions";
        const char *wrong = dimension(&p, &s.dim[s.rank]);
        if (wrong) return wrong;
        if (s.rank && s.dim[s.rank] < 0) return "M and M_logit stand first";
        s.rank++;
    } while (separator_bytes(p));
    if (*p == ' ') return "a space inside a number, or a separator is missing";
    if (*p++ != ']') return "expected ] behind the dimensions";
    size_t n = type_bytes(p);
    if (n) {
        s.dtype = drawing_dtype(p, n);
        s.typed = true;
        if (s.dtype == DTYPE_COUNT) return "unknown dtype; known: act, f32, bf16, f16, f8_e4m3, i32, u8";
    }
    *out = s;
    *at = p + n;
    return NULL;
}

const char *drawing_shape_show(int rank, const int64_t *dim, dtype type, char *out, size_t cap) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < rank && used < cap; i++) {
        const char *before = i ? "," : "[";
        int n = dim[i] == GRAPH_M         ? snprintf(out + used, cap - used, "%sM", before)
                : dim[i] == GRAPH_M_LOGIT ? snprintf(out + used, cap - used, "%sM_logit", before)
                                          : snprintf(out + used, cap - used, "%s%lld", before, (long long)dim[i]);
        used += (size_t)n;
    }
    if (used < cap) {
        used += (size_t)snprintf(out + used, cap - used, "]");
        char *name = out + used;
        if (used < cap) snprintf(name, cap - used, "%s", dtype_name(type));
        for (size_t i = used; i < cap && out[i]; i++) out[i] = lower(out[i]);
    }
    return out;
}

/* ---- layers -------------------------------------------------------------------------------------- */

/* A layer number without needless zeros. */
static bool layer_number(const char **at, int *out) {
    const char *p = *at;
    int n = 0;
    if (!is_digit(*p) || (*p == '0' && is_digit(p[1]))) return false;
    for (; is_digit(*p); p++) {
        if (n > DRAWING_LAYERS) return false;
        n = 10 * n + (*p - '0');
    }
    *out = n;
    *at = p;
    return n < DRAWING_LAYERS;
}

/* "-" or an en dash. */
static size_t dash_bytes(const char *p) { return *p == '-' ? 1 : strncmp(p, "\u2013", 3) == 0 ? 3 : 0; }

static bool range_read(const char **at, drawing_range *out) {
    const char *p = skip_space(*at);
    if (!layer_number(&p, &out->first)) return false;
    p = skip_space(p);
    size_t dash = dash_bytes(p);
    out->last = out->first;
    if (dash && is_digit(*skip_space(p + dash))) {
        p = skip_space(p + dash);
        if (!layer_number(&p, &out->last)) return false;
    }
    *at = skip_space(p);
    return out->first <= out->last;
}

drawing_match drawing_layers_of(const char *text, drawing_range *out) {
    const char *p = skip_space(text);
    size_t word = strncasecmp(p, "layers", 6) == 0 ? 6 : strncasecmp(p, "layer", 5) == 0 ? 5 : lower(*p) == 'l' ? 1 : 0;
    p = skip_space(p + word);
    drawing_range r = {-1, -1};
    bool fine, title = is_digit(*p);
    if (!word || (*p != '{' && *p != '*' && !is_digit(*p)) || (word == 1 && *p == '*')) return DRAWING_NO;
    if (*p == '*') {
        p = skip_space(p + 1);
        int n = 0;
        fine = layer_number(&p, &n) && n > 0;
        r = (drawing_range){0, n - 1};
    } else if (*p == '{') {
        p++;
        fine = range_read(&p, &r) && *p++ == '}';
    } else {
        fine = range_read(&p, &r);
    }
    if (fine && *p == '.') p++;
    if (*skip_space(p)) return fine && title ? DRAWING_NO : DRAWING_MALFORMED;
    if (fine) *out = r;
    return fine ? DRAWING_YES : DRAWING_MALFORMED;
}

drawing_match drawing_prefix_of(const char *name, drawing_range *out, const char **rest) {
    const char *p = name + 1;
    drawing_range r;
    *out = (drawing_range){-1, -1};
    *rest = name;
    if (name[0] != 'l' || (*p != '{' && !is_digit(*p))) return DRAWING_NO;
    if (*p == '{') {
        p++;
        if (!range_read(&p, &r) || *p++ != '}' || *p++ != '.') return DRAWING_MALFORMED;
    } else {
        size_t digits = strspn(p, "0123456789");
        if (p[digits] != '.' || (p[0] == '0' && digits > 1)) return DRAWING_NO;
        if (!layer_number(&p, &r.first) || *p++ != '.') return DRAWING_MALFORMED;
        r.last = r.first;
    }
    if (!*p) return DRAWING_MALFORMED;
    *out = r;
    *rest = p;
    return DRAWING_YES;
}
