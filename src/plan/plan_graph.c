/* SPDX-License-Identifier: Apache-2.0 */
/* The graph that stands in a plan: its instances are ops, its buffers (but scratch) tensors, in the graph's order. */
#include "plan/tiler_internal.h"

#include "core/mem.h"

#include <string.h>

static tensor_kind tensor_kind_of(buffer_kind k) {
    switch (k) {
    case BUFFER_WEIGHT:
        return TENSOR_WEIGHT;
    case BUFFER_CONST:
        return TENSOR_CONST;
    case BUFFER_CACHE:
        return TENSOR_CACHE;
    case BUFFER_STEP:
        return TENSOR_STEP;
    default:
        return TENSOR_ACTIVATION;
    }
}

static keel_status take_tensors(const plan *p, graph *g, keel_error *err) {
    dtype act = arch_find(p->arch)->act_dtype;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        const plan_buffer *b = &p->buffers[i];
        if (b->kind == BUFFER_SCRATCH) continue;
        if (g->n_tensors != (int)i)
            return error_set(err, KEEL_REFUSED, "buffer %u (%s): scratch must stand behind all tensors", i, b->name);
        graph_tensor *t = &g->tensors[++g->n_tensors];
        *t = (graph_tensor){.kind = tensor_kind_of(b->kind), .dtype = b->dtype, .rank = b->rank, .producer = -1};
        t->name = arena_strdup(&g->arena, b->name);
        t->key = b->key[0] ? arena_strdup(&g->arena, b->key) : NULL;
        if (!t->name || (b->key[0] && !t->key)) return KEEL_NOMEM_AT(err, "plan");
        for (int k = 0; k < b->rank; k++) t->dim[k] = b->dim[k];
        if (b->rows) t->dim[0] = b->rows;
        t->shard = b->shard;
        t->shard_dim = b->shard_dim;
        t->external = b->external;
        if ((t->kind == TENSOR_ACTIVATION || t->kind == TENSOR_CACHE) && t->dtype == act) t->dtype = DTYPE_ACT;
        if (t->kind == TENSOR_CONST) t->data = (const float *)(const void *)(p->consts + b->offset);
    }
    return KEEL_OK;
}

/* Tensor id of a bound buffer; 0 without. */
static int tensor_of(uint32_t buffer) { return buffer == KP_NONE ? 0 : (int)buffer + 1; }

static bool same_tensor(const graph_tensor *a, const graph_tensor *b, dtype act) {
    dtype da = a->dtype == DTYPE_ACT ? act : a->dtype, db = b->dtype == DTYPE_ACT ? act : b->dtype;
    return a->kind == b->kind && da == db && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

/* A count of slots in use: up to the last that is bound, and at least `least`. */
static keel_status count_slots(const graph_op *op, const char *what, const int *id, int least, int most, int n_tensors,
                               int *n, keel_error *err) {
    *n = least;
    for (int k = 0; k < most; k++) {
        if (id[k] > n_tensors)
            return error_set(err, KEEL_REFUSED, "%s: %s %d is no tensor of the graph", op->name, what, k);
        if (id[k]) *n = k + 1 > *n ? k + 1 : *n;
        if (!id[k] && k < least)
            return error_set(err, KEEL_REFUSED, "%s (%s): %s %d is not bound", op->name, op->desc->name, what, k);
    }
    return KEEL_OK;
}

static bool attr_set(const graph_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++) {
        if (strcmp(op->attr[i].name, name) == 0) return true;
    }
    return false;
}

static keel_status take_attrs(const plan *p, const plan_instance *inst, graph_op *op, keel_error *err) {
    for (uint32_t i = 0; i < inst->n_attrs; i++) {
        const graph_attr *a = &p->attrs[inst->attr_first + i];
        const op_attr *declared = NULL;
        for (int k = 0; k < OP_ATTRS && op->desc->attrs[k].name; k++) {
            if (strcmp(op->desc->attrs[k].name, a->name) == 0) declared = &op->desc->attrs[k];
        }
        if (!declared || !(a->value - a->value == 0) || attr_set(op, a->name))
            return error_set(err, KEEL_REFUSED, "%s: op %s has no attribute %s, or it stands twice or is no number",
                             op->name, op->desc->name, a->name);
        op->attr[op->n_attrs++] = (graph_attr){declared->name, a->value};
    }
    for (int k = 0; k < OP_ATTRS && op->desc->attrs[k].name; k++) {
        if (op->desc->attrs[k].required && !attr_set(op, op->desc->attrs[k].name))
            return error_set(err, KEEL_REFUSED, "%s: op %s needs the attribute %s", op->name, op->desc->name,
                             op->desc->attrs[k].name);
    }
    return KEEL_OK;
}

