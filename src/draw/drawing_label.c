/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a vertex → its node. */
#include "draw/drawing_internal.h"

#include "graph/rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What has been read of a label. */
typedef struct label {
    drawing *d;
    drawing_node *n;
    int n_in, n_out, n_weights, n_attrs;
    drawing_shape in[GRAPH_IN], out[GRAPH_OUT];
    drawing_weight weight[GRAPH_WEIGHTS];
    graph_attr attr[GRAPH_ATTRS];
    const char *values; /* of a const, as written */
    buf notes;
} label;

#define WRONG(l, ...) (FAULT((l)->d, (l)->n->cell, __VA_ARGS__), (l)->n->bad = true)

keel_status drawing_words(drawing *d, const char *text, const char **name, bool *crowded) {
    text += strspn(text, " \t\r\n");
    size_t first = strcspn(text, " \t\r\n");
    const char *behind = text + first + strspn(text + first, " \t\r");
    d->n_words = 0;
    *name = NULL;
    if (first && !memchr(text, '=', first) && *behind != '=') {
        *name = arena_strndup(&d->arena, text, first);
        if (!*name) return drawing_nomem(d);
        text += first;
    }
    for (bool found = true; found && d->n_words <= DRAWING_WORDS;) {
        KEEL_TRY(DRAWING_GROW(d, d->words, d->n_words, d->cap_words));
        KEEL_TRY(drawing_word_next(d, &text, &d->words[d->n_words], &found));
        d->n_words += found;
    }
    *crowded = *name && *behind && *behind != '\n' && !d->words[0].key;
    return KEEL_OK;
}

/* ---- shapes, weights, attributes ------------------------------------------------------------------ */

static void take_shapes(label *l, const drawing_word *w, drawing_shape *list, int *n, int most) {
    const char *p = w->value, *wrong = NULL;
    do {
        if (*p == ',') p++;
        if (*n == most) {
            WRONG(l, "%s= has more than %d shapes", w->key, most);
            return;
        }
        wrong = drawing_shape_read(&p, &list[*n]);
        if (!wrong) ++*n;
    } while (!wrong && *p == ',');
    if (!wrong && *p) wrong = "expected [dimensions]dtype, separated by commas";
    if (wrong) WRONG(l, "%s=%.80s: %s", w->key, w->value, wrong);
}

static const char *slot_list(const char *const *list, int n, char *out, size_t cap) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < n && list[i] && used < cap; i++) {
        used += (size_t)snprintf(out + used, cap - used, "%s%s", i ? ", " : "", list[i]);
    }
    return n ? out : "none";
}

static void take_weight(label *l, const drawing_word *w) {
    const op_desc *desc = l->n->desc;
    char known[128];
    if (l->n_weights == desc->max_weights) {
        WRONG(l, "%s takes %d weights, this is one more: w=%.80s", desc->name, desc->max_weights, w->value);
        return;
    }
    drawing_weight x = {.slot = -1, .shard_dim = -1};
    for (int i = 0; w->slot && i < desc->max_weights; i++) {
        if (desc->weight_name[i] && strcasecmp(desc->weight_name[i], w->slot) == 0) x.slot = i;
    }
    if (w->slot && x.slot < 0) {
        WRONG(l, "%s has no weight \"%.40s\"; it has: %s", desc->name, w->slot,
              slot_list(desc->weight_name, desc->max_weights, known, sizeof known));
        return;
    }
    const char *bracket = strrchr(w->value, '['), *p = bracket;
    x.shape.dtype = DTYPE_BF16;
    const char *wrong = bracket ? drawing_shape_read(&p, &x.shape) : NULL;
    if (bracket && !wrong && *p) wrong = "expected KEY[dimensions]dtype";
    if (bracket && !wrong && x.shape.dim[0] < 0) wrong = "a weight has no M";
    if (bracket && !wrong && x.shape.typed && x.shape.dtype == DTYPE_ACT) wrong = "a weight is not of type act";
    if (!x.shape.typed) x.shape.dtype = DTYPE_BF16;
    size_t bytes = bracket ? (size_t)(bracket - w->value) : strlen(w->value);
    if (!bytes) wrong = "expected the name of a tensor of the checkpoint";
    if (wrong) {
        WRONG(l, "w=%.80s: %s", w->value, wrong);
        return;
    }
    x.key = arena_strndup(&l->d->arena, w->value, bytes);
    if (x.key && !drawing_plain(x.key, DRAWING_STRING)) {
        WRONG(l, "the weight's name is longer than %d bytes or has control characters: w=%.80s", DRAWING_STRING,
              w->value);
    }
    l->weight[l->n_weights++] = x;
}

