/* SPDX-License-Identifier: Apache-2.0 */
/* The options that a session is opened with. */
#ifndef KEEL_TOOLS_SESSION_ARGS_H
#define KEEL_TOOLS_SESSION_ARGS_H

#include "args.h"

#include <jansson.h>

#define SESSION_OPTION_IDS OPT_CUBIN, OPT_GPU_MEMORY, OPT_LANES, OPT_WATCHDOG

/* group: of several ranks, else NULL. */
keel_status session_args_open(const args *a, const keel_model *model, const keel_plan *plan, const char *group,
                              keel_session **out, keel_error *err);

/* "GPU memory 16.2 GB: weights 15.1 GB, …"; "" for a session of the CPU. */
typedef struct memory_text {
    char text[256];
} memory_text;
memory_text session_memory_text(const keel_session *session);
/* The same for machines; null for a session of the CPU. */
json_t *session_memory_json(const keel_session *session);

#endif
