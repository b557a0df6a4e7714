/* SPDX-License-Identifier: Apache-2.0 */
/* plan_build: the steps in order. */
#include "plan/tiler_internal.h"

#include "core/mem.h"
#include "plan/lever.h"
#include "plan/lower.h"

const char *buffer_kind_name(buffer_kind k) {
    static const char *const names[BUFFER_KINDS] = {"activation", "weight",  "const",  "cache",
                                                    "step",       "scratch", "tagged", "symmetric"};
    return k < BUFFER_KINDS ? names[k] : "?";
}

const char *role_name(uint32_t role) {
    static const char *const names[KP_ROLES] = {
#define X(NAME, number, text) [number] = text,
        KP_ROLE_MAP(X)
#undef X
    };
    return role < KP_ROLES ? names[role] : "?";
}

void plan_close(plan *p) {
    if (!p) return;
    arena a = p->arena;
    arena_free(&a);
    mem_free(p);
}

/* Where weights stream, pages are few, so that the ring is long; but a row of x must fit beside its tile. */
static uint32_t pages_of(const graph *g, const arch_desc *arch, uint32_t m_max) {
    if (!arch->stage_bytes) return arch->n_pages;
    uint64_t pages = m_max == 1 ? arch->few_pages : arch->row_pages;
    for (int i = 0; i < g->n_ops && m_max == 1; i++) {
        const graph_op *op = &g->ops[i];
        for (int k = 0; k < op->n_weights; k++) {
            if (op->weight[k] <= 0 || !(op->desc->streamed >> k & 1)) continue;
            uint64_t row = (uint64_t)graph_tensor_at(g, op->weight[k])->dim[1] * dtype_bytes(arch->act_dtype) + 64;
            uint64_t need = (row + arch->page_bytes - 1) / arch->page_bytes + 1;
            if (need > pages) pages = need;
        }
    }
    return pages < arch->most_pages ? (uint32_t)pages : arch->most_pages;
}

static keel_status plan_header(plan *p, const graph *g, const plan_options *o, keel_error *err) {
    const arch_desc *arch = arch_find(o->arch ? o->arch : "cpu");
    if (!arch) {
        keel_status s = error_set(err, KEEL_USAGE, "--arch %s: no such arch; known:", o->arch);
        for (unsigned i = 0; i < arch_count; i++) error_append(err, "  %s", arch_table[i].name);
        return s;
    }
    p->arch = arch->name;
    p->workers = o->workers ? o->workers : arch->workers ? arch->workers : 1;
    p->m_max = o->m_max ? o->m_max : KP_M_MAX;
    p->page_tokens = o->page_tokens ? o->page_tokens : 64;
    p->max_seq =
        o->max_seq ? o->max_seq : (uint32_t)(g->max_position > 0 && g->max_position < 4096 ? g->max_position : 4096);
    p->kv_splits = o->kv_splits;
    p->page_bytes = arch->page_bytes;
    p->n_pages = pages_of(g, arch, p->m_max);
    p->architecture = arena_strdup(&p->arena, g->architecture ? g->architecture : "");
    p->layer_first = (uint32_t)g->layer_first;
    p->n_layers = (uint32_t)g->n_layers;
    p->vocab = (uint64_t)g->vocab;
    p->hidden = (uint64_t)g->hidden;
    p->sampling = g->sampling;
    p->tp = g->tp, p->ep = g->ep, p->rank = g->rank;
    p->vocab_parallel = g->vocab_parallel;
    if (p->workers > arch->max_workers) {
        return error_set(err, KEEL_RANGE, "--workers %u: a plan for %s has at most %u", p->workers, arch->name,
                         arch->max_workers);
    }
    if (p->m_max > KP_M_MAX)
        return error_set(err, KEEL_RANGE, "--batch %u: a pass carries at most %d rows", p->m_max, KP_M_MAX);
    if (p->max_seq > 1u << 24) return error_set(err, KEEL_RANGE, "--max-seq %u: at most %u", p->max_seq, 1u << 24);
    if (p->page_tokens > 1024) return error_set(err, KEEL_RANGE, "--page-tokens %u: 1 to 1024", p->page_tokens);
    return p->architecture ? KEEL_OK : KEEL_NOMEM_AT(err, "plan");
}

