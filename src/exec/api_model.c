/* SPDX-License-Identifier: Apache-2.0 */
/* keel.h: models and text. */
#include "exec/api.h"

#include "core/file.h"
#include "core/mem.h"
#include "graph/geometry.h"
#include "graph/model.h"
#include "graph/shard.h"
#include "load/chat.h"

#include <string.h>

enum { CONFIG_MAX_BYTES = 16 << 20, STOP_IDS_MAX = 64 };

keel_status api_take(const char *what, void *mine, size_t mine_bytes, const void *given, size_t size, keel_error *err) {
    if (size < sizeof size || size > mine_bytes) {
        return error_set(err, KEEL_USAGE,
                         "%s: struct_size is %zu, this library knows up to %zu bytes; start from the INITIALIZER", what,
                         size, mine_bytes);
    }
    memcpy(mine, given, size);
    return KEEL_OK;
}

const char *keel_geometry_name(size_t i) {
    size_t n = 0;
    while (geometry_table[n].name) n++;
    return i < n ? geometry_table[i].name : NULL;
}

keel_status api_synth_config(const char *synth, json_t **out, const char **file, keel_error *err) {
    *file = synth;
    for (const geometry *g = geometry_table; g->name; g++) {
        if (strcmp(g->name, synth) == 0) return json_parse(synth, g->config, strlen(g->config), out, err);
    }
    if (file_exists(synth)) return json_read(synth, CONFIG_MAX_BYTES, out, err);
    keel_status s = error_set(err, KEEL_MISSING, "--synth %s: neither a geometry nor a file; known geometries:", synth);
    for (const geometry *g = geometry_table; g->name; g++) error_append(err, "  %s", g->name);
    return s;
}

keel_status api_quant(const char *synth, const char *name, model_quant *out, keel_error *err) {
    KEEL_TRY(model_quant_parse(name, out, err));
    if (*out == QUANT_NONE || synth) return KEEL_OK;
    return error_set(
        err, KEEL_USAGE,
        "quantising to %s as the weights are opened is for synthetic ones; of a checkpoint make a quantised "
        "copy first (keel convert MODEL OUT_DIR --quant %s)",
        name, name);
}

static keel_status folder_config(const char *dir, json_t **out, char **file, keel_error *err) {
    if (file_exists(dir) && !file_is_dir(dir))
        return error_set(err, KEEL_USAGE, "%s: is a file; give the checkpoint's folder", dir);
    *file = path_join(dir, "config.json");
    if (!*file) return KEEL_NOMEM_AT(err, dir);
    return json_read(*file, CONFIG_MAX_BYTES, out, err);
}

/* eos_token_id: an integer or a list. */
static keel_status take_stop_ids(keel_model *m, const char *file, const json_t *config, keel_error *err) {
    const json_t *eos = json_object_get(config, "eos_token_id");
    if (!eos || json_is_null(eos) || m->n_stop_ids) return KEEL_OK;
    size_t n = json_is_array(eos) ? json_array_size(eos) : 1;
    if (n > STOP_IDS_MAX)
        return error_set(err, KEEL_RANGE, "%s: \"eos_token_id\" lists %zu ids, more than %d", file, n, STOP_IDS_MAX);
    m->stop_ids = mem_calloc(n + 1, sizeof *m->stop_ids);
    if (!m->stop_ids) return KEEL_NOMEM_AT(err, file);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
        if (!json_is_integer(id))
            return error_set(err, KEEL_FORMAT, "%s: \"eos_token_id\" must be an id or a list of ids", file);
        if (json_integer_value(id) < 0 || json_integer_value(id) >= m->graph->vocab)
            continue; /* no such row: it can never come */
        m->stop_ids[m->n_stop_ids++] = (int32_t)json_integer_value(id);
    }
    return KEEL_OK;
}

static keel_status generation_config(keel_model *m, keel_error *err) {
    char *file = path_join(m->path, "generation_config.json");
    if (!file) return KEEL_NOMEM_AT(err, m->path);
    json_t *config = NULL;
    keel_status s = KEEL_OK;
    if (file_exists(file)) {
        s = json_read(file, CONFIG_MAX_BYTES, &config, err);
        if (s == KEEL_OK) s = take_stop_ids(m, file, config, err);
        json_decref(config);
    }
    mem_free(file);
    return s;
}

