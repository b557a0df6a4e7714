/* SPDX-License-Identifier: Apache-2.0 */
#include "model_args.h"

#include "cache_dir.h"
#include "fail.h"
#include "option_value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* GEOMETRY[:SEED]; *name is the caller's. A path that itself holds a colon stays whole when it exists. */
static keel_status split_synth(const args *a, char **name, uint32_t *seed, keel_error *err) {
    const char *text = a->value[OPT_SYNTH].text, *colon = strrchr(text, ':');
    uint64_t n = 0;
    size_t bytes = strlen(text);
    if (colon && access(text, F_OK) != 0) {
        if (!count_parse(colon + 1, &n, NULL) || n > UINT32_MAX) {
            return args_refuse(a->verb, err, "--synth: the seed '%s' is not a whole number from 0 to %u", colon + 1,
                               UINT32_MAX);
        }
        bytes = (size_t)(colon - text);
    }
    *name = strndup(text, bytes);
    *seed = (uint32_t)n;
    return *name ? KEEL_OK : fail_memory(err, "--synth");
}

/* A file instead of a folder is a drawing or a graph; its weights are in --weights. */
static keel_status take_source(const args *a, bool graph_only, keel_model_options *options, keel_error *err) {
    const option_value *weights = &a->value[OPT_WEIGHTS];
    const char *operand = a->n_operands ? a->operand[0] : NULL;
    struct stat at;
    options->path = operand;
    if (!operand || stat(operand, &at) != 0 || S_ISDIR(at.st_mode)) {
        if (weights->given)
            return args_refuse(a->verb, err, "--weights goes with a drawing or a graph file, which %s is not",
                               operand ? operand : "--synth");
        return KEEL_OK;
    }
    options->graph = operand;
    options->path = weights->text;
    if (weights->given || graph_only) return KEEL_OK;
    return args_refuse(
        a->verb, err,
        "%s: is a file; give the checkpoint's folder, or of a drawing or graph file its folder as --weights", operand);
}

static void take_ranks(const args *a, uint32_t rank, keel_model_options *options) {
    const char *head = a->value[OPT_HEAD].text;
    options->tp = args_count32(a, OPT_TP, 1);
    options->ep = args_count32(a, OPT_EP, 1);
    options->rank = rank;
    options->vocab_parallel = head && strcmp(head, "vocab-parallel") == 0;
    options->jobs = args_count32(a, OPT_JOBS, 0);
}

static void take_layers(const args *a, keel_model_options *options) {
    const option_value *layers = &a->value[OPT_LAYERS];
    if (!layers->given) return;
    options->layer_slice = true;
    options->layer_first = (int32_t)layers->count;
    options->layer_last = (int32_t)layers->last;
}

/* What the caller has not set in *options comes from the command line. */
static keel_status open_model(const args *a, uint32_t rank, keel_model_options *options, keel_model **out,
                              keel_error *err) {
    const option_value *synth = &a->value[OPT_SYNTH];
    if (a->n_operands && synth->given) return args_refuse(a->verb, err, "give MODEL or --synth, not both");
    if (!a->n_operands && !synth->given)
        return args_refuse(a->verb, err, "no model: give a checkpoint folder or --synth");
    char *name = NULL, *cache = NULL;
    TRY(take_source(a, options->graph_only, options, err));
    take_ranks(a, rank, options);
    if (options->tp > 1 && options->path && !options->graph_only) TRY(cache_dir_or_none(a, &cache, err));
    options->cache_dir = cache;
    keel_status s = synth->given ? split_synth(a, &name, &options->synth_seed, err) : KEEL_OK;
    options->synth = name;
    options->quant = a->value[OPT_QUANT].text;
    if (s == KEEL_OK) s = keel_model_open(options, out, err);
    free(name), free(cache);
    return s;
}

keel_status model_args_open(const args *a, uint32_t rank, bool graph_only, bool sampling, keel_model **out,
                            keel_error *err) {
    keel_model_options options = KEEL_MODEL_OPTIONS_INITIALIZER;
    options.graph_only = graph_only;
    options.sampling = sampling;
    take_layers(a, &options);
    return open_model(a, rank, &options, out, err);
}

keel_status model_args_open_whole(const args *a, uint32_t rank, bool sampling, keel_model **out, keel_error *err) {
    keel_model_options options = KEEL_MODEL_OPTIONS_INITIALIZER;
    options.graph_only = true;
    options.sampling = sampling;
    return open_model(a, rank, &options, out, err);
}

const char *model_args_name(const args *a) { return a->n_operands ? a->operand[0] : a->value[OPT_SYNTH].text; }

keel_plan_options plan_args_options(const args *a) {
    keel_plan_options options = KEEL_PLAN_OPTIONS_INITIALIZER;
    const char *device = a->value[OPT_DEVICE].text;
    options.arch = a->value[OPT_ARCH].text;
    if (!options.arch && device && strcmp(device, "cuda") == 0) options.arch = "sm_90a";
    options.workers = args_count32(a, OPT_WORKERS, 0);
    options.batch = args_count32(a, OPT_BATCH, 0);
    options.max_seq = args_count32(a, OPT_MAX_SEQ, 0);
    options.page_tokens = args_count32(a, OPT_PAGE_TOKENS, 0);
    options.kv_splits = args_count32(a, OPT_KV_SPLITS, 0);
    options.allow_absent = args_flag(a, OPT_ALLOW_ABSENT);
    options.levers = a->value[OPT_LEVER].texts;
    options.n_levers = (uint32_t)a->value[OPT_LEVER].n;
    return options;
}

option_id plan_args_given(const args *a) {
    static const option_id ids[] = {PLAN_OPTION_IDS, OPT_MAX_SEQ};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        if (a->value[ids[i]].given) return ids[i];
    }
    return OPTION_IDS;
}

keel_status output_path_check(const char *path, keel_error *err) {
    struct stat at;
    if (!*path) return fail(err, KEEL_USAGE, "an empty name is no output file");
    if (stat(path, &at) == 0 && !S_ISREG(at.st_mode)) {
        /* A file takes its place by rename, which would replace a device as well. */
        return fail(err, KEEL_USAGE, "%s: is a %s; name a file", path,
                    S_ISDIR(at.st_mode) ? "folder" : "device or pipe");
    }
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!folder) return fail_memory(err, path);
    keel_status s = KEEL_OK;
    if (access(folder, W_OK | X_OK) != 0) s = fail(err, KEEL_IO, "%s: cannot be written: %s", path, strerror(errno));
    free(folder);
    return s;
}
