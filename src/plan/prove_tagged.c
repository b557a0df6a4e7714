/* SPDX-License-Identifier: Apache-2.0 */
/* Tagged buffers and weak events: what is not ordered by an event must say itself that it is there. docs/proof.md §2.
 */
#include "plan/prove_internal.h"

static void check_weak(prover *v, uint32_t rank, const uint8_t *tagged, const uint8_t *unread, uint32_t task) {
    const prove_rank *r = &v->ranks[rank];
    uint32_t event = r->p->tasks[task].trigger;
    if (event == KP_NONE || !r->p->events[event].weak) return;
    v->checks++;
    if (plan_writes_tagged(&r->t, tagged, unread, task)) return;
    prove_reason(v, "race: %s triggers event %u, which is weak, and writes what is not tagged: nothing orders it",
                 prove_task_text(v, rank, task).text, event);
}

/* Only what the ops that make and read it can carry tags in. */
static void check_buffers(prover *v, uint32_t rank, uint8_t *tagged) {
    const prove_rank *r = &v->ranks[rank];
    uint8_t *can = prove_array(v, (size_t)r->p->n_buffers + 2, 1);
    if (v->nomem) return;
    plan_find_tagged(&r->t, r->p, can);
    for (uint32_t b = 0; b < r->p->n_buffers; b++) { /* a tensor's buffer stands in its place */
        bool own = b >= (uint32_t)r->g->n_tensors;
        if (r->p->buffers[b].kind != BUFFER_TAGGED) continue;
        v->checks++;
        if (!own) tagged[b + 1] = 1;
        if (!own && can[b + 1]) continue;
        prove_reason(v, "%s%s carries tags; the ops that write and read it do not all know them in such a plan",
                     prove_rank_text(v, rank).text, r->p->buffers[b].name);
    }
}

void prove_tagged(prover *v) {
    for (uint32_t r = 0; r < v->n; r++) {
        const plan *p = v->ranks[r].p;
        uint8_t *tagged = prove_array(v, (size_t)p->n_buffers + 2, 1);
        uint8_t *unread = prove_array(v, plan_unread_slots(&v->ranks[r].t), 1);
        if (v->nomem) return;
        plan_find_unread(&v->ranks[r].t, unread);
        check_buffers(v, r, tagged);
        for (uint32_t i = 0; i < p->n_tasks && !v->nomem && !prove_enough(v); i++) check_weak(v, r, tagged, unread, i);
    }
}
