/* SPDX-License-Identifier: Apache-2.0 */
/* Where it will break or be slow: rules with a reason each, over numbers of this plan. The score is what a finding
 * may cost in a step, at most, in microseconds on the machine whose figures are known; parts overlap and do not add.
 * What keeps the plan from running stands first, what has no figure last. */
#include "plan/doc_parts.h"
#include "plan/plan_view.h"

#include "core/mem.h"

#include <stdlib.h>
#include <string.h>

enum { RISKS = 16 };

static void put(doc *d, doc_risk r) {
    r.rank = r.us;
    if (d->floor.tbs <= 0) r.us = 0;
    if (d->n_risks < RISKS) d->risks[d->n_risks++] = r;
}

/* Bytes that one worker's share of the bandwidth moves in a microsecond; 0: unknown. */
static double worker_bytes_us(const doc *d) { return d->floor.tbs * 1e6 / d->p->workers; }
/* At 1 TB/s where the bandwidth is unknown, for the order alone. */
static double us_of(const doc *d, double bytes) {
    return d->floor.tbs > 0 ? bytes / worker_bytes_us(d) : bytes * d->p->workers / 1e6;
}

static uint64_t phase_bytes(const doc *d, uint32_t q) {
    const plan_phase *h = &d->p->phases[q];
    uint64_t sum = 0;
    for (uint32_t i = h->first_task; i < h->first_task + h->n_tasks; i++) sum += d->p->costs[i].weight_bytes;
    return sum;
}

static uint32_t fold_of(const doc *d, uint32_t q) { return d->rows[d->p->phases[q].instance].fold; }

/* Names of the folds with the largest values, with these. */
typedef struct top {
    uint32_t fold;
    double value;
} top;

static int by_value(const void *a, const void *b) {
    const top *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? 1 : -1;
    return x->fold < y->fold ? -1 : x->fold > y->fold;
}

static const char *worst_folds(doc *d, const double *value, const char *unit) {
    top *t = doc_array(d, d->n_folds, sizeof *t);
    buf b = {0};
    for (uint32_t f = 0; f < d->n_folds && t; f++) t[f] = (top){f, value[f]};
    if (t) qsort(t, d->n_folds, sizeof *t, by_value);
    for (uint32_t i = 0; t && i < d->n_folds && i < 4 && t[i].value > 0; i++)
        buf_printf(&b, "%s%s (%.3g %s)", i ? ", " : "", d->folds[t[i].fold].name, t[i].value, unit);
    return doc_take(d, &b);
}

static void absent_bodies(doc *d) {
    uint32_t kernels = 0, tasks = 0;
    buf b = {0};
    for (uint32_t i = 0; i < d->n_kernels; i++) {
        const doc_kernel *k = &d->kernels[i];
        if (!k->missing) continue;
        buf_printf(&b, "%s%s", kernels++ ? ", " : "", doc_phase_name(d, k->op, k->phase));
        tasks += k->tasks;
    }
    const char *where = doc_take(d, &b);
    if (!kernels) return;
    put(d, (doc_risk){.rule = "absent-bodies",
                      .what = doc_text(d, "%u of %u op phases have no body on %s: %u of %u tasks a step cannot run",
                                       kernels, d->n_kernels, d->p->arch, tasks, d->p->n_tasks),
                      .where = where,
                      .why = "a task whose role body is missing does nothing, and what waits for it gets wrong data: "
                             "such a plan is refused before it runs",
                      .todo = "write them in the order of the ladder; the cards say what each must do",
                      .blocks = true});
}

static void hops(doc *d) {
    double us = d->machine.hop_us;
    const char *each = us > 0 ? doc_text(d, ", about %.3g us measured under load", us) : "";
    put(d, (doc_risk){
               .rule = "dependency-hops",
               .what = doc_text(d, "%u dependent hops a step, %u in a layer", d->floor.hops, d->chain.layer_hops),
               .where = doc_text(d, "in each layer: %s", d->chain.layer),
               .why = doc_text(d,
                               "each hop is signal, poll, fetch and the last sum%s; streaming weights hides it only "
                               "as far as the loader runs ahead",
                               each),
               .todo = "shorten the hand-over first; then fewer phases: let tasks start on the part of their "
                       "input that is ready, fold norms into what reads them, fuse when the chain is green",
               .us = us * d->floor.hops});
}

static void polls(doc *d) {
    double us = d->machine.poll_us;
    if (!d->chain.polls) return;
    put(d,
        (doc_risk){
            .rule = "many-waits",
            .what = doc_text(d, "%u waits a step beyond the first of their task, on the longest chain", d->chain.polls),
            .where = "tasks that wait for several events before they start",
            .why = doc_text(d, "one launcher polls them one after the other%s",
                            us > 0 ? doc_text(d, "; a counter of another worker is about %.3g us away", us) : ""),
            .todo = "read the counters of a task together, or one event for what is always waited for whole",
            .us = us * d->chain.polls});
}

