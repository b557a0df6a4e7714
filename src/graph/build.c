/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/build.h"

#include "core/mem.h"
#include "graph/names.h"
#include "graph/op.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void build_fail(build *b, keel_status status, const char *fmt, ...) {
    if (b->status != KEEL_OK) return;
    char text[KEEL_ERROR_DETAIL_BYTES];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    b->status = b->file ? error_set(b->err, status, "%s: %s", b->file, text) : error_set(b->err, status, "%s", text);
}

static void fail_nomem(build *b) { build_fail(b, KEEL_NOMEM, "building the graph: out of memory"); }

const char *build_text(build *b, const char *fmt, ...) {
    if (b->status != KEEL_OK) return "";
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n < 0 ? NULL : arena_alloc(&b->g->arena, (size_t)n + 1);
    if (text) vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    if (!text) fail_nomem(b);
    return text ? text : "";
}

/* "l{layer}.name" inside a layer, the name itself in head and tail. */
static const char *layer_name(build *b, const char *name) {
    return b->layer >= 0 ? build_text(b, "l%d.%s", b->layer, name) : build_text(b, "%s", name);
}

/* Room for one more element beside the `used` ones; sizes at least double, so that a graph costs few moves. */
static bool grow(void **array, int used, int *cap, size_t element_bytes) {
    if (used < *cap) return true;
    if (*cap > INT_MAX / 2) return false;
    int more = *cap ? 2 * *cap : 64;
    void *p = mem_realloc(*array, (size_t)more * element_bytes);
    if (!p) return false;
    *array = p;
    *cap = more;
    return true;
}

/* Appends; the names in t live in the arena. Returns the id, 0 after an error. */
static int add_tensor(build *b, const graph_tensor *t) {
    if (b->status != KEEL_OK) return 0;
    graph *g = b->g;
    if (names_find(b->names, NAMES_TENSOR, t->name) >= 0) {
        build_fail(b, KEEL_FORMAT, "two tensors are named %s", t->name);
        return 0;
    }
    void *tensors = g->tensors;
    int id = g->n_tensors + 1;
    bool room = grow(&tensors, id, &g->cap_tensors, sizeof *g->tensors);
    g->tensors = tensors;
    if (!room || !names_put(b->names, NAMES_TENSOR, t->name, id)) {
        fail_nomem(b);
        return 0;
    }
    g->tensors[id] = *t;
    g->n_tensors = id;
    return id;
}

static bool start_graph(build *b, const char *architecture) {
    graph *g = b->g = mem_calloc(1, sizeof *g);
    if (!g) return false;
    b->names = names_new();
    void *tensors = NULL;
    bool room = grow(&tensors, 0, &g->cap_tensors, sizeof *g->tensors);
    g->tensors = tensors;
    g->architecture = arena_strdup(&g->arena, architecture);
    if (!room || !b->names || !g->architecture) return false;
    g->tp = g->ep = 1;
    g->tensors[0] = (graph_tensor){.name = "none", .producer = -1};
    return true;
}

keel_status build_begin(build *b, const char *file, const char *architecture, dtype weight_dtype, keel_error *err) {
    *b = (build){.layer = -1, .weight_dtype = weight_dtype, .file = file, .err = err};
    if (!start_graph(b, architecture)) {
        fail_nomem(b);
        return b->status;
    }
    int step = build_op(b, (op_spec){.kind = "step_begin", .name = "step"});
    if (b->status == KEEL_OK && b->g->tensors[step].kind != TENSOR_STEP) {
        build_fail(b, KEEL_FORMAT, "op step_begin: its shape rule must make the step record");
    }
    b->g->step = step;
    return b->status;
}

keel_status build_finish(build *b, graph **out) {
    names_free(b->names);
    b->names = NULL;
    if (b->status == KEEL_OK) {
        *out = b->g;
    } else {
        graph_close(b->g);
    }
    b->g = NULL;
    return b->status;
}

int build_const(build *b, const char *name, const float *data, int64_t n) {
    if (b->status != KEEL_OK) return 0;
    if (n < 1) {
        build_fail(b, KEEL_FORMAT, "constant %s: %lld values", name, (long long)n);
        return 0;
    }
    float *copy = arena_array(&b->g->arena, (size_t)n, sizeof *copy);
    if (!copy) {
        fail_nomem(b);
        return 0;
    }
    memcpy(copy, data, (size_t)n * sizeof *copy);
    graph_tensor t = {.kind = TENSOR_CONST, .dtype = DTYPE_F32, .rank = 1, .dim = {n}, .data = copy, .producer = -1};
    t.name = layer_name(b, name);
    return add_tensor(b, &t);
}

int build_input(build *b, const char *name, int64_t cols) {
    if (cols < 1) build_fail(b, KEEL_FORMAT, "input %s: %lld columns", name, (long long)cols);
    graph_tensor t = {.kind = TENSOR_ACTIVATION, .dtype = DTYPE_ACT, .rank = 2, .dim = {GRAPH_M, cols}, .producer = -1};
    t.external = true;
    t.name = layer_name(b, name);
    return add_tensor(b, &t);
}

