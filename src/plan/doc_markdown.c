/* SPDX-License-Identifier: Apache-2.0 */
/* The document for people: layers that are alike in one row. */
#include "plan/doc_markdown.h"

#include <string.h>

/* Text of a table's cell. */
static void cell(buf *out, const char *text) {
    for (const char *at = text; *at; at++) buf_printf(out, *at == '|' ? "\\|" : "%c", *at);
    buf_str(out, " | ");
}

static void cell_take(buf *out, buf *text) {
    buf_put(text, "", 0);
    out->failed |= text->failed;
    if (!text->failed) cell(out, (const char *)text->data);
    buf_free(text);
}

static void end_row(buf *out) {
    if (!out->failed && out->len) out->data[out->len - 1] = '\n';
}

const char *doc_span_bytes(doc_span s, char text[DOC_SPAN]) {
    char a[VIEW_BYTES], b[VIEW_BYTES];
    view_bytes(s.least, a);
    view_bytes(s.most, b);
    snprintf(text, DOC_SPAN, strcmp(a, b) == 0 ? "%s" : "%s to %s", a, b);
    return text;
}

const char *doc_span_count(doc_span s, char text[DOC_SPAN]) {
    snprintf(text, DOC_SPAN, s.least == s.most ? "%llu" : "%llu to %llu", (unsigned long long)s.least,
             (unsigned long long)s.most);
    return text;
}

/* ---- the head ----------------------------------------------------------------------------------- */

static void put_head(const doc *d, buf *out) {
    const plan *p = d->p;
    char a[VIEW_BYTES], b[VIEW_BYTES];
    buf_printf(out, "# Plan document: %s for %s\n\n", p->architecture[0] ? p->architecture : "a graph without a name",
               p->arch);
    buf_printf(out, "- complete: %s\n", d->complete ? "yes" : "no");
    if (!d->complete)
        buf_str(out,
                "  (role bodies are missing: the plan is good for everything but running; section 2 lists them)\n");
    buf_printf(out, "- model: `%s`, ", d->model);
    if (p->n_layers) buf_printf(out, "layers %u-%u, ", p->layer_first, p->layer_first + p->n_layers - 1);
    buf_printf(out, "hidden %llu, vocabulary %llu, %s\n", (unsigned long long)p->hidden, (unsigned long long)p->vocab,
               p->sampling ? "sampled" : "argmax");
    if (p->tp > 1)
        buf_printf(out, "- rank %u of %u, %u expert group%s, %s head, %s of symmetric memory\n", p->rank, p->tp, p->ep,
                   p->ep == 1 ? "" : "s", p->vocab_parallel ? "vocab-parallel" : "replicated",
                   view_bytes(p->symmetric_bytes, a));
    buf_printf(out, "- %u workers, M up to %u rows a pass, %u positions in KV pages of %u tokens\n", p->workers,
               p->m_max, p->max_seq, p->page_tokens);
    buf_printf(out, "- %u ops, %u phases, %u tasks, %u events; a worker has %u SMEM pages of %u bytes\n",
               p->n_instances, p->n_phases, p->n_tasks, p->n_events, p->n_pages, p->page_bytes);
    buf_printf(out, "- one row: %s of weights, %s of other data, %.4g GFLOP\n",
               view_bytes(d->floor.cost.weight_bytes, a), view_bytes(d->floor.cost.other_bytes, b),
               (double)d->floor.cost.flops / 1e9);
    buf_printf(out, "- plan: sha256 `%s`\n", d->hash);
}

/* ---- the op table ------------------------------------------------------------------------------- */

static void shapes(const doc_row *r, bool global, buf *b) {
    bool arrow = false;
    for (uint32_t k = 0; k < r->n_operands; k++) {
        const doc_operand *o = &r->operands[k];
        const graph_tensor *t = global ? o->global : o->tensor;
        if (!t) continue;
        if (o->use == DOC_OUTPUT && !arrow) {
            arrow = true;
            buf_str(b, b->len ? " → " : "→ ");
        } else if (b->len) {
            buf_str(b, ", ");
        }
        if (o->use != DOC_OUTPUT) buf_printf(b, "%s ", o->slot);
        if (!global && o->place == PLACE_PARTIAL && (o->use == DOC_OUTPUT || strcmp(o->slot, "partial") != 0))
            buf_str(b, "partial ");
        doc_shape(b, t);
    }
    if (!b->len) buf_str(b, "none");
}

static bool same_shapes(const doc_row *r) {
    for (uint32_t k = 0; k < r->n_operands; k++) {
        const doc_operand *o = &r->operands[k];
        if (!o->global || o->place == PLACE_PARTIAL || o->global->rank != o->tensor->rank ||
            memcmp(o->global->dim, o->tensor->dim, sizeof o->tensor->dim) != 0)
            return false;
    }
    return true;
}

