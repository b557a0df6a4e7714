/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of a job belong together: one of each rank, the same ops on the same shapes, the same collectives in the
 * same order on the same symmetric memory. */
#include "plan/prove_internal.h"

#include <string.h>

static bool same_header(const plan *a, const plan *b) {
    return strcmp(a->arch, b->arch) == 0 && a->m_max == b->m_max && a->max_seq == b->max_seq &&
           a->page_tokens == b->page_tokens && a->kv_splits == b->kv_splits && a->tp == b->tp && a->ep == b->ep &&
           a->vocab_parallel == b->vocab_parallel && a->layer_first == b->layer_first && a->n_layers == b->n_layers &&
           a->vocab == b->vocab && a->hidden == b->hidden && a->sampling == b->sampling && a->logits == b->logits;
}

/* Ranks 0 … tp − 1, each once. */
static void check_numbers(prover *v) {
    const plan *first = v->ranks[0].p;
    for (uint32_t r = 0; r < v->n; r++) {
        const plan *p = v->ranks[r].p;
        for (uint32_t q = 0; q < r; q++) {
            v->checks++;
            if (v->ranks[q].p->rank == p->rank) prove_reason(v, "two plans are of rank %u", p->rank);
        }
        if (!same_header(first, p))
            prove_reason(v,
                         "rank %u of %u: made for another arch, batch, context, model or number of ranks than rank %u",
                         p->rank, p->tp, first->rank);
    }
    if (v->n != first->tp)
        prove_reason(v, "the plan is rank %u of %u, and %u plan%s given; the plans of all ranks are proved together",
                     first->rank, first->tp, v->n, v->n == 1 ? " is" : "s are");
}

static bool same_attrs(const plan *p, const plan_instance *a, const plan *q, const plan_instance *b) {
    if (a->n_attrs != b->n_attrs) return false;
    for (uint32_t i = 0; i < a->n_attrs; i++) {
        const graph_attr *x = &p->attrs[a->attr_first + i], *y = &q->attrs[b->attr_first + i];
        if (strcmp(x->name, y->name) != 0 || x->value != y->value) return false;
    }
    return true;
}

