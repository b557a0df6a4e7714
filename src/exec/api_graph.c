/* SPDX-License-Identifier: Apache-2.0 */
/* keel.h: graphs. */
#include "core/file.h"
#include "core/mem.h"
#include "exec/api.h"
#include "draw/draw.h"
#include "draw/drawing.h"
#include "graph/geometry.h"
#include "graph/graph_diff.h"
#include "graph/graph_json.h"
#include "draw/draw_text.h"
#include "graph/model.h"

#include <string.h>

enum { GRAPH_FILE_BYTES = 256 << 20, GRAPH_CONFIG_BYTES = 16 << 20 };

struct keel_graph {
    graph *graph;
};

/* A file says what it is by how it begins: XML, or JSON. */
static keel_status parse_file(const char *path, const char *data, size_t bytes, bool sample, graph **out,
                              keel_error *err) {
    size_t at = bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a byte order mark */
    while (at < bytes && data[at] && strchr(" \t\r\n", data[at])) at++;
    if (at < bytes && data[at] == '<') {
        return drawing_read(path, data, bytes, &(drawing_options){.sample = sample}, out, err);
    }
    if (at < bytes && data[at] == '{') {
        return graph_json_read(path, data + at, bytes - at, &(graph_json_options){.sample = sample}, out, err);
    }
    return error_set(err, KEEL_FORMAT,
                     "%s: neither a draw.io drawing (XML) nor a graph file (JSON); save the drawing as .drawio", path);
}

static keel_status open_file(const char *path, const model_options *o, graph **out, keel_error *err) {
    char *data;
    size_t bytes;
    if (o && (o->layer_first != 0 || o->layer_last != -1)) {
        return error_set(err, KEEL_USAGE, "%s: a drawing or graph file has the layers that it has; leave out --layers",
                         path);
    }
    KEEL_TRY(file_read(path, GRAPH_FILE_BYTES, &data, &bytes, err));
    keel_status s = parse_file(path, data, bytes, o && o->sample, out, err);
    keel_free(data);
    return s;
}

static keel_status open_folder(const char *path, const model_options *o, graph **out, keel_error *err) {
    json_t *config;
    char *file = path_join(path, "config.json");
    if (!file) return KEEL_NOMEM_AT(err, path);
    keel_status s = json_read(file, GRAPH_CONFIG_BYTES, &config, err);
    if (s == KEEL_OK) {
        s = model_build(config, file, o, out, err);
        json_decref(config);
    }
    mem_free(file);
    return s;
}

keel_status graph_open_path(const char *path, const model_options *o, graph **out, keel_error *err) {
    return file_is_dir(path) ? open_folder(path, o, out, err) : open_file(path, o, out, err);
}

static keel_status open_synth(const char *synth, const model_options *o, graph **out, keel_error *err) {
    json_t *config;
    const char *file;
    KEEL_TRY(api_synth_config(synth, &config, &file, err));
    keel_status s = model_build(config, file, o, out, err);
    json_decref(config);
    return s;
}

/* The types of the weights are the checkpoint's where one lies in the folder; else what config.json says. */
static keel_status take_types(const char *path, graph *g, keel_error *err) {
    keel_error ignored = KEEL_ERROR_INITIALIZER;
    weights *w;
    if (!file_is_dir(path) || weights_open(path, &w, &ignored) != KEEL_OK) return KEEL_OK;
    keel_status s = weights_bind(w, g, err);
    weights_close(w);
    return s;
}

keel_status keel_graph_open(const keel_graph_options *given, keel_graph **out, keel_error *err) {
    API_TAKE(keel_graph_options, o, given, err);
    if (!o.path == !o.synth) {
        return error_set(err, KEEL_USAGE,
                         "give a folder, a drawing or a graph file, or a synthetic geometry, one of them");
    }
    model_options mo = {.layer_first = 0, .layer_last = -1, .sample = o.sampling};
    if (o.layer_slice) {
        mo.layer_first = o.layer_first;
        mo.layer_last = o.layer_last;
    }
    KEEL_TRY(api_quant(o.synth, o.quant, &mo.quant, err));
    keel_graph *g = mem_calloc(1, sizeof *g);
    if (!g) return KEEL_NOMEM_AT(err, "graph");
    keel_status s = o.path ? graph_open_path(o.path, &mo, &g->graph, err) : open_synth(o.synth, &mo, &g->graph, err);
    if (s == KEEL_OK && o.path) s = take_types(o.path, g->graph, err);
    if (s != KEEL_OK) {
        keel_graph_close(g);
        return s;
    }
    *out = g;
    return KEEL_OK;
}

void keel_graph_close(keel_graph *g) {
    if (!g) return;
    graph_close(g->graph);
    mem_free(g);
}

void keel_graph_info_get(const keel_graph *handle, keel_graph_info *out) {
    const graph *g = handle->graph;
    *out = (keel_graph_info){.architecture = g->architecture,
                             .n_ops = (uint32_t)g->n_ops,
                             .n_layers = (uint32_t)g->n_layers,
                             .layer_first = (uint32_t)g->layer_first,
                             .vocab = (uint64_t)g->vocab,
                             .hidden = (uint64_t)g->hidden,
                             .max_position = (uint64_t)g->max_position,
                             .sampling = g->sampling};
    for (int id = 1; id <= g->n_tensors; id++) out->n_weights += graph_tensor_at(g, id)->kind == TENSOR_WEIGHT;
}

/* Hands the text over, or frees it and returns what went wrong. */
static keel_status finish_text(buf *b, keel_status s, char **text, keel_error *err) {
    char *done = s == KEEL_OK ? buf_take(b) : NULL;
    if (s == KEEL_OK && !done) s = KEEL_NOMEM_AT(err, "text of the graph");
    if (s == KEEL_OK) {
        *text = done;
    } else {
        buf_free(b);
    }
    return s;
}

keel_status keel_graph_json(const keel_graph *g, char **text, keel_error *err) {
    buf b = {0};
    graph_json_write(g->graph, &b);
    return finish_text(&b, KEEL_OK, text, err);
}

keel_status keel_graph_drawio(const keel_graph *g, bool fold, char **text, keel_error *err) {
    buf b = {0};
    keel_status s = draw_drawio(g->graph, &(draw_options){.fold = fold}, &b, err);
    return finish_text(&b, s, text, err);
}

keel_status keel_graph_svg(const keel_graph *g, bool fold, char **text, keel_error *err) {
    buf b = {0};
    keel_status s = draw_svg(g->graph, &(draw_options){.fold = fold}, &b, err);
    return finish_text(&b, s, text, err);
}

keel_status keel_graph_text(const keel_graph *g, char **text, keel_error *err) {
    buf b = {0};
    keel_status s = graph_show(g->graph, &b, err);
    return finish_text(&b, s, text, err);
}

keel_status keel_graph_diff(const keel_graph *a, const keel_graph *b, char **text, size_t *n_differences,
                            keel_error *err) {
    buf out = {0};
    size_t n = 0;
    keel_status s = graph_diff(a->graph, b->graph, &out, &n, err);
    s = finish_text(&out, s, text, err);
    if (s == KEEL_OK) *n_differences = n;
    return s;
}

keel_status keel_ops_text(char **text, keel_error *err) {
    buf b = {0};
    graph_show_ops(&b);
    return finish_text(&b, KEEL_OK, text, err);
}

keel_status keel_ops_json(char **text, keel_error *err) {
    buf b = {0};
    graph_show_ops_json(&b);
    return finish_text(&b, KEEL_OK, text, err);
}