/* By slot: what is stored, and what its scales are for. */
static void types(const doc *d, const doc_row *r, buf *b) {
    buf_printf(b, "activations %s", dtype_name(d->arch->act_dtype));
    bool scaled = false;
    for (uint32_t k = 0; k < r->n_operands; k++) {
        const doc_operand *o = &r->operands[k];
        if (o->use != DOC_WEIGHT) continue;
        buf_printf(b, "; %s %s", o->slot, dtype_name(o->dtype));
        if (o->dtype == DTYPE_F8E4M3) buf_printf(b, ", a scale for each %d × %d", FP8_BLOCK, FP8_BLOCK);
        scaled |= o->dtype == DTYPE_F8E4M3;
    }
    if (!scaled) buf_str(b, "; no scales");
}

/* A key with the fold's layer as {i}. */
static void put_key(buf *b, const char *key, int layer, bool many) {
    char at[16];
    size_t n = (size_t)snprintf(at, sizeof at, ".%d.", layer);
    while (*key) {
        if (many && layer >= 0 && strncmp(key, at, n) == 0) {
            buf_str(b, ".{i}");
            key += n - 1;
        } else {
            buf_put(b, key++, 1);
        }
    }
}

static void weights(const doc_row *r, bool many, buf *b) {
    for (uint32_t k = 0; k < r->n_operands; k++) {
        const doc_operand *o = &r->operands[k];
        if (o->use != DOC_WEIGHT) continue;
        buf_printf(b, "%s%s: `", b->len ? "; " : "", o->slot);
        put_key(b, o->tensor->key, r->op->layer, many);
        buf_printf(b, "` %s", shard_name(o->tensor->shard));
        const shard_slice *s = &o->slice;
        if (s->dim >= 0 && s->n != s->whole)
            buf_printf(b, "(dim=%d): %lld-%lld of %lld, as stored", s->dim, (long long)s->first,
                       (long long)(s->first + s->n - 1), (long long)s->whole);
        else
            buf_str(b, ", whole, as stored");
    }
    if (!b->len) buf_str(b, "-");
}

static void kind(const doc_row *r, buf *b) {
    buf_str(b, r->op->desc->name);
    if (!r->from) buf_str(b, " (not in the global graph)");
    const op_chain *c = &r->op->desc->chain;
    if (r->from && c->head && r->from->desc != r->op->desc)
        buf_printf(b, " (fused: %s, %d %s%s%s)", c->head, c->members, c->member, c->takes_tail ? ", " : "",
                   c->takes_tail ? c->tail : "");
    else if (r->from && strcmp(r->from->name, r->op->name) != 0)
        buf_printf(b, " (by sharding, of %s)", r->from->desc->name);
    else if (r->from && r->from->desc != r->op->desc)
        buf_printf(b, " (%s before sharding)", r->from->desc->name);
}

static void grid(const doc_row *r, buf *b) {
    uint32_t n = 0;
    for (int k = 0; k < op_n_phases(r->op->desc); k++) {
        if (!r->tasks[k]) continue;
        const char *phase = r->op->desc->phases[k].name;
        buf_printf(b, "%s%s%s%u", b->len ? ", " : "", phase, *phase ? " " : "", r->tasks[k]);
        n += r->tasks[k];
    }
    buf_str(b, n == 1 ? " task" : " tasks");
}

static void put_row(const doc *d, const doc_fold *f, buf *out) {
    const doc_row *r = &d->rows[f->first];
    buf b[6] = {{0}};
    buf_str(out, "| ");
    cell(out, f->name);
    kind(r, &b[0]), cell_take(out, &b[0]);
    shapes(r, true, &b[1]), cell_take(out, &b[1]);
    if (same_shapes(r))
        cell(out, "as global");
    else
        shapes(r, false, &b[2]), cell_take(out, &b[2]);
    types(d, r, &b[3]), cell_take(out, &b[3]);
    weights(r, f->count > 1, &b[4]), cell_take(out, &b[4]);
    if (r->collective && r->carrier[0] && strcmp(r->carrier, r->op->name) != 0)
        buf_printf(out, "%s, by the op behind it | ", r->collective);
    else
        cell(out, r->collective ? r->collective : "-");
    cell(out, doc_status_name(r->status));
    cell(out, doc_port_name(r->port));
    grid(r, &b[5]), cell_take(out, &b[5]);
    end_row(out);
}

