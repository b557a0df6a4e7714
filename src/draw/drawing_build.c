/* SPDX-License-Identifier: Apache-2.0 */
/* Instances → graph, through graph/build.h: what a builder would have made. Constants, caches and inputs are made just
 * before the first op that reads them, in the order of its slots. An op that the builder refuses is a fault; the ops
 * that need it are left out, the others are built. */
#include "draw/drawing_internal.h"

#include "graph/build.h"

#include <stdio.h>
#include <string.h>

typedef struct maker {
    drawing *d;
    build b;
    keel_error err;              /* of the call at hand */
    int tail;                    /* node, −1 */
    size_t repeated;             /* bytes of keys, notes and values so far */
    int first_layer, last_layer; /* of the ops; −1: none */
} maker;

/* The builder's message; without the name of an op that the place names already. */
static const char *message(const maker *m, const drawing_instance *x) {
    const char *text = m->err.detail;
    size_t n = strlen(x->name);
    const drawing_range r = m->d->nodes[x->node].layers;
    bool said = r.first == r.last && strncmp(text, x->name, n) == 0 && strncmp(text + n, ": ", 2) == 0;
    return said ? text + n + 2 : text;
}

/* After a call of the builder: a refusal becomes a fault of the node. */
static keel_status settle(maker *m, const drawing_instance *x) {
    drawing_node *n = &m->d->nodes[x->node];
    if (m->b.status == KEEL_OK) return KEEL_OK;
    if (m->b.status == KEEL_NOMEM) return drawing_nomem(m->d);
    if (!n->reported) drawing_fault(m->d, n->cell, m->b.status, "%s", message(m, x));
    n->reported = true;
    m->b.status = KEEL_OK;
    m->err = (keel_error)KEEL_ERROR_INITIALIZER;
    return KEEL_OK;
}

#define FAULT_ONCE(m, n, ...)                                                                                          \
    ((n)->reported ? (void)0 : FAULT((m)->d, (n)->cell, __VA_ARGS__), (void)((n)->reported = true))

static keel_status count_repeated(maker *m, size_t bytes) {
    m->repeated += bytes;
    if (m->repeated <= DRAWING_REPEATED) return KEEL_OK;
    return error_set(m->d->err, KEEL_RANGE,
                     "%s: weight names, notes and values, repeated layers counted, have more than %d MB", m->d->file,
                     DRAWING_REPEATED >> 20);
}

/* ---- inputs ------------------------------------------------------------------------------------------ */

/* The tensor of an instance that is no op, made when it is first needed. */
static keel_status make_source(maker *m, int instance) {
    drawing_instance *x = &m->d->instances[instance];
    drawing_node *n = &m->d->nodes[x->node];
    if (x->tensor || n->bad || n->reported || n->kind == DRAWING_OP) return KEEL_OK;
    int layer = m->b.layer;
    m->b.layer = x->layer;
    const int64_t *dim = n->out[0].dim;
    if (n->kind == DRAWING_CONST) KEEL_TRY(count_repeated(m, (size_t)dim[0] * sizeof *n->values));
    if (n->kind == DRAWING_CONST) x->tensor = build_const(&m->b, n->name, n->values, dim[0]);
    if (n->kind == DRAWING_CACHE) x->tensor = build_cache(&m->b, n->name, dim[0], dim[1]);
    if (n->kind == DRAWING_INPUT) x->tensor = build_input(&m->b, n->name, dim[1]);
    m->b.layer = layer;
    return settle(m, x);
}

/* Tensors of the op's edges, those with a slot first and in its order; *whole false: one is not there. */
static keel_status bring(maker *m, const drawing_instance *x, int *ids, int *slots, bool *whole) {
    const drawing *d = m->d;
    int n = 0;
    *whole = true;
    for (int slot = 0; slot <= GRAPH_IN; slot++) {
        for (int k = 0; k < x->n_inputs; k++) {
            const drawing_input *in = &d->inputs[x->inputs + k];
            if (in->slot != (slot < GRAPH_IN ? slot : -1)) continue;
            KEEL_TRY(make_source(m, in->source));
            const drawing_instance *source = &d->instances[in->source];
            const drawing_node *from = &d->nodes[source->node];
            drawing_node *to = &d->nodes[x->node];
            int outputs = from->desc ? from->desc->n_out : 1;
            *whole &= source->tensor > 0;
            if (source->tensor > 0 && in->output >= outputs) {
                FAULT_ONCE(m, to, "%s has no output %d", source->name, in->output);
                *whole = false;
            }
            ids[n] = source->tensor + in->output;
            slots[n++] = in->slot;
        }
    }
    return KEEL_OK;
}

