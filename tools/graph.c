/* SPDX-License-Identifier: Apache-2.0 */
/* keel graph import, export: a graph goes from one form of file to another. */
#include "fail.h"
#include "graph_args.h"
#include "json_out.h"
#include "model_args.h"
#include "out.h"

#include <string.h>
#include <strings.h>

static bool ends_in(const char *path, const char *suffix) {
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcasecmp(path + n - m, suffix) == 0;
}

/* The text of the graph in the form that the file's name asks for. */
static keel_status graph_text(const args *a, const keel_graph *graph, char **text, keel_error *err) {
    const char *path = a->value[OPT_OUTPUT].text;
    bool folded = args_flag(a, OPT_FOLD);
    if (ends_in(path, ".svg")) return keel_graph_svg(graph, folded, text, err);
    if (ends_in(path, ".json")) return keel_graph_json(graph, text, err);
    return keel_graph_drawio(graph, folded, text, err);
}

static keel_status report(const args *a, const keel_graph *graph, size_t bytes, keel_error *err) {
    const char *path = a->value[OPT_OUTPUT].text;
    keel_graph_info g;
    keel_graph_info_get(graph, &g);
    if (args_flag(a, OPT_JSON)) {
        return json_print(json_pack("{s:o,s:I,s:o,s:I,s:I,s:I,s:I,s:I,s:I}", "file", json_of_text(path, strlen(path)),
                                    "bytes", (json_int_t)bytes, "architecture",
                                    json_of_text(g.architecture, strlen(g.architecture)), "ops", (json_int_t)g.n_ops,
                                    "weights", (json_int_t)g.n_weights, "layers", (json_int_t)g.n_layers, "layer_first",
                                    (json_int_t)g.layer_first, "hidden", (json_int_t)g.hidden, "vocabulary",
                                    (json_int_t)g.vocab),
                          err);
    }
    return out_format(err, "%s: %s, %u layers, %u ops, %u weights; %s\n", path, g.architecture, g.n_layers, g.n_ops,
                      g.n_weights, out_size(bytes).text);
}

/* Suffixes: NULL-terminated. */
static keel_status check_output(const args *a, const char *const *suffixes, keel_error *err) {
    const char *path = a->value[OPT_OUTPUT].text;
    char known[64] = "";
    if (!path) return args_refuse(a->verb, err, "-o: the file to write is missing");
    for (size_t i = 0; suffixes[i]; i++) {
        if (ends_in(path, suffixes[i])) return output_path_check(path, err);
        strncat(known, i ? " or " : "", sizeof known - strlen(known) - 1);
        strncat(known, suffixes[i], sizeof known - strlen(known) - 1);
    }
    return args_refuse(a->verb, err, "-o %.200s: the name must end in %s", path, known);
}

static keel_status convert(const args *a, keel_error *err) {
    keel_graph *graph;
    char *text = NULL;
    TRY(graph_args_open(a, &graph, err));
    keel_status s = graph_text(a, graph, &text, err);
    size_t bytes = s == KEEL_OK ? strlen(text) : 0;
    if (s == KEEL_OK) s = keel_file_save(a->value[OPT_OUTPUT].text, text, bytes, err);
    if (s == KEEL_OK) s = report(a, graph, bytes, err);
    keel_free(text);
    keel_graph_close(graph);
    return s;
}

static keel_status graph_import_run(const args *a, keel_error *err) {
    static const char *const suffixes[] = {".json", NULL};
    if (!a->n_operands) return args_refuse(a->verb, err, "no drawing: name a draw.io file");
    TRY(check_output(a, suffixes, err));
    return convert(a, err);
}

static keel_status graph_export_run(const args *a, keel_error *err) {
    static const char *const suffixes[] = {".drawio", ".xml", ".svg", ".json", NULL};
    TRY(check_output(a, suffixes, err));
    if (args_flag(a, OPT_FOLD) && ends_in(a->value[OPT_OUTPUT].text, ".json")) {
        return args_refuse(a->verb, err, "--fold: a graph file has every layer; leave it out");
    }
    return convert(a, err);
}

static const option_id graph_import_options[] = {OPT_SAMPLE, OPT_OUTPUT, OPT_JSON, OPT_HELP};
const verb verb_graph_import = {
    .name = "graph import",
    .synopsis = "DRAWING -o FILE.json [options]",
    .summary = "read a draw.io drawing, check all of it, and write the graph as JSON",
    .example = "  keel graph export --synth qwen3-0.6b --fold -o qwen3.drawio\n"
               "  keel graph import qwen3.drawio -o qwen3.json\n",
    .max_operands = 1,
    .options = graph_import_options,
    .n_options = sizeof graph_import_options / sizeof *graph_import_options,
    .run = graph_import_run,
};

static const option_id graph_export_options[] = {OPT_SYNTH, OPT_QUANT,  OPT_LAYERS, OPT_SAMPLE,
                                                 OPT_FOLD,  OPT_OUTPUT, OPT_JSON,   OPT_HELP};
const verb verb_graph_export = {
    .name = "graph export",
    .synopsis = "MODEL|FILE|--synth GEOMETRY -o FILE.drawio|.svg|.json [options]",
    .summary = "write a model's graph as a draw.io drawing, a picture or JSON",
    .example = "  keel graph export --synth qwen3-0.6b --fold -o qwen3.drawio\n"
               "  keel graph export --synth qwen3-0.6b --layers 0-1 -o qwen3.svg\n",
    .max_operands = 1,
    .options = graph_export_options,
    .n_options = sizeof graph_export_options / sizeof *graph_export_options,
    .run = graph_export_run,
};
