/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph_diff.h"

#include "graph/graph_text.h"
#include "graph/names.h"

#include <string.h>

/* names_a, names_b: ops by name (NAMES_OP), and sources by name (NAMES_TENSOR). */
typedef struct differ {
    const graph *a, *b;
    struct names *names_a, *names_b;
    buf *out;
    size_t n;
    const char *subject; /* "op l0.attn": opened with the first change */
    bool open;
} differ;

/* A source that some op reads, or that nobody does. */
static bool is_source(const graph_tensor *t) {
    return t->kind == TENSOR_CONST || t->kind == TENSOR_CACHE || (t->kind == TENSOR_ACTIVATION && t->external);
}

static const char *source_kind(const graph_tensor *t) {
    return t->kind == TENSOR_CONST ? "const" : t->kind == TENSOR_CACHE ? "cache" : "input";
}

static bool list_names(const graph *g, struct names *known) {
    for (int i = 0; i < g->n_ops; i++) {
        if (!names_put(known, NAMES_OP, g->ops[i].name, i)) return false;
    }
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (is_source(t) && !names_put(known, NAMES_TENSOR, t->name, id)) return false;
    }
    return true;
}

/* Opens the line of the subject, or goes on in it. */
static void change(differ *d, const char *what) {
    if (d->open) {
        buf_str(d->out, "; ");
    } else {
        buf_printf(d->out, "~ %s: ", d->subject);
        d->n++;
    }
    d->open = true;
    buf_str(d->out, what);
}

static void close_line(differ *d) {
    if (d->open) buf_str(d->out, "\n");
    d->open = false;
}

/* "what X -> Y" where the two differ; "" says that there is none. */
static void compare(differ *d, const char *what, const char *a, const char *b) {
    if (strcmp(a, b) == 0) return;
    change(d, what);
    buf_printf(d->out, " %s -> %s", *a ? a : "none", *b ? b : "none");
}

static void compare_bufs(differ *d, const char *what, buf *a, buf *b) {
    if (a->failed || b->failed) d->out->failed = true;
    if (!d->out->failed) compare(d, what, a->len ? (const char *)a->data : "", b->len ? (const char *)b->data : "");
    buf_free(a);
    buf_free(b);
}

static void compare_counts(differ *d, const char *what, int64_t a, int64_t b) {
    char x[GRAPH_TEXT_BYTES], y[GRAPH_TEXT_BYTES];
    if (a == b) return;
    graph_text_real(x, (double)a);
    graph_text_real(y, (double)b);
    compare(d, what, x, y);
}

static void compare_inputs(differ *d, const graph_op *x, const graph_op *y) {
    for (int i = 0; i < GRAPH_IN; i++) {
        const char *a = i < x->n_in && x->in[i] ? graph_tensor_at(d->a, x->in[i])->name : "";
        const char *b = i < y->n_in && y->in[i] ? graph_tensor_at(d->b, y->in[i])->name : "";
        char what[GRAPH_TEXT_BYTES + 8] = "input ";
        graph_text_input(what + 6, y->desc, i);
        compare(d, what, a, b);
    }
}

static void put_weight(buf *b, const graph *g, const graph_op *op, int i) {
    if (i >= op->n_weights || !op->weight[i]) return;
    const graph_tensor *t = graph_tensor_at(g, op->weight[i]);
    buf_str(b, t->key);
    graph_put_shape(b, t);
    buf_printf(b, " shard=%s(dim=%d)", shard_name(t->shard), t->shard_dim);
}

static void compare_weights(differ *d, const graph_op *x, const graph_op *y) {
    for (int i = 0; i < GRAPH_WEIGHTS; i++) {
        buf a = {0}, b = {0};
        char what[GRAPH_TEXT_BYTES + 8] = "weight ";
        graph_text_weight(what + 7, y->desc, i);
        put_weight(&a, d->a, x, i);
        put_weight(&b, d->b, y, i);
        compare_bufs(d, what, &a, &b);
    }
}

