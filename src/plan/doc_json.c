/* SPDX-License-Identifier: Apache-2.0 */
/* The document for programs: every row, nothing folded. docs/plan-document.md lists the keys. */
#include "plan/doc_parts.h"

#include "core/json.h"

#include <stdio.h>
#include <stdlib.h>

/* A failed json_…_new() anywhere makes the parent's put fail: *ok turns false. */
typedef struct writer {
    const doc *d;
    bool ok;
} writer;

static void put(writer *w, json_t *to, const char *key, json_t *value) {
    if (json_object_set_new(to, key, value) != 0) w->ok = false;
}
static void put_text(writer *w, json_t *to, const char *key, const char *s) {
    put(w, to, key, s ? json_string(s) : json_null());
}
static void put_int(writer *w, json_t *to, const char *key, uint64_t v) {
    put(w, to, key, json_integer((json_int_t)v));
}
/* Figures: six digits, so that the last bits of a division do not change a document. */
static void put_real(writer *w, json_t *to, const char *key, double v) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", v);
    put(w, to, key, json_real(strtod(text, NULL)));
}
static void add(writer *w, json_t *to, json_t *value) {
    if (json_array_append_new(to, value) != 0) w->ok = false;
}

static void put_span(writer *w, json_t *to, const char *key, doc_span s) {
    json_t *pair = json_array();
    add(w, pair, json_integer((json_int_t)s.least));
    add(w, pair, json_integer((json_int_t)s.most));
    put(w, to, key, pair);
}

static void put_cost(writer *w, json_t *to, plan_cost c) {
    put_int(w, to, "weight_bytes", c.weight_bytes);
    put_int(w, to, "other_bytes", c.other_bytes);
    put_int(w, to, "flops", c.flops);
}

static json_t *roles_of(writer *w, unsigned roles) {
    json_t *list = json_array();
    for (uint32_t r = 0; r < KP_ROLES; r++) {
        if (roles & KP_ROLE_BIT(r)) add(w, list, json_string(role_name(r)));
    }
    return list;
}

static json_t *shape_of(writer *w, const graph_tensor *t) {
    if (!t) return json_null();
    json_t *dims = json_array();
    for (int i = 0; i < t->rank; i++) {
        int64_t n = t->dim[i];
        add(w, dims, n == GRAPH_M ? json_string("M") : n == GRAPH_M_LOGIT ? json_string("M_LOGIT") : json_integer(n));
    }
    return dims;
}

static json_t *operand_of(writer *w, const doc_operand *o) {
    static const char *const uses[] = {"input", "weight", "output"};
    json_t *v = json_object();
    put_text(w, v, "slot", o->slot);
    put_text(w, v, "use", uses[o->use]);
    put_text(w, v, "tensor", o->tensor->name);
    put_text(w, v, "dtype", dtype_name(o->dtype));
    if (o->tensor->kind == TENSOR_ACTIVATION) put_text(w, v, "placement", placement_name(o->place));
    put(w, v, "global", shape_of(w, o->global));
    put(w, v, "per_rank", shape_of(w, o->tensor));
    if (o->use != DOC_WEIGHT) return v;
    put_text(w, v, "key", o->tensor->key);
    put_text(w, v, "shard", shard_name(o->tensor->shard));
    put_int(w, v, "shard_dim", (uint64_t)o->tensor->shard_dim);
    put(w, v, "scales", json_null());
    put_text(w, v, "conversion", "as stored");
    json_t *slice = o->slice.dim < 0 ? json_null() : json_object();
    if (o->slice.dim >= 0) {
        put_int(w, slice, "dim", (uint64_t)o->slice.dim);
        put_int(w, slice, "first", (uint64_t)o->slice.first);
        put_int(w, slice, "n", (uint64_t)o->slice.n);
        put_int(w, slice, "whole", (uint64_t)o->slice.whole);
    }
    put(w, v, "slice", slice);
    return v;
}

static json_t *row_of(writer *w, const doc_row *r) {
    json_t *v = json_object(), *operands = json_array(), *grid = json_array();
    unsigned missing = 0;
    put_text(w, v, "name", r->op->name);
    put_text(w, v, "kind", r->op->desc->name);
    put(w, v, "layer", json_integer(r->op->layer));
    put_text(w, v, "global_op", r->from ? r->from->name : NULL);
    put_text(w, v, "global_kind", r->from ? r->from->desc->name : NULL);
    put_text(w, v, "notes", r->from ? r->from->notes : "");
    for (uint32_t k = 0; k < r->n_operands; k++) add(w, operands, operand_of(w, &r->operands[k]));
    put(w, v, "operands", operands);
    put_text(w, v, "collective", r->collective);
    put_text(w, v, "collective_op", r->carrier[0] ? r->carrier : NULL);
    put_text(w, v, "status", doc_status_name(r->status));
    put_text(w, v, "port_kind", doc_port_name(r->port));
    for (int k = 0; k < op_n_phases(r->op->desc); k++) {
        if (!r->tasks[k]) continue;
        missing |= arch_missing_roles(w->d->arch, r->op->desc, k);
        json_t *g = json_object();
        put_text(w, g, "phase", r->op->desc->phases[k].name);
        put_int(w, g, "tasks", r->tasks[k]);
        add(w, grid, g);
    }
    put(w, v, "missing_bodies", roles_of(w, missing));
    put(w, v, "grid", grid);
    put_cost(w, v, r->cost);
    return v;
}

