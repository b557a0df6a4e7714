/* SPDX-License-Identifier: Apache-2.0 */
#include "draw/draw_text.h"

#include "core/mem.h"
#include "draw/draw_fold.h"
#include "draw/draw_words.h"
#include "graph/graph_text.h"

#include <string.h>

enum {
    SHOW_OP,
    SHOW_KIND,
    SHOW_IN,
    SHOW_OUT,
    SHOW_WEIGHTS,
    SHOW_SHARD,
    SHOW_COLLECTIVE,
    SHOW_COLUMNS,
    SHOW_SHAPES = 3
};

/* A cell may have several lines. */
typedef struct show_row {
    const char *cell[SHOW_COLUMNS];
} show_row;

typedef struct table {
    arena arena;
    show_row *rows; /* [n_rows] */
    int n_rows;
    bool failed;
} table;

static const char *keep(table *t, buf *b) {
    const char *text = b->failed ? NULL : arena_strndup(&t->arena, b->len ? (const char *)b->data : "", b->len);
    buf_free(b);
    if (!text) t->failed = true;
    return text ? text : "";
}

/* Shapes, a few a line; the dtype only where it is not that of activations. */
static const char *shapes_cell(table *t, const graph *g, const int *ids, int n) {
    buf b = {0};
    int written = 0;
    for (int i = 0; i < n; i++) {
        if (!ids[i]) continue;
        if (written) buf_str(&b, written % SHOW_SHAPES ? " " : "\n");
        graph_put_shape(&b, graph_tensor_at(g, ids[i]));
        if (graph_tensor_at(g, ids[i])->dtype == DTYPE_ACT && !b.failed) b.len -= strlen("act");
        written++;
    }
    return keep(t, &b);
}

static const char *weights_cell(table *t, const graph *g, int index, const fold_range *range) {
    const graph_op *op = &g->ops[index];
    buf b = {0};
    for (int i = 0; i < op->n_weights; i++) {
        if (!op->weight[i]) continue;
        const graph_tensor *w = graph_tensor_at(g, op->weight[i]);
        if (b.len) buf_str(&b, "\n");
        if (range) {
            fold_put_key(&b, range, w->key, graph_tensor_at(g, g->ops[index + range->n_ops].weight[i])->key);
        } else {
            buf_str(&b, w->key);
        }
        buf_str(&b, " ");
        graph_put_shape(&b, w);
    }
    return keep(t, &b);
}

static const char *shard_cell(table *t, const graph *g, const graph_op *op) {
    buf b = {0};
    for (int i = 0; i < op->n_weights; i++) {
        if (!op->weight[i]) continue;
        const graph_tensor *w = graph_tensor_at(g, op->weight[i]);
        buf_printf(&b, "%s%s", b.len ? "\n" : "", shard_name(w->shard));
        if (w->shard != SHARD_REP && w->shard_dim != graph_usual_shard_dim(w)) {
            buf_printf(&b, "(dim=%d)", w->shard_dim);
        }
    }
    return keep(t, &b);
}

static void add_op(table *t, const graph *g, int index, const fold_range *range) {
    const graph_op *op = &g->ops[index];
    show_row *r = &t->rows[t->n_rows++];
    buf name = {0};
    if (range) {
        fold_put_name(&name, range, op->name);
    } else {
        buf_str(&name, op->name);
    }
    const char *collective = draw_implied_collective(g, op);
    r->cell[SHOW_OP] = keep(t, &name);
    r->cell[SHOW_KIND] = op->desc->name;
    r->cell[SHOW_IN] = shapes_cell(t, g, op->in, op->n_in);
    r->cell[SHOW_OUT] = shapes_cell(t, g, op->out, op->n_out);
    r->cell[SHOW_WEIGHTS] = weights_cell(t, g, index, range);
    r->cell[SHOW_SHARD] = shard_cell(t, g, op);
    r->cell[SHOW_COLLECTIVE] = collective ? collective : "";
}

