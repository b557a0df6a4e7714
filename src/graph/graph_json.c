/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph_json.h"

#include "core/mem.h"
#include "graph/graph_text.h"

#include <math.h>
#include <string.h>

/* JSON has no infinities and its readers take -0 for an integer. */
static void put_number(buf *b, const char *text, double v) {
    if (!isfinite(v)) {
        buf_printf(b, "\"%s\"", text);
    } else {
        buf_printf(b, "%s%s", text, v == 0 && signbit(v) ? ".0" : "");
    }
}

static void put_real(buf *b, double v) {
    char text[GRAPH_TEXT_BYTES];
    graph_text_real(text, v);
    put_number(b, text, v);
}

static void put_shape(buf *b, const graph_tensor *t) {
    char text[GRAPH_TEXT_BYTES];
    buf_str(b, "\"dims\": [");
    for (int i = 0; i < t->rank; i++) {
        graph_text_dim(text, t->dim[i]);
        buf_printf(b, t->dim[i] < 0 ? "%s\"%s\"" : "%s%s", i ? ", " : "", text);
    }
    graph_text_dtype(text, t->dtype);
    buf_printf(b, "], \"dtype\": \"%s\"", text);
}

/* Consts, caches and inputs have no place of their own among the ops; they stand in the order of first use, which is
 * also the order in which a reader makes them. */
typedef struct writer {
    const graph *g;
    buf *out;
    int *sources; /* [n_sources] tensor ids in order of first use, then the unused ones */
    int n_sources;
} writer;

static bool is_source(const graph_tensor *t) {
    return t->kind == TENSOR_CONST || t->kind == TENSOR_CACHE || (t->kind == TENSOR_ACTIVATION && t->external);
}

static bool find_sources(writer *w) {
    const graph *g = w->g;
    bool *seen = mem_calloc((size_t)g->n_tensors + 1, sizeof *seen);
    w->sources = mem_calloc((size_t)g->n_tensors + 1, sizeof *w->sources);
    if (!seen || !w->sources) {
        mem_free(seen);
        return false;
    }
    for (int i = 0; i < g->n_ops; i++) {
        for (int k = 0; k < g->ops[i].n_in; k++) {
            int id = g->ops[i].in[k];
            if (!id || seen[id] || !is_source(graph_tensor_at(g, id))) continue;
            seen[id] = true;
            w->sources[w->n_sources++] = id;
        }
    }
    for (int id = 1; id <= g->n_tensors; id++) {
        if (!seen[id] && is_source(graph_tensor_at(g, id))) w->sources[w->n_sources++] = id;
    }
    mem_free(seen);
    return true;
}

static void put_values(buf *b, const graph_tensor *t) {
    char text[GRAPH_TEXT_BYTES];
    buf_str(b, ", \"values\": [");
    for (int64_t i = 0; i < t->dim[0]; i++) {
        graph_text_float(text, t->data[i]);
        buf_str(b, i ? ", " : "");
        put_number(b, text, (double)t->data[i]);
    }
    buf_str(b, "]");
}

/* One list of the sources of a kind, one a line. */
static void put_sources(const writer *w, const char *list, tensor_kind kind) {
    const char *between = "\n";
    buf_printf(w->out, "  \"%s\": [", list);
    for (int i = 0; i < w->n_sources; i++) {
        const graph_tensor *t = graph_tensor_at(w->g, w->sources[i]);
        if (t->kind != kind) continue;
        buf_printf(w->out, "%s    {\"name\": ", between);
        graph_put_json(w->out, t->name);
        buf_str(w->out, ", ");
        put_shape(w->out, t);
        if (kind == TENSOR_CONST) put_values(w->out, t);
        buf_str(w->out, "}");
        between = ",\n";
    }
    buf_str(w->out, between[0] == ',' ? "\n  ],\n" : "],\n");
}

static void put_inputs(buf *b, const graph *g, const graph_op *op) {
    const char *between = "";
    char slot[GRAPH_TEXT_BYTES];
    buf_str(b, ", \"in\": {");
    for (int i = 0; i < op->n_in; i++) {
        if (!op->in[i]) continue;
        graph_text_input(slot, op->desc, i);
        buf_printf(b, "%s\"%s\": ", between, slot);
        graph_put_json(b, graph_tensor_at(g, op->in[i])->name);
        between = ", ";
    }
    buf_str(b, "}");
}