static json_t *regions_of(writer *w, const doc_kernel *k) {
    json_t *list = json_array();
    for (int r = 0; r < KP_REGIONS; r++) {
        const doc_region *g = &k->region[r];
        if (!g->used) continue;
        json_t *v = json_object();
        put_int(w, v, "index", (uint64_t)r);
        put_span(w, v, "bytes", g->bytes);
        put_text(w, v, "release", g->release);
        put_int(w, v, "alignment", g->align);
        add(w, list, v);
    }
    return list;
}

static json_t *kernel_of(writer *w, const doc_kernel *k) {
    const op_phase *phase = &k->op->phases[k->phase];
    json_t *v = json_object(), *folds = json_array();
    put_text(w, v, "op", k->op->name);
    put_text(w, v, "phase", phase->name);
    put_text(w, v, "summary", k->op->summary);
    put_text(w, v, "status", doc_status_name(k->missing ? DOC_NEW_KERNEL : DOC_REUSE));
    put_text(w, v, "port_kind", doc_port_name(k->port));
    put(w, v, "roles", roles_of(w, phase->needs));
    put(w, v, "missing_bodies", roles_of(w, k->missing));
    put_int(w, v, "instances", k->instances);
    put_int(w, v, "tasks", k->tasks);
    for (uint32_t i = 0; i < k->n_folds; i++) add(w, folds, json_string(w->d->folds[k->folds[i]].name));
    put(w, v, "ops", folds);
    put_cost(w, v, k->sum);
    json_t *task = json_object();
    put_span(w, task, "weight_bytes", k->weight_bytes);
    put_span(w, task, "other_bytes", k->other_bytes);
    put_span(w, task, "flops", k->flops);
    put_span(w, task, "columns", k->columns);
    put_span(w, task, "aux", k->aux);
    put_span(w, task, "pages", k->pages);
    put_span(w, task, "waits", k->waits);
    put(w, v, "task", task);
    put(w, v, "regions", regions_of(w, k));
    put_int(w, v, "triggering_tasks", k->triggering);
    put_real(w, v, "min_cosine", k->op->min_cosine);
    put_real(w, v, "max_rel_error", k->op->max_rel_error);
    return v;
}

static json_t *work_of(writer *w, const doc_work *k) {
    const doc *d = w->d;
    json_t *v = json_object();
    put_text(w, v, "ops", d->folds[k->fold].name);
    put_text(w, v, "phase", d->rows[d->folds[k->fold].first].op->desc->phases[k->phase].name);
    put_int(w, v, "phases", k->n_phases);
    put_int(w, v, "tasks", k->tasks);
    put_span(w, v, "weight_bytes", k->weight_bytes);
    put_span(w, v, "other_bytes", k->other_bytes);
    put_span(w, v, "flops", k->flops);
    put_span(w, v, "pages", k->pages);
    return v;
}

static json_t *step_of(writer *w, const doc_step *s) {
    json_t *v = json_object(), *commands = json_array();
    put_text(w, v, "name", s->name);
    put_text(w, v, "title", s->title);
    put_text(w, v, "collapsed", s->collapsed);
    put_text(w, v, "scope", s->scope);
    put_text(w, v, "exit", s->exit);
    for (uint32_t i = 0; i < s->n_commands; i++) {
        json_t *c = json_object();
        put_text(w, c, "command", s->command[i].text);
        put(w, c, "planned", json_boolean(s->command[i].planned));
        add(w, commands, c);
    }
    put(w, v, "commands", commands);
    return v;
}

static json_t *risk_of(writer *w, const doc_risk *r) {
    json_t *v = json_object();
    put_text(w, v, "rule", r->rule);
    put(w, v, "blocks", json_boolean(r->blocks));
    if (r->us > 0)
        put_real(w, v, "us_a_step", r->us);
    else
        put(w, v, "us_a_step", json_null());
    put_text(w, v, "what", r->what);
    put_text(w, v, "where", r->where);
    put_text(w, v, "why", r->why);
    put_text(w, v, "do", r->todo);
    return v;
}

