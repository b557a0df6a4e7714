/* SPDX-License-Identifier: Apache-2.0 */
/* What `keel run` feeds to the model. */
#ifndef KEEL_TOOLS_RUN_INPUT_H
#define KEEL_TOOLS_RUN_INPUT_H

#include "args.h"

typedef struct run_input {
    char *text; /* [bytes] of --prompt or --prompt-file; NULL with --tokens */
    size_t bytes;
    int32_t *prompt; /* [n_prompt] */
    size_t n_prompt;
    int32_t *forced; /* [n_forced] */
    size_t n_forced;
    int32_t *stop; /* [n_stop] */
    size_t n_stop;
} run_input;

/* Whether the options go together, before anything is opened. */
keel_status run_input_check(const args *a, keel_error *err);
/* Reads the files that the options name. Close in either case. */
keel_status run_input_read(const args *a, run_input *in, keel_error *err);
/* Turns text into ids and chooses the ids to stop at. */
keel_status run_input_encode(const args *a, const keel_model *model, const keel_model_info *info, run_input *in,
                             keel_error *err);
void run_input_close(run_input *in);

#endif
