/* SPDX-License-Identifier: Apache-2.0 */
/* The plan for people: what it is for, its totals, and who does how much. */
#include "plan/plan_view.h"

#include <stdio.h>

const char *view_bytes(uint64_t bytes, char text[VIEW_BYTES]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double v = (double)bytes;
    int u = 0;
    for (; v >= 999.5 && u < 6; u++) v /= 1000;
    snprintf(text, VIEW_BYTES, u ? "%.3g %s" : "%.0f %s", v, units[u]);
    return text;
}

static void show_header(const plan *p, buf *out) {
    buf_printf(out, "plan for %s: %s", p->arch, p->architecture[0] ? p->architecture : "a graph without a name");
    if (p->n_layers)
        buf_printf(out, ", layers %u-%llu", p->layer_first, (unsigned long long)p->layer_first + p->n_layers - 1);
    buf_printf(out, ", vocab %llu, hidden %llu, %s\n", (unsigned long long)p->vocab, (unsigned long long)p->hidden,
               p->sampling ? "sampled" : "argmax");
    buf_printf(out, "  %u workers, %u rows a pass, %u positions, KV pages of %u tokens\n", p->workers, p->m_max,
               p->max_seq, p->page_tokens);
    if (p->tp > 1) {
        char bytes[VIEW_BYTES];
        buf_printf(out, "  rank %u of %u in %u expert group%s, %s head, %s of symmetric memory\n", p->rank, p->tp,
                   p->ep, p->ep == 1 ? "" : "s", p->vocab_parallel ? "vocab-parallel" : "replicated",
                   view_bytes(p->symmetric_bytes, bytes));
    }
    buf_str(out, "  levers:");
    for (uint32_t i = 0; i < p->n_levers; i++) buf_printf(out, " %s", p->levers[i]);
    buf_printf(out, "%s\n", p->n_levers ? "" : " none");
    uint32_t on_ranks = 0;
    for (uint32_t e = 0; e < p->n_events; e++) on_ranks += p->events[e].ranks;
    buf_printf(out, "  %u ops, %u phases, %u tasks, %u events", p->n_instances, p->n_phases, p->n_tasks, p->n_events);
    if (on_ranks) buf_printf(out, " (%u of them on all ranks)", on_ranks);
    buf_printf(out, ", %u waits, %u buffers\n", p->n_waits, p->n_buffers);
}

static void show_totals(const plan *p, buf *out) {
    plan_cost sum = plan_total_cost(p);
    char a[VIEW_BYTES], b[VIEW_BYTES];
    buf_printf(out, "  one row: %s of weights, %s of other data, %.4g GFLOP\n", view_bytes(sum.weight_bytes, a),
               view_bytes(sum.other_bytes, b), (double)sum.flops * 1e-9);
}

static uint32_t task_pages(const kp_task *t) {
    uint32_t n = 0;
    for (uint32_t s = 0; s < t->n_spans; s++) n += t->span[s].n_pages;
    return n;
}

/* What a worker has to do. */
typedef struct load {
    uint32_t tasks, peak; /* peak: most pages that one task claims */
    uint64_t weight_bytes;
} load;

static load worker_load(const plan *p, uint32_t w) {
    load l = {.tasks = p->queue_first[w + 1] - p->queue_first[w]};
    for (uint32_t i = p->queue_first[w]; i < p->queue_first[w + 1]; i++) {
        uint32_t pages = task_pages(&p->tasks[p->queue[i]]);
        if (pages > l.peak) l.peak = pages;
        l.weight_bytes += p->costs[p->queue[i]].weight_bytes;
    }
    return l;
}

/* Consecutive workers with as many tasks and pages in one line. */
static void show_workers(const plan *p, buf *out) {
    char a[VIEW_BYTES], b[VIEW_BYTES];
    uint32_t peak = 0;
    buf_str(out, "\nworkers\n");
    for (uint32_t w = 0, next; w < p->workers; w = next) {
        load l = worker_load(p, w);
        uint64_t least = l.weight_bytes, most = l.weight_bytes;
        for (next = w + 1; next < p->workers; next++) {
            load m = worker_load(p, next);
            if (m.tasks != l.tasks || m.peak != l.peak) break;
            if (m.weight_bytes < least) least = m.weight_bytes;
            if (m.weight_bytes > most) most = m.weight_bytes;
        }
        if (l.peak > peak) peak = l.peak;
        if (next == w + 1)
            buf_printf(out, "  %u", w);
        else
            buf_printf(out, "  %u-%u", w, next - 1);
        buf_printf(out, ": %u tasks, largest %u pages, weights %s", l.tasks, l.peak, view_bytes(least, a));
        if (most != least) buf_printf(out, " to %s", view_bytes(most, b));
        buf_str(out, "\n");
    }
    buf_printf(out, "  SMEM: the largest task claims %u of %u pages of %u bytes\n", peak, p->n_pages, p->page_bytes);
}

void plan_show(const plan *p, buf *out) {
    show_header(p, out);
    show_totals(p, out);
    view_phases(p, out);
    view_buffers(p, out);
    show_workers(p, out);
}
