/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the pre-tokeniser's stages: each splits every piece of the one before. */
#include "load/tokenizer_internal.h"

#include <string.h>

/* Bounds on one match. A match of the published patterns takes a few steps a byte of its piece at most. */
enum { MATCH_STEPS_A_BYTE = 64, MATCH_STEPS_BASE = 100000, MATCH_DEPTH = 1000000, MATCH_HEAP_KIB = 512 * 1024 };

/* The split of one piece under way: HF makes a list of matches and gaps and folds it by behavior; the fold only ever
 * looks at the last output span, so it runs along. */
typedef struct splitter {
    buf *out;
    size_t first; /* bytes in out before this piece */
    split_behavior behavior;
    bool invert;
    bool after_match;
} splitter;

static void split_put(splitter *s, uint32_t from, uint32_t to, bool match) {
    match = match != s->invert;
    bool grow = false;
    switch (s->behavior) {
    case SPLIT_ISOLATED:
        break;
    case SPLIT_REMOVED:
        if (match) return;
        break;
    case SPLIT_MERGED_WITH_PREVIOUS:
        grow = match && !s->after_match;
        break;
    case SPLIT_MERGED_WITH_NEXT:
        grow = !match && s->after_match;
        break;
    case SPLIT_CONTIGUOUS:
        grow = match == s->after_match;
        break;
    }
    s->after_match = match;
    if (grow && s->out->len > s->first && !s->out->failed) {
        span *last = (span *)(void *)(s->out->data + s->out->len) - 1;
        last->to = to;
        return;
    }
    buf_put(s->out, &(span){from, to}, sizeof(span));
}

static keel_status match_error(const encoder *e, int rc) {
    if (rc == PCRE2_ERROR_NOMEMORY) return KEEL_NOMEM_AT(e->err, e->t->file);
    PCRE2_UCHAR text[256] = "";
    pcre2_get_error_message(rc, text, sizeof text);
    return error_set(e->err, KEEL_RANGE,
                     "%s: pre_tokenizer: a regex gave up on this text (%s): it backtracks more than %d steps a byte; "
                     "shorten the text or mend the pattern",
                     e->t->file, text, (int)MATCH_STEPS_A_BYTE);
}

static size_t char_bytes(const char *p, size_t n) {
    bool ok;
    return n ? utf8_scan((const uint8_t *)p, n, &ok) : 1;
}

/* The matches as the onig crate's find_iter gives them: an empty one right after the last match does not count. */
static keel_status split_piece(encoder *e, const pre_stage *stage, const char *text, span piece) {
    const char *p = text + piece.from;
    size_t n = piece.to - piece.from, at = 0, last = 0;
    bool matched = false;
    splitter s = {&e->next, e->next.len, stage->behavior, stage->invert, false};
    pcre2_set_match_limit(e->match_context,
                          (uint32_t)(n < UINT32_MAX / 128 ? n * MATCH_STEPS_A_BYTE + MATCH_STEPS_BASE : UINT32_MAX));
    while (at <= n) {
        int rc = pcre2_match(stage->code, (PCRE2_SPTR)p, n, at, PCRE2_NO_UTF_CHECK, e->match_data, e->match_context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT) { /* the interpreter takes its stack from the heap */
            rc = pcre2_match(stage->code, (PCRE2_SPTR)p, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, e->match_data,
                             e->match_context);
        }
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) return match_error(e, rc);
        const PCRE2_SIZE *m = pcre2_get_ovector_pointer(e->match_data);
        if (m[0] == m[1] && matched && m[1] == last) {
            at += char_bytes(p + at, n - at);
            continue;
        }
        if (m[0] > last) split_put(&s, piece.from + (uint32_t)last, piece.from + (uint32_t)m[0], false);
        split_put(&s, piece.from + (uint32_t)m[0], piece.from + (uint32_t)m[1], true);
        matched = true;
        at = last = m[1];
    }
    if (last < n) split_put(&s, piece.from + (uint32_t)last, piece.to, false);
    return KEEL_OK;
}

static const span *spans_of(const buf *b, size_t *n) {
    *n = b->len / sizeof(span);
    return (const span *)(const void *)b->data;
}

/* ByteLevel's add_prefix_space: the pieces are copied to e->prefixed, which becomes the text. */
static void prefix_stage(encoder *e, const char **text) {
    size_t n;
    const span *v = spans_of(&e->spans, &n);
    e->prefixed.len = 0;
    for (size_t i = 0; i < n; i++) {
        if (v[i].from == v[i].to) continue;
        uint32_t from = (uint32_t)e->prefixed.len;
        const char *p = *text + v[i].from;
        if (*p != ' ') buf_u8(&e->prefixed, ' ');
        buf_put(&e->prefixed, p, v[i].to - v[i].from);
        buf_put(&e->next, &(span){from, (uint32_t)e->prefixed.len}, sizeof(span));
    }
    *text = (const char *)e->prefixed.data;
}

static keel_status split_stage(encoder *e, const pre_stage *stage, const char *text) {
    size_t n;
    const span *v = spans_of(&e->spans, &n);
    for (size_t i = 0; i < n && !e->next.failed; i++) {
        if (v[i].from < v[i].to) KEEL_TRY(split_piece(e, stage, text, v[i]));
    }
    return KEEL_OK;
}

keel_status pretokenize(encoder *e, const char **text, size_t n) {
    pcre2_set_depth_limit(e->match_context, MATCH_DEPTH);
    pcre2_set_heap_limit(e->match_context, MATCH_HEAP_KIB);
    e->spans.len = 0;
    buf_put(&e->spans, &(span){0, (uint32_t)n}, sizeof(span));
    for (size_t i = 0; i < e->t->n_stages; i++) {
        const pre_stage *stage = &e->t->stages[i];
        e->next.len = 0;
        if (stage->code)
            KEEL_TRY(split_stage(e, stage, *text));
        else
            prefix_stage(e, text);
        buf swap = e->spans;
        e->spans = e->next;
        e->next = swap;
        if (e->spans.failed || e->prefixed.failed) return KEEL_NOMEM_AT(e->err, e->t->file);
    }
    return e->spans.failed ? KEEL_NOMEM_AT(e->err, e->t->file) : KEEL_OK;
}