/* "(dim=k)" or nothing. */
static bool shard_dimension(const char *p, int *out) {
    if (!*p) return true;
    if (strncasecmp(p, "(dim=", 5) != 0) return false;
    char *end;
    long k = strtol(p + 5, &end, 10);
    if (end == p + 5 || k < 0 || k >= GRAPH_RANK || strcmp(end, ")") != 0) return false;
    *out = (int)k;
    return true;
}

static void take_shard(label *l, const drawing_word *w) {
    static const shard_rule rules[] = {SHARD_REP, SHARD_COL, SHARD_ROW, SHARD_EP};
    drawing_weight *x = l->n_weights ? &l->weight[l->n_weights - 1] : NULL;
    if (!x || x->sharded) {
        WRONG(l, "shard=%.40s: expected once behind each w=", w->value);
        return;
    }
    x->sharded = true;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        size_t n = strlen(shard_name(rules[i]));
        if (strncasecmp(w->value, shard_name(rules[i]), n) != 0) continue;
        x->shard = rules[i];
        if (shard_dimension(w->value + n, &x->shard_dim) && (rules[i] != SHARD_REP || x->shard_dim < 0)) return;
    }
    WRONG(l, "shard=%.40s: expected rep, col, row or ep, and (dim=k) where it is not the usual one", w->value);
}

static const op_attr *attr_of(const op_desc *desc, const char *name) {
    for (int i = 0; i < OP_ATTRS && desc->attrs[i].name; i++) {
        if (strcasecmp(desc->attrs[i].name, name) == 0) return &desc->attrs[i];
    }
    return NULL;
}

static void take_attr(label *l, const op_attr *a, const drawing_word *w) {
    double value = 0;
    const char *wrong = drawing_number(w->value, &value);
    if (wrong) {
        WRONG(l, "%s=%.40s %s", a->name, w->value, wrong);
        return;
    }
    for (int i = 0; i < l->n_attrs; i++) {
        if (strcmp(l->attr[i].name, a->name) == 0) {
            WRONG(l, "%s= stands there twice", a->name);
            return;
        }
    }
    l->attr[l->n_attrs++] = (graph_attr){a->name, value};
}

/* ---- words ----------------------------------------------------------------------------------------- */

static bool is_key(const drawing_word *w, const char *key) { return w->key && strcmp(w->key, key) == 0; }

static void take_note(label *l, const drawing_word *w) {
    if (l->notes.len) buf_str(&l->notes, " ");
    buf_str(&l->notes, w->raw);
}

/* An attribute that another kind has: a slip, not a note. */
static bool is_attr_elsewhere(const char *key) {
    for (unsigned i = 0; i < op_registry_count; i++) {
        if (attr_of(op_registry[i], key)) return true;
    }
    return false;
}

static void take_collective(label *l, const drawing_word *w) {
    static const char *const known[] = {"AR", "RS", "AG", "EP"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcasecmp(known[i], w->value) == 0) l->n->collective = known[i];
    }
    if (!l->n->collective) WRONG(l, "collective=%.40s: expected AR, RS, AG or EP", w->value);
}

/* A word that is nearly another: a slip, not a note. */
static void fault_slip(label *l, const drawing_word *w, const char *meant) {
    WRONG(l, "%.40s= is no word here; did you mean %s=? A note needs another word, or no =", w->key, meant);
}

