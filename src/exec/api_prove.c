/* SPDX-License-Identifier: Apache-2.0 */
/* keel.h: proofs; and the proof before every session. */
#include "exec/api.h"

#include "core/buf.h"
#include "core/mem.h"
#include "graph/shard.h"
#include "plan/prove.h"

#include <string.h>

static keel_status prove_plans(const plan *const *plans, size_t n, bool absent_fine, proof *found, keel_error *err) {
    for (size_t i = 0; i < n && !absent_fine; i++) KEEL_TRY(plan_check_bodies(plans[i], err));
    return plan_prove(plans, (uint32_t)n, found, err);
}

keel_status keel_plan_prove(const keel_plan *const *plans, size_t n, bool absent_fine, char **report, keel_error *err) {
    if (n < 1 || n > RANK_GROUP_MAX)
        return error_set(err, KEEL_RANGE, "%zu plans; a job has 1 to %d ranks", n, RANK_GROUP_MAX);
    const plan *list[RANK_GROUP_MAX];
    for (size_t i = 0; i < n; i++) list[i] = plans[i]->plan;
    proof found = {0};
    KEEL_TRY(prove_plans(list, n, absent_fine, &found, err));
    if (!report) return KEEL_OK;
    buf text = {0};
    proof_show(&found, &text);
    char *t = buf_take(&text);
    if (!t) return KEEL_NOMEM_AT(err, "proof");
    *report = t;
    return KEEL_OK;
}

keel_status keel_slice_check(const keel_model *whole, const keel_model *slice, char **text, keel_error *err) {
    buf found = {0};
    keel_status s = plan_slice_check(whole->graph, slice->graph, &found, err);
    char *t = s == KEEL_OK && text ? buf_take(&found) : NULL;
    if (s == KEEL_OK && text && !t) s = KEEL_NOMEM_AT(err, "slice");
    if (t) *text = t;
    buf_free(&found);
    return s;
}

/* The plan that rank r makes with the options of `like`. */
static keel_status plan_of_rank(const keel_model *m, const plan *like, uint32_t r, plan **out, keel_error *err) {
    shard_options so = {.tp = like->tp, .ep = like->ep, .rank = r, .vocab_parallel = like->vocab_parallel};
    plan_options po = {.arch = like->arch,
                       .workers = like->workers,
                       .m_max = like->m_max,
                       .max_seq = like->max_seq,
                       .page_tokens = like->page_tokens,
                       .kv_splits = like->kv_splits,
                       .allow_absent = true,
                       .levers = like->levers,
                       .n_levers = like->n_levers};
    graph *g = NULL;
    KEEL_TRY(graph_shard(m->global, &so, &g, err));
    keel_status s = plan_build(g, &po, out, err);
    graph_close(g);
    return s;
}

/* Rank 0: the plans of all ranks, the same as theirs, proved together. */
static keel_status prove_group(const keel_model *m, const plan *own, rank_group *group, keel_error *err) {
    plan *made[RANK_GROUP_MAX] = {0};
    const plan *list[RANK_GROUP_MAX] = {own};
    keel_status s = KEEL_OK;
    for (uint32_t r = 1; r < own->tp && s == KEEL_OK; r++) {
        char hash[PLAN_HASH_HEX];
        s = plan_of_rank(m, own, r, &made[r], err);
        list[r] = made[r];
        if (s == KEEL_OK) s = plan_hash(made[r], hash, err);
        if (s == KEEL_OK && strcmp(hash, rank_group_published(group, r)) != 0)
            s = error_set(err, KEEL_REFUSED,
                          "rank %u runs another plan (sha256 %.16s) than rank 0 makes for it (%.16s)", r,
                          rank_group_published(group, r), hash);
    }
    if (s == KEEL_OK) s = prove_plans(list, own->tp, false, NULL, err);
    for (uint32_t r = 1; r < own->tp; r++) plan_close(made[r]);
    if (s != KEEL_OK) rank_group_abort(group, err ? err->detail : "the plans are not safe to run together");
    return s;
}

keel_status api_prove_session(const keel_model *m, const keel_plan *k, rank_group *group, keel_error *err) {
    const plan *p = k->plan;
    if (!group) return prove_plans(&p, 1, false, NULL, err);
    _Static_assert((int)PLAN_HASH_HEX == (int)RANK_GROUP_HASH, "what a rank publishes is its plan's hash");
    char hash[PLAN_HASH_HEX];
    KEEL_TRY(plan_hash(p, hash, err));
    rank_group_publish(group, hash);
    KEEL_TRY(rank_group_barrier(group, err));
    if (p->rank == 0) KEEL_TRY(prove_group(m, p, group, err));
    return rank_group_barrier(group, err);
}