static keel_status plan_levers(plan *p, const plan_options *o, keel_error *err) {
    KEEL_TRY(lever_check(o->levers, o->n_levers, err));
    p->levers = arena_array(&p->arena, (size_t)o->n_levers + 1, sizeof *p->levers);
    if (!p->levers) return KEEL_NOMEM_AT(err, "plan");
    for (uint32_t i = 0; i < o->n_levers; i++) {
        p->levers[i] = arena_strdup(&p->arena, o->levers[i]);
        if (!p->levers[i]) return KEEL_NOMEM_AT(err, "plan");
    }
    p->n_levers = o->n_levers;
    return KEEL_OK;
}

keel_status plan_check_bodies(const plan *p, keel_error *err) {
    const arch_desc *arch = arch_find(p->arch);
    keel_status s = KEEL_OK;
    for (uint32_t b = 0; b < p->n_bodies; b++) {
        const op_desc *op = p->bodies[b].op;
        unsigned missing = arch ? arch_missing_roles(arch, op, (int)p->bodies[b].phase) : ~0u;
        for (int r = 0; r < KP_ROLES; r++) {
            if (!(missing & KP_ROLE_BIT(r))) continue;
            if (s == KEEL_OK)
                s = error_set(err, KEEL_REFUSED, "the plan for %s is not complete; missing role bodies:", p->arch);
            const char *phase = op->phases[p->bodies[b].phase].name;
            error_append(err, "  op %s%s%s: %s", op->name, *phase ? "." : "", phase, role_name((uint32_t)r));
        }
    }
    return s;
}

plan_cost plan_total_cost(const plan *p) {
    plan_cost sum = {0};
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        sum.weight_bytes += p->costs[i].weight_bytes;
        sum.other_bytes += p->costs[i].other_bytes;
        sum.flops += p->costs[i].flops;
    }
    return sum;
}

tile_env plan_env(const plan *p) {
    return (tile_env){.arch = arch_find(p->arch),
                      .workers = p->workers,
                      .m_max = p->m_max,
                      .max_seq = p->max_seq,
                      .page_tokens = p->page_tokens,
                      .kv_splits = p->kv_splits,
                      .world = p->tp,
                      .rank = p->rank,
                      .n_pages = p->n_pages};
}

keel_status plan_lowered(const plan *p, const graph *g, graph **out, keel_error *err) {
    tile_env env = plan_env(p);
    *out = NULL;
    return plan_fuses(env.arch, p->levers, p->n_levers) ? plan_lower(g, &env, out, err) : KEEL_OK;
}

static keel_status plan_steps(tiler *t, plan *p, const plan_options *o, phase_sets *full, keel_error *err) {
    KEEL_TRY(plan_tile(t, p, err));
    if (!o->allow_absent) KEEL_TRY(plan_check_bodies(p, err));
    KEEL_TRY(plan_make_events(t, p, full, err));
    KEEL_TRY(plan_make_queues(p, err));
    KEEL_TRY(plan_make_pages(t, p, err));
    return plan_make_buffers(t, p, full, o->no_reuse, err);
}

static keel_status build_with(const graph *g, const plan_options *options, uint32_t more_pages, plan **out,
                              keel_error *err) {
    plan *p = mem_calloc(1, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, "plan");
    phase_sets full = {0};
    tiler t = {0};
    keel_status s = plan_header(p, g, options, err);
    p->n_pages += more_pages;
    if (s == KEEL_OK) s = plan_levers(p, options, err);
    graph *lowered = NULL;
    if (s == KEEL_OK) s = plan_lowered(p, g, &lowered, err);
    if (s == KEEL_OK) {
        tile_env env = plan_env(p);
        s = tiler_open(&t, lowered ? lowered : g, &env, err);
        if (s == KEEL_OK) s = plan_steps(&t, p, options, &full, err);
        tiler_close(&t);
    }
    graph_close(lowered);
    mem_free(full.bits);
    *out = p;
    return s;
}

/* Where weights stream, a task may need more pages than most do: then the ring is shorter, as far as it may be. */
keel_status plan_build(const graph *g, const plan_options *options, plan **out, keel_error *err) {
    enum { STEP = 2 };
    for (uint32_t more = 0;; more += STEP) {
        keel_error why = KEEL_ERROR_INITIALIZER;
        plan *p = NULL;
        keel_status s = build_with(g, options, more, &p, &why);
        if (s == KEEL_OK) {
            *out = p;
            return s;
        }
        const arch_desc *arch = p && p->arch ? arch_find(p->arch) : NULL;
        bool again = p && p->smem_short && arch && p->n_pages + STEP <= arch->most_pages;
        if (p) plan_close(p);
        if (again) continue;
        if (err) *err = why;
        return s;
    }
}
