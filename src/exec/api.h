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
    const keel_model *made_for; /* NULL: read from a file */
};

struct keel_session {
    const keel_model *model;
    session *session;
};

/* Copies a caller's option struct of `size` bytes into mine, which is zeroed: an older, shorter one leaves the fields
 * it does not know at their defaults; one that is longer (or has no size) is KEEL_USAGE. */
keel_status api_take(const char *what, void *mine, size_t mine_bytes, const void *given, size_t size, keel_error *err);
#define API_TAKE(type, mine, given, err)                                                                               \
    type mine = {0};                                                                                                   \
    KEEL_TRY(api_take(#type, &mine, sizeof mine, (given), (given)->struct_size, (err)))

#endif
