/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of the document: ladder, risks, floor, tasks, cards. */
#include "plan/doc_markdown.h"

#include <string.h>

void doc_put_ladder(const doc *d, buf *out) {
    buf_str(
        out,
        "\n## 3. The ladder\n\nEach step is left when its exit criterion holds. Commands marked *planned* are those of "
        "the specification that this build does not have yet; all others run as they stand (`ctest` where `make check` "
        "has built the tests).");
    buf_str(out, d->drawn ? " DIR, where it stands, is the checkpoint's folder.\n" : "\n");
    for (int i = 0; i < DOC_STEPS; i++) {
        const doc_step *s = &d->steps[i];
        buf_printf(out, "\n**%s %s**", s->name, s->title);
        if (s->collapsed) {
            buf_printf(out, ": collapsed, %s.\n", s->collapsed);
            continue;
        }
        buf_printf(out, "\n- scope: %s\n- exit: %s\n", s->scope, s->exit);
        for (uint32_t k = 0; k < s->n_commands; k++)
            buf_printf(out, "- `%s`%s\n", s->command[k].text, s->command[k].planned ? " *(planned)*" : "");
    }
}

void doc_put_risks(const doc *d, buf *out) {
    buf_str(out,
            "\n## 4. Where it will break, and where it will be slow\n\nWhat keeps it from running stands first; then "
            "by what "
            "a finding may cost in a step of one row, at most. Findings overlap: the same microsecond can stand in "
            "several, so they do not add up.\n");
    if (d->machine.hop_us <= 0) buf_printf(out, "Hops and exchanges have no figure here: %s.\n", d->machine.source);
    for (uint32_t i = 0; i < d->n_risks; i++) {
        const doc_risk *r = &d->risks[i];
        char cost[64] = "no figure for this machine";
        if (r->blocks)
            snprintf(cost, sizeof cost, "blocks");
        else if (r->us > 0)
            snprintf(cost, sizeof cost, r->us < 100 ? "up to %.3g us a step" : "up to %.0f us a step", r->us);
        buf_printf(out, "\n%u. **%s** (%s): %s.\n", i + 1, r->rule, cost, r->what);
        if (*r->where) buf_printf(out, "   - where: %s\n", r->where);
        buf_printf(out, "   - why: %s\n   - do: %s\n", r->why, r->todo);
    }
}

void doc_put_floor(const doc *d, buf *out) {
    const doc_floor *f = &d->floor;
    char a[VIEW_BYTES], b[VIEW_BYTES];
    buf_printf(
        out,
        "\n## 5. The floor\n\nWhat one step of one row must read: %s of weights (every matrix once), and %s of KV for "
        "each position before it.\n\n",
        view_bytes(f->cost.weight_bytes, a), view_bytes(f->kv_bytes, b));
    if (f->tbs <= 0) {
        buf_printf(out, "No floor in ms: %s; give `--bandwidth TB/s`.\n", d->machine.source);
    } else {
        buf_printf(out, "At %.3g TB/s (%s):\n\n| | ms |\n|---|---|\n| **floor: weights alone** | **%.4g** |\n", f->tbs,
                   f->source, f->ms);
        for (uint32_t i = 0; i < f->n_contexts; i++)
            buf_printf(out, "| weights and KV of %u positions | %.4g |\n", f->context[i].positions, f->context[i].ms);
    }
    buf_printf(out, "\nNot part of the floor, but of every step:\n- %u dependent hops on the longest chain", f->hops);
    if (d->machine.hop_us > 0)
        buf_printf(out, ", %.3g us each: %.4g ms", d->machine.hop_us, f->hops * d->machine.hop_us / 1e3);
    buf_printf(out, "\n- %u collectives", f->collectives);
    if (f->collectives && d->machine.exchange_us > 0)
        buf_printf(out, ", %.3g us each: %.4g ms", d->machine.exchange_us,
                   f->collectives * d->machine.exchange_us / 1e3);
    buf_printf(out,
               "\n- %.3g floating-point operations for each byte of weights and row of the pass\n\nThe longest chain",
               f->cost.weight_bytes ? (double)f->cost.flops / (double)f->cost.weight_bytes : 0.0);
    if (*d->chain.head) buf_printf(out, "; before the layers: %s", d->chain.head);
    if (*d->chain.layer) buf_printf(out, "; in a layer (%u): %s", d->chain.layer_hops, d->chain.layer);
    if (*d->chain.tail) buf_printf(out, "; behind them: %s", d->chain.tail);
    buf_str(out, ".\n");
}

void doc_put_work(const doc *d, buf *out) {
    buf_str(out,
            "\n## 6. Bytes and operations a task\n\nFor one row at position 0; phases: how many there are alike.\n\n"
            "| op phase | phases | tasks | weights a task | other bytes a task | FLOP a task | SMEM pages |\n"
            "|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < d->n_work; i++) {
        const doc_work *w = &d->work[i];
        const char *phase = d->rows[d->folds[w->fold].first].op->desc->phases[w->phase].name;
        char a[DOC_SPAN], b[DOC_SPAN], c[DOC_SPAN], e[DOC_SPAN];
        buf_printf(out, "| %s%s%s | %u | %u | %s | %s | %s | %s |\n", d->folds[w->fold].name, *phase ? " " : "", phase,
                   w->n_phases, w->tasks, doc_span_bytes(w->weight_bytes, a), doc_span_bytes(w->other_bytes, b),
                   doc_span_count(w->flops, c), doc_span_count(w->pages, e));
    }
}