static void put_ops(const doc *d, buf *out) {
    buf_str(
        out,
        "\n## 1. Ops\n\nIn execution order; `l{0-3}` stands for one op in each of these layers, alike in every "
        "column. Status: REUSE: every role that the op needs has a body for this arch; NEW KERNEL: one is "
        "missing. `M` counts the rows of a pass, `M_LOGIT` those whose logits are wanted. \"As stored\": the bytes of "
        "the checkpoint, or the slice of them, without change.\n\n"
        "| name | kind | global shapes | per-rank shapes | dtype and scale layout | weight keys and conversion | "
        "collective | status | port kind | grid |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t f = 0; f < d->n_folds; f++) put_row(d, &d->folds[f], out);
}

/* ---- the absent set ----------------------------------------------------------------------------- */

void doc_put_roles(unsigned roles, buf *out) {
    bool any = false;
    for (uint32_t r = 0; r < KP_ROLES; r++) {
        if (!(roles & KP_ROLE_BIT(r))) continue;
        buf_printf(out, "%s%s", any ? ", " : "", role_name(r));
        any = true;
    }
    if (!any) buf_str(out, "none");
}

static void put_share(buf *out, uint64_t part, uint64_t whole) {
    double percent = whole ? 100.0 * (double)part / (double)whole : 0;
    buf_printf(out, part && percent < 0.01 ? "< 0.01 %% | " : "%.3g %% | ", percent);
}

static void put_missing(const doc *d, buf *out) {
    uint32_t n = 0, bodies = 0;
    for (uint32_t i = 0; i < d->n_kernels; i++) {
        n += d->kernels[i].missing != 0;
        bodies += (uint32_t)__builtin_popcount(d->kernels[i].missing);
    }
    buf_printf(out, "\n## 2. The absent set\n\n%u of %u op phases are to be written for %s: %u role bodies.\n", n,
               d->n_kernels, d->p->arch, bodies);
    if (n)
        buf_str(out,
                "\n| op phase | port kind | missing bodies | instances | tasks a step | weights a step | share of the "
                "weights | share of the operations |\n|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < d->n_kernels; i++) {
        const doc_kernel *k = &d->kernels[i];
        char a[VIEW_BYTES];
        if (!k->missing) continue;
        const char *phase = k->op->phases[k->phase].name;
        buf_printf(out, "| %s%s%s | %s | ", k->op->name, *phase ? "." : "", phase, doc_port_name(k->port));
        doc_put_roles(k->missing, out);
        buf_printf(out, " | %u | %u | %s | ", k->instances, k->tasks, view_bytes(k->sum.weight_bytes, a));
        put_share(out, k->sum.weight_bytes, d->floor.cost.weight_bytes);
        put_share(out, k->sum.flops, d->floor.cost.flops);
        end_row(out);
    }
    buf_printf(out, "\nStatus ABSENT, registered ops that this graph never routes to (%u):", d->n_unrouted);
    for (uint32_t i = 0; i < d->n_unrouted; i++) {
        const op_desc *op = d->unrouted[i];
        uint32_t missing = 0;
        for (int k = 0; k < op_n_phases(op); k++) {
            if (op->phases[k].ring && !d->arch->stage_bytes) continue;
            missing += (uint32_t)__builtin_popcount(arch_missing_roles(d->arch, op, k));
        }
        buf_printf(out, "%s %s", i ? "," : "", op->name);
        if (missing) buf_printf(out, " (%u bod%s missing too)", missing, missing == 1 ? "y" : "ies");
    }
    buf_str(out, d->n_unrouted ? ".\n" : " none.\n");
}

static void put_fused(const doc *d, buf *out) {
    buf_str(out, "\n### Fused candidates (deferred)\n\n");
    if (!d->n_fused) buf_str(out, "None.\n");
    if (d->n_fused)
        buf_str(out,
                "One kernel could do these. Nothing needs one: the chain comes first, and each would be held to it.\n\n"
                "| ops | instances | activation bytes of one row that would stay inside, a step | why |\n"
                "|---|---|---|---|\n");
    for (uint32_t i = 0; i < d->n_fused; i++) {
        const doc_fused *f = &d->fused[i];
        char a[VIEW_BYTES];
        buf_str(out, "| ");
        cell(out, f->ops);
        buf_printf(out, "%u | %s | %s |\n", f->count, view_bytes(f->saved_bytes, a), f->why);
    }
}

void doc_markdown(const doc *d, buf *out) {
    put_head(d, out);
    put_ops(d, out);
    put_missing(d, out);
    put_fused(d, out);
    doc_put_ladder(d, out);
    doc_put_risks(d, out);
    doc_put_floor(d, out);
    doc_put_work(d, out);
    doc_put_cards(d, out);
}
