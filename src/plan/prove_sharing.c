/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that share bytes of an arena: all of one's tasks are done before any of the other's starts. docs/proof.md §5.
 */
#include "plan/prove_internal.h"

#include <stdlib.h>
#include <string.h>

/* A stretch of an arena, as one tensor or scratch has it. */
typedef struct tenant {
    uint64_t from, to;
    uint32_t tensor, first_use;
} tenant;

static int compare_tenants(const void *a, const void *b) {
    const tenant *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->first_use != y->first_use ? x->first_use < y->first_use ? -1 : 1
                                        : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static prove_text tenant_text(const prover *v, const tenant *t) {
    prove_text out = prove_rank_text(v, v->tensors[t->tensor].rank);
    strncat(out.text, v->tensors[t->tensor].name, 120);
    return out;
}

/* Somebody who touches b does not know the last task done that touches a. Who that is, a second pass finds. */
static void ask_probe(prover *v, uint32_t tensor, uint32_t worker, uint32_t place, uint32_t other) {
    if (v->n_probes == PROVE_REASONS) {
        v->reasons++;
        return;
    }
    v->probes[v->n_probes++] =
        (prove_probe){.tensor = tensor, .worker = worker, .place = place, .task = KP_NONE, .other = other};
}

/* Why a buffer shares with nothing; NULL: it may. */
static const char *whole_bytes(const plan_buffer *b, const prove_tensor *t) {
    return b->external                ? "the caller's"
           : t->monotonic             ? "monotonic scratch"
           : b->kind == BUFFER_TAGGED ? "tagged"
                                      : NULL;
}

static void check_pair(prover *v, const tenant *x, const tenant *y) {
    const prove_tensor *a = &v->tensors[x->tensor], *b = &v->tensors[y->tensor];
    const plan_buffer *p = prove_buffer(v, a), *q = prove_buffer(v, b);
    v->checks++;
    const char *alone = whole_bytes(p, a);
    if (alone || whole_bytes(q, b)) {
        prove_reason(v, "%s and %s share bytes from %llu on; %s is %s and shares with nothing", tenant_text(v, x).text,
                     tenant_text(v, y).text, (unsigned long long)(x->from > y->from ? x->from : y->from),
                     alone ? a->name : b->name, alone ? alone : whole_bytes(q, b));
        return;
    }
    for (uint32_t i = 0; i < a->n_workers; i++) {
        if (a->last[i] <= b->least[i]) continue;
        ask_probe(v, y->tensor, a->first_worker + i, a->last[i], x->tensor);
        return;
    }
}

/* Keeps `active` in the order of first use. Two that stand side by side are checked; the rest follows, since "all done
 * before any starts" is transitive. */
static void enter(prover *v, tenant *active, uint32_t *n, const tenant *t) {
    uint32_t at = *n;
    while (at > 0 && active[at - 1].first_use > t->first_use) at--;
    memmove(active + at + 1, active + at, (*n - at) * sizeof *active);
    active[at] = *t;
    (*n)++;
    if (at > 0) check_pair(v, &active[at - 1], t);
    if (at + 1 < *n) check_pair(v, t, &active[at + 1]);
}

static void leave(tenant *active, uint32_t *n, uint64_t below) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++) {
        if (active[i].to > below) active[kept++] = active[i];
    }
    *n = kept;
}

/* Who has bytes of an arena of a rank: what is touched, and what must keep its bytes in any case. */
static uint32_t find_tenants(const prover *v, uint32_t rank, bool symmetric, tenant *list) {
    const prove_rank *r = &v->ranks[rank];
    uint32_t n = 0;
    for (uint32_t i = 1; i < r->n_tensors; i++) {
        const prove_tensor *t = &v->tensors[r->first_tensor + i];
        const plan_buffer *b = prove_buffer(v, t);
        bool keeps = whole_bytes(b, t) != NULL;
        if (!buffer_placed(b->kind) || (b->kind == BUFFER_SYMMETRIC) != symmetric || !b->bytes) continue;
        if (t->first_use == KP_NONE && !keeps) continue;
        list[n++] = (tenant){b->offset, b->offset + b->bytes, r->first_tensor + i, t->first_use};
    }
    qsort(list, n, sizeof *list, compare_tenants);
    return n;
}

static void check_arena(prover *v, uint32_t rank, bool symmetric, tenant *list, tenant *active) {
    uint32_t n = find_tenants(v, rank, symmetric, list), n_active = 0;
    for (uint32_t i = 0; i < n && v->reasons + v->n_probes < PROVE_REASONS; i++) {
        leave(active, &n_active, list[i].from);
        enter(v, active, &n_active, &list[i]);
    }
}

static void tell_probes(prover *v) {
    for (uint32_t i = 0; i < v->n_probes; i++) {
        const prove_probe *p = &v->probes[i];
        const prove_tensor *a = &v->tensors[p->other], *b = &v->tensors[p->tensor];
        if (p->task == KP_NONE) continue;
        prove_reason(
            v,
            "race: %s%s and %s share bytes of an arena and are in use at once: %s touches %s and does not come "
            "behind %s, which touches %s: %s",
            prove_rank_text(v, a->rank).text, a->name, b->name, prove_task_text(v, p->rank, p->task).text, b->name,
            prove_place_text(v, p->worker, p->place).text, a->name, prove_waits_text(v, p->rank, p->task).text);
    }
}

void prove_sharing(prover *v) {
    uint32_t most = 0;
    for (uint32_t r = 0; r < v->n; r++) most = most > v->ranks[r].n_tensors ? most : v->ranks[r].n_tensors;
    tenant *list = prove_array(v, most, sizeof *list), *active = prove_array(v, (size_t)most + 1, sizeof *active);
    for (uint32_t r = 0; r < v->n && !v->nomem; r++) {
        check_arena(v, r, false, list, active);
        check_arena(v, r, true, list, active);
    }
    if (!v->n_probes || v->nomem) return;
    prove_order_again(v);
    tell_probes(v);
}
