/* SPDX-License-Identifier: Apache-2.0 */
/* A slice of a model: some of its layers, with the head before them and the tail behind them. */
#include "plan/prove.h"

#include "core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct slicer {
    const graph *whole, *slice;
    uint8_t *from_head, *to_tail; /* by op of the slice */
    keel_error *err;
    int findings;
} slicer;

static void finding(slicer *s, const char *fmt, ...) KEEL_PRINTF(2, 3);
static void finding(slicer *s, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    if (s->findings++ == 0) error_put(s->err, KEEL_REFUSED, "the slice is not the model with fewer layers:");
    error_append(s->err, "  %s", text);
}

static const graph_op *find_op(const graph *g, const char *name) {
    for (int i = 0; i < g->n_ops; i++) {
        if (strcmp(g->ops[i].name, name) == 0) return &g->ops[i];
    }
    return NULL;
}

/* Of the ops outside of layers: does it stand before the layers? */
static int first_layer_op(const graph *g) {
    int i = 0;
    while (i < g->n_ops && g->ops[i].layer < 0) i++;
    return i;
}

/* Every op of the head and the tail of the whole model, and no op that it does not have. */
static void compare_ops(slicer *s) {
    for (int i = 0; i < s->whole->n_ops; i++) {
        const graph_op *op = &s->whole->ops[i], *own = op->layer < 0 ? find_op(s->slice, op->name) : op;
        if (!own)
            finding(s, "%s (%s) of the %s is missing", op->name, op->desc->name,
                    i < first_layer_op(s->whole) ? "head" : "tail");
        else if (own->desc != op->desc)
            finding(s, "%s is of kind %s; in the whole model it is %s", op->name, own->desc->name, op->desc->name);
    }
    for (int i = 0; i < s->slice->n_ops; i++) {
        const graph_op *op = &s->slice->ops[i], *own = find_op(s->whole, op->name);
        if (!own || own->desc != op->desc) finding(s, "%s (%s) is no op of the whole model", op->name, op->desc->name);
    }
}

static bool made_by(const graph *g, int id, const uint8_t *set) {
    int producer = id > 0 ? graph_tensor_at(g, id)->producer : -1;
    return producer >= 0 && set[producer];
}

static void find_reach(slicer *s) {
    const graph *g = s->slice;
    int head = first_layer_op(g), tail = g->n_ops;
    while (tail > 0 && g->ops[tail - 1].layer < 0) tail--;
    for (int i = 0; i < g->n_ops; i++) {
        const graph_op *op = &g->ops[i];
        s->from_head[i] = i < head;
        for (int k = 0; k < op->n_in; k++) s->from_head[i] |= made_by(g, op->in[k], s->from_head);
    }
    for (int i = g->n_ops; i-- > 0;) { /* all readers of an op stand behind it */
        const graph_op *op = &g->ops[i];
        s->to_tail[i] |= i >= tail;
        for (int k = 0; s->to_tail[i] && k < op->n_in; k++) {
            int producer = op->in[k] > 0 ? graph_tensor_at(g, op->in[k])->producer : -1;
            if (producer >= 0) s->to_tail[producer] = 1;
        }
    }
}

static bool makes_step(const graph *g, const graph_op *op) {
    return op->n_out && graph_tensor_at(g, op->out[0])->kind == TENSOR_STEP; /* all ops read it */
}

static void check_reach(slicer *s) {
    find_reach(s);
    for (int i = 0; i < s->slice->n_ops; i++) {
        const graph_op *op = &s->slice->ops[i];
        if (!s->from_head[i]) finding(s, "%s (%s) is not reached from the head", op->name, op->desc->name);
        if (!s->to_tail[i] && !makes_step(s->slice, op))
            finding(s, "%s (%s) does not reach the tail", op->name, op->desc->name);
    }
}

static bool has_layer(const graph *g, int layer) {
    for (int i = 0; i < g->n_ops; i++) {
        if (g->ops[i].layer == layer) return true;
    }
    return false;
}

/* "layers left out: 0-2, 6-27; 312 of 431 ops" */
static void tell_difference(const slicer *s, buf *text) {
    int ops = 0, ranges = 0, last = s->whole->layer_first + s->whole->n_layers - 1;
    for (int i = 0; i < s->whole->n_ops; i++) ops += !find_op(s->slice, s->whole->ops[i].name);
    buf_str(text, "layers left out: ");
    for (int l = s->whole->layer_first, end; l <= last; l = end + 1) {
        bool in = has_layer(s->slice, l);
        for (end = l; end < last && has_layer(s->slice, end + 1) == in;) end++;
        if (in) continue;
        buf_printf(text, "%s%d", ranges++ ? ", " : "", l);
        if (end > l) buf_printf(text, "-%d", end);
    }
    buf_printf(text, "%s\nops left out: %d of %d, none of the head or the tail\n", ranges ? "" : "none", ops,
               s->whole->n_ops);
}

keel_status plan_slice_check(const graph *whole, const graph *slice, buf *text, keel_error *err) {
    slicer s = {.whole = whole, .slice = slice, .err = err};
    s.from_head = mem_calloc((size_t)slice->n_ops + 1, 1);
    s.to_tail = mem_calloc((size_t)slice->n_ops + 1, 1);
    keel_status status = s.from_head && s.to_tail ? KEEL_OK : KEEL_NOMEM_AT(err, "slice");
    if (status == KEEL_OK) {
        compare_ops(&s);
        check_reach(&s);
        if (s.findings) status = KEEL_REFUSED;
        if (!s.findings && text) tell_difference(&s, text);
        if (text && text->failed) status = KEEL_NOMEM_AT(err, "slice");
    }
    mem_free(s.from_head), mem_free(s.to_tail);
    return status;
}
