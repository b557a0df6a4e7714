/* SPDX-License-Identifier: Apache-2.0 */
/* The handles of keel.h. */
#ifndef KEEL_EXEC_API_H
#define KEEL_EXEC_API_H

#include "exec/session.h"
#include "graph/model.h"
#include "load/tokenizer.h"
#include "load/weights.h"
#include "plan/plan.h"

struct keel_model {
    char *path;           /* folder; NULL for synthetic weights */
    graph *global;        /* global shapes */
    graph *graph;         /* this rank's */
    weights *weights;     /* NULL with graph_only */
    tokenizer *tokenizer; /* NULL without tokenizer.json */
    int32_t *stop_ids;
    size_t n_stop_ids;
};

struct keel_plan {
    plan *plan;
    const keel_model *made_for; /* NULL: read from a file */
};

struct keel_session {
    const keel_model *model;
    session *session;
    rank_group *group; /* NULL without other ranks */
};

/* Before a session: the plan of a single rank is proved; of several, rank 0 makes the plans of all, compares them with
 * what the ranks published in the group, and proves them together. */
keel_status api_prove_session(const keel_model *m, const keel_plan *k, rank_group *group, keel_error *err);

/* Copies a caller's option struct of `size` bytes into mine, which is zeroed: an older, shorter one leaves the fields
 * it does not know at their defaults; one that is longer (or has no size) is KEEL_USAGE. */
keel_status api_take(const char *what, void *mine, size_t mine_bytes, const void *given, size_t size, keel_error *err);
#define API_TAKE(type, mine, given, err)                                                                               \
    type mine = {0};                                                                                                   \
    KEEL_TRY(api_take(#type, &mine, sizeof mine, (given), (given)->struct_size, (err)))

/* config.json of a geometry: built in, or a file. *file names it for messages. */
keel_status api_synth_config(const char *synth, json_t **out, const char **file, keel_error *err);
/* The option `quant` of models and graphs, which goes with synthetic weights alone. */
keel_status api_quant(const char *synth, const char *name, model_quant *out, keel_error *err);
/* The graph of a checkpoint folder, a draw.io drawing or a graph file, told by content. Weight types are as config.json
 * or the file has them. options may be NULL; a slice is for folders alone. */
keel_status graph_open_path(const char *path, const model_options *options, graph **out, keel_error *err);

#endif