/* Inputs must have been made before; outputs are made here, and nowhere else. */
static keel_status check_order(graph *g, const graph_op *op, keel_error *err) {
    for (int k = 0; k < op->n_in; k++) {
        const graph_tensor *t = op->in[k] ? graph_tensor_at(g, op->in[k]) : NULL;
        bool made = !t || t->kind == TENSOR_CONST || t->kind == TENSOR_CACHE || t->external || t->producer >= 0;
        if (!made || (t && t->kind == TENSOR_WEIGHT))
            return error_set(err, KEEL_REFUSED, "%s reads %s before any op has made it", op->name, t->name);
    }
    for (int k = 0; k < op->n_weights; k++) {
        if (op->weight[k] && graph_tensor_at(g, op->weight[k])->kind != TENSOR_WEIGHT)
            return error_set(err, KEEL_REFUSED, "%s: weight %d, %s, is none", op->name, k,
                             graph_tensor_at(g, op->weight[k])->name);
    }
    return KEEL_OK;
}

static keel_status check_outputs(const plan *p, graph *g, const graph_op *op, keel_error *err) {
    graph_tensor out[GRAPH_OUT] = {{0}};
    dtype act = arch_find(p->arch)->act_dtype;
    if (op->desc->infer(g, op, out, err) != KEEL_OK) return error_prefix(err, KEEL_REFUSED, "the plan's graph");
    for (int k = 0; k < op->desc->n_out; k++) {
        graph_tensor *t = &g->tensors[op->out[k]];
        if (t->producer >= 0 || t->external || !same_tensor(t, &out[k], act))
            return error_set(err, KEEL_REFUSED, "%s: output %s is made twice, or has not the shape that op %s gives it",
                             op->name, t->name, op->desc->name);
        t->dtype = out[k].dtype;
        t->producer = (int)(op - g->ops);
    }
    return KEEL_OK;
}

static keel_status take_op(const plan *p, uint32_t i, graph *g, keel_error *err) {
    const plan_instance *inst = &p->instances[i];
    graph_op *op = &g->ops[g->n_ops++];
    const op_desc *d = inst->op;
    *op = (graph_op){.desc = d, .layer = inst->layer, .n_out = d->n_out, .notes = ""};
    op->name = arena_strdup(&g->arena, inst->name);
    if (!op->name) return KEEL_NOMEM_AT(err, "plan");
    int in[GRAPH_IN] = {0}, weight[GRAPH_WEIGHTS] = {0}, out[GRAPH_OUT] = {0}, n_out;
    for (int k = 0; k < d->max_in; k++) in[k] = tensor_of(inst->buffer[k]);
    for (int k = 0; k < d->max_weights; k++) weight[k] = tensor_of(inst->buffer[d->max_in + k]);
    for (int k = 0; k < d->n_out; k++) out[k] = tensor_of(inst->buffer[d->max_in + d->max_weights + k]);
    KEEL_TRY(count_slots(op, "input", in, d->min_in, d->max_in, g->n_tensors, &op->n_in, err));
    KEEL_TRY(count_slots(op, "weight", weight, d->min_weights, d->max_weights, g->n_tensors, &op->n_weights, err));
    KEEL_TRY(count_slots(op, "output", out, d->n_out, d->n_out, g->n_tensors, &n_out, err));
    memcpy(op->in, in, sizeof in), memcpy(op->weight, weight, sizeof weight), memcpy(op->out, out, sizeof out);
    KEEL_TRY(take_attrs(p, inst, op, err));
    KEEL_TRY(check_order(g, op, err));
    return check_outputs(p, g, op, err);
}

static keel_status take_facts(const plan *p, graph *g, keel_error *err) {
    g->architecture = arena_strdup(&g->arena, p->architecture);
    if (!g->architecture) return KEEL_NOMEM_AT(err, "plan");
    g->n_layers = (int)p->n_layers;
    g->layer_first = (int)p->layer_first;
    g->vocab = (int64_t)p->vocab;
    g->hidden = (int64_t)p->hidden;
    g->sampling = p->sampling;
    g->vocab_parallel = p->vocab_parallel;
    g->logits = p->logits == KP_NONE ? 0 : tensor_of(p->logits);
    for (int i = 0; i < g->n_ops && !g->step; i++) {
        if (g->ops[i].n_out && graph_tensor_at(g, g->ops[i].out[0])->kind == TENSOR_STEP) g->step = g->ops[i].out[0];
    }
    return KEEL_OK;
}

static keel_status fill_graph(const plan *p, graph *g, keel_error *err) {
    g->tensors = mem_calloc((size_t)p->n_buffers + 1, sizeof *g->tensors);
    g->ops = mem_calloc((size_t)p->n_instances + 1, sizeof *g->ops);
    if (!g->tensors || !g->ops) return KEEL_NOMEM_AT(err, "plan");
    g->tensors[0] = (graph_tensor){.name = "none", .producer = -1};
    g->tp = p->tp, g->ep = p->ep, g->rank = p->rank; /* the shape rules of collectives ask */
    KEEL_TRY(take_tensors(p, g, err));
    for (uint32_t i = 0; i < p->n_instances; i++) KEEL_TRY(take_op(p, i, g, err));
    return take_facts(p, g, err);
}

