/* SPDX-License-Identifier: Apache-2.0 */
/* The handles of keel.h. */
#ifndef KEEL_EXEC_API_H
#define KEEL_EXEC_API_H

#include "exec/session.h"
#include "load/tokenizer.h"
#include "load/weights.h"
#include "plan/plan.h"

struct keel_model {
    char *path; /* folder; NULL for synthetic weights */
    graph *graph;
    weights *weights;     /* NULL with graph_only */
    tokenizer *tokenizer; /* NULL without tokenizer.json */
    int32_t *stop_ids;
    size_t n_stop_ids;
};

struct keel_plan {
    plan *plan;
};

struct keel_session {
    const keel_model *model;
    session *session;
};

/* Refuses a struct of another version of the header: KEEL_USAGE naming it. */
keel_status api_check_size(const char *what, size_t given, size_t mine, keel_error *err);

#endif