int build_cache(build *b, const char *name, int64_t kv_heads, int64_t head_dim) {
    if (kv_heads < 1 || head_dim < 1) {
        build_fail(b, KEEL_FORMAT, "cache %s: %lld heads of %lld", name, (long long)kv_heads, (long long)head_dim);
    }
    graph_tensor t = {.kind = TENSOR_CACHE, .dtype = DTYPE_ACT, .rank = 2, .dim = {kv_heads, head_dim}, .producer = -1};
    t.name = layer_name(b, name);
    return add_tensor(b, &t);
}

/* All messages about an op begin alike: "l0.attn.q_proj (linear): …". */
#define FAIL_OP(b, op, fmt, ...)                                                                                       \
    build_fail((b), KEEL_FORMAT, "op %s (%s): " fmt, (op)->name, (op)->desc->name, __VA_ARGS__)

static const op_desc *find_kind(build *b, const op_spec *spec) {
    const op_desc *desc = op_find(spec->kind);
    if (desc) return desc;
    char known[KEEL_ERROR_DETAIL_BYTES / 2] = "";
    size_t used = 0;
    for (unsigned i = 0; i < op_registry_count && used < sizeof known; i++) {
        used += (size_t)snprintf(known + used, sizeof known - used, " %s", op_registry[i]->name);
    }
    build_fail(b, KEEL_UNSUPPORTED, "op %s: kind \"%s\" is unknown; known kinds:%s", spec->name, spec->kind, known);
    return NULL;
}

static void take_inputs(build *b, graph_op *op, const op_spec *spec) {
    int n = 0;
    for (int i = 0; i < GRAPH_IN && spec->in[i]; i++) {
        int id = spec->in[i];
        if (id == BUILD_NONE) continue;
        if (id < 0 || id > b->g->n_tensors) {
            FAIL_OP(b, op, "input %d: no tensor has the id %d", i, id);
            return;
        }
        op->in[i] = id;
        n = i + 1;
    }
    op->n_in = n;
    const op_desc *desc = op->desc;
    if (n < desc->min_in || n > desc->max_in) {
        FAIL_OP(b, op, "takes %d to %d inputs, got %d", desc->min_in, desc->max_in, n);
    }
}

static bool same_weight(const graph_tensor *a, const graph_tensor *t) {
    return a->rank == t->rank && memcmp(a->dim, t->dim, sizeof a->dim) == 0 && a->dtype == t->dtype &&
           a->shard == t->shard && a->shard_dim == t->shard_dim;
}

/* Rank and dims of the weight; false when they make no tensor. */
static bool weight_shape(const weight_spec *w, graph_tensor *t) {
    int64_t elements = 1;
    for (t->rank = 0; t->rank < GRAPH_RANK && w->dim[t->rank]; t->rank++) {
        int64_t n = w->dim[t->rank];
        if (n < 0 || __builtin_mul_overflow(elements, n, &elements)) return false;
        t->dim[t->rank] = n;
    }
    return t->rank > 0 && w->shard_dim >= 0 && w->shard_dim < t->rank;
}

/* The tensor of a checkpoint key: the one that stands already, or a new one. */
static int take_weight(build *b, const graph_op *op, const weight_spec *w, dtype type) {
    graph_tensor t = {.kind = TENSOR_WEIGHT, .dtype = type, .producer = -1};
    t.shard = w->shard;
    t.shard_dim = w->shard_dim;
    if (!weight_shape(w, &t)) {
        FAIL_OP(b, op, "weight %s: bad dimensions or shard dimension", w->key);
        return 0;
    }
    int id = names_find(b->names, NAMES_KEY, w->key);
    if (id >= 0) {
        if (!same_weight(&b->g->tensors[id], &t)) {
            FAIL_OP(b, op, "weight %s stands in the graph already with another shape or shard rule, or another dtype",
                    w->key);
        }
        return id;
    }
    t.name = t.key = build_text(b, "%s", w->key);
    id = add_tensor(b, &t);
    if (b->status == KEEL_OK && !names_put(b->names, NAMES_KEY, t.key, id)) fail_nomem(b);
    return id;
}

static void take_weights(build *b, graph_op *op, const op_spec *spec) {
    int n = 0;
    for (int i = 0; i < GRAPH_WEIGHTS && spec->weight[i].key && b->status == KEEL_OK; i++) {
        if (!spec->weight[i].key[0]) continue;
        op->weight[i] = take_weight(b, op, &spec->weight[i], spec->typed ? spec->weight_dtype[i] : b->weight_dtype);
        n = i + 1;
    }
    op->n_weights = n;
    const op_desc *desc = op->desc;
    if (n < desc->min_weights || n > desc->max_weights) {
        FAIL_OP(b, op, "takes %d to %d weights, got %d", desc->min_weights, desc->max_weights, n);
    }
}

static const op_attr *declared_attr(const op_desc *desc, const char *name) {
    for (int i = 0; i < OP_ATTRS && desc->attrs[i].name; i++) {
        if (strcmp(desc->attrs[i].name, name) == 0) return &desc->attrs[i];
    }
    return NULL;
}