keel_status plan_graph(const plan *p, graph **out, keel_error *err) {
    graph *g = mem_calloc(1, sizeof *g);
    if (!g) return KEEL_NOMEM_AT(err, "plan");
    keel_status s = fill_graph(p, g, err);
    if (s != KEEL_OK) {
        graph_close(g);
        return s;
    }
    *out = g;
    return KEEL_OK;
}

static bool same_bound(const graph *a, const graph *b, const int *x, const int *y, int n) {
    for (int i = 0; i < n; i++) {
        if (!x[i] != !y[i]) return false;
        if (x[i] && strcmp(graph_tensor_at(a, x[i])->name, graph_tensor_at(b, y[i])->name) != 0) return false;
    }
    return true;
}

static bool same_op(const graph *a, const graph *b, const graph_op *x, const graph_op *y) {
    if (x->desc != y->desc || strcmp(x->name, y->name) != 0 || x->layer != y->layer) return false;
    if (!same_bound(a, b, x->in, y->in, GRAPH_IN) || !same_bound(a, b, x->out, y->out, GRAPH_OUT) ||
        !same_bound(a, b, x->weight, y->weight, GRAPH_WEIGHTS))
        return false;
    for (int i = 0; i < OP_ATTRS && x->desc->attrs[i].name; i++) {
        if (graph_attr_of(x, x->desc->attrs[i].name) != graph_attr_of(y, x->desc->attrs[i].name)) return false;
    }
    return true;
}

static bool same_stored(const graph_tensor *a, const graph_tensor *b, dtype act) {
    if (strcmp(a->name, b->name) != 0 || !same_tensor(a, b, act) || a->external != b->external) return false;
    if (a->kind == TENSOR_CONST) return memcmp(a->data, b->data, (size_t)a->dim[0] * sizeof *a->data) == 0;
    if (a->kind != TENSOR_WEIGHT) return true;
    return strcmp(a->key, b->key) == 0 && a->shard == b->shard && a->shard_dim == b->shard_dim;
}

static keel_status compare_graphs(const graph *a, const graph *b, dtype act, keel_error *err) {
    const char *first = NULL;
    for (int i = 0; i < a->n_ops && i < b->n_ops && !first; i++) {
        if (!same_op(a, b, &a->ops[i], &b->ops[i])) first = b->ops[i].name;
    }
    for (int i = 1; i <= a->n_tensors && i <= b->n_tensors && !first; i++) {
        if (!same_stored(graph_tensor_at(a, i), graph_tensor_at(b, i), act)) first = graph_tensor_at(b, i)->name;
    }
    if (!first && (a->n_ops != b->n_ops || a->n_tensors != b->n_tensors)) first = "the number of ops or tensors";
    if (!first && (a->tp != b->tp || a->ep != b->ep || a->rank != b->rank)) first = "the rank";
    if (!first && (a->vocab != b->vocab || a->logits != b->logits || a->sampling != b->sampling)) first = "the tail";
    if (!first) return KEEL_OK;
    return error_set(err, KEEL_USAGE,
                     "the plan was not made for this model (%s, %d layers, rank %u of %u): the first difference is at "
                     "%s; make it again with keel plan",
                     b->architecture, b->n_layers, b->rank, b->tp, first);
}

keel_status plan_fits(const plan *p, const graph *g, keel_error *err) {
    graph *own = NULL, *lowered = NULL;
    KEEL_TRY(plan_graph(p, &own, err));
    keel_status s = plan_lowered(p, g, &lowered, err);
    if (s == KEEL_OK) s = compare_graphs(own, lowered ? lowered : g, arch_find(p->arch)->act_dtype, err);
    graph_close(lowered);
    graph_close(own);
    return s;
}

keel_status plan_derive(plan *p, keel_error *err) {
    graph *g = NULL;
    tiler t = {0};
    tile_env env = plan_env(p);
    KEEL_TRY(plan_graph(p, &g, err));
    keel_status s = tiler_open(&t, g, &env, err);
    if (s == KEEL_OK) s = plan_describe(&t, p, err);
    if (s == KEEL_OK) s = plan_take_description(p, &t, err);
    if (s == KEEL_OK) {
        for (uint32_t i = 0; i < p->n_instances; i++) {
            p->instances[i].params_offset = t.param_at[i].offset;
            p->instances[i].params_bytes = t.param_at[i].bytes;
        }
    }
    tiler_close(&t);
    graph_close(g);
    return s;
}