static void take_op_word(label *l, const drawing_word *w) {
    const op_desc *desc = l->n->desc;
    const op_attr *a = w->key && !w->slot ? attr_of(desc, w->key) : NULL;
    const char *slip = w->key && !w->slot ? drawing_slip(desc, w->key, strlen(w->key)) : NULL;
    if (a) {
        take_attr(l, a, w);
    } else if (is_key(w, "in")) {
        take_shapes(l, w, l->in, &l->n_in, GRAPH_IN);
    } else if (is_key(w, "w")) {
        take_weight(l, w);
    } else if (is_key(w, "shard")) {
        take_shard(l, w);
    } else if (is_key(w, "collective")) {
        take_collective(l, w);
    } else if (w->key && is_attr_elsewhere(w->key)) {
        WRONG(l, "%s has no attribute %s", desc->name, w->key);
    } else if (slip) {
        fault_slip(l, w, slip);
    } else {
        take_note(l, w);
    }
}

static const char *kind_text(drawing_kind kind) {
    static const char *const text[] = {"op", "model", "const", "cache", "input", "ref"};
    return text[kind];
}

/* The words of what is no op. */
static void check_slip(label *l, const drawing_word *w) {
    static const char *const model[] = {"architecture", "max_position", NULL};
    static const char *const values[] = {"out", "values", NULL}, *const out[] = {"out", NULL};
    const char *const *words = l->n->kind == DRAWING_MODEL ? model : l->n->kind == DRAWING_CONST ? values : out;
    const char *slip = w->key ? drawing_near(words, w->key, strlen(w->key)) : NULL;
    if (slip) fault_slip(l, w, slip);
}

static void take_model_word(label *l, const drawing_word *w) {
    double positions = 0;
    if (is_key(w, "architecture")) {
        bool fine = *w->value && drawing_plain(w->value, DRAWING_STRING);
        if (!fine)
            WRONG(l, "architecture= must be a word of up to %d bytes without control characters", DRAWING_STRING);
        l->n->architecture = w->value;
    } else if (is_key(w, "max_position")) {
        const char *wrong = drawing_number(w->value, &positions);
        if (!wrong && !(positions >= 0 && positions <= 0x7fffffff && positions == floor(positions))) {
            wrong = "is no number of positions";
        }
        if (wrong) WRONG(l, "max_position=%.40s %s", w->value, wrong);
        l->n->max_position = wrong ? 0 : (int64_t)positions;
    } else {
        check_slip(l, w);
    }
}

/* Words that only ops have, at something else. */
static bool is_op_word(const drawing_word *w) {
    return is_key(w, "in") || is_key(w, "w") || is_key(w, "shard") || is_key(w, "collective");
}

static void take_word(label *l, const drawing_word *w) {
    drawing_kind kind = l->n->kind;
    if (is_key(w, "kind")) return;
    if (is_key(w, "out") && kind != DRAWING_MODEL) {
        take_shapes(l, w, l->out, &l->n_out, GRAPH_OUT);
    } else if (kind == DRAWING_OP) {
        take_op_word(l, w);
    } else if (kind == DRAWING_MODEL) {
        take_model_word(l, w);
    } else if (is_key(w, "values") && kind == DRAWING_CONST) {
        if (l->values) WRONG(l, "values= stands there twice");
        l->values = w->value;
    } else if (is_op_word(w)) {
        WRONG(l, "kind=%s has no %s=", kind_text(kind), w->key);
    } else {
        check_slip(l, w);
    }
}

/* ---- const, cache, input --------------------------------------------------------------------------- */

static keel_status formula(label *l, const char *p, int64_t n) {
    double theta = 0;
    char text[64];
    float *values;
    size_t bytes = strlen(p);
    if (bytes > 12 && bytes < 60 && strncasecmp(p, "rope(theta=", 11) == 0 && p[bytes - 1] == ')') {
        snprintf(text, sizeof text, "%.*s", (int)(bytes - 12), p + 11);
        if (drawing_number(text, &theta)) theta = 0;
    }
    if (!(theta > 1 && theta <= 1e15) || n < 1 || n > ROPE_MAX_HALF) {
        WRONG(l, "values=%.40s: expected numbers, or rope(theta=T) with T above 1, and out=[n]f32 with n up to %d", p,
              ROPE_MAX_HALF);
        return KEEL_OK;
    }
    values = arena_array(&l->d->arena, (size_t)n, sizeof *values);
    if (!values) return drawing_nomem(l->d);
    rope_plain(theta, (int)n, values);
    l->n->values = values;
    return KEEL_OK;
}