static bool has_attr(const graph_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++) {
        if (strcmp(op->attr[i].name, name) == 0) return true;
    }
    return false;
}

/* The order in which the op declares them: equal graphs stay equal whatever order a builder or a drawing has. */
static void order_attrs(graph_op *op) {
    int n = 0;
    for (int i = 0; i < OP_ATTRS && op->desc->attrs[i].name; i++) {
        for (int k = n; k < op->n_attrs; k++) {
            if (strcmp(op->attr[k].name, op->desc->attrs[i].name) != 0) continue;
            graph_attr a = op->attr[k];
            op->attr[k] = op->attr[n];
            op->attr[n++] = a;
            break;
        }
    }
}

static void take_attrs(build *b, graph_op *op, const op_spec *spec) {
    for (int i = 0; i < GRAPH_ATTRS && spec->attr[i].name; i++) {
        const graph_attr *a = &spec->attr[i];
        const op_attr *declared = declared_attr(op->desc, a->name);
        if (!declared) FAIL_OP(b, op, "has no attribute \"%s\"", a->name);
        if (has_attr(op, a->name)) FAIL_OP(b, op, "attribute \"%s\" is set twice", a->name);
        if (!isfinite(a->value)) FAIL_OP(b, op, "attribute \"%s\" is not a finite number", a->name);
        if (b->status != KEEL_OK) return;
        op->attr[op->n_attrs++] = (graph_attr){declared->name, a->value};
    }
    order_attrs(op);
    for (int i = 0; i < OP_ATTRS && op->desc->attrs[i].name; i++) {
        const op_attr *declared = &op->desc->attrs[i];
        if (declared->required && !has_attr(op, declared->name)) {
            FAIL_OP(b, op, "needs the attribute \"%s\": %s", declared->name, declared->doc ? declared->doc : "");
        }
    }
}

/* What a shape rule must have left behind. */
static bool whole_output(const graph_tensor *t) {
    if (t->rank < 1 || t->rank > GRAPH_RANK || (unsigned)t->dtype >= DTYPE_COUNT) return false;
    if (t->kind == TENSOR_WEIGHT || t->kind == TENSOR_CONST) return false;
    for (int i = 0; i < t->rank; i++) {
        bool symbolic = i == 0 && (t->dim[0] == GRAPH_M || t->dim[0] == GRAPH_M_LOGIT);
        if (t->dim[i] < 1 && !symbolic) return false;
    }
    return true;
}

static void infer_outputs(build *b, graph_op *op) {
    const op_desc *desc = op->desc;
    graph_tensor out[GRAPH_OUT] = {{0}};
    keel_status s = desc->infer(b->g, op, out, b->err);
    if (s != KEEL_OK) {
        b->status = b->file ? error_prefix(b->err, s, "%s", b->file) : s;
        return;
    }
    op->n_out = desc->n_out;
    for (int i = 0; i < desc->n_out && b->status == KEEL_OK; i++) {
        if (!whole_output(&out[i])) FAIL_OP(b, op, "its shape rule left output %d incomplete", i);
        out[i].name = desc->n_out == 1 ? op->name : build_text(b, "%s.%d", op->name, i);
        out[i].producer = b->g->n_ops;
        out[i].key = NULL;
        op->out[i] = add_tensor(b, &out[i]);
    }
}

static void add_op(build *b, const graph_op *op) {
    if (b->status != KEEL_OK) return;
    graph *g = b->g;
    void *ops = g->ops;
    bool room = grow(&ops, g->n_ops, &g->cap_ops, sizeof *g->ops);
    g->ops = ops;
    if (!room || !names_put(b->names, NAMES_OP, op->name, g->n_ops)) {
        fail_nomem(b);
        return;
    }
    g->ops[g->n_ops++] = *op;
}

int build_op(build *b, op_spec spec) {
    if (b->status != KEEL_OK) return 0;
    graph_op op = {.layer = b->layer};
    op.desc = find_kind(b, &spec);
    op.name = layer_name(b, spec.name);
    if (b->status != KEEL_OK) return 0;
    if (names_find(b->names, NAMES_OP, op.name) >= 0) FAIL_OP(b, &op, "%s", "the name is taken");
    op.notes = build_text(b, "%s", spec.notes ? spec.notes : "");
    take_inputs(b, &op, &spec);
    take_weights(b, &op, &spec);
    take_attrs(b, &op, &spec);
    if (b->status == KEEL_OK) infer_outputs(b, &op);
    add_op(b, &op);
    return b->status == KEEL_OK ? op.out[0] : 0;
}

void build_tail(build *b, int logits, bool sample) {
    int layer = b->layer;
    b->layer = -1;
    const char *kind = sample ? "sample" : "argmax";
    build_op(b, (op_spec){.kind = kind, .name = kind, .in = {logits}});
    if (b->status == KEEL_OK) {
        b->g->logits = logits;
        b->g->sampling = sample;
    }
    b->layer = layer;
}
