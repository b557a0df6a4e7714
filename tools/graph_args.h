/* SPDX-License-Identifier: Apache-2.0 */
/* What the graph verbs share. */
#ifndef KEEL_TOOLS_GRAPH_ARGS_H
#define KEEL_TOOLS_GRAPH_ARGS_H

#include "args.h"

/* Opens the graph that the operand or --synth names, with --layers and --sample where the verb takes them. */
keel_status graph_args_open(const args *a, keel_graph **out, keel_error *err);
/* Opens a folder, a drawing or a graph file. */
keel_status graph_args_open_path(const char *path, keel_graph **out, keel_error *err);
/* What the command line calls the graph. */
const char *graph_args_name(const args *a);

#endif
