/* SPDX-License-Identifier: Apache-2.0 */
/* The milestones M0 to M5 for this model, each with what it takes to leave it. Commands that this build lacks are
 * marked as planned; all others run as they stand. */
#include "plan/doc_parts.h"

#include <string.h>

typedef struct climber {
    doc *d;
    bool runs;          /* this build has a backend for the plan's arch */
    const char *run_on; /* options of keel run */
    const char *ranks;  /* " --tp 8", "" */
    const char *model;  /* for keel run */
    const char *slice, *all;
    const char *same; /* options that make this plan again, " --batch 4"; "" where it is the default one */
    bool benched;     /* keel bench takes the model: one rank, no drawing */
} climber;

static const char tokens[] = "--tokens 1,2,3 --max-new-tokens 8 --save-tokens";

static void command(doc_step *s, bool planned, const char *text) {
    if (s->n_commands < DOC_COMMANDS) s->command[s->n_commands++] = (doc_command){text, planned};
}

static const char *or_none(const char *text) { return *text ? text : "none"; }

/* Phases of the kernels of this port kind that pass `missing`, separated by commas; ops once, for a test's name. */
static const char *kernel_names(doc *d, bool collective, bool missing_only, const char *between, bool ops) {
    buf b = {0};
    for (uint32_t i = 0; i < d->n_kernels; i++) {
        const doc_kernel *k = &d->kernels[i];
        if ((k->port == DOC_COLLECTIVE) != collective || (missing_only && !k->missing)) continue;
        if (ops && i && d->kernels[i - 1].op == k->op) continue;
        buf_printf(&b, "%s%s", b.len ? between : "", ops ? k->op->name : doc_phase_name(d, k->op, k->phase));
    }
    return doc_take(d, &b);
}

static const char *exact_ops(doc *d) {
    buf b = {0};
    for (uint32_t i = 0; i < d->n_kernels; i++) {
        const op_desc *op = d->kernels[i].op;
        if (op->min_cosine < 1 || op->max_rel_error > 0 || (i && d->kernels[i - 1].op == op)) continue;
        buf_printf(&b, "%s%s", b.len ? ", " : "", op->name);
    }
    return doc_take(d, &b);
}

static void gate_commands(climber *c, doc_step *s, bool collective) {
    doc *d = c->d;
    command(s, false,
            doc_text(d, "ctest --test-dir build -R '^ops\\.(%s)$'", kernel_names(d, collective, false, "|", true)));
    if (!c->runs)
        command(s, true,
                doc_text(d, "keel gate op %s --ops %s --arch %s", d->model,
                         kernel_names(d, collective, false, ",", true), d->p->arch));
}

static void leaves(climber *c, doc_step *s) {
    doc *d = c->d;
    s->title = "leaves and tail";
    const char *all = kernel_names(d, false, false, ", ", false), *missing = kernel_names(d, false, true, ", ", false);
    s->scope = doc_text(d, "%s; to be written for %s: %s", all, d->p->arch,
                        strcmp(all, missing) == 0 ? "all of them" : or_none(missing));
    s->exit =
        doc_text(d,
                 "each op alone, at this model's shapes, against the reference: cosine >= 0.999, max|d|/max|ref| <= "
                 "3e-2, no NaN; the op's own limits where they are tighter; bit-exact: %s",
                 or_none(exact_ops(d)));
    gate_commands(c, s, false);
}

static void ranks(climber *c, doc_step *s) {
    doc *d = c->d;
    s->title = "collectives on two ranks";
    s->scope = or_none(kernel_names(d, true, false, ", ", false));
    s->exit = "two ranks have the same bits, three iterations running; then all ranks";
    if (!d->floor.collectives) {
        s->collapsed = doc_text(d, "no op of this graph reads other ranks' tensors (%u rank%s)", d->p->tp,
                                d->p->tp == 1 ? "" : "s");
        return;
    }
    gate_commands(c, s, true);
    command(s, !c->runs,
            doc_text(d, "keel run %s%s%s%s --tp 2 %s tp2.json", c->model, c->slice, c->same, c->run_on, tokens));
    command(s, !c->runs, doc_text(d, "keel run %s%s%s%s %s tp1.json", c->model, c->slice, c->same, c->run_on, tokens));
}

static void fused(climber *c, doc_step *s) {
    doc *d = c->d;
    s->title = "fused blocks";
    s->scope = doc_text(d, "%u candidates, all deferred: nothing below needs one", d->n_fused);
    s->exit =
        "each beside the chain that it replaces: the gate's limits on full vectors, and faster at its slowest worker";
    if (!d->n_fused) s->collapsed = "no candidate in this graph";
    if (d->n_fused) command(s, true, doc_text(d, "keel gate chain %s%s --arch %s", d->model, c->slice, d->p->arch));
}

