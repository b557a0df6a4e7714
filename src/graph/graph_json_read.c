/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json.h"
#include "graph/build.h"
#include "graph/graph_json.h"
#include "graph/graph_text.h"
#include "graph/names.h"

#include <limits.h>
#include <stdlib.h>
#include <limits.h>
#include <string.h>

enum { JSON_VERSION = 1, JSON_MAX_LAYER = 4095, JSON_MAX_DIM = 1 << 30, JSON_NAME_BYTES = 1000 };

/* names: NAMES_TENSOR has the tensors made so far, NAMES_OP the index of every source in `sources`. */
typedef struct reader {
    build b;
    const graph_json_options *options;
    struct names *names;
    const json_t **sources; /* [n_sources] items of "inputs", "consts", "caches" */
    tensor_kind *kinds;     /* [n_sources] */
    int n_sources;
    const char *op; /* the one in hand, for messages */
    char unnamed[2 * GRAPH_TEXT_BYTES];
} reader;

/* "FILE: op l0.attn: …". */
#define FAIL_AT(r, fmt, ...) build_fail(&(r)->b, KEEL_FORMAT, "op %.200s: " fmt, (r)->op, __VA_ARGS__)

static bool good(const reader *r) { return r->b.status == KEEL_OK; }

static void fail_nomem(reader *r) { build_fail(&r->b, KEEL_NOMEM, "reading the graph: out of memory"); }

/* A name must stand in one line of a drawing, a table, a message. */
static bool is_name(const char *s) {
    size_t n = strlen(s);
    if (n < 1 || n > JSON_NAME_BYTES) return false;
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f) return false;
    }
    return true;
}

/* "what" of a place must be a name; NULL after an error. */
static const char *get_name(reader *r, const json_t *from, const char *key) {
    const char *s = json_string_value(json_object_get(from, key));
    if (s && is_name(s)) return s;
    FAIL_AT(r, "\"%s\" must be a string of 1 to %d bytes without control characters", key, JSON_NAME_BYTES);
    return NULL;
}

/* Everything that an object may say; "" ends the list. */
static void check_keys(reader *r, const json_t *object, const char *what, const char *const *known) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0) i++;
        if (!known[i]) FAIL_AT(r, "%s has the unknown key \"%.60s\"", what, key);
    }
}

static bool read_count(reader *r, const json_t *v, const char *what, int64_t lo, int64_t hi, int64_t *out) {
    if (json_is_integer(v) && json_integer_value(v) >= lo && json_integer_value(v) <= hi) {
        *out = json_integer_value(v);
        return true;
    }
    FAIL_AT(r, "%s must be a whole number in %lld..%lld", what, (long long)lo, (long long)hi);
    return false;
}

/* "dims" and "dtype" of a tensor of any kind into *t. */
static void read_shape(reader *r, const json_t *from, const char *what, graph_tensor *t) {
    const json_t *dims = json_object_get(from, "dims");
    const char *type = json_string_value(json_object_get(from, "dtype"));
    size_t n = json_array_size(dims);
    if (n < 1 || n > GRAPH_RANK) {
        FAIL_AT(r, "\"dims\" of %s must be a list of 1 to %d dimensions", what, GRAPH_RANK);
        return;
    }
    t->rank = (int)n;
    for (size_t i = 0; i < n && good(r); i++) {
        const char *symbol = json_string_value(json_array_get(dims, i));
        if (symbol && strcmp(symbol, "M") == 0) {
            t->dim[i] = GRAPH_M;
        } else if (symbol && strcmp(symbol, "M_logit") == 0) {
            t->dim[i] = GRAPH_M_LOGIT;
        } else {
            read_count(r, json_array_get(dims, i), "a dimension, where it is not \"M\" or \"M_logit\",", 1,
                       JSON_MAX_DIM, &t->dim[i]);
        }
    }
    t->dtype = type ? graph_dtype_named(type, strlen(type)) : DTYPE_COUNT;
    if (t->dtype == DTYPE_COUNT) FAIL_AT(r, "\"dtype\" of %s must be act, f32, bf16, f16 …", what);
}