/* The slots that must have an edge and have none; "" where all have. */
static const char *empty_slots(const drawing_node *n, const int *in, char *out, size_t cap) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < n->desc->min_in && used < cap; i++) {
        if (in[i] > 0) continue;
        used += (size_t)snprintf(out + used, cap - used, "%s%s", used ? ", " : "",
                                 n->desc->in_name[i] ? n->desc->in_name[i] : "?");
    }
    return out;
}

/* What in= says, against what the edges bring. */
static void check_in(maker *m, drawing_node *n, const int *in) {
    char said[96], brought[96];
    int bound = 0;
    for (int i = 0; i < GRAPH_IN; i++) bound += in[i] > 0;
    if (n->n_in && n->n_in != bound) {
        char empty[160];
        if (*empty_slots(n, in, empty, sizeof empty)) FAULT_ONCE(m, n, "no edge fills its slot %s", empty);
        FAULT_ONCE(m, n, "in= has %d shapes, but %d edges end here", n->n_in, bound);
        return;
    }
    for (int i = 0, k = 0; i < GRAPH_IN && k < n->n_in; i++) {
        if (in[i] <= 0) continue;
        const graph_tensor *t = graph_tensor_at(m->b.g, in[i]);
        const drawing_shape *s = &n->in[k++];
        if (drawing_agrees(s, t)) continue;
        FAULT_ONCE(m, n, "in= says %s for slot %s, but %.60s brings %s",
                   drawing_shape_show(s->rank, s->dim, s->dtype, said, sizeof said),
                   n->desc->in_name[i] ? n->desc->in_name[i] : "?", t->name,
                   drawing_shape_show(t->rank, t->dim, t->dtype, brought, sizeof brought));
    }
}

static void check_out(maker *m, drawing_node *n, int first) {
    char said[96], made[96];
    for (int i = 0; i < n->n_out; i++) {
        const graph_tensor *t = graph_tensor_at(m->b.g, first + i);
        const drawing_shape *s = &n->out[i];
        if (drawing_agrees(s, t)) continue;
        FAULT_ONCE(m, n, "out= says %s, but %s makes %s",
                   drawing_shape_show(s->rank, s->dim, s->dtype, said, sizeof said), n->desc->name,
                   drawing_shape_show(t->rank, t->dim, t->dtype, made, sizeof made));
    }
}

/* Refs may say what they stand for. */
static void check_refs(maker *m, const drawing_instance *x) {
    const drawing *d = m->d;
    char said[96], made[96];
    for (int k = 0; k < x->n_inputs; k++) {
        const drawing_input *in = &d->inputs[x->inputs + k];
        drawing_node *ref = &d->nodes[d->edges[in->edge].source];
        int id = d->instances[in->source].tensor + in->output;
        if (ref->kind != DRAWING_REF || !ref->n_out) continue;
        const graph_tensor *t = graph_tensor_at(m->b.g, id);
        const drawing_shape *s = &ref->out[0];
        if (drawing_agrees(s, t)) continue;
        FAULT_ONCE(m, ref, "out= says %s, but %.60s is %s",
                   drawing_shape_show(s->rank, s->dim, s->dtype, said, sizeof said), t->name,
                   drawing_shape_show(t->rank, t->dim, t->dtype, made, sizeof made));
    }
}

/* ---- one op ------------------------------------------------------------------------------------------ */

/* `{i}` and `{0-29}` in a key are the layer. */
static keel_status key_of(maker *m, drawing_node *n, const char *key, int layer, const char **out) {
    buf text = {0};
    const char *p = key, *open;
    while ((open = strchr(p, '{')) != NULL) {
        const char *close = strchr(open, '}');
        char range[32];
        snprintf(range, sizeof range, "{%d-%d}", n->layers.first, n->layers.last);
        size_t bytes = close ? (size_t)(close + 1 - open) : 0;
        bool known =
            bytes && (strncmp(open, "{i}", bytes) == 0 || (strlen(range) == bytes && strncmp(open, range, bytes) == 0));
        if (!known || layer < 0) {
            FAULT_ONCE(m, n, "weight %.80s: {i} is the op's layer, and %s", key,
                       layer < 0 ? "the op is in none" : "nothing else stands in braces");
            break;
        }
        buf_put(&text, p, (size_t)(open - p));
        buf_printf(&text, "%d", layer);
        p = close + 1;
    }
    buf_str(&text, p);
    char *whole = buf_take(&text);
    *out = whole ? build_text(&m->b, "%s", whole) : NULL;
    size_t bytes = whole ? strlen(whole) : 0;
    keel_free(whole);
    if (!*out || m->b.status != KEEL_OK) return drawing_nomem(m->d);
    if (bytes > DRAWING_STRING)
        FAULT_ONCE(m, n, "weight %.80s: its name in layer %d is longer than %d bytes", key, layer, DRAWING_STRING);
    return count_repeated(m, bytes);
}