static keel_status open_tokenizer(keel_model *m, keel_error *err) {
    char *file = path_join(m->path, "tokenizer.json");
    if (!file) return KEEL_NOMEM_AT(err, m->path);
    keel_status s = file_exists(file) ? tokenizer_open(file, &m->tokenizer, err) : KEEL_OK;
    if (s == KEEL_OK && m->tokenizer && tokenizer_vocab(m->tokenizer) > m->graph->vocab) {
        s = error_set(
            err, KEEL_FORMAT,
            "%s: has %u ids, but the embedding of the model has %lld rows; the tokenizer belongs to another model",
            file, tokenizer_vocab(m->tokenizer), (long long)m->graph->vocab);
    }
    mem_free(file);
    return s;
}

/* The types of the weights are the checkpoint's; the global graph takes them over, so that the plans of other ranks
 * come out as they make them. */
static void take_types(keel_model *m) {
    for (int i = 1; i <= m->global->n_tensors; i++) {
        graph_tensor *t = &m->global->tensors[i];
        for (int k = 1; k <= m->graph->n_tensors && t->kind == TENSOR_WEIGHT; k++) {
            const graph_tensor *own = graph_tensor_at(m->graph, k);
            if (own->kind == TENSOR_WEIGHT && strcmp(own->key, t->key) == 0) t->dtype = own->dtype;
        }
    }
}

/* From the drawing or graph file, else from the configuration; then what this rank has of it. */
static keel_status make_graphs(keel_model *m, const keel_model_options *o, const json_t *config, const char *file,
                               keel_error *err) {
    model_options mo = {.layer_first = 0, .layer_last = -1, .sample = o->sampling};
    if (o->layer_slice) {
        mo.layer_first = o->layer_first;
        mo.layer_last = o->layer_last;
    }
    KEEL_TRY(api_quant(o->synth, o->quant, &mo.quant, err));
    if (o->graph && o->layer_slice)
        return error_set(err, KEEL_USAGE, "%s: a drawn graph has the layers that are drawn; --layers is for models",
                         o->graph);
    KEEL_TRY(o->graph ? graph_open_path(o->graph, &mo, &m->global, err)
                      : model_build(config, file, &mo, &m->global, err));
    shard_options so = {.tp = o->tp, .ep = o->ep, .rank = o->rank, .vocab_parallel = o->vocab_parallel};
    return graph_shard(m->global, &so, &m->graph, err);
}

static keel_status open_parts(keel_model *m, const keel_model_options *o, const json_t *config, const char *file,
                              keel_error *err) {
    KEEL_TRY(make_graphs(m, o, config, file, err));
    if (o->graph_only) return KEEL_OK;
    if (m->path) {
        KEEL_TRY(generation_config(m, err));
        KEEL_TRY(open_tokenizer(m, err));
    }
    KEEL_TRY(take_stop_ids(m, file, config, err));
    KEEL_TRY(m->path ? weights_open(m->path, &m->weights, err) : weights_open_synth(o->synth_seed, &m->weights, err));
    weight_cache_options cache = {.dir = o->cache_dir, .config = config, .jobs = o->jobs};
    if (m->path && o->cache_dir) weights_use_cache(m->weights, &cache);
    KEEL_TRY(weights_bind(m->weights, m->graph, err));
    take_types(m);
    return KEEL_OK;
}

/* A plan depends on the weights' types: with graph_only they are read from the checkpoint's headers where there is one.
 */
static keel_status plan_types(keel_model *m, keel_error *err) {
    keel_error ignored = KEEL_ERROR_INITIALIZER;
    if (!m->path || weights_open(m->path, &m->weights, &ignored) != KEEL_OK) return KEEL_OK;
    KEEL_TRY(weights_match(m->weights, m->graph, err));
    take_types(m);
    return KEEL_OK;
}

/* config.json of the folder or the geometry; NULL of a graph that stands alone. *path: to be freed. */
static keel_status find_config(keel_model *m, const keel_model_options *o, json_t **config, char **path,
                               const char **file, keel_error *err) {
    *file = o->graph;
    if (o->synth) return api_synth_config(o->synth, config, file, err);
    if (!o->path) return KEEL_OK;
    size_t n = strlen(o->path) + 1;
    m->path = mem_alloc(n);
    if (!m->path) return KEEL_NOMEM_AT(err, "model");
    memcpy(m->path, o->path, n);
    keel_status s = folder_config(m->path, config, path, err);
    *file = *path;
    return s;
}