static void list_sources(reader *r, const json_t *root, const char *list, tensor_kind kind) {
    const json_t *items = json_object_get(root, list);
    r->op = list;
    if (items && !json_is_array(items)) FAIL_AT(r, "\"%s\" must be a list", list);
    for (size_t i = 0; i < json_array_size(items) && good(r); i++) {
        const json_t *item = json_array_get(items, i);
        const char *name = get_name(r, item, "name");
        if (!name) return;
        static const char *const keys[] = {"name", "dims", "dtype", "values", NULL};
        check_keys(r, item, name, keys);
        if (names_find(r->names, NAMES_OP, name) >= 0) FAIL_AT(r, "two tensors are named %.200s", name);
        if (good(r) && !names_put(r->names, NAMES_OP, name, r->n_sources)) fail_nomem(r);
        r->sources[r->n_sources] = item;
        r->kinds[r->n_sources++] = kind;
    }
}

static int make_const(reader *r, const json_t *item, const char *name, const graph_tensor *t) {
    const json_t *values = json_object_get(item, "values");
    if (t->rank != 1 || t->dim[0] < 1 || t->dtype != DTYPE_F32 || json_array_size(values) != (size_t)t->dim[0]) {
        FAIL_AT(r, "constant %.200s must have one dimension, the dtype f32 and as many \"values\"", name);
        return 0;
    }
    float *data = arena_array(&r->b.g->arena, (size_t)t->dim[0], sizeof *data);
    if (!data) {
        fail_nomem(r);
        return 0;
    }
    for (int64_t i = 0; i < t->dim[0]; i++) {
        const json_t *v = json_array_get(values, (size_t)i);
        double value = json_number_value(v);
        if (!json_is_number(v) || !(value >= -3.5e38 && value <= 3.5e38)) {
            FAIL_AT(r, "constant %.200s: value %lld is not a number that fits f32", name, (long long)i);
            return 0;
        }
        data[i] = (float)value;
    }
    return build_const(&r->b, name, data, t->dim[0]);
}

/* Makes the source with that index in the file. */
static int make_source(reader *r, int index) {
    const json_t *item = r->sources[index];
    const char *name = json_string_value(json_object_get(item, "name"));
    graph_tensor t = {0};
    int id = 0, layer = r->b.layer;
    read_shape(r, item, name, &t);
    if (!good(r)) return 0;
    r->b.layer = -1; /* the name is whole */
    if (r->kinds[index] == TENSOR_CONST) {
        id = make_const(r, item, name, &t);
    } else if (t.rank != 2 || t.dtype != DTYPE_ACT || (r->kinds[index] == TENSOR_ACTIVATION) != (t.dim[0] == GRAPH_M)) {
        FAIL_AT(r, "%.200s must be %s of the dtype act", name,
                r->kinds[index] == TENSOR_CACHE ? "a cache [kv_heads, head_dim]" : "an input [\"M\", columns]");
    } else if (r->kinds[index] == TENSOR_CACHE) {
        id = build_cache(&r->b, name, t.dim[0], t.dim[1]);
    } else {
        id = build_input(&r->b, name, t.dim[1]);
    }
    r->b.layer = layer;
    if (good(r) && !names_put(r->names, NAMES_TENSOR, name, id)) fail_nomem(r);
    return id;
}

/* The tensor of that name: made already, or a source that is made now. 0 after an error. */
static int find_tensor(reader *r, const char *name) {
    int id = names_find(r->names, NAMES_TENSOR, name);
    if (id >= 0) return id;
    int source = names_find(r->names, NAMES_OP, name);
    if (source >= 0) return make_source(r, source);
    FAIL_AT(r, "reads %.200s, which no op before it and no input, const or cache is named", name);
    return 0;
}