static keel_status take_weights(maker *m, drawing_node *n, int layer, op_spec *spec) {
    int most = -1;
    spec->typed = true;
    for (int i = 0; i < n->n_weights; i++) {
        const drawing_weight *w = &n->weights[i];
        weight_spec *to = &spec->weight[w->slot];
        KEEL_TRY(key_of(m, n, w->key, layer, &to->key));
        memcpy(to->dim, w->shape.dim, (size_t)w->shape.rank * sizeof *to->dim);
        to->shard = w->shard;
        to->shard_dim = w->shard_dim >= 0 ? w->shard_dim : w->shape.rank - 1;
        spec->weight_dtype[w->slot] = w->shape.dtype;
        if (w->slot > most) most = w->slot;
    }
    for (int i = 0; i < most; i++) {
        if (!spec->weight[i].key) spec->weight[i].key = "";
    }
    return KEEL_OK;
}

static bool is_tail(const op_desc *desc) {
    return strcmp(desc->name, "argmax") == 0 || strcmp(desc->name, "sample") == 0;
}

/* A sampling tail instead of the drawn one, under the name that a builder gives it. */
static void set_tail(const maker *m, const drawing_node *n, op_spec *spec) {
    if (!m->d->options->sample || strcmp(n->desc->name, "argmax") != 0) return;
    spec->kind = "sample";
    if (strcmp(n->name, "argmax") == 0) spec->name = "sample";
}

static keel_status add_op(maker *m, drawing_node *n, drawing_instance *x, const int *in) {
    op_spec spec = {.kind = n->desc->name, .name = n->name, .notes = n->notes};
    char empty[160];
    for (int i = 0; i < GRAPH_IN; i++) spec.in[i] = in[i];
    for (int i = 0; i < n->n_attrs; i++) spec.attr[i] = n->attrs[i];
    KEEL_TRY(count_repeated(m, n->notes ? strlen(n->notes) : 0));
    KEEL_TRY(take_weights(m, n, x->layer, &spec));
    if (is_tail(n->desc)) set_tail(m, n, &spec);
    if (n->reported) return KEEL_OK;
    m->b.layer = x->layer;
    int before = m->b.g->n_ops, id = build_op(&m->b, spec);
    if (m->b.status != KEEL_OK && m->b.status != KEEL_NOMEM && *empty_slots(n, in, empty, sizeof empty)) {
        FAULT_ONCE(m, n, "no edge fills its slot %s", empty);
    }
    KEEL_TRY(settle(m, x));
    if (m->b.g->n_ops == before) return KEEL_OK;
    x->tensor = id;
    check_out(m, n, id);
    check_refs(m, x);
    if (is_tail(n->desc)) {
        m->b.g->logits = in[0];
        m->b.g->sampling = strcmp(spec.kind, "sample") == 0;
    }
    return KEEL_OK;
}

static keel_status make_op(maker *m, int instance) {
    drawing_instance *x = &m->d->instances[instance];
    drawing_node *n = &m->d->nodes[x->node];
    int ids[GRAPH_IN], slots[GRAPH_IN], in[GRAPH_IN];
    bool whole;
    if (n->bad || n->reported) return KEEL_OK;
    if (m->d->questions > DRAWING_QUESTIONS) {
        return error_set(m->d->err, KEEL_RANGE,
                         "%s: too many ops whose edges have no slot or whose weights no dimensions; write them",
                         m->d->file);
    }
    KEEL_TRY(bring(m, x, ids, slots, &whole));
    if (!whole) return KEEL_OK;
    drawing_complaint wrong;
    if (!drawing_fit_slots(n, m->b.g, ids, slots, x->n_inputs, &m->d->questions, &wrong)) {
        FAULT_ONCE(m, n, "%s", wrong.text);
        return KEEL_OK;
    }
    int most = -1;
    for (int i = 0; i < GRAPH_IN; i++) in[i] = 0;
    for (int i = 0; i < x->n_inputs; i++) {
        in[slots[i]] = ids[i];
        if (slots[i] > most) most = slots[i];
    }
    for (int i = 0; i < most; i++) in[i] = in[i] ? in[i] : BUILD_NONE;
    check_in(m, n, in);
    if (!n->reported && !drawing_fit_weights(n, m->b.g, in, &m->d->questions, &wrong)) {
        char empty[160];
        if (*empty_slots(n, in, empty, sizeof empty)) FAULT_ONCE(m, n, "no edge fills its slot %s", empty);
        FAULT_ONCE(m, n, "%s", wrong.text);
        return KEEL_OK;
    }
    return add_op(m, n, x, in);
}

