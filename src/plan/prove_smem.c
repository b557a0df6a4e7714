/* SPDX-License-Identifier: Apache-2.0 */
/* SMEM: what a task uses lies in pages that it holds as long as it uses them. */
#include "plan/prove_internal.h"

enum { SMEM_ALIGN = 64 };

/* Is a region whose last user is `last` safe in a span that `role` releases, after its body? */
static bool outlives(uint32_t role, uint32_t last) { return role == last || role == KP_STORER; }

static bool inside(const plan *p, const kp_span *s, uint64_t from, uint64_t to) {
    uint64_t first = (uint64_t)s->first_page * p->page_bytes, end = first + (uint64_t)s->n_pages * p->page_bytes;
    return first <= from && to <= end;
}

static bool spans_fine(prover *v, uint32_t rank, uint32_t task) {
    const plan *p = v->ranks[rank].p;
    const kp_task *k = &p->tasks[task];
    for (uint32_t s = 0; s < k->n_spans; s++) {
        uint32_t role = k->span[s].release_role, first = k->span[s].first_page, end = first + k->span[s].n_pages;
        v->checks++;
        if (role <= KP_CONTROLLER || role >= KP_ROLES || end > p->n_pages) {
            prove_reason(v, "%s: pages [%u, %u) of %u are to be released by %s, which never does: deadlock",
                         prove_task_text(v, rank, task).text, first, end, p->n_pages, role_name(role));
            return false;
        }
        for (uint32_t o = 0; o < s; o++) {
            uint32_t first_o = k->span[o].first_page, end_o = first_o + k->span[o].n_pages;
            if (end <= first_o || end_o <= first) continue;
            prove_reason(v,
                         "%s: its spans [%u, %u) and [%u, %u) share pages; it would claim a page a second time before "
                         "it releases it: deadlock",
                         prove_task_text(v, rank, task).text, first_o, end_o, first, end);
            return false;
        }
    }
    return true;
}

/* Region `i` lies in a span. */
static void check_region(prover *v, uint32_t rank, uint32_t task, const region_ask *ask, int i) {
    const prove_rank *r = &v->ranks[rank];
    const kp_task *k = &r->p->tasks[task];
    const arch_desc *arch = r->t.env.arch;
    uint64_t from = k->region_offset[i], to = from + ask->bytes[i],
             capacity = (uint64_t)arch->page_bytes * arch->n_pages;
    uint32_t last = ask->release[i];
    bool held = false, anywhere = false;
    for (uint32_t s = 0; s < k->n_spans; s++) {
        bool in = inside(r->p, &k->span[s], from, to);
        anywhere = anywhere || in;
        held = held || (in && outlives(k->span[s].release_role, last));
    }
    v->checks++;
    if (last != KP_CONSUMER && last != KP_STORER) {
        prove_reason(v, "%s: region %d goes back with the %s; copies into it may land later",
                     prove_task_text(v, rank, task).text, i, role_name(last));
    } else if (i >= k->n_regions) {
        prove_reason(v, "%s: region %d of %u bytes, which its op needs, is not there",
                     prove_task_text(v, rank, task).text, i, ask->bytes[i]);
    } else if (from % SMEM_ALIGN || to > capacity) {
        prove_reason(v, "%s: region %d is [%llu, %llu); it must lie at a multiple of %d in %llu bytes of SMEM",
                     prove_task_text(v, rank, task).text, i, (unsigned long long)from, (unsigned long long)to,
                     SMEM_ALIGN, (unsigned long long)capacity);
    } else if (!held) {
        prove_reason(v, "%s: region %d, bytes [%llu, %llu) of SMEM, which the %s still uses, %s",
                     prove_task_text(v, rank, task).text, i, (unsigned long long)from, (unsigned long long)to,
                     role_name(last),
                     anywhere ? "lies in pages that are released before" : "does not lie in one span of its pages");
    }
}

static void check_task(prover *v, uint32_t rank, uint32_t task) {
    const prove_rank *r = &v->ranks[rank];
    const kp_task *k = &r->p->tasks[task];
    const region_ask *ask = &r->t.regions[task];
    for (int i = 0; i < KP_REGIONS; i++) {
        if (!ask->bytes[i]) continue;
        check_region(v, rank, task, ask, i);
        uint64_t from = k->region_offset[i], to = from + ask->bytes[i];
        for (int o = 0; o < i; o++) {
            uint64_t from_o = k->region_offset[o], to_o = from_o + ask->bytes[o];
            if (!ask->bytes[o] || to <= from_o || to_o <= from) continue;
            prove_reason(v, "%s: its regions %d and %d share bytes [%llu, %llu) of SMEM",
                         prove_task_text(v, rank, task).text, o, i, (unsigned long long)(from > from_o ? from : from_o),
                         (unsigned long long)(to < to_o ? to : to_o));
        }
    }
}

bool prove_smem(prover *v) {
    bool fine = true;
    for (uint32_t r = 0; r < v->n; r++) {
        for (uint32_t i = 0; i < v->ranks[r].p->n_tasks; i++) {
            fine = spans_fine(v, r, i) && fine;
            check_task(v, r, i);
        }
    }
    return fine;
}