/* Every key of the object must be the name of a slot. */
static void check_slots(reader *r, const json_t *object, const char *what, const op_desc *desc,
                        void (*slot_name)(char *, const op_desc *, int), int n) {
    const char *key;
    json_t *value;
    char slot[GRAPH_TEXT_BYTES];
    if (object && !json_is_object(object)) FAIL_AT(r, "\"%s\" must be an object of slots", what);
    json_object_foreach((json_t *)object, key, value) {
        int i = 0;
        for (; i < n; i++) {
            slot_name(slot, desc, i);
            if (strcmp(slot, key) == 0) break;
        }
        if (i == n) FAIL_AT(r, "kind %s has no slot \"%.60s\" in \"%s\"; see keel graph ops", desc->name, key, what);
    }
}

static void read_inputs(reader *r, const json_t *from, const op_desc *desc, op_spec *spec) {
    const json_t *in = json_object_get(from, "in");
    char slot[GRAPH_TEXT_BYTES];
    check_slots(r, in, "in", desc, graph_text_input, desc->max_in);
    for (int i = 0, last = 0; i < desc->max_in && good(r); i++) {
        graph_text_input(slot, desc, i);
        const json_t *v = json_object_get(in, slot);
        if (!v) continue;
        const char *name = json_string_value(v);
        if (!name) FAIL_AT(r, "slot \"%s\" of \"in\" must be the name of a tensor", slot);
        while (last < i) spec->in[last++] = BUILD_NONE;
        if (good(r)) spec->in[last++] = find_tensor(r, name);
    }
}

static void read_shard(reader *r, const json_t *from, const char *key, graph_tensor *t) {
    const json_t *rule = json_object_get(from, "shard"), *dim = json_object_get(from, "shard_dim");
    const char *name = rule ? json_string_value(rule) : "rep";
    int s = SHARD_REP;
    while (name && s <= SHARD_EP && strcmp(shard_name((shard_rule)s), name) != 0) s++;
    if (!name || s > SHARD_EP) FAIL_AT(r, "\"shard\" of %.200s must be rep, col, row or ep", key);
    if (!good(r)) return;
    t->shard = (shard_rule)s;
    int64_t at = graph_usual_shard_dim(t);
    if (dim && !read_count(r, dim, "\"shard_dim\"", 0, t->rank - 1, &at)) return;
    t->shard_dim = (int)at;
}

static void read_weight(reader *r, const json_t *from, graph_tensor *t) {
    static const char *const keys[] = {"key", "dims", "dtype", "shard", "shard_dim", NULL};
    t->key = get_name(r, from, "key");
    if (!t->key) return;
    check_keys(r, from, t->key, keys);
    read_shape(r, from, t->key, t);
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] < 1) FAIL_AT(r, "weight %.200s: its dimensions must be numbers", t->key);
    }
    if (t->dtype == DTYPE_ACT) FAIL_AT(r, "weight %.200s: its dtype must be one of a checkpoint", t->key);
    read_shard(r, from, t->key, t);
}

static void read_weights(reader *r, const json_t *from, const op_desc *desc, op_spec *spec) {
    const json_t *weights = json_object_get(from, "weights");
    char slot[GRAPH_TEXT_BYTES];
    check_slots(r, weights, "weights", desc, graph_text_weight, desc->max_weights);
    for (int i = 0, last = 0; i < desc->max_weights && good(r); i++) {
        graph_text_weight(slot, desc, i);
        const json_t *v = json_object_get(weights, slot);
        if (!v) continue;
        graph_tensor t = {0};
        read_weight(r, v, &t);
        if (!good(r)) return;
        while (last < i) spec->weight[last++].key = "";
        weight_spec *w = &spec->weight[last++];
        *w = (weight_spec){.key = t.key, .shard = t.shard, .shard_dim = t.shard_dim};
        memcpy(w->dim, t.dim, sizeof w->dim);
        spec->weight_dtype[i] = t.dtype;
    }
}