/* Rounds over the workers: what the busiest worker of a phase moves, against an even share. */
static void waves(doc *d) {
    const plan *p = d->p;
    double *us = doc_array(d, d->n_folds, sizeof *us), *share = doc_array(d, d->n_folds, sizeof *share), bytes = 0;
    for (uint32_t q = 0; q < p->n_phases && !d->nomem; q++) {
        uint64_t sum = phase_bytes(d, q);
        double extra = (double)doc_busiest(d, q) - (double)sum / p->workers;
        if (!sum) continue;
        bytes += extra;
        us[fold_of(d, q)] += us_of(d, extra);
        share[fold_of(d, q)] += extra / 1e3;
    }
    if (d->nomem || bytes * p->workers < 0.001 * (double)d->floor.cost.weight_bytes) return;
    double percent = 100 * bytes * p->workers / (double)d->floor.cost.weight_bytes;
    put(d,
        (doc_risk){.rule = "wave-quantisation",
                   .what = doc_text(d,
                                    "taken phase by phase, the busiest workers carry %.3g %% more weight bytes than "
                                    "an even share",
                                    percent),
                   .where = d->floor.tbs > 0 ? worst_folds(d, us, "us a step") : worst_folds(d, share, "kB a worker"),
                   .why = "whole tiles are dealt in rounds; in the last round some workers have nothing to stream. "
                          "Workers that run ahead into the next phase win some of it back",
                   .todo = "tiles so that rounds come out whole (--workers, the op's grain), or tiles of unequal size "
                           "in the last round",
                   .us = us_of(d, bytes)});
}

static void imbalance(doc *d) {
    const plan *p = d->p;
    uint64_t *sum = doc_array(d, p->workers, sizeof *sum), most = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->n_tasks && sum; i++) sum[d->worker_of[i]] += p->costs[i].weight_bytes;
    for (uint32_t w = 0; w < p->workers && sum; w++) {
        if (sum[w] > most) most = sum[w], at = w;
    }
    double mean = (double)d->floor.cost.weight_bytes / p->workers, extra = (double)most - mean;
    if (d->nomem || mean <= 0 || extra < 0.002 * mean) return;
    put(d, (doc_risk){.rule = "queue-imbalance",
                      .what = doc_text(d, "over a whole step worker %u streams %.3g %% more than the mean", at,
                                       100 * extra / mean),
                      .where = "all queues",
                      .why = "a step ends with its slowest worker, whatever the others do",
                      .todo = "another worker count, or queues dealt by bytes instead of in turn",
                      .us = us_of(d, extra)});
}

/* Phases that leave half of the workers without a task: the largest task runs at one worker's share of the bandwidth.
 */
static void narrow(doc *d) {
    const plan *p = d->p;
    double *us = doc_array(d, d->n_folds, sizeof *us), *kb = doc_array(d, d->n_folds, sizeof *kb), bytes = 0;
    uint32_t n = 0, single = 0;
    for (uint32_t q = 0; q < p->n_phases && !d->nomem; q++) {
        const plan_phase *h = &p->phases[q];
        uint64_t most = 0;
        if (h->n_tasks * 2 > p->workers) continue;
        for (uint32_t i = h->first_task; i < h->first_task + h->n_tasks; i++) {
            uint64_t of = p->costs[i].weight_bytes + p->costs[i].other_bytes;
            if (of > most) most = of;
        }
        n++;
        single += h->n_tasks == 1;
        bytes += (double)most;
        us[fold_of(d, q)] += us_of(d, (double)most);
        kb[fold_of(d, q)] += (double)most / 1e3;
    }
    if (!n || d->nomem || p->workers == 1) return;
    put(d, (doc_risk){
               .rule = "narrow-phases",
               .what = doc_text(
                   d, "%u of %u phases leave half of the workers or more without a task, %u of them have a single one",
                   n, p->n_phases, single),
               .where = d->floor.tbs > 0 ? worst_folds(d, us, "us a step") : worst_folds(d, kb, "kB a step"),
               .why = "one worker has one worker's share of the bandwidth, and all others stand still behind it: "
                      "a hop bought for very little work",
               .todo = "more tasks, or the work done again by each reader (a norm of one row is cheap)",
               .us = us_of(d, bytes)});
}

