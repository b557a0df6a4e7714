/* SPDX-License-Identifier: Apache-2.0 */
/* What `keel run` tells when it is done. */
#ifndef KEEL_TOOLS_RUN_REPORT_H
#define KEEL_TOOLS_RUN_REPORT_H

#include "args.h"
#include "run_input.h"
#include "token_printer.h"

typedef struct run_facts {
    const args *a;
    const keel_plan *plan;
    const keel_session *session;
    const run_input *in;
    const token_printer *printer;
    const keel_result *result;
    const float *logits; /* [result->n_tokens][vocab] or NULL */
    uint64_t vocab;
} run_facts;

/* Writes the files that the options ask for. */
keel_status run_report_save(const run_facts *f, keel_error *err);
/* The times on standard error, or everything as JSON on standard output. */
keel_status run_report_print(const run_facts *f, keel_error *err);

#endif
