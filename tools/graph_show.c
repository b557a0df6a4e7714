/* SPDX-License-Identifier: Apache-2.0 */
/* keel graph show, diff, ops: graphs for a person, and for a program. */
#include "fail.h"
#include "graph_args.h"
#include "json_out.h"
#include "out.h"

#include <string.h>

static keel_status print_text(keel_status s, char *text, keel_error *err) {
    if (s == KEEL_OK) s = out_text(text, err);
    keel_free(text);
    return s;
}

static keel_status graph_show_run(const args *a, keel_error *err) {
    keel_graph *graph;
    char *text = NULL;
    TRY(graph_args_open(a, &graph, err));
    keel_status s = args_flag(a, OPT_JSON) ? keel_graph_json(graph, &text, err) : keel_graph_text(graph, &text, err);
    s = print_text(s, text, err);
    keel_graph_close(graph);
    return s;
}

/* {"n_differences":N,"differences":["~ op …", …]} */
static keel_status print_differences_json(const char *text, size_t n, keel_error *err) {
    json_t *lines = json_array();
    bool whole = lines != NULL;
    for (const char *at = text; whole && *at;) {
        size_t bytes = strcspn(at, "\n");
        whole = json_array_append_new(lines, json_of_text(at, bytes)) == 0;
        at += bytes + (at[bytes] == '\n');
    }
    if (!whole) {
        json_decref(lines);
        return fail_memory(err, "differences");
    }
    return json_print(json_pack("{s:I,s:o}", "n_differences", (json_int_t)n, "differences", lines), err);
}

static keel_status graph_diff_run(const args *a, keel_error *err) {
    if (a->n_operands != 2) return args_refuse(a->verb, err, "give two graphs: folders, drawings or graph files");
    keel_graph *x = NULL, *y = NULL;
    char *text = NULL;
    size_t n = 0;
    keel_status s = graph_args_open_path(a->operand[0], &x, err);
    if (s == KEEL_OK) s = graph_args_open_path(a->operand[1], &y, err);
    if (s == KEEL_OK) s = keel_graph_diff(x, y, &text, &n, err);
    if (s == KEEL_OK) s = args_flag(a, OPT_JSON) ? print_differences_json(text, n, err) : out_text(text, err);
    keel_free(text);
    keel_graph_close(x);
    keel_graph_close(y);
    if (s != KEEL_OK) return s;
    TRY(out_flush(err));
    return n ? fail_quietly(err, KEEL_REFUSED) : KEEL_OK;
}

static keel_status graph_ops_run(const args *a, keel_error *err) {
    char *text = NULL;
    keel_status s = args_flag(a, OPT_JSON) ? keel_ops_json(&text, err) : keel_ops_text(&text, err);
    return print_text(s, text, err);
}

static const option_id graph_show_options[] = {OPT_SYNTH, OPT_QUANT, OPT_LAYERS, OPT_SAMPLE, OPT_JSON, OPT_HELP};
const verb verb_graph_show = {
    .name = "graph show",
    .synopsis = "MODEL|FILE|--synth GEOMETRY [options]",
    .summary = "show a graph as a table of ops; equal layers stand once",
    .example = "  keel graph show --synth qwen3-0.6b\n",
    .max_operands = 1,
    .options = graph_show_options,
    .n_options = sizeof graph_show_options / sizeof *graph_show_options,
    .run = graph_show_run,
};

static const option_id graph_diff_options[] = {OPT_JSON, OPT_HELP};
const verb verb_graph_diff = {
    .name = "graph diff",
    .synopsis = "A B [options]",
    .summary = "say what makes two graphs different: exit status 0 nothing, 1 something",
    .example = "  keel graph export --synth tiny-llama -o a.drawio\n"
               "  keel graph export --synth tiny-llama --fold -o b.drawio\n"
               "  keel graph diff a.drawio b.drawio\n",
    .max_operands = 2,
    .options = graph_diff_options,
    .n_options = sizeof graph_diff_options / sizeof *graph_diff_options,
    .run = graph_diff_run,
};

static const option_id graph_ops_options[] = {OPT_JSON, OPT_HELP};
const verb verb_graph_ops = {
    .name = "graph ops",
    .synopsis = "[options]",
    .summary = "list the kinds of ops with their slots and attributes",
    .example = "  keel graph ops\n",
    .max_operands = 0,
    .options = graph_ops_options,
    .n_options = sizeof graph_ops_options / sizeof *graph_ops_options,
    .run = graph_ops_run,
};