/* What is left at its default is what is written so. */
static bool means_the_same(const graph_op *x, const graph_op *y, const op_attr *a) {
    return x->desc == y->desc && op_attr_meant(x, a) == op_attr_meant(y, a);
}

static void text_attr(char out[GRAPH_TEXT_BYTES], const graph_op *op, const char *name) {
    const graph_attr *a = graph_attr_set(op, name);
    out[0] = '\0';
    if (a) graph_text_real(out, a->value);
}

static void compare_attrs(differ *d, const graph_op *x, const graph_op *y) {
    const op_desc *descs[2] = {x->desc, y->desc};
    for (int k = 0; k < (x->desc == y->desc ? 1 : 2); k++) {
        for (int i = 0; i < OP_ATTRS && descs[k]->attrs[i].name; i++) {
            const char *name = descs[k]->attrs[i].name;
            if (means_the_same(x, y, &descs[k]->attrs[i])) continue;
            char a[GRAPH_TEXT_BYTES], b[GRAPH_TEXT_BYTES];
            text_attr(a, x, name);
            text_attr(b, y, name);
            bool told = k == 1 && graph_attr_set(x, name);
            if (!told) compare(d, name, a, b);
        }
    }
}

static void put_output(buf *b, const graph *g, const graph_op *op, int i) {
    if (i >= op->n_out) return;
    const graph_tensor *t = graph_tensor_at(g, op->out[i]);
    graph_put_shape(b, t);
    if (g->tp > 1) buf_printf(b, " %s", placement_name(t->place));
}

static void compare_ops(differ *d, const graph_op *x, const graph_op *y) {
    compare(d, "kind", x->desc->name, y->desc->name);
    compare_inputs(d, x, y);
    compare_weights(d, x, y);
    compare_attrs(d, x, y);
    for (int i = 0; i < GRAPH_OUT; i++) {
        buf a = {0}, b = {0};
        put_output(&a, d->a, x, i);
        put_output(&b, d->b, y, i);
        compare_bufs(d, "output", &a, &b);
    }
    compare(d, "notes", x->notes, y->notes);
}

static void compare_sources(differ *d, const graph_tensor *x, const graph_tensor *y) {
    buf a = {0}, b = {0};
    int64_t first = -1, n = 0;
    compare(d, "is", source_kind(x), source_kind(y));
    graph_put_shape(&a, x);
    graph_put_shape(&b, y);
    compare_bufs(d, "shape", &a, &b);
    if (x->kind != TENSOR_CONST || y->kind != TENSOR_CONST || x->dim[0] != y->dim[0]) return;
    for (int64_t i = x->dim[0] - 1; i >= 0; i--) {
        if (memcmp(&x->data[i], &y->data[i], sizeof x->data[i]) == 0) continue;
        first = i;
        n++;
    }
    if (!n) return;
    char u[GRAPH_TEXT_BYTES], v[GRAPH_TEXT_BYTES];
    graph_text_float(u, x->data[first]);
    graph_text_float(v, y->data[first]);
    change(d, "values");
    buf_printf(d->out, " %lld of %lld differ, the first is [%lld] %s -> %s", (long long)n, (long long)x->dim[0],
               (long long)first, u, v);
}

static void alone(differ *d, char sign, const char *kind, const char *name, const char *what) {
    buf_printf(d->out, "%c %s %s%s%s%s\n", sign, kind, name, what ? " (" : "", what ? what : "", what ? ")" : "");
    d->n++;
}

/* The subject's line: "op l0.attn". */
static void about(differ *d, buf *scratch, const char *kind, const char *name) {
    scratch->len = 0;
    buf_printf(scratch, "%s %s", kind, name);
    if (scratch->failed) d->out->failed = true;
    d->subject = scratch->failed ? "" : (const char *)scratch->data;
}

