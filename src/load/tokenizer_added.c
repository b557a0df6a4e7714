/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens in a text: leftmost, then longest, without overlap; then HF's single_word, lstrip and rstrip. */
#include "load/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static int by_match(const void *a, const void *b) {
    const added_token *x = a, *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int d = memcmp(x->match, y->match, n);
    if (d == 0) d = (x->bytes > y->bytes) - (x->bytes < y->bytes);
    return d ? d : (x->order > y->order) - (x->order < y->order);
}

void added_set_finish(added_set *s) {
    if (s->n) qsort(s->v, s->n, sizeof *s->v, by_match);
    for (size_t i = 0; i < s->n; i++) s->first[(uint8_t)s->v[i].match[0]] = true;
}

/* First token in [lo, hi), which share their first `depth` bytes, whose byte at depth is ≥ c. A shorter one sorts first
 * and counts as -1. */
static size_t lower_bound(const added_set *s, size_t lo, size_t hi, uint32_t depth, int c) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int b = s->v[mid].bytes > depth ? (uint8_t)s->v[mid].match[depth] : -1;
        if (b < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest token that text begins with, or NULL. */
static const added_token *longest_at(const added_set *s, const char *text, size_t n) {
    const added_token *best = NULL;
    size_t lo = 0, hi = s->n;
    for (uint32_t depth = 0; lo < hi; depth++) {
        if (s->v[lo].bytes == depth) best = &s->v[lo];
        if (depth == n) break;
        int c = (uint8_t)text[depth];
        lo = lower_bound(s, lo, hi, depth, c);
        hi = lower_bound(s, lo, hi, depth, c + 1);
    }
    return best;
}

/* White_Space: category Z and the controls U+0009..D and U+0085. */
static bool is_space(utf8proc_int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP || (c >= 9 && c <= 13) ||
           c == 0x85;
}

static utf8proc_int32_t char_at(const char *text, size_t n, size_t at, size_t *bytes) {
    utf8proc_int32_t c;
    utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n - at), &c);
    *bytes = k > 0 ? (size_t)k : 1;
    return c;
}

static size_t char_before(const char *text, size_t at) {
    do at--;
    while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
    return at;
}

/* Back over the white space before `at`, forward over that after it. */
static size_t strip_left(const char *text, size_t at, size_t from) {
    while (at > from) {
        size_t before = char_before(text, at), bytes;
        if (!is_space(char_at(text, at, before, &bytes))) break;
        at = before;
    }
    return at > from ? at : from;
}

static size_t strip_right(const char *text, size_t n, size_t at) {
    while (at < n) {
        size_t bytes;
        if (!is_space(char_at(text, n, at, &bytes))) break;
        at += bytes;
    }
    return at;
}

static bool is_word(const added_scan *s, size_t at) {
    return pcre2_match(s->word, (PCRE2_SPTR)s->text, s->n, at, PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, s->match_data,
                       NULL) >= 0;
}

static bool wanted(const added_scan *s, const added_token *t, size_t start, size_t stop) {
    if (t->control && !s->with_control) return false;
    if (!t->single_word) return true;
    return !(start > 0 && is_word(s, char_before(s->text, start))) && !(stop < s->n && is_word(s, stop));
}

int32_t added_scan_next(added_scan *s, size_t *from, size_t *to) {
    while (s->set->n && s->at < s->n) {
        if (!s->set->first[(uint8_t)s->text[s->at]]) {
            s->at++;
            continue;
        }
        const added_token *t = longest_at(s->set, s->text + s->at, s->n - s->at);
        if (!t) {
            s->at++;
            continue;
        }
        size_t start = s->at, stop = start + t->bytes;
        s->at = stop; /* as HF: not where rstrip ends, so matches may overlap what it took */
        if (!wanted(s, t, start, stop)) continue;
        if (t->lstrip) start = strip_left(s->text, start, s->plain_from);
        if (t->rstrip) {
            if (stop >= s->stripped_to) s->stripped_to = strip_right(s->text, s->n, stop);
            stop = s->stripped_to;
        }
        if (start >= stop) continue; /* all of it has been stripped by the one before */
        *from = s->plain_from;
        *to = start > *from ? start : *from;
        s->plain_from = stop;
        return t->id;
    }
    *from = s->plain_from;
    *to = s->n;
    s->plain_from = s->n;
    return -1;
}