static int64_t count_numbers(const char *p) {
    int64_t n = 0;
    while (*p) {
        p += strspn(p, " ,");
        if (*p) n++;
        p += strcspn(p, " ,");
    }
    return n;
}

static keel_status numbers(label *l, const char *p, int64_t n) {
    float *values = arena_array(&l->d->arena, (size_t)n, sizeof *values);
    if (!values) return drawing_nomem(l->d);
    l->n->values = values;
    for (int64_t i = 0; i < n; i++) {
        char *end;
        p += strspn(p, " ,");
        values[i] = strtof(p, &end);
        if (end == p || !strchr(" ,", *end) || !isfinite(values[i])) {
            WRONG(l, "value %lld of values= is not a finite number: %.24s", (long long)i + 1, p);
            return KEEL_OK;
        }
        p = end;
    }
    return KEEL_OK;
}

static keel_status finish_const(label *l) {
    drawing_shape *s = &l->out[0];
    if (!l->values) {
        WRONG(l, "a const needs values=: numbers, or rope(theta=T)");
        return KEEL_OK;
    }
    bool given = l->n_out == 1, listed = count_numbers(l->values) > 0 && !strchr(l->values, '(');
    if (given && (s->rank != 1 || s->dim[0] < 1 || (s->typed && s->dtype != DTYPE_F32))) {
        WRONG(l, "out= of a const is [n]f32");
        return KEEL_OK;
    }
    int64_t n = listed ? count_numbers(l->values) : 0;
    if (given && listed && n != s->dim[0]) {
        WRONG(l, "values= has %lld numbers, out= says %lld", (long long)n, (long long)s->dim[0]);
        return KEEL_OK;
    }
    if (given) n = s->dim[0];
    if (n > DRAWING_VALUES) {
        drawing_fault(l->d, l->n->cell, KEEL_RANGE, "a const has at most %d values, this one has %lld", DRAWING_VALUES,
                      (long long)n);
        l->n->bad = true;
        return KEEL_OK;
    }
    *s = (drawing_shape){.rank = 1, .dim = {n}, .dtype = DTYPE_F32, .typed = true};
    l->n_out = 1;
    return listed ? numbers(l, l->values, n) : formula(l, l->values, n);
}

/* Whether the written dtype can be an activation's: "act", or what a person calls it. */
static bool is_act(const drawing_shape *s) { return !s->typed || s->dtype <= DTYPE_F16 || s->dtype == DTYPE_ACT; }

static void finish_buffer(label *l) {
    const drawing_shape *s = &l->out[0];
    bool cache = l->n->kind == DRAWING_CACHE, fine = l->n_out == 1 && s->rank == 2 && is_act(s);
    if (fine && (cache ? s->dim[0] > 0 : s->dim[0] == GRAPH_M)) return;
    WRONG(l, "%s needs out=%s", cache ? "a cache" : "an input", cache ? "[kv_heads,head_dim]act" : "[M,columns]act");
}

/* ---- the node --------------------------------------------------------------------------------------- */

/* Slots of the weights that name none: the free ones, in order. */
static void place_weights(label *l) {
    const op_desc *desc = l->n->desc;
    bool taken[GRAPH_WEIGHTS] = {false};
    for (int i = 0; i < l->n_weights; i++) {
        int slot = l->weight[i].slot;
        if (slot >= 0 && taken[slot]) WRONG(l, "two weights for the slot %s", desc->weight_name[slot]);
        if (slot >= 0) taken[slot] = true;
    }
    for (int i = 0, slot = 0; i < l->n_weights; i++) {
        if (l->weight[i].slot >= 0) continue;
        while (slot < GRAPH_WEIGHTS - 1 && taken[slot]) slot++;
        l->weight[i].slot = slot;
        taken[slot] = true;
    }
    for (int i = 0; i < desc->min_weights && !l->n->bad; i++) {
        if (!taken[i]) WRONG(l, "%s needs the weight %s: w=KEY[dims]dtype", desc->name, desc->weight_name[i]);
    }
}