static void diff_sources(differ *d) {
    buf subject = {0};
    for (int id = 1; id <= d->a->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(d->a, id);
        if (!is_source(t)) continue;
        int other = names_find(d->names_b, NAMES_TENSOR, t->name);
        if (other < 0) {
            alone(d, '-', source_kind(t), t->name, NULL);
            continue;
        }
        about(d, &subject, source_kind(t), t->name);
        compare_sources(d, t, graph_tensor_at(d->b, other));
        close_line(d);
    }
    for (int id = 1; id <= d->b->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(d->b, id);
        if (is_source(t) && names_find(d->names_a, NAMES_TENSOR, t->name) < 0) {
            alone(d, '+', source_kind(t), t->name, NULL);
        }
    }
    buf_free(&subject);
}

/* Ops that both graphs have, in another order: the first place where they part. */
static void diff_order(differ *d) {
    int j = 0;
    const char *before = "the begin";
    for (int i = 0; i < d->a->n_ops; i++) {
        const char *name = d->a->ops[i].name;
        if (names_find(d->names_b, NAMES_OP, name) < 0) continue;
        while (names_find(d->names_a, NAMES_OP, d->b->ops[j].name) < 0) j++;
        if (strcmp(name, d->b->ops[j].name) != 0) {
            d->subject = "order";
            change(d, "");
            buf_printf(d->out, "after %s comes %s -> %s", before, name, d->b->ops[j].name);
            close_line(d);
            return;
        }
        before = name;
        j++;
    }
}

static void diff_ops(differ *d) {
    buf subject = {0};
    for (int i = 0; i < d->a->n_ops; i++) {
        const graph_op *op = &d->a->ops[i];
        int other = names_find(d->names_b, NAMES_OP, op->name);
        if (other < 0) {
            alone(d, '-', "op", op->name, op->desc->name);
            continue;
        }
        about(d, &subject, "op", op->name);
        compare_ops(d, op, &d->b->ops[other]);
        close_line(d);
    }
    for (int i = 0; i < d->b->n_ops; i++) {
        const graph_op *op = &d->b->ops[i];
        if (names_find(d->names_a, NAMES_OP, op->name) < 0) alone(d, '+', "op", op->name, op->desc->name);
    }
    buf_free(&subject);
}

static void diff_head(differ *d) {
    const graph *a = d->a, *b = d->b;
    d->subject = "graph";
    compare(d, "architecture", a->architecture, b->architecture);
    compare_counts(d, "vocabulary", a->vocab, b->vocab);
    compare_counts(d, "hidden", a->hidden, b->hidden);
    compare_counts(d, "max_position", a->max_position, b->max_position);
    compare_counts(d, "n_layers", a->n_layers, b->n_layers);
    compare_counts(d, "layer_first", a->layer_first, b->layer_first);
    compare(d, "ends in", a->sampling ? "sample" : "argmax", b->sampling ? "sample" : "argmax");
    compare(d, "logits", a->logits ? graph_tensor_at(a, a->logits)->name : "",
            b->logits ? graph_tensor_at(b, b->logits)->name : "");
    compare_counts(d, "tp", a->tp, b->tp);
    compare_counts(d, "ep", a->ep, b->ep);
    compare_counts(d, "rank", a->rank, b->rank);
    compare_counts(d, "vocab_parallel", a->vocab_parallel, b->vocab_parallel);
    close_line(d);
}

keel_status graph_diff(const graph *a, const graph *b, buf *out, size_t *n, keel_error *err) {
    differ d = {.a = a, .b = b, .out = out, .names_a = names_new(), .names_b = names_new()};
    bool room = d.names_a && d.names_b && list_names(a, d.names_a) && list_names(b, d.names_b);
    if (room) {
        diff_head(&d);
        diff_sources(&d);
        diff_ops(&d);
        diff_order(&d);
    }
    names_free(d.names_a);
    names_free(d.names_b);
    if (!room || out->failed) return KEEL_NOMEM_AT(err, "differences of two graphs");
    *n = d.n;
    return KEEL_OK;
}