static void read_attrs(reader *r, const json_t *from, op_spec *spec) {
    const json_t *attrs = json_object_get(from, "attrs");
    const char *key;
    json_t *value;
    int n = 0;
    if (attrs && !json_is_object(attrs)) FAIL_AT(r, "%s", "\"attrs\" must be an object of numbers");
    json_object_foreach((json_t *)attrs, key, value) {
        if (!json_is_number(value)) FAIL_AT(r, "attribute \"%.60s\" must be a number", key);
        if (n == GRAPH_ATTRS) FAIL_AT(r, "more than %d attributes", GRAPH_ATTRS);
        if (!good(r)) return;
        spec->attr[n++] = (graph_attr){key, json_number_value(value)};
    }
}

/* The layer follows from the name; where the file states it, it must agree. *name is set to what stands behind the
 * layer's prefix. */
static void read_layer(reader *r, const json_t *from, const char **name) {
    int64_t stated = graph_name_layer(*name, name);
    int named = (int)stated;
    const json_t *v = json_object_get(from, "layer");
    if (named > JSON_MAX_LAYER) FAIL_AT(r, "its layer is beyond %d", JSON_MAX_LAYER);
    if (v && read_count(r, v, "\"layer\"", -1, JSON_MAX_LAYER, &stated) && stated != named) {
        FAIL_AT(r, "\"layer\" is %lld, but the name says %d; names of a layer's ops begin with l%lld.",
                (long long)stated, named, (long long)(stated < 0 ? named : stated));
    }
    r->b.layer = named;
}

/* What the file says of the outputs must be what the shape rule made of them. */
static void check_outputs(reader *r, const json_t *from, const graph_op *op) {
    const json_t *out = json_object_get(from, "out");
    if (!out) return;
    if (json_array_size(out) != (size_t)op->n_out) FAIL_AT(r, "\"out\" must be a list of %d", op->n_out);
    for (int i = 0; i < op->n_out && good(r); i++) {
        static const char *const keys[] = {"name", "dims", "dtype", NULL};
        const graph_tensor *t = graph_tensor_at(r->b.g, op->out[i]);
        const json_t *item = json_array_get(out, (size_t)i);
        const char *name = get_name(r, item, "name");
        graph_tensor said = {0};
        if (!name) return;
        check_keys(r, item, name, keys);
        read_shape(r, item, name, &said);
        if (good(r) && strcmp(name, t->name) != 0) FAIL_AT(r, "output %d is named %s, not %.200s", i, t->name, name);
        if (!good(r) ||
            (said.rank == t->rank && said.dtype == t->dtype && memcmp(said.dim, t->dim, sizeof said.dim) == 0)) {
            continue;
        }
        buf text = {0};
        graph_put_shape(&text, t);
        buf_str(&text, " by the op's shape rule, but the file says ");
        graph_put_shape(&text, &said);
        if (text.failed) fail_nomem(r);
        FAIL_AT(r, "output %s is %s", t->name, (const char *)text.data);
        buf_free(&text);
    }
}

static void finish_op(reader *r, const json_t *from) {
    if (!good(r)) return;
    graph *g = r->b.g;
    const graph_op *op = &g->ops[g->n_ops - 1];
    check_outputs(r, from, op);
    for (int i = 0; i < op->n_out && good(r); i++) {
        if (!names_put(r->names, NAMES_TENSOR, graph_tensor_at(g, op->out[i])->name, op->out[i])) fail_nomem(r);
    }
    bool samples = strcmp(op->desc->name, "sample") == 0;
    if (!samples && strcmp(op->desc->name, "argmax") != 0) return;
    if (g->logits) FAIL_AT(r, "%s", "a second op that picks the token; a graph has one");
    g->logits = op->in[0];
    g->sampling = samples;
}

