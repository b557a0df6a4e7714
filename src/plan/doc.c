/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/doc_parts.h"

#include "core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *doc_status_name(doc_status s) { return s == DOC_REUSE ? "REUSE" : "NEW KERNEL"; }

const char *doc_port_name(doc_port p) {
    static const char *const names[] = {"leaf", "collective", "grid-wide"};
    return names[p];
}

doc_port doc_port_of(const op_desc *op) {
    return op->grid_wide ? DOC_GRID_WIDE : op->collective ? DOC_COLLECTIVE : DOC_LEAF;
}

/* One card of a data-centre GPU of 132 workers with 227 KiB of SMEM each: medians of chains of dependent phases that
 * stream weights through a ring of 12 × 16 KiB. */
static const doc_machine machines[] = {
    {.arch = "sm_90a",
     .read_tbs = 4.70,
     .hop_us = 3.0,
     .poll_us = 0.57,
     .exchange_us = 2.3,
     .smem_us = 1.3,
     .align = 1024,
     .source = "measured on one H200: bulk copies of 16 KiB into SMEM, one block an SM"},
};

const doc_machine *doc_machine_of(const char *arch) {
    static const doc_machine unknown = {.source = "nothing was measured for this arch"};
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        if (strcmp(machines[i].arch, arch) == 0) return &machines[i];
    }
    return &unknown;
}

const char *doc_text(doc *d, const char *fmt, ...) {
    char *text = NULL;
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n >= 0) text = arena_alloc(&d->arena, (size_t)n + 1);
    if (text) vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    d->nomem |= !text;
    return text ? text : "";
}

const char *doc_take(doc *d, buf *b) {
    buf_put(b, "", 0);
    const char *text = b->failed ? NULL : arena_strdup(&d->arena, (const char *)b->data);
    buf_free(b);
    d->nomem |= !text;
    return text ? text : "";
}

void *doc_array(doc *d, size_t count, size_t size) {
    void *p = arena_array(&d->arena, count + 1, size);
    d->nomem |= !p;
    return p;
}

void doc_span_add(doc_span *s, uint64_t v, bool first) {
    if (first || v < s->least) s->least = v;
    if (first || v > s->most) s->most = v;
}

void doc_ranges(buf *b, const int *layers, uint32_t n) {
    for (uint32_t i = 0, next; i < n; i = next) {
        next = i + 1;
        while (next < n && layers[next] == layers[next - 1] + 1) next++;
        buf_printf(b, "%s%d", i ? "," : "", layers[i]);
        if (next > i + 1) buf_printf(b, "-%d", layers[next - 1]);
    }
}

void doc_shape(buf *b, const graph_tensor *t) {
    buf_str(b, "[");
    for (int i = 0; i < t->rank; i++) {
        buf_str(b, i ? ", " : "");
        if (t->dim[i] == GRAPH_M)
            buf_str(b, "M");
        else if (t->dim[i] == GRAPH_M_LOGIT)
            buf_str(b, "M_LOGIT");
        else
            buf_printf(b, "%lld", (long long)t->dim[i]);
    }
    buf_str(b, t->kind == TENSOR_CACHE ? "] a position" : "]");
}

const char *doc_phase_name(doc *d, const op_desc *op, uint32_t phase) {
    const char *name = op->phases[phase].name;
    return *name ? doc_text(d, "%s.%s", op->name, name) : op->name;
}

uint64_t doc_busiest(doc *d, uint32_t phase) {
    const plan *p = d->p;
    const plan_phase *h = &p->phases[phase];
    uint64_t *sum = mem_calloc(p->workers, sizeof *sum), most = 0;
    d->nomem |= !sum;
    for (uint32_t i = h->first_task; sum && i < h->first_task + h->n_tasks; i++) {
        uint64_t *of = &sum[d->worker_of[i]];
        *of += p->costs[i].weight_bytes;
        if (*of > most) most = *of;
    }
    mem_free(sum);
    return most;
}

static void find_workers(doc *d) {
    const plan *p = d->p;
    d->worker_of = doc_array(d, p->n_tasks, sizeof *d->worker_of);
    for (uint32_t w = 0; w < p->workers && !d->nomem; w++) {
        for (uint32_t i = p->queue_first[w]; i < p->queue_first[w + 1]; i++) d->worker_of[p->queue[i]] = w;
    }
}

static keel_status find_all(doc *d, const doc_options *o, keel_error *err) {
    tiler t = {0};
    tile_env env = plan_env(d->p);
    KEEL_TRY(plan_graph(d->p, &d->local, err));
    KEEL_TRY(plan_hash(d->p, d->hash, err));
    d->complete = plan_check_bodies(d->p, NULL) == KEEL_OK;
    keel_status s = tiler_open(&t, d->local, &env, err);
    if (s == KEEL_OK) s = plan_describe(&t, d->p, err);
    if (s == KEEL_OK) {
        find_workers(d);
        if (!d->nomem) doc_find_rows(d);
        if (!d->nomem) doc_find_kernels(d, &t);
        if (!d->nomem) doc_find_fused(d);
        if (!d->nomem) doc_find_chain(d);
        if (!d->nomem) doc_find_floor(d, o);
        if (!d->nomem) doc_find_risks(d);
        if (!d->nomem) doc_find_ladder(d);
        if (d->nomem) s = KEEL_NOMEM_AT(err, "plan document");
    }
    tiler_close(&t);
    return s;
}

keel_status doc_open(const graph *global, const plan *p, const doc_options *o, doc **out, keel_error *err) {
    doc *d = mem_calloc(1, sizeof *d);
    if (!d) return KEEL_NOMEM_AT(err, "plan document");
    d->p = p;
    d->global = global;
    d->arch = arch_find(p->arch);
    d->machine = *doc_machine_of(p->arch);
    d->model = o && o->model ? o->model : "MODEL";
    d->drawn = o && o->drawn;
    static const doc_options defaults = {0};
    keel_status s = find_all(d, o ? o : &defaults, err);
    if (s != KEEL_OK) {
        doc_close(d);
        return s;
    }
    *out = d;
    return KEEL_OK;
}

void doc_close(doc *d) {
    if (!d) return;
    graph_close(d->local);
    arena a = d->arena;
    arena_free(&a);
    mem_free(d);
}