static void put_weights(buf *b, const graph *g, const graph_op *op) {
    const char *between = "";
    char slot[GRAPH_TEXT_BYTES];
    buf_str(b, ", \"weights\": {");
    for (int i = 0; i < op->n_weights; i++) {
        if (!op->weight[i]) continue;
        const graph_tensor *t = graph_tensor_at(g, op->weight[i]);
        graph_text_weight(slot, op->desc, i);
        buf_printf(b, "%s\"%s\": {\"key\": ", between, slot);
        graph_put_json(b, t->key);
        buf_str(b, ", ");
        put_shape(b, t);
        buf_printf(b, ", \"shard\": \"%s\", \"shard_dim\": %d}", shard_name(t->shard), t->shard_dim);
        between = ", ";
    }
    buf_str(b, "}");
}

/* In the order in which the op declares them: a builder's or a drawing's order means nothing. */
static void put_attrs(buf *b, const graph_op *op) {
    const char *between = "";
    buf_str(b, ", \"attrs\": {");
    for (int i = 0; i < OP_ATTRS && op->desc->attrs[i].name; i++) {
        const graph_attr *a = graph_attr_set(op, op->desc->attrs[i].name);
        if (!a) continue;
        buf_printf(b, "%s\"%s\": ", between, a->name);
        put_real(b, a->value);
        between = ", ";
    }
    buf_str(b, "}");
}

static void put_outputs(buf *b, const graph *g, const graph_op *op) {
    buf_str(b, ", \"out\": [");
    for (int i = 0; i < op->n_out; i++) {
        const graph_tensor *t = graph_tensor_at(g, op->out[i]);
        buf_str(b, i ? ", {\"name\": " : "{\"name\": ");
        graph_put_json(b, t->name);
        buf_str(b, ", ");
        put_shape(b, t);
        if (g->tp > 1) buf_printf(b, ", \"place\": \"%s\"", placement_name(t->place));
        buf_str(b, "}");
    }
    buf_str(b, "]");
}

static void put_op(buf *b, const graph *g, const graph_op *op) {
    buf_str(b, "    {\"name\": ");
    graph_put_json(b, op->name);
    buf_printf(b, ", \"kind\": \"%s\", \"layer\": %d", op->desc->name, op->layer);
    put_inputs(b, g, op);
    put_weights(b, g, op);
    put_attrs(b, op);
    put_outputs(b, g, op);
    if (op->notes && op->notes[0]) {
        buf_str(b, ", \"notes\": ");
        graph_put_json(b, op->notes);
    }
    buf_str(b, "}");
}

static void put_head(buf *b, const graph *g) {
    buf_str(b, "{\n  \"keel_graph\": 1,\n  \"architecture\": ");
    graph_put_json(b, g->architecture);
    buf_printf(b, ",\n  \"vocab\": %lld, \"hidden\": %lld, \"max_position\": %lld,\n", (long long)g->vocab,
               (long long)g->hidden, (long long)g->max_position);
    buf_printf(b, "  \"n_layers\": %d, \"layer_first\": %d, \"sampling\": %s,\n", g->n_layers, g->layer_first,
               g->sampling ? "true" : "false");
    if (g->tp > 1) {
        buf_printf(b, "  \"tp\": %u, \"ep\": %u, \"rank\": %u, \"vocab_parallel\": %s,\n", g->tp, g->ep, g->rank,
                   g->vocab_parallel ? "true" : "false");
    }
    if (g->logits) {
        buf_str(b, "  \"logits\": ");
        graph_put_json(b, graph_tensor_at(g, g->logits)->name);
        buf_str(b, ",\n");
    }
}

void graph_json_write(const graph *g, buf *out) {
    writer w = {.g = g, .out = out};
    if (!find_sources(&w)) {
        mem_free(w.sources);
        out->failed = true;
        return;
    }
    const char *between = "\n";
    put_head(out, g);
    put_sources(&w, "inputs", TENSOR_ACTIVATION);
    put_sources(&w, "consts", TENSOR_CONST);
    put_sources(&w, "caches", TENSOR_CACHE);
    buf_str(out, "  \"ops\": [");
    for (int i = 0; i < g->n_ops; i++) {
        if (g->ops[i].n_out && g->ops[i].out[0] == g->step) continue;
        buf_str(out, between);
        put_op(out, g, &g->ops[i]);
        between = ",\n";
    }
    buf_str(out, "\n  ]\n}\n");
    mem_free(w.sources);
}