static void read_op(reader *r, const json_t *from) {
    static const char *const keys[] = {"name", "kind", "layer", "in", "weights", "attrs", "out", "notes", NULL};
    op_spec spec = {.name = get_name(r, from, "name"), .typed = true};
    if (!spec.name) return;
    r->op = spec.name;
    check_keys(r, from, "the op", keys);
    spec.kind = get_name(r, from, "kind");
    const json_t *notes = json_object_get(from, "notes");
    spec.notes = json_string_value(notes);
    if (notes && (!spec.notes || (spec.notes[0] && !is_name(spec.notes)))) {
        FAIL_AT(r, "\"notes\" must be a string of up to %d bytes without control characters", JSON_NAME_BYTES);
    }
    if (!good(r)) return;
    if (r->options->sample && strcmp(spec.kind, "argmax") == 0) {
        if (strcmp(spec.name, spec.kind) == 0) spec.name = "sample";
        spec.kind = "sample";
    }
    read_layer(r, from, &spec.name);
    const op_desc *desc = op_find(spec.kind);
    if (desc) { /* an unknown kind is for build_op to refuse, which lists the known ones */
        read_inputs(r, from, desc, &spec);
        read_weights(r, from, desc, &spec);
    }
    read_attrs(r, from, &spec);
    build_op(&r->b, spec);
    finish_op(r, from);
}

static void read_head(reader *r, const json_t *root) {
    static const struct {
        const char *key;
        int64_t hi;
    } counts[] = {{"vocab", 1 << 30},
                  {"hidden", 1 << 30},
                  {"max_position", 0x7fffffff},
                  {"n_layers", JSON_MAX_LAYER + 1},
                  {"layer_first", JSON_MAX_LAYER}};
    int64_t value[5] = {0};
    graph *g = r->b.g;
    for (int i = 0; i < 5 && good(r); i++) {
        read_count(r, json_object_get(root, counts[i].key), counts[i].key, 0, counts[i].hi, &value[i]);
    }
    g->vocab = value[0];
    g->hidden = value[1];
    g->max_position = value[2];
    g->n_layers = (int)value[3];
    g->layer_first = (int)value[4];
}

/* What the head of the file says, against the ops. */
static void check_head(reader *r, const json_t *root) {
    const graph *g = r->b.g;
    const char *logits = json_string_value(json_object_get(root, "logits"));
    int first = INT_MAX, last = -1;
    r->op = "(head)";
    for (int i = 0; i < g->n_ops && good(r); i++) {
        int layer = g->ops[i].layer;
        if (layer >= 0 && layer < first) first = layer;
        if (layer > last) last = layer;
        if (layer < 0 || (layer >= g->layer_first && layer - g->layer_first < g->n_layers)) continue;
        r->op = g->ops[i].name;
        FAIL_AT(r, "its layer is outside the file's, %d from %d on", g->n_layers, g->layer_first);
    }
    if (last < 0) first = 0;
    if (good(r) && (g->layer_first != first || g->n_layers != last - first + 1))
        FAIL_AT(r, "\"n_layers\" is %d from \"layer_first\" %d on; the ops are in %d from %d on", g->n_layers,
                g->layer_first, last - first + 1, first);
    if (!good(r)) return;
    const char *have = g->logits ? graph_tensor_at(g, g->logits)->name : NULL;
    if (g->logits && graph_row_elements(graph_tensor_at(g, g->logits)) != g->vocab) {
        FAIL_AT(r, "\"vocab\" is %lld, but %s has %lld columns", (long long)g->vocab, have,
                (long long)graph_row_elements(graph_tensor_at(g, g->logits)));
    }
    if (logits && (!have || strcmp(have, logits) != 0)) {
        FAIL_AT(r, "\"logits\" is %.200s, but the op that picks the token reads %s", logits, have ? have : "nothing");
    }
    const json_t *sampling = json_object_get(root, "sampling");
    if (sampling && !r->options->sample && json_is_true(sampling) != g->sampling) {
        FAIL_AT(r, "\"sampling\" is not what the ops say: %s", g->sampling ? "true" : "false");
    }
}