/* ---- cards -------------------------------------------------------------------------------------- */

/* What the protocol asks of a role, whatever the op. */
static const char *role_duty(uint32_t role) {
    static const char *const duties[KP_ROLES] = {
        [KP_LOADER] = "claims the task's pages in queue order; starts copies of weights before the task's events",
        [KP_LAUNCHER] = "after the task's events: starts copies of activations into SMEM",
        [KP_CONSUMER] = "after both and every byte: the arithmetic, in SMEM; its pages go back behind its body",
        [KP_STORER] = "after the consumer: epilogue, stores, pages back, then the task's event",
    };
    return role < KP_ROLES && duties[role] ? duties[role] : "";
}

static void put_smem(const doc_kernel *k, buf *out) {
    char a[DOC_SPAN];
    uint32_t n = 0;
    for (int r = 0; r < KP_REGIONS; r++) {
        const doc_region *g = &k->region[r];
        if (!g->used) continue;
        buf_printf(out, "%s region %d: %s, goes back with the %s, ", n++ ? ";" : "- SMEM:", r,
                   doc_span_bytes(g->bytes, a), g->release);
        if (g->align >= 1u << 20)
            buf_str(out, "at offset 0");
        else
            buf_printf(out, "at multiples of %llu", (unsigned long long)g->align);
    }
    if (n)
        buf_printf(out, "; pages a task: %s. A region is never less than 64-byte aligned\n",
                   doc_span_count(k->pages, a));
    else
        buf_str(out, "- SMEM: none\n");
}

static void put_card(const doc *d, const doc_kernel *k, buf *out) {
    const op_desc *op = k->op;
    const op_phase *phase = &op->phases[k->phase];
    char a[DOC_SPAN], b[DOC_SPAN], c[DOC_SPAN], e[DOC_SPAN], f[DOC_SPAN];
    buf_printf(out, "\n### %s%s%s\n\n", op->name, *phase->name ? "." : "", phase->name);
    buf_printf(out, "- `%s`; port kind %s\n- instances: %u; tasks a step: %u; ops:", op->summary,
               doc_port_name(k->port), k->instances, k->tasks);
    for (uint32_t i = 0; i < k->n_folds; i++) buf_printf(out, "%s %s", i ? "," : "", d->folds[k->folds[i]].name);
    buf_printf(out, "\n- a task: hi - lo %s, aux %s; for one row %s of weights, %s of other data, %s FLOP\n",
               doc_span_count(k->columns, a), doc_span_count(k->aux, b), doc_span_bytes(k->weight_bytes, c),
               doc_span_bytes(k->other_bytes, e), doc_span_count(k->flops, f));
    for (uint32_t r = 0; r < KP_ROLES; r++) {
        if (!(phase->needs & KP_ROLE_BIT(r))) continue;
        buf_printf(out, "- role %s (%s): %s\n", role_name(r), k->missing & KP_ROLE_BIT(r) ? "to be written" : "there",
                   role_duty(r));
    }
    buf_printf(out, "- what each role does for this op, buffers and regions by name: `ops/%s/%s.h`\n", op->name,
               op->name);
    put_smem(k, out);
    buf_printf(
        out,
        "- sync: events that a task waits for before it reads what others wrote: %s; %u of %u tasks add to one when "
        "their stores are visible%s. %s\n",
        doc_span_count(k->waits, a), k->triggering, k->tasks,
        op->collective ? ", and the events it waits for count all ranks" : "",
        op->grid_wide ? "Its tasks meet at a barrier of its own: all must be running at once"
                      : "No barrier over the grid");
    buf_str(out, "- correctness reference: ");
    if (k->op->phases[k->phase].cpu[KP_CONSUMER] || k->op->phases[k->phase].cpu[KP_STORER])
        buf_str(out, "the CPU bodies of the same op, under the same plan; ");
    else
        buf_str(out, "none yet, the CPU bodies are missing too; ");
    if (op->min_cosine >= 1 && op->max_rel_error <= 0)
        buf_str(out, "bit-exact\n");
    else
        buf_printf(out, "cosine >= %.7g, max|d|/max|ref| <= %.3g\n", op->min_cosine, op->max_rel_error);
    buf_printf(out, "- validation: `ctest --test-dir build -R '^ops\\.%s$'` (the reference itself)", op->name);
    if (k->missing)
        buf_printf(out, "; `keel gate op %s --ops %s --arch %s` *(planned)*", d->model, op->name, d->p->arch);
    buf_str(out, "\n");
}

void doc_put_cards(const doc *d, buf *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_kernels; i++) n += d->kernels[i].missing != 0;
    buf_printf(out, "\n## 7. Cards of the kernels to be written\n%s", n ? "" : "\nNone.\n");
    for (uint32_t i = 0; i < d->n_kernels; i++) {
        if (d->kernels[i].missing) put_card(d, &d->kernels[i], out);
    }
}