static json_t *floor_of(writer *w) {
    const doc *d = w->d;
    const doc_floor *f = &d->floor;
    json_t *v = json_object(), *contexts = json_array();
    put_cost(w, v, f->cost);
    put_int(w, v, "kv_bytes_a_position", f->kv_bytes);
    put(w, v, "bandwidth_tbs", json_null());
    if (f->tbs > 0) put_real(w, v, "bandwidth_tbs", f->tbs);
    put_text(w, v, "source", f->source);
    put(w, v, "ms", json_null());
    if (f->tbs > 0) put_real(w, v, "ms", f->ms);
    for (uint32_t i = 0; i < f->n_contexts && f->tbs > 0; i++) {
        json_t *c = json_object();
        put_int(w, c, "positions", f->context[i].positions);
        put_real(w, c, "ms", f->context[i].ms);
        add(w, contexts, c);
    }
    put(w, v, "contexts", contexts);
    put_int(w, v, "hops", f->hops);
    put_real(w, v, "hop_us", d->machine.hop_us);
    put_int(w, v, "collectives", f->collectives);
    put_real(w, v, "exchange_us", d->machine.exchange_us);
    json_t *chain = json_object();
    put_text(w, chain, "before_layers", d->chain.head);
    put_text(w, chain, "in_a_layer", d->chain.layer);
    put_text(w, chain, "behind_layers", d->chain.tail);
    put_int(w, chain, "hops_a_layer", d->chain.layer_hops);
    put(w, v, "chain", chain);
    return v;
}

static json_t *plan_of(writer *w) {
    const plan *p = w->d->p;
    json_t *v = json_object();
    put_text(w, v, "sha256", w->d->hash);
    put_int(w, v, "workers", p->workers);
    put_int(w, v, "m_max", p->m_max);
    put_int(w, v, "max_seq", p->max_seq);
    put_int(w, v, "page_tokens", p->page_tokens);
    put_int(w, v, "layer_first", p->layer_first);
    put_int(w, v, "n_layers", p->n_layers);
    put_int(w, v, "tasks", p->n_tasks);
    put_int(w, v, "phases", p->n_phases);
    put_int(w, v, "events", p->n_events);
    put_int(w, v, "page_bytes", p->page_bytes);
    put_int(w, v, "n_pages", p->n_pages);
    put_int(w, v, "tp", p->tp);
    put_int(w, v, "ep", p->ep);
    put_int(w, v, "rank", p->rank);
    put(w, v, "vocab_parallel", json_boolean(p->vocab_parallel));
    put_int(w, v, "symmetric_bytes", p->symmetric_bytes);
    return v;
}

static json_t *absent_of(writer *w) {
    const doc *d = w->d;
    json_t *v = json_object(), *kernels = json_array(), *unrouted = json_array();
    for (uint32_t i = 0; i < d->n_kernels; i++) {
        if (d->kernels[i].missing) add(w, kernels, kernel_of(w, &d->kernels[i]));
    }
    for (uint32_t i = 0; i < d->n_unrouted; i++) add(w, unrouted, json_string(d->unrouted[i]->name));
    put(w, v, "kernels", kernels);
    put(w, v, "never_routed", unrouted);
    return v;
}

static json_t *fused_of(writer *w, const doc_fused *f) {
    json_t *v = json_object();
    put_text(w, v, "ops", f->ops);
    put_text(w, v, "why", f->why);
    put_text(w, v, "status", "FUSED-CANDIDATE");
    put_int(w, v, "instances", f->count);
    put_int(w, v, "saved_bytes", f->saved_bytes);
    return v;
}

#define PUT_LIST(w, to, key, n, element)                                                                               \
    do {                                                                                                               \
        json_t *list_ = json_array();                                                                                  \
        for (uint32_t i = 0; i < (n); i++) add((w), list_, (element));                                                 \
        put((w), (to), (key), list_);                                                                                  \
    } while (0)

static int to_buf(const char *text, size_t bytes, void *out) {
    buf_put(out, text, bytes);
    return ((buf *)out)->failed ? -1 : 0;
}

keel_status doc_json(const doc *d, buf *out, keel_error *err) {
    writer wr = {d, true}, *w = &wr;
    json_t *root = json_object();
    put_int(w, root, "version", 1);
    put_text(w, root, "model", d->model);
    put_text(w, root, "architecture", d->p->architecture);
    put_text(w, root, "arch", d->p->arch);
    put(w, root, "complete", json_boolean(d->complete));
    put(w, root, "plan", plan_of(w));
    PUT_LIST(w, root, "ops", d->n_rows, row_of(w, &d->rows[i]));
    put(w, root, "absent", absent_of(w));
    PUT_LIST(w, root, "fused_candidates", d->n_fused, fused_of(w, &d->fused[i]));
    PUT_LIST(w, root, "ladder", DOC_STEPS, step_of(w, &d->steps[i]));
    PUT_LIST(w, root, "risks", d->n_risks, risk_of(w, &d->risks[i]));
    put(w, root, "floor", floor_of(w));
    PUT_LIST(w, root, "work", d->n_work, work_of(w, &d->work[i]));
    if (!root || !w->ok || json_dump_callback(root, to_buf, out, JSON_INDENT(1)) != 0) out->failed = true;
    json_decref(root);
    buf_str(out, "\n");
    return out->failed ? KEEL_NOMEM_AT(err, "plan document as JSON") : KEEL_OK;
}
