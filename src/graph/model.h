/* SPDX-License-Identifier: Apache-2.0 */
/* A model architecture: one file in models/, found by its name there (models/qwen3.c defines keel_model_qwen3). */
#ifndef KEEL_GRAPH_MODEL_H
#define KEEL_GRAPH_MODEL_H

#include "core/json.h"
#include "graph/graph.h"

/* What becomes of linear weights that the checkpoint has in a wider type. */
typedef enum model_quant {
    QUANT_NONE, /* they stay as they are */
    QUANT_FP8,  /* F8E4M3 with a scale for each block of 128 × 128 (core/dtype.h); head and embedding stay */
} model_quant;
/* "fp8"; NULL or "" for none; KEEL_USAGE for another name. */
keel_status model_quant_parse(const char *name, model_quant *out, keel_error *err);

typedef struct model_options {
    int layer_first, layer_last; /* slice, inclusive; layer_last −1 = to the end */
    bool sample;                 /* end in the sampling op instead of argmax */
    model_quant quant;
} model_options;

typedef struct model_desc {
    const char *name;
    const char *const *architectures; /* NULL-terminated: values of config.json's architectures[0] */
    const char *const *model_types;   /* NULL-terminated: values of model_type, asked only without architectures */
    keel_status (*build)(const json_t *config, const char *file, const model_options *opts, graph **out,
                         keel_error *err);
} model_desc;

extern const model_desc *const model_registry[];
extern const unsigned model_registry_count;

/* The layers [*first, *last] that opts (NULL: all) take of n_layers; KEEL_RANGE when it names others. For builders. */
keel_status model_slice(const model_options *opts, int64_t n_layers, const char *file, int *first, int *last,
                        keel_error *err);
/* config.json → graph. opts NULL: every layer, argmax. An unknown architecture is KEEL_UNSUPPORTED with the list of
 * known ones. */
keel_status model_build(const json_t *config, const char *file, const model_options *opts, graph **out,
                        keel_error *err);

#endif
