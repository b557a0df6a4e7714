/* SPDX-License-Identifier: Apache-2.0 */
#include "draw/draw_words.h"

#include "draw/drawing.h"
#include "graph/graph_text.h"
#include "graph/rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LINE_SHAPES = 3, LINE_VALUES = 8, LINE_BYTES = 64 };

static void put_name(buf *b, const char *name, const fold_range *range) {
    if (range) {
        fold_put_name(b, range, name);
    } else {
        buf_str(b, name);
    }
}

/* "in=[M,1024]act,[M,1024]act", a few a line. */
static void put_shapes(buf *b, const graph *g, const char *key, const int *ids, int n) {
    int written = 0;
    for (int i = 0; i < n; i++) {
        if (!ids[i]) continue;
        if (written % LINE_SHAPES == 0) {
            buf_printf(b, "%s%s=", written ? "\n" : "", key);
        } else {
            buf_str(b, ",");
        }
        graph_put_shape(b, graph_tensor_at(g, ids[i]));
        written++;
    }
}

static void put_io(buf *b, const graph *g, const graph_op *op) {
    int n_in = 0;
    for (int i = 0; i < op->n_in; i++) n_in += op->in[i] != 0;
    if (n_in) {
        buf_str(b, "\n");
        put_shapes(b, g, "in", op->in, op->n_in);
    }
    if (op->n_out) {
        buf_str(b, n_in && n_in + op->n_out <= LINE_SHAPES ? " " : "\n");
        put_shapes(b, g, "out", op->out, op->n_out);
    }
}

static void put_shard(buf *b, const graph_tensor *t) {
    if (t->shard == SHARD_REP) return;
    buf_printf(b, " shard=%s", shard_name(t->shard));
    if (t->shard_dim != graph_usual_shard_dim(t)) buf_printf(b, "(dim=%d)", t->shard_dim);
}

/* Slots are named unless there is one weight alone, in the first slot. */
static void put_weights(buf *b, const graph *g, int index, const fold_range *range) {
    const graph_op *op = &g->ops[index];
    for (int i = 0; i < op->n_weights; i++) {
        if (!op->weight[i]) continue;
        const graph_tensor *t = graph_tensor_at(g, op->weight[i]);
        char slot[GRAPH_TEXT_BYTES];
        graph_text_weight(slot, op->desc, i);
        buf_str(b, "\nw");
        if (op->n_weights > 1) buf_printf(b, ":%s", slot);
        buf_str(b, "=");
        if (range) {
            fold_put_key(b, range, t->key, graph_tensor_at(g, g->ops[index + range->n_ops].weight[i])->key);
        } else {
            buf_str(b, t->key);
        }
        graph_put_shape(b, t);
        put_shard(b, t);
    }
}

static void put_attrs(buf *b, const graph_op *op) {
    const char *between = "\n";
    char text[GRAPH_TEXT_BYTES];
    for (int i = 0; i < OP_ATTRS && op->desc->attrs[i].name; i++) {
        const graph_attr *a = graph_attr_set(op, op->desc->attrs[i].name);
        if (!a) continue;
        graph_text_real(text, a->value);
        buf_printf(b, "%s%s=%s", between, a->name, text);
        between = " ";
    }
}

const char *draw_implied_collective(const graph *g, const graph_op *op) {
    if (op->desc->collective) return op->desc->collective;
    for (int i = 0; i < op->n_weights; i++) {
        if (op->weight[i] && graph_tensor_at(g, op->weight[i])->shard == SHARD_ROW) return "AR";
    }
    return NULL;
}

/* Breaks lines at spaces. */
static void put_notes(buf *b, const char *notes) {
    size_t column = 0;
    while (*notes) {
        size_t n = strcspn(notes, " ");
        if (n) {
            bool fits = column && column + n < LINE_BYTES;
            buf_str(b, fits ? " " : "\n");
            buf_put(b, notes, n);
            column = fits ? column + 1 + n : n;
        }
        notes += n + (notes[n] == ' ');
    }
}

void draw_op_words(buf *b, const graph *g, int index, const fold_range *range) {
    const graph_op *op = &g->ops[index];
    put_name(b, op->name, range);
    buf_printf(b, "\nkind=%s", op->desc->name);
    put_io(b, g, op);
    put_weights(b, g, index, range);
    put_attrs(b, op);
    const char *collective = draw_implied_collective(g, op);
    if (collective) buf_printf(b, "\ncollective=%s", collective);
    put_notes(b, op->notes);
}

/* Is every value bit for bit the plain rotary frequency of this base? */
static bool is_rope(const graph_tensor *t, double theta) {
    float plain[ROPE_MAX_HALF];
    rope_plain(theta, (int)t->dim[0], plain);
    return memcmp(plain, t->data, (size_t)t->dim[0] * sizeof *plain) == 0;
}

