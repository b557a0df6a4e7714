/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/hang.h"

#include <stdio.h>

static void what_text(char *out, size_t cap, const plan *p, const kp_launch *l, const kp_hint *h, uint32_t iteration) {
    static const char *const names[] = {
#define X(NAME, text) text,
        KP_WHAT_MAP(X)
#undef X
    };
    if (h->what >= KP_WHAT_EVENT) {
        uint32_t e = h->what - KP_WHAT_EVENT;
        const plan_phase *ph = &p->phases[p->events[e].phase];
        uint32_t target = p->events[e].triggers * (iteration + 1);
        snprintf(out, cap, "event %u (%u of %u triggers; from %u tasks of %s%s)", e, l->events[e].count, target,
                 p->events[e].triggers, p->instances[ph->instance].name, p->events[e].ranks ? " on all ranks" : "");
    } else if (h->what >= KP_WHAT_PAGE) {
        snprintf(out, cap, "page %u", h->what - KP_WHAT_PAGE);
    } else {
        snprintf(out, cap, "%s", names[h->what]);
    }
}

keel_status hang_report(const plan *p, const cpu_engine *e, const kp_launch *l, uint32_t seconds, keel_error *err) {
    enum { MOST = 16 };
    int listed = 0;
    char rank[48] = "";
    if (p->tp > 1) snprintf(rank, sizeof rank, "rank %u of %u: ", p->rank, p->tp);
    keel_status s = error_set(err, KEEL_HANG, "%sno progress for %u s; the run was aborted. Waiting:", rank, seconds);
    for (uint32_t w = 0; w < p->workers && listed < MOST; w++) {
        for (uint32_t r = 0; r < KP_ROLES && listed < MOST; r++) {
            kp_hint h;
            kp_ctx at;
            char what[256];
            if (!cpu_engine_stuck(e, w, r, 0, &h, &at) || h.what == KP_WHAT_ARRIVED) continue;
            what_text(what, sizeof what, p, l, &h, at.iteration);
            const char *task =
                at.task && at.task->instance < p->n_instances ? p->instances[at.task->instance].name : "no task";
            error_append(err, "  worker %u %s, iteration %u, %s: waits for %s", w, role_name(r), at.iteration, task,
                         what);
            listed++;
        }
    }
    return s;
}