static bool same_buffer(const plan_buffer *a, const plan_buffer *b) {
    return a->kind == b->kind && a->dtype == b->dtype && a->rows == b->rows && a->rank == b->rank &&
           strcmp(a->name, b->name) == 0 && strcmp(a->key, b->key) == 0 && a->shard == b->shard &&
           a->shard_dim == b->shard_dim && a->external == b->external && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static void compare_buffers(prover *v, const plan *p, const plan *q) {
    if (p->n_buffers != q->n_buffers)
        prove_reason(v, "rank %u has %u buffers, rank %u has %u", p->rank, p->n_buffers, q->rank, q->n_buffers);
    if (p->symmetric_bytes != q->symmetric_bytes)
        prove_reason(v, "rank %u has %llu bytes of symmetric memory, rank %u has %llu", p->rank,
                     (unsigned long long)p->symmetric_bytes, q->rank, (unsigned long long)q->symmetric_bytes);
    for (uint32_t i = 0; i < p->n_buffers && i < q->n_buffers; i++) {
        const plan_buffer *a = &p->buffers[i], *b = &q->buffers[i];
        v->checks++;
        if (!same_buffer(a, b)) {
            prove_reason(v, "buffer %u is %s on rank %u and %s on rank %u, or another in shape or kind", i, a->name,
                         p->rank, b->name, q->rank);
        } else if (a->kind == BUFFER_SYMMETRIC && a->offset != b->offset) {
            prove_reason(v, "symmetric buffer %s lies at %llu on rank %u and at %llu on rank %u", a->name,
                         (unsigned long long)a->offset, p->rank, (unsigned long long)b->offset, q->rank);
        }
    }
}

/* The n-th collective of a plan from instance `from` on; n_instances when there is none. */
static uint32_t next_collective(const plan *p, uint32_t from) {
    while (from < p->n_instances && !p->instances[from].op->collective) from++;
    return from;
}

static void compare_collectives(prover *v, const plan *p, const plan *q) {
    for (uint32_t i = 0, j = 0, n = 1;; i++, j++, n++) {
        i = next_collective(p, i), j = next_collective(q, j);
        v->checks++;
        if (i == p->n_instances && j == q->n_instances) return;
        const char *a = i < p->n_instances ? p->instances[i].name : "none";
        const char *b = j < q->n_instances ? q->instances[j].name : "none";
        if (strcmp(a, b) == 0) continue;
        prove_reason(v,
                     "collective %u is %s on rank %u and %s on rank %u; all ranks must run the same in the same order",
                     n, a, p->rank, b, q->rank);
        return;
    }
}

static void compare_instances(prover *v, const plan *p, const plan *q) {
    if (p->n_instances != q->n_instances)
        prove_reason(v, "rank %u has %u ops, rank %u has %u", p->rank, p->n_instances, q->rank, q->n_instances);
    for (uint32_t i = 0; i < p->n_instances && i < q->n_instances; i++) {
        const plan_instance *a = &p->instances[i], *b = &q->instances[i];
        v->checks++;
        if (a->op == b->op && a->layer == b->layer && strcmp(a->name, b->name) == 0 && same_attrs(p, a, q, b) &&
            memcmp(a->buffer, b->buffer, sizeof a->buffer) == 0)
            continue;
        prove_reason(v, "op %u is %s (%s) on rank %u and %s (%s) on rank %u, or bound to other buffers", i, a->name,
                     a->op->name, p->rank, b->name, b->op->name, q->rank);
        return;
    }
}

static uint32_t next_collective_task(const plan *p, uint32_t from) {
    while (from < p->n_tasks && !p->instances[p->tasks[from].instance].op->collective) from++;
    return from;
}

/* The collective of task `task` is the n-th that rank index `has` runs; rank index `lacks` leaves it out. */
static void tell_missing(prover *v, uint32_t lacks, uint32_t has, uint32_t task, uint32_t n) {
    const plan *p = v->ranks[has].p;
    const char *th = n % 100 / 10 == 1 ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
    prove_reason(v, "rank %u has no %s, which rank %u runs as its %u%s collective (task %u, worker %u, place %u)",
                 v->ranks[lacks].p->rank, p->instances[p->tasks[task].instance].name, p->rank, n, th, task,
                 v->ranks[has].worker[task] - v->ranks[has].first_worker, v->ranks[has].place[task]);
}

/* The tasks of collectives are cut alike: what one rank's task sends, the same task of another receives. Tasks stand in
 * the order of their instances (plan_describe): the smaller instance of two is the one that the other rank lacks. */
static void compare_tiles(prover *v, uint32_t rank) {
    const plan *p = v->ranks[0].p, *q = v->ranks[rank].p;
    uint32_t i = 0, j = 0, n = 0, before = KP_NONE;
    for (;; i++, j++) {
        i = next_collective_task(p, i), j = next_collective_task(q, j);
        v->checks++;
        if (i == p->n_tasks && j == q->n_tasks) return;
        const kp_task *a = i < p->n_tasks ? &p->tasks[i] : NULL, *b = j < q->n_tasks ? &q->tasks[j] : NULL;
        uint32_t on_a = a ? a->instance : KP_NONE, on_b = b ? b->instance : KP_NONE, least = on_a < on_b ? on_a : on_b;
        if (on_a == on_b && on_a != before) n++, before = on_a;
        if (on_a == on_b && a->lo == b->lo && a->hi == b->hi && a->aux == b->aux) continue;
        if (on_a == on_b || least == before) {
            prove_reason(v, "%s is cut into other tasks on rank %u than on rank %u", p->instances[least].name, p->rank,
                         q->rank);
        } else if (on_a < on_b) {
            tell_missing(v, rank, 0, i, n + 1);
        } else {
            tell_missing(v, 0, rank, j, n + 1);
        }
        return;
    }
}

/* An event that counts all ranks does so on all of them. */
static void compare_events(prover *v, const plan *p, const plan *q) {
    for (uint32_t e = 0; e < p->n_events || e < q->n_events; e++) {
        const plan_event *a = e < p->n_events ? &p->events[e] : NULL, *b = e < q->n_events ? &q->events[e] : NULL;
        v->checks++;
        if ((a && a->ranks) != (b && b->ranks))
            prove_reason(v, "event %u counts the tasks of all ranks on rank %u and not on rank %u", e,
                         a && a->ranks ? p->rank : q->rank, a && a->ranks ? q->rank : p->rank);
    }
}

void prove_same_plans(prover *v) {
    const plan *p = v->ranks[0].p;
    check_numbers(v);
    for (uint32_t r = 1; r < v->n && !v->reasons; r++) {
        const plan *q = v->ranks[r].p;
        compare_collectives(v, p, q);
        compare_instances(v, p, q);
        compare_buffers(v, p, q);
        if (v->reasons) return;
        compare_tiles(v, r);
        compare_events(v, p, q);
    }
}