static void read_ops(reader *r, const json_t *root) {
    const json_t *ops = json_object_get(root, "ops");
    r->op = "(head)";
    if (!json_is_array(ops)) FAIL_AT(r, "%s", "\"ops\" must be a list");
    for (size_t i = 0; i < json_array_size(ops) && good(r); i++) {
        snprintf(r->unnamed, sizeof r->unnamed, "number %zu of \"ops\"", i);
        r->op = r->unnamed;
        read_op(r, json_array_get(ops, i));
    }
    r->op = "(head)";
    for (int i = 0; i < r->n_sources && good(r); i++) { /* nobody reads these */
        const char *name = json_string_value(json_object_get(r->sources[i], "name"));
        if (names_find(r->names, NAMES_TENSOR, name) < 0) make_source(r, i);
    }
}

static void read_graph(reader *r, const json_t *root) {
    static const char *const keys[] = {"keel_graph", "architecture", "vocab",    "hidden", "max_position",
                                       "n_layers",   "layer_first",  "sampling", "logits", "inputs",
                                       "consts",     "caches",       "ops",      NULL};
    size_t most = json_array_size(json_object_get(root, "inputs")) + json_array_size(json_object_get(root, "consts")) +
                  json_array_size(json_object_get(root, "caches"));
    r->names = names_new();
    r->sources = arena_array(&r->b.g->arena, most + 1, sizeof *r->sources);
    r->kinds = arena_array(&r->b.g->arena, most + 1, sizeof *r->kinds);
    if (!r->names || !r->sources || !r->kinds ||
        !names_put(r->names, NAMES_TENSOR, graph_tensor_at(r->b.g, r->b.g->step)->name, r->b.g->step)) {
        fail_nomem(r);
        return;
    }
    check_keys(r, root, "the file", keys);
    read_head(r, root);
    list_sources(r, root, "inputs", TENSOR_ACTIVATION);
    list_sources(r, root, "consts", TENSOR_CONST);
    list_sources(r, root, "caches", TENSOR_CACHE);
    read_ops(r, root);
    check_head(r, root);
}

static keel_status check_version(const char *file, const json_t *root, keel_error *err) {
    const json_t *version = json_object_get(root, "keel_graph");
    if (!json_is_integer(version)) {
        return error_set(err, KEEL_FORMAT, "%s: is no graph: it must be a JSON object with \"keel_graph\": %d", file,
                         JSON_VERSION);
    }
    if (json_integer_value(version) != JSON_VERSION) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: \"keel_graph\" is %lld; this build reads version %d", file,
                         (long long)json_integer_value(version), JSON_VERSION);
    }
    if (json_object_get(root, "tp")) {
        return error_set(err, KEEL_UNSUPPORTED,
                         "%s: is the graph of one rank; give the global graph, ranks are cut from it", file);
    }
    const char *architecture = json_string_value(json_object_get(root, "architecture"));
    if (architecture && is_name(architecture)) return KEEL_OK;
    return error_set(err, KEEL_FORMAT, "%s: \"architecture\" must be a string without control characters", file);
}

keel_status graph_json_read(const char *file, const char *data, size_t bytes, const graph_json_options *options,
                            graph **out, keel_error *err) {
    static const graph_json_options none = {0};
    reader r = {.options = options ? options : &none, .op = "(head)"};
    json_t *root;
    KEEL_TRY(json_parse(file, data, bytes, &root, err));
    keel_status s = check_version(file, root, err);
    if (s == KEEL_OK) {
        const char *architecture = json_string_value(json_object_get(root, "architecture"));
        if (build_begin(&r.b, file, architecture, DTYPE_BF16, err) == KEEL_OK) read_graph(&r, root);
        names_free(r.names);
        s = build_finish(&r.b, out);
    }
    json_decref(root);
    return s;
}
