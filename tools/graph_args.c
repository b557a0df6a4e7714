/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_args.h"

#include "fail.h"
#include "option_value.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* GEOMETRY[:SEED]: a graph has no weights, so that the seed means nothing, but a line may be taken from another verb. A
 * path that itself holds a colon stays whole when it exists. */
static char *geometry_of(const char *synth) {
    const char *colon = strrchr(synth, ':');
    uint64_t seed;
    bool seeded = colon && access(synth, F_OK) != 0 && count_parse(colon + 1, &seed, NULL);
    return strndup(synth, seeded ? (size_t)(colon - synth) : strlen(synth));
}

keel_status graph_args_open(const args *a, keel_graph **out, keel_error *err) {
    const option_value *synth = &a->value[OPT_SYNTH], *layers = &a->value[OPT_LAYERS];
    const char *path = a->n_operands ? a->operand[0] : NULL;
    if (path && synth->given) return args_refuse(a->verb, err, "give MODEL or --synth, not both");
    if (!path && !synth->given) return args_refuse(a->verb, err, "no graph: give a folder, a file or --synth");
    keel_graph_options options = KEEL_GRAPH_OPTIONS_INITIALIZER;
    char *name = synth->given ? geometry_of(synth->text) : NULL;
    if (synth->given && !name) return fail_memory(err, "--synth");
    options.path = path;
    options.synth = name;
    options.quant = a->value[OPT_QUANT].text;
    options.sampling = args_flag(a, OPT_SAMPLE);
    if (layers->given) {
        options.layer_slice = true;
        options.layer_first = (int32_t)layers->count;
        options.layer_last = (int32_t)layers->last;
    }
    keel_status s = keel_graph_open(&options, out, err);
    free(name);
    return s;
}

keel_status graph_args_open_path(const char *path, keel_graph **out, keel_error *err) {
    keel_graph_options options = KEEL_GRAPH_OPTIONS_INITIALIZER;
    options.path = path;
    return keel_graph_open(&options, out, err);
}

const char *graph_args_name(const args *a) { return a->n_operands ? a->operand[0] : a->value[OPT_SYNTH].text; }
