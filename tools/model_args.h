/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs that take a model share: which model, and how to plan for it. */
#ifndef KEEL_TOOLS_MODEL_ARGS_H
#define KEEL_TOOLS_MODEL_ARGS_H

#include "args.h"

/* The options that describe a plan, for the tables of verbs. */
#define PLAN_OPTION_IDS OPT_WORKERS, OPT_BATCH, OPT_PAGE_TOKENS, OPT_KV_SPLITS, OPT_LEVER

/* The options that cut a model over ranks, and where packed weights are kept. */
#define RANK_OPTION_IDS OPT_TP, OPT_EP, OPT_HEAD, OPT_CACHE_DIR, OPT_JOBS

/* Opens rank `rank` of the model that the operand (a checkpoint folder, or a drawing or graph file with --weights) or
 * --synth names, with --layers. Weights that must be packed go through the weight cache. */
keel_status model_args_open(const args *a, uint32_t rank, bool graph_only, bool sampling, keel_model **out,
                            keel_error *err);
/* The same rank of the whole model, whatever --layers says; its graph alone. */
keel_status model_args_open_whole(const args *a, uint32_t rank, bool sampling, keel_model **out, keel_error *err);
/* What the command line calls the model: the folder or file, or the text of --synth. */
const char *model_args_name(const args *a);

/* The plan options on the command line. Borrows from a. */
keel_plan_options plan_args_options(const args *a);
/* The first option given that describes a plan, OPTION_IDS when none is. */
option_id plan_args_given(const args *a);

/* An output file could be made at path, as far as that can be told without making it: asked before long work. */
keel_status output_path_check(const char *path, keel_error *err);

#endif