static void place_shards(label *l) {
    for (int i = 0; i < l->n_weights; i++) {
        drawing_weight *x = &l->weight[i];
        if (x->shape.rank && x->shard_dim >= x->shape.rank) {
            WRONG(l, "shard= of %.80s: dim=%d of %d dimensions", x->key, x->shard_dim, x->shape.rank);
        }
        if (x->shard_dim < 0 && x->shard != SHARD_ROW) x->shard_dim = 0;
    }
}

/* What the rules of the weights, or the op itself, imply at TP > 1. */
static const char *implied(const label *l) {
    const char *what = l->n->desc->collective;
    for (int i = 0; i < l->n_weights && !what; i++) {
        if (l->weight[i].shard == SHARD_ROW) what = "AR";
        if (l->weight[i].shard == SHARD_EP) what = "EP";
    }
    return what;
}

static void finish_op(label *l) {
    const op_desc *desc = l->n->desc;
    place_weights(l);
    place_shards(l);
    const char *what = implied(l), *said = l->n->collective;
    if (said && !what) WRONG(l, "collective=%s: no weight here has a rule that needs one (row needs AR)", said);
    if (said && what && strcmp(said, what) != 0) WRONG(l, "collective=%s: its shard rules need %s", said, what);
    for (int i = 0; i < OP_ATTRS && desc->attrs[i].name; i++) {
        bool set = !desc->attrs[i].required;
        for (int k = 0; k < l->n_attrs; k++) set |= strcmp(l->attr[k].name, desc->attrs[i].name) == 0;
        if (!set) WRONG(l, "%s needs %s=: %s", desc->name, desc->attrs[i].name, desc->attrs[i].doc);
    }
    if (l->notes.data && !drawing_plain((const char *)l->notes.data, DRAWING_STRING)) {
        WRONG(l, "the notes, all that is no word of the format, are longer than %d bytes or have control characters",
              DRAWING_STRING);
    }
    if (l->n_out && l->n_out != desc->n_out) {
        WRONG(l, "out= has %d shapes, %s has %d outputs", l->n_out, desc->name, desc->n_out);
    }
}

static void *keep(label *l, const void *list, int n, size_t bytes) {
    void *copy = n ? arena_array(&l->d->arena, (size_t)n, bytes) : NULL;
    return copy ? memcpy(copy, list, (size_t)n * bytes) : NULL;
}

static keel_status store(label *l) {
    drawing_node *n = l->n;
    n->in = keep(l, l->in, n->n_in = l->n_in, sizeof *l->in);
    n->out = keep(l, l->out, n->n_out = l->n_out, sizeof *l->out);
    n->weights = keep(l, l->weight, n->n_weights = l->n_weights, sizeof *l->weight);
    n->attrs = keep(l, l->attr, n->n_attrs = l->n_attrs, sizeof *l->attr);
    n->notes = l->notes.len ? arena_strdup(&l->d->arena, (const char *)l->notes.data) : NULL;
    bool fine = !l->notes.failed && (n->in || !n->n_in) && (n->out || !n->n_out) && (n->weights || !n->n_weights) &&
                (n->attrs || !n->n_attrs) && (n->notes || !l->notes.len);
    for (int i = 0; i < n->n_weights && fine; i++) fine = n->weights[i].key != NULL;
    return fine ? KEEL_OK : drawing_nomem(l->d);
}

static keel_status finish(label *l) {
    switch (l->n->kind) {
    case DRAWING_OP:
        finish_op(l);
        break;
    case DRAWING_CONST:
        return finish_const(l);
    case DRAWING_CACHE:
    case DRAWING_INPUT:
        finish_buffer(l);
        break;
    case DRAWING_MODEL:
    case DRAWING_REF:
        break;
    }
    return KEEL_OK;
}

keel_status drawing_label(drawing *d, drawing_node *n) {
    label l = {.d = d, .n = n};
    for (int i = 0; i < d->n_words; i++) take_word(&l, &d->words[i]);
    keel_status s = finish(&l);
    if (s == KEEL_OK) s = store(&l);
    buf_free(&l.notes);
    return s;
}