keel_status keel_model_open(const keel_model_options *given, keel_model **out, keel_error *err) {
    API_TAKE(keel_model_options, o, given, err);
    bool lone_graph = o.graph && !o.path && !o.synth && o.graph_only;
    if (!lone_graph && !o.path == !o.synth)
        return error_set(err, KEEL_USAGE, "give a checkpoint folder or a synthetic geometry, one of them");
    if (o.graph && o.synth) return error_set(err, KEEL_USAGE, "%s: a graph takes its weights from a folder", o.graph);
    keel_model *m = mem_calloc(1, sizeof *m);
    if (!m) return KEEL_NOMEM_AT(err, "model");
    json_t *config = NULL;
    char *config_path = NULL;
    const char *file = NULL;
    keel_status s = find_config(m, &o, &config, &config_path, &file, err);
    if (s == KEEL_OK) s = open_parts(m, &o, config, file, err);
    if (s == KEEL_OK && o.graph_only) s = plan_types(m, err);
    json_decref(config);
    mem_free(config_path);
    if (s != KEEL_OK) {
        keel_model_close(m);
        return s;
    }
    *out = m;
    return KEEL_OK;
}

void keel_model_close(keel_model *m) {
    if (!m) return;
    weights_close(m->weights);
    tokenizer_close(m->tokenizer);
    graph_close(m->graph);
    graph_close(m->global);
    mem_free(m->stop_ids);
    mem_free(m->path);
    mem_free(m);
}

void keel_model_info_get(const keel_model *m, keel_model_info *out) {
    *out = (keel_model_info){.architecture = m->graph->architecture,
                             .n_layers = (uint32_t)m->graph->n_layers,
                             .vocab = (uint64_t)m->graph->vocab,
                             .hidden = (uint64_t)m->graph->hidden,
                             .max_position = (uint64_t)m->graph->max_position,
                             .has_tokenizer = m->tokenizer != NULL,
                             .stop_ids = m->stop_ids,
                             .n_stop_ids = m->n_stop_ids};
    for (int id = 1; id <= m->graph->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(m->graph, id);
        if (t->kind == TENSOR_WEIGHT) out->weight_bytes += (uint64_t)graph_elements(t) * dtype_bytes(t->dtype);
    }
}

static keel_status need_tokenizer(const keel_model *m, keel_error *err) {
    if (m->tokenizer) return KEEL_OK;
    return error_set(err, KEEL_MISSING, "%s: has no tokenizer.json; give token ids instead of text",
                     m->path ? m->path : "the synthetic model");
}

keel_status keel_encode(const keel_model *m, const char *text, size_t bytes, bool add_special, int32_t **ids,
                        size_t *n_ids, keel_error *err) {
    KEEL_TRY(need_tokenizer(m, err));
    return tokenizer_encode(m->tokenizer, text, bytes, add_special, ids, n_ids, err);
}

keel_status keel_chat_encode(const keel_model *m, const char *system, const char *user, size_t user_bytes,
                             int32_t **ids, size_t *n_ids, int32_t *stop_id, keel_error *err) {
    KEEL_TRY(need_tokenizer(m, err));
    KEEL_TRY(chat_encode(m->tokenizer, m->path, system, user, user_bytes, ids, n_ids, err));
    if (stop_id) *stop_id = chat_end_of_turn(m->tokenizer);
    return KEEL_OK;
}

struct keel_decoder {
    token_stream stream;
    buf text;
};

keel_status keel_decoder_open(const keel_model *m, bool skip_special, keel_decoder **out, keel_error *err) {
    KEEL_TRY(need_tokenizer(m, err));
    keel_decoder *d = mem_calloc(1, sizeof *d);
    if (!d) return KEEL_NOMEM_AT(err, "decoder");
    d->stream = (token_stream){.tokenizer = m->tokenizer, .skip_special = skip_special};
    *out = d;
    return KEEL_OK;
}

static keel_status decoder_text(keel_decoder *d, const char **text, size_t *bytes, keel_error *err) {
    buf_put(&d->text, "", 0);
    if (d->text.failed) return KEEL_NOMEM_AT(err, "decoder");
    *text = (const char *)d->text.data;
    if (bytes) *bytes = d->text.len;
    return KEEL_OK;
}

keel_status keel_decoder_put(keel_decoder *d, int32_t id, const char **text, size_t *bytes, keel_error *err) {
    d->text.len = 0;
    KEEL_TRY(token_stream_put(&d->stream, id, &d->text, err));
    return decoder_text(d, text, bytes, err);
}

keel_status keel_decoder_end(keel_decoder *d, const char **text, size_t *bytes, keel_error *err) {
    d->text.len = 0;
    token_stream_end(&d->stream, &d->text);
    return decoder_text(d, text, bytes, err);
}

void keel_decoder_close(keel_decoder *d) {
    if (!d) return;
    buf_free(&d->text);
    mem_free(d);
}