/* What of the plan is not the default. */
static const char *plan_options_of(doc *d) {
    const plan *p = d->p;
    buf b = {0};
    int64_t most = d->global->max_position;
    if (p->workers != d->arch->workers) buf_printf(&b, " --workers %u", p->workers);
    if (p->m_max != KP_M_MAX) buf_printf(&b, " --batch %u", p->m_max);
    if (p->page_tokens != 64) buf_printf(&b, " --page-tokens %u", p->page_tokens);
    if (p->kv_splits) buf_printf(&b, " --kv-splits %u", p->kv_splits);
    for (uint32_t i = 0; i < p->n_levers; i++) buf_printf(&b, " --lever %s", p->levers[i]);
    if (p->max_seq != (most > 0 && most < 4096 ? most : 4096)) buf_printf(&b, " --max-seq %u", p->max_seq);
    return doc_take(d, &b);
}

static void end_to_end(climber *c, doc_step *s, const char *layers, const char *file) {
    doc *d = c->d;
    const char *absent = d->complete ? "" : " --allow-absent", *sample = d->p->sampling ? " --sample" : "";
    command(s, false,
            doc_text(d, "keel plan %s%s%s%s%s --arch %s%s --prove -o %s.plan", d->model, layers, c->ranks, c->same,
                     sample, d->p->arch, absent, file));
    command(
        s, !c->runs,
        doc_text(d, "keel run %s%s%s%s%s %s %s.json", c->model, layers, c->ranks, c->same, c->run_on, tokens, file));
    if (!c->runs) {
        command(s, false, doc_text(d, "keel run %s%s %s %s-cpu.json", c->model, layers, tokens, file));
        command(s, true, doc_text(d, "keel gate tokens %s-cpu.json %s.json", file, file));
    }
}

static void smallest(climber *c, doc_step *s) {
    s->title = "first end-to-end, at the smallest slice";
    s->scope = *c->slice ? doc_text(c->d, "the head, one layer of the commonest kind (%s) and the tail", c->slice + 1)
               : c->d->drawn ? "all that is drawn; a drawing of fewer layers is a smaller slice"
                             : "all ops: the graph has no layers";
    s->exit = "the plan is proved, and its tokens are those of the CPU chain for tens of tokens (where they part, the "
              "reference's own top-1/top-2 margin judges)";
    end_to_end(c, s, c->slice, "m3");
}

static void whole(climber *c, doc_step *s, doc_layers l) {
    doc *d = c->d;
    s->title = "all layers";
    s->scope = doc_text(d, "%u layers, %u of the commonest kind", d->p->n_layers, l.common);
    s->exit = "tokens as in M3 at full depth, then ms/token n-of-N beside the read ceiling of the same run";
    end_to_end(c, s, c->all, "m4");
    command(s, !c->runs || !c->benched,
            doc_text(d, "keel bench %s%s%s%s%s --runs 5 --steps 32", d->model, c->all, c->ranks, c->same, c->run_on));
}

static void kinds(climber *c, doc_step *s, doc_layers l) {
    doc *d = c->d;
    s->title = "the remaining layer types";
    s->scope = doc_text(d, "%u kinds of layers", l.kinds);
    s->exit = "each kind as in M3, by a slice that holds it";
    if (l.kinds <= 1)
        s->collapsed = l.kinds ? "every layer is of one kind" : "there are no layers";
    else
        end_to_end(c, s, c->all, "m5");
}

void doc_find_ladder(doc *d) {
    static const char *const names[DOC_STEPS] = {"M0", "M1", "M2", "M3", "M4", "M5"};
    doc_layers l = doc_count_layers(d);
    climber c = {.d = d, .runs = strcmp(d->p->arch, "cpu") == 0, .slice = "", .all = ""};
    c.run_on = c.runs ? "" : " --device cuda";
    c.ranks =
        d->p->tp > 1 ? doc_text(d, " --tp %u%s", d->p->tp, d->p->ep > 1 ? doc_text(d, " --ep %u", d->p->ep) : "") : "";
    if (d->p->vocab_parallel) c.ranks = doc_text(d, "%s --head vocab-parallel", c.ranks);
    if (d->p->n_layers && !d->drawn) {
        c.slice = doc_text(d, " --layers %d-%d", l.first, l.first);
        c.all = doc_text(d, " --layers %u-%u", d->p->layer_first, d->p->layer_first + d->p->n_layers - 1);
    }
    c.model = d->drawn && !strstr(d->model, " --weights ") ? doc_text(d, "%s --weights DIR", d->model) : d->model;
    c.same = plan_options_of(d);
    c.benched = d->p->tp == 1 && !d->drawn && !strstr(c.same, " --max-seq ");
    for (int i = 0; i < DOC_STEPS; i++) d->steps[i].name = names[i];
    leaves(&c, &d->steps[0]);
    ranks(&c, &d->steps[1]);
    fused(&c, &d->steps[2]);
    smallest(&c, &d->steps[3]);
    whole(&c, &d->steps[4], l);
    kinds(&c, &d->steps[5], l);
}