/* The base in as few digits as give these very values: the last one, theta^(−(d − 2)/d), tells it best. */
static bool find_theta(const graph_tensor *t, char text[GRAPH_TEXT_BYTES]) {
    int64_t half = t->dim[0];
    if (half < 2 || half > ROPE_MAX_HALF || !(t->data[half - 1] > 0)) return false;
    double theta = pow((double)t->data[half - 1], -(double)half / (double)(half - 1));
    if (!(theta > 1 && theta < 1e15)) return false;
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, GRAPH_TEXT_BYTES, "%.*g", digits, theta);
        double candidate = strtod(text, NULL);
        if (!is_rope(t, candidate)) continue;
        graph_text_real(text, candidate);
        if (candidate < 1e15) snprintf(text, GRAPH_TEXT_BYTES, "%.17g", candidate); /* 1000000, not 1e+06 */
        return true;
    }
    return false;
}

static void put_values(buf *b, const graph_tensor *t) {
    char text[GRAPH_TEXT_BYTES];
    if (find_theta(t, text)) {
        buf_printf(b, " values=rope(theta=%s)", text);
        return;
    }
    buf_str(b, "\nvalues=");
    for (int64_t i = 0; i < t->dim[0]; i++) {
        graph_text_float(text, t->data[i]);
        buf_printf(b, "%s%s", !i ? "" : i % LINE_VALUES ? " " : "\n", text);
    }
}

void draw_source_words(buf *b, const graph *g, int tensor, const fold_range *range) {
    const graph_tensor *t = graph_tensor_at(g, tensor);
    put_name(b, t->name, range);
    buf_printf(b, "\nkind=%s", t->kind == TENSOR_CONST ? "const" : t->kind == TENSOR_CACHE ? "cache" : "input");
    buf_str(b, "\nout=");
    graph_put_shape(b, t);
    if (t->kind == TENSOR_CONST) put_values(b, t);
}

void draw_model_words(buf *b, const graph *g) {
    buf_printf(b, "model\nkind=model\narchitecture=%s", g->architecture);
    if (g->max_position) buf_printf(b, "\nmax_position=%lld", (long long)g->max_position);
}

void draw_tensor_name(buf *b, const graph *g, int tensor, const fold_range *range) {
    put_name(b, graph_tensor_at(g, tensor)->name, range);
}

/* The bytes of a word that is split at white space, and by the writer of labels at these. */
static bool plain_word(const char *s, const char *not_these) {
    if (!*s) return false;
    for (; *s; s++) {
        if ((unsigned char)*s <= 0x20 || *s == 0x7f || strchr(not_these, *s)) return false;
    }
    return true;
}

/* "l3." begins a name and is none. */
static bool is_prefix_alone(const char *name) {
    size_t digits = name[0] == 'l' ? strspn(name + 1, "0123456789") : 0;
    return digits && strcmp(name + 1 + digits, ".") == 0;
}

/* Does this kind know the word? */
static bool is_key(const op_desc *desc, const char *s, size_t bytes) {
    static const char *const words[] = {"kind", "in", "out", "w", "shard", "collective", "values"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i]) == bytes && strncasecmp(words[i], s, bytes) == 0) return true;
    }
    for (int i = 0; i < OP_ATTRS && desc->attrs[i].name; i++) {
        if (strlen(desc->attrs[i].name) == bytes && strncasecmp(desc->attrs[i].name, s, bytes) == 0) return true;
    }
    return drawing_slip(desc, s, bytes) != NULL;
}

/* A note must not read as one of the words that mean something; spaces before a '=' do not count. */
static bool plain_note(const graph_op *op) {
    for (const char *s = op->notes; *s;) {
        size_t key = strcspn(s, " =:"), spaces = strspn(s + key, " ");
        if ((s[key] == ':' || s[key + spaces] == '=') && is_key(op->desc, s, key)) return false;
        s += strcspn(s, " ");
        s += strspn(s, " ");
    }
    return true;
}

keel_status draw_words_check(const graph *g, keel_error *err) {
    if (g->tp > 1) {
        return error_set(err, KEEL_UNSUPPORTED,
                         "graph of rank %u of %u: a drawing has global shapes; draw the whole graph", g->rank, g->tp);
    }
    if (!plain_word(g->architecture, "=")) {
        return error_set(err, KEEL_UNSUPPORTED, "architecture \"%.200s\": cannot stand in a drawing; no spaces, no '='",
                         g->architecture);
    }
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        const char *name = t->kind == TENSOR_WEIGHT ? t->key : t->name;
        if (plain_word(name, t->kind == TENSOR_WEIGHT ? "[]{}=" : "{}:>=") && !strstr(name, "\xe2\x86\x92") &&
            !is_prefix_alone(name))
            continue;
        return error_set(err, KEEL_UNSUPPORTED,
                         "tensor \"%.200s\": the name cannot stand in a drawing; leave out spaces, braces, arrows and "
                         "=, in names : and >, in keys brackets",
                         name);
    }
    for (int i = 0; i < g->n_ops; i++) {
        if (plain_note(&g->ops[i])) continue;
        return error_set(err, KEEL_UNSUPPORTED,
                         "op %.200s: its notes, \"%.200s\", would read as words that mean something in a drawing",
                         g->ops[i].name, g->ops[i].notes);
    }
    return KEEL_OK;
}