/* ---- the whole --------------------------------------------------------------------------------------- */

/* One tail, outside the layers; layers without a gap. */
static keel_status check_ops(maker *m) {
    drawing *d = m->d;
    bool *seen = arena_array(&d->arena, DRAWING_LAYERS, sizeof *seen), unknown = false;
    if (!seen) return drawing_nomem(d);
    m->tail = m->first_layer = m->last_layer = -1;
    for (int i = 0; i < d->n_nodes; i++) {
        drawing_node *n = &d->nodes[i];
        if (n->kind != DRAWING_OP) continue;
        for (int l = n->layers.first; l >= 0 && l <= n->layers.last; l++) {
            seen[l] = true;
            if (m->first_layer < 0 || l < m->first_layer) m->first_layer = l;
            if (l > m->last_layer) m->last_layer = l;
        }
        unknown |= !n->desc;
        if (!n->desc || !is_tail(n->desc)) continue;
        if (m->tail >= 0) FAULT(d, n->cell, "a second op picks the token; a drawing has one argmax or sample");
        if (n->layers.first >= 0) FAULT(d, n->cell, "the op that picks the token lies outside the layers");
        m->tail = i;
    }
    if (m->tail < 0 && !unknown)
        FAULT(d, -1, "no op picks the token: add kind=argmax (or sample), fed with the logits");
    for (int l = m->first_layer; !d->unplaced && l >= 0 && l < m->last_layer; l++) {
        if (!seen[l])
            FAULT(d, -1, "layer %d has no ops, but %d and %d have; layers are numbered without a gap", l,
                  m->first_layer, m->last_layer);
    }
    return KEEL_OK;
}

static void check_readers(maker *m) {
    drawing *d = m->d;
    for (int i = 0; i < d->n_instances; i++) {
        const drawing_instance *x = &d->instances[i];
        drawing_node *n = &d->nodes[x->node];
        bool silent = n->kind == DRAWING_OP && (!n->desc || n->desc->n_out == 0);
        if (x->read || silent || n->excused || n->bad || n->reported) continue;
        FAULT_ONCE(m, n, "nothing reads %s; connect it or remove it", x->name);
    }
}

/* Width of the residual stream: what the op that makes the logits reads. */
static int64_t hidden_of(const graph *g) {
    const graph_tensor *logits = graph_tensor_at(g, g->logits);
    const graph_op *head = logits->producer >= 0 ? &g->ops[logits->producer] : NULL;
    return graph_row_elements(head && head->n_in && head->in[0] ? graph_tensor_at(g, head->in[0]) : logits);
}

static void describe(maker *m) {
    graph *g = m->b.g;
    const drawing *d = m->d;
    if (m->first_layer >= 0) {
        g->layer_first = m->first_layer;
        g->n_layers = m->last_layer - m->first_layer + 1;
    }
    g->vocab = graph_row_elements(graph_tensor_at(g, g->logits));
    g->hidden = hidden_of(g);
    if (d->model >= 0) g->max_position = d->nodes[d->model].max_position;
}

static keel_status make_all(maker *m) {
    drawing *d = m->d;
    m->b.file = NULL; /* a fault has its place already */
    m->b.err = &m->err;
    for (int i = 0; i < d->n_order; i++) KEEL_TRY(make_op(m, d->order[i]));
    check_readers(m);
    KEEL_TRY(drawing_faults_close(d));
    describe(m);
    return KEEL_OK;
}

keel_status drawing_build(drawing *d, graph **out) {
    maker m = {.d = d, .err = KEEL_ERROR_INITIALIZER};
    const char *architecture = d->model >= 0 ? d->nodes[d->model].architecture : NULL;
    KEEL_TRY(check_ops(&m));
    keel_status s = build_begin(&m.b, d->file, architecture ? architecture : "Drawn", DTYPE_BF16, d->err);
    if (s == KEEL_OK) s = make_all(&m);
    if (s != KEEL_OK) m.b.status = s;
    graph *g = NULL;
    build_finish(&m.b, &g);
    if (s == KEEL_OK) *out = g;
    return s;
}