/* Phases of the longest chain that stream less than passes in one hop. */
static void thin(doc *d) {
    const plan *p = d->p;
    double want = worker_bytes_us(d) * d->machine.hop_us, us_sum = 0;
    double *us = doc_array(d, d->n_folds, sizeof *us);
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->chain.n_phases && want > 0 && !d->nomem; i++) {
        uint32_t q = d->chain.phases[i];
        double have = (double)phase_bytes(d, q) / p->workers;
        if (have >= want) continue;
        double missing = us_of(d, want - have);
        n++;
        us_sum += missing;
        us[fold_of(d, q)] += missing;
    }
    if (!n || d->nomem) return;
    put(d,
        (doc_risk){.rule = "thin-phases",
                   .what = doc_text(d,
                                    "%u of %u phases on the longest chain stream less than the %.0f kB a worker that "
                                    "pass in one hop",
                                    n, d->chain.n_phases, want / 1e3),
                   .where = worst_folds(d, us, "us a step"),
                   .why = "this is the part of the hops that no weights of their own hide: the loader must be phases "
                          "ahead, and the ring holds only so much",
                   .todo = "keep the ring full of landed data with few copies in flight; merge phases that have one "
                           "input; fold norms and element-wise ops into their readers",
                   .us = us_sum});
}

static void smem(doc *d) {
    const plan *p = d->p;
    uint32_t phases = 0, largest = 0;
    uint8_t *seen = doc_array(d, d->n_folds, 1);
    buf b = {0};
    for (uint32_t q = 0; q < p->n_phases && seen; q++) {
        const plan_phase *h = &p->phases[q];
        uint32_t most = 0;
        for (uint32_t i = h->first_task; i < h->first_task + h->n_tasks; i++) {
            uint32_t n = 0;
            for (uint32_t s = 0; s < p->tasks[i].n_spans; s++) n += p->tasks[i].span[s].n_pages;
            if (n > most) most = n;
        }
        if (most > largest) largest = most;
        if (most * 2 <= p->n_pages) continue;
        phases++;
        if (!seen[fold_of(d, q)]++)
            buf_printf(&b, "%s%s (%u pages)", b.len ? ", " : "", d->folds[fold_of(d, q)].name, most);
    }
    const char *where = doc_take(d, &b);
    if (!phases) return;
    put(d,
        (doc_risk){.rule = "smem-pressure",
                   .what = doc_text(d, "%u phases have tasks that claim more than half of the %u pages (%u at most)",
                                    phases, p->n_pages, largest),
                   .where = where,
                   .why = "the next task's pages are not free while this one computes, so its loader cannot run ahead "
                          "(measured on a chain of 180 hops: 4.00 ms without run-ahead, 3.76 with)",
                   .todo = "smaller tiles or staging in pieces: at most half of SMEM a task",
                   .us = d->machine.smem_us * phases});
}

static void alignment(doc *d) {
    buf b = {0};
    for (uint32_t i = 0; i < d->n_kernels && d->machine.align; i++) {
        for (int r = 0; r < KP_REGIONS; r++) {
            const doc_region *g = &d->kernels[i].region[r];
            if (g->used && g->align < d->machine.align)
                buf_printf(&b, "%s%s region %d (%llu)", b.len ? ", " : "",
                           doc_phase_name(d, d->kernels[i].op, d->kernels[i].phase), r, (unsigned long long)g->align);
        }
    }
    bool any = b.len > 0;
    const char *where = doc_take(d, &b);
    if (!any) return;
    put(d, (doc_risk){
               .rule = "region-alignment",
               .what = doc_text(d, "SMEM regions lie at less than %llu bytes", (unsigned long long)d->machine.align),
               .where = where,
               .why = "a bulk copy with a 128-byte swizzle wants its destination at multiples of 1024; one that is "
                      "not moves every other copy of the block out of line as well",
               .todo = "no swizzled copies into these regions, or have their op ask for the pages of its own"});
}

static void collectives(doc *d) {
    if (!d->floor.collectives) return;
    double us = d->machine.exchange_us;
    const char *each = us > 0 ? doc_text(d,
                                         "a small exchange and sum between two ranks takes about %.3g us inside the "
                                         "program (19-20 us by a collective library); ",
                                         us)
                              : "";
    put(d, (doc_risk){
               .rule = "collectives",
               .what = doc_text(d, "%u collectives a step over %u ranks", d->floor.collectives, d->p->tp),
               .where = "the op table's column `collective`",
               .why = doc_text(d, "%sall ranks wait for the slowest, and one that skips a collective hangs them", each),
               .todo = "M1 before anything else: bit-exact on two ranks; then begin the exchange with the first "
                       "columns that are ready",
               .us = us * d->floor.collectives});
}