static size_t line_bytes(const char *s) { return strcspn(s, "\n"); }

/* Characters, not bytes. */
static int line_width(const char *s) {
    int n = 0;
    for (size_t i = 0; i < line_bytes(s); i++) n += (s[i] & 0xc0) != 0x80;
    return n;
}

static const char *next_line(const char *s) {
    s += line_bytes(s);
    return *s ? s + 1 : s;
}

static void put_row(buf *out, const show_row *row, const int *width) {
    const char *at[SHOW_COLUMNS];
    memcpy(at, row->cell, sizeof at);
    for (bool more = true; more;) {
        int spaces = 0;
        more = false;
        for (int c = 0; c < SHOW_COLUMNS; c++) {
            if (*at[c]) { /* spaces come before text, so that no line ends in them */
                buf_printf(out, "%*s", spaces, "");
                buf_put(out, at[c], line_bytes(at[c]));
                spaces = 0;
            }
            spaces += width[c] - line_width(at[c]) + (width[c] ? 2 : 0);
            at[c] = next_line(at[c]);
            if (*at[c]) more = true;
        }
        buf_str(out, "\n");
    }
}

static void put_table(buf *out, const table *t) {
    int width[SHOW_COLUMNS] = {0};
    for (int i = 0; i < t->n_rows; i++) {
        for (int c = 0; c < SHOW_COLUMNS; c++) {
            const char *s = t->rows[i].cell[c];
            do {
                if (line_width(s) > width[c]) width[c] = line_width(s);
                s = next_line(s);
            } while (*s);
        }
    }
    for (int i = 0; i < t->n_rows; i++) put_row(out, &t->rows[i], width);
}

/* Each weight once, however many ops read it. */
static double parameters(const graph *g, int *n_weights) {
    double sum = 0;
    *n_weights = 0;
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (t->kind != TENSOR_WEIGHT) continue;
        sum += (double)graph_elements(t);
        (*n_weights)++;
    }
    return sum;
}

static void put_head(buf *out, const graph *g) {
    int n_weights;
    double n = parameters(g, &n_weights);
    buf_printf(out, "%s: %d layers", g->architecture, g->n_layers);
    if (g->n_layers) buf_printf(out, " (%d-%d)", g->layer_first, g->layer_first + g->n_layers - 1);
    buf_printf(out, ", hidden %lld, vocabulary %lld", (long long)g->hidden, (long long)g->vocab);
    if (g->max_position) buf_printf(out, ", positions %lld", (long long)g->max_position);
    if (g->tp > 1) buf_printf(out, "; rank %u of %u, EP %u", g->rank, g->tp, g->ep);
    buf_printf(out, "\n%d ops, %d weights, %.4g%s parameters; ends in %s\n\n", g->n_ops, n_weights,
               n < 1e6   ? n
               : n < 1e9 ? n / 1e6
                         : n / 1e9,
               n < 1e6   ? ""
               : n < 1e9 ? " million"
                         : " billion",
               g->sampling ? "sample"
               : g->logits ? "argmax"
                           : "no op that picks a token");
}

keel_status graph_show(const graph *g, buf *out, keel_error *err) {
    table t = {0};
    fold f;
    KEEL_TRY(fold_find(g, &f, err));
    t.rows = arena_array(&t.arena, (size_t)g->n_ops + 2, sizeof *t.rows);
    t.failed = !t.rows;
    if (t.rows) {
        t.rows[t.n_rows++] = (show_row){{"op", "kind", "in", "out", "weights", "shard", "collective"}};
        for (int i = 0; i < g->n_ops && !t.failed; i++) {
            const fold_range *range = fold_of_op(&f, i);
            if (!range || i < range->op_first + range->n_ops) add_op(&t, g, i, range);
        }
    }
    put_head(out, g);
    if (!t.failed) put_table(out, &t);
    fold_free(&f);
    arena_free(&t.arena);
    return t.failed || out->failed ? KEEL_NOMEM_AT(err, "table of the graph") : KEEL_OK;
}
