/* SPDX-License-Identifier: Apache-2.0 */
/* plan_prove: the parts in order. docs/proof.md numbers what each of them shows. */
#include "plan/prove_internal.h"

#include "core/mem.h"

#include <time.h>

static double now_ms(void) {
    struct timespec t = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Workers of all ranks, and where each task stands. */
static void number_workers(prover *v) {
    for (uint32_t r = 0; r < v->n; r++) v->n_workers += v->ranks[r].p->workers;
    v->workers = prove_array(v, v->n_workers, sizeof *v->workers);
    for (uint32_t r = 0, next = 0; r < v->n && !v->nomem; r++) {
        prove_rank *k = &v->ranks[r];
        const plan *p = k->p;
        k->first_worker = next;
        k->worker = prove_array(v, p->n_tasks, sizeof *k->worker);
        k->place = prove_array(v, p->n_tasks, sizeof *k->place);
        for (uint32_t w = 0; w < p->workers && !v->nomem; w++, next++) {
            uint32_t first = p->queue_first[w], n = p->queue_first[w + 1] - first;
            v->workers[next] = (prove_worker){.rank = r, .first = first, .n = n};
            for (uint32_t i = 0; i < n; i++) k->worker[p->queue[first + i]] = next, k->place[p->queue[first + i]] = i;
        }
    }
}

static keel_status prove_shapes(prover *v) {
    for (uint32_t r = 0; r < v->n; r++) KEEL_TRY(prove_shape(v, r));
    number_workers(v);
    return v->nomem ? KEEL_NOMEM_AT(v->err, "proof") : KEEL_OK;
}

static keel_status prove_ops(prover *v) {
    for (uint32_t r = 0; r < v->n; r++) KEEL_TRY(prove_describe(v, r));
    return KEEL_OK;
}

/* Everything that is no matter of order. False: the order is not to be told. */
static bool prove_static(prover *v) {
    prove_same_plans(v);
    if (v->reasons) return false; /* what ranks read of each other has no meaning then */
    prove_events(v);
    prove_tagged(v);
    prove_grids(v);
    bool data = prove_data(v);
    return prove_smem(v) && data && !v->nomem;
}

static void count_all(const prover *v, proof *found) {
    for (uint32_t r = 0; r < v->n; r++) {
        const prove_rank *k = &v->ranks[r];
        found->tasks += k->p->n_tasks;
        found->events += k->p->n_events;
        found->accesses += k->t.n_accesses;
    }
    found->ranks = v->n;
    found->workers = v->n_workers;
    found->checks = v->checks;
    for (uint32_t i = 0; i < v->n_tensors; i++) {
        const prove_tensor *t = &v->tensors[i];
        const prove_rank *k = &v->ranks[t->rank];
        const plan_buffer *b = prove_buffer(v, t);
        if (!b || !t->n_writes ||
            (b->kind != BUFFER_ACTIVATION && b->kind != BUFFER_SYMMETRIC && b->kind != BUFFER_TAGGED))
            continue;
        bool read = t->buffer == k->p->logits;
        for (uint32_t i_op = 0; i_op < k->p->n_instances && !read; i_op++) {
            const graph_op *op = &k->g->ops[i_op];
            for (int j = 0; j < op->n_in; j++) read = read || op->in[j] == (int)t->buffer + 1;
        }
        found->unread += !read;
    }
}

/* One part timed. */
static void part_done(proof *found, int part, double *since) {
    double now = now_ms();
    found->part_ms[part] = now - *since;
    *since = now;
}

static keel_status prove_parts(prover *v, proof *found) {
    double since = now_ms();
    KEEL_TRY(prove_shapes(v));
    part_done(found, PROOF_SHAPE, &since);
    KEEL_TRY(prove_ops(v));
    part_done(found, PROOF_DESCRIBE, &since);
    bool go_on = prove_static(v);
    part_done(found, PROOF_STATIC, &since);
    go_on = go_on && prove_order(v);
    part_done(found, PROOF_ORDER, &since);
    if (go_on) prove_sharing(v);
    part_done(found, PROOF_SHARE, &since);
    if (v->nomem) return KEEL_NOMEM_AT(v->err, "proof");
    count_all(v, found);
    return KEEL_OK;
}

static void prover_close(prover *v) {
    for (uint32_t r = 0; v->ranks && r < v->n; r++) {
        if (v->ranks[r].described) tiler_close(&v->ranks[r].t);
        graph_close(v->ranks[r].g);
    }
    mem_free(v->pending), mem_free(v->free_clocks);
    arena_free(&v->arena);
}

keel_status plan_prove(const plan *const *ranks, uint32_t n, proof *found, keel_error *err) {
    keel_error own = KEEL_ERROR_INITIALIZER;
    proof counts = {0};
    prover v = {.err = err ? err : &own, .n = n, .run_first = KP_NONE, .run_last = KP_NONE};
    double start = now_ms();
    if (!n) return error_set(err, KEEL_USAGE, "proof: no plan given");
    v.ranks = prove_array(&v, n, sizeof *v.ranks);
    for (uint32_t r = 0; v.ranks && r < n; r++) v.ranks[r].p = ranks[r];
    keel_status s = v.nomem ? KEEL_NOMEM_AT(err, "proof") : prove_parts(&v, &counts);
    if (s == KEEL_OK && v.reasons > PROVE_REASONS)
        error_append(v.err, "  and %u more reasons", v.reasons - PROVE_REASONS);
    if (s == KEEL_OK && v.reasons) s = KEEL_REFUSED;
    counts.complete = s == KEEL_OK;
    for (uint32_t r = 0; r < n && counts.complete; r++) counts.complete = plan_check_bodies(ranks[r], NULL) == KEEL_OK;
    prover_close(&v);
    counts.ms = now_ms() - start;
    if (found) *found = counts;
    return s;
}

void proof_show(const proof *p, buf *out) {
    static const char *const names[PROOF_PARTS] = {"shape", "ops", "events, SMEM, columns", "order", "bytes"};
    buf_printf(out, "proved free of deadlock and race: %u rank%s, %u workers, %llu tasks, %llu events\n", p->ranks,
               p->ranks == 1 ? "" : "s", p->workers, (unsigned long long)p->tasks, (unsigned long long)p->events);
    buf_printf(out, "%llu accesses, %llu checks in %.1f ms:", (unsigned long long)p->accesses,
               (unsigned long long)p->checks, p->ms);
    for (int i = 0; i < PROOF_PARTS; i++) buf_printf(out, "%s %s %.1f", i ? "," : "", names[i], p->part_ms[i]);
    buf_printf(out, "\nrole bodies: %s\n", p->complete ? "complete" : "some are missing; the plan cannot run");
    if (p->unread) buf_printf(out, "outputs that no op reads: %llu\n", (unsigned long long)p->unread);
}