/* Static splits: at a short context only the first ones have positions to read. */
static void kv_splits(doc *d) {
    const plan *p = d->p;
    for (uint32_t i = 0; i < d->n_rows; i++) {
        const doc_row *r = &d->rows[i];
        const graph_tensor *cache = NULL;
        uint32_t caches = 0, layers = d->folds[r->fold].count;
        for (uint32_t k = 0; k < r->n_operands; k++) {
            if (r->operands[k].tensor->kind == TENSOR_CACHE) cache = r->operands[k].tensor, caches++;
        }
        if (!cache || d->folds[r->fold].first != i) continue;
        uint32_t first = 0; /* phase that has tasks */
        while (first + 1 < OP_PHASES && !r->tasks[first]) first++;
        uint32_t heads = (uint32_t)cache->dim[0], tasks = r->tasks[first], splits = tasks / heads ? tasks / heads : 1;
        uint32_t pages = (p->max_seq + p->page_tokens - 1) / p->page_tokens;
        uint32_t most = (pages + splits - 1) / splits, rounds = (tasks + p->workers - 1) / p->workers;
        double page_bytes =
            (double)p->page_tokens * (double)cache->dim[1] * (double)dtype_bytes(d->arch->act_dtype) * caches;
        double extra = ((double)most * rounds - (double)pages * heads / p->workers) * page_bytes * layers;
        if (extra <= 0 && heads >= p->workers) continue;
        put(d, (doc_risk){
                   .rule = "kv-splits",
                   .what = doc_text(d,
                                    "%u-fold split of the context for %u KV heads: with one page of %u positions %u of "
                                    "%u workers read KV, at %u positions the busiest reads %u pages, %.3g on "
                                    "average",
                                    splits, heads, p->page_tokens, heads < p->workers ? heads : p->workers, p->workers,
                                    p->max_seq, most * rounds, (double)pages * heads / p->workers),
                   .where = d->folds[r->fold].name,
                   .why = "splits are fixed when the plan is made; empty ones still signal, and the longest one "
                          "decides",
                   .todo = "--kv-splits for the contexts that matter, --max-seq no larger than needed",
                   .us = us_of(d, extra > 0 ? extra : 0)});
    }
}

/* Every rank reads all of the head. */
static void whole_head(doc *d) {
    const plan *p = d->p;
    int maker = d->local->logits ? graph_tensor_at(d->local, d->local->logits)->producer : -1;
    if (p->tp == 1 || p->vocab_parallel || maker < 0) return;
    const doc_row *r = &d->rows[maker];
    char a[VIEW_BYTES];
    double extra = (double)r->cost.weight_bytes * (p->tp - 1) / p->tp;
    put(d, (doc_risk){.rule = "whole-head",
                      .what = doc_text(d, "every rank reads the whole head, %s, %.3g %% of its weights",
                                       view_bytes(r->cost.weight_bytes, a),
                                       100 * (double)r->cost.weight_bytes / (double)d->floor.cost.weight_bytes),
                      .where = r->op->name,
                      .why = "the head is not cut over the ranks, so that no rank waits for others at the end",
                      .todo = "--head vocab-parallel: a share of the rows and one more exchange",
                      .us = us_of(d, extra / p->workers)});
}

static void conversions(doc *d) {
    dtype act = d->arch->act_dtype;
    uint64_t other = 0, wide = 0;
    for (uint32_t i = 0; i < d->n_rows; i++) {
        const doc_row *r = &d->rows[i];
        for (uint32_t k = 0; k < r->n_operands; k++) {
            const doc_operand *o = &r->operands[k];
            if (o->use != DOC_WEIGHT || o->dtype == act) continue;
            other += r->cost.weight_bytes;
            if (dtype_bytes(o->dtype) > 2) wide += r->cost.weight_bytes;
            break;
        }
    }
    if (!other) return;
    char a[VIEW_BYTES];
    put(d, (doc_risk){
               .rule = "conversions",
               .what = doc_text(d,
                                "%s of the weights a step are stored in another type than %s, in which the "
                                "activations are%s",
                                view_bytes(other, a), dtype_name(act),
                                wide ? "; F32 weights are twice the bytes of BF16" : ""),
               .where = "every op that reads them",
               .why = "the conversion stands in the inner loop of the consumer, which must stay faster than memory",
               .todo = "measure the consumer without memory: it must drain the ring well faster than memory fills it"});
}

static int by_rank(const void *a, const void *b) {
    const doc_risk *x = a, *y = b;
    if (x->blocks != y->blocks) return x->blocks ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? 1 : -1;
    return strcmp(x->rule, y->rule);
}

void doc_find_risks(doc *d) {
    static void (*const rules[])(doc *) = {absent_bodies, hops,       polls,      waves,     imbalance,
                                           narrow,        thin,       smem,       alignment, collectives,
                                           kv_splits,     whole_head, conversions};
    d->risks = doc_array(d, RISKS, sizeof *d->risks);
    for (size_t i = 0; i < sizeof rules / sizeof *rules && !d->nomem; i++) rules[i](d);
    if (!d->nomem) qsort(d->risks, d->n_risks, sizeof *d->risks, by_rank);
}
