/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in a plan: indices within bounds, each task once in a queue; and what its ops say of it. */
#include "plan/prove_internal.h"

#include "graph/shard.h"
#include "plan/plan_file.h"

#include <string.h>

/* A reason that ends the proof: what `why` says. */
static keel_status end(prover *v, uint32_t rank, keel_status s, const keel_error *why) {
    if (s == KEEL_OK) return s;
    if (s == KEEL_NOMEM) return KEEL_NOMEM_AT(v->err, "proof");
    prove_reason(v, "%s%s", prove_rank_text(v, rank).text, why->detail);
    return KEEL_REFUSED;
}

/* What plan_file_check() takes for granted, as reading makes it so. */
static bool bodies_fit(const plan *p) {
    for (uint32_t i = 0; i < p->n_instances; i++) {
        if (!p->instances[i].op || !p->instances[i].name) return false;
    }
    for (uint32_t b = 0; b < p->n_bodies; b++) {
        if (!p->bodies[b].op || p->bodies[b].phase >= (uint32_t)op_n_phases(p->bodies[b].op)) return false;
    }
    for (uint32_t q = 0; q < p->n_phases; q++) {
        const plan_phase *h = &p->phases[q];
        if (h->instance >= p->n_instances || h->phase >= (uint32_t)op_n_phases(p->instances[h->instance].op))
            return false;
    }
    return true;
}

keel_status prove_shape(prover *v, uint32_t rank) {
    const plan *p = v->ranks[rank].p;
    const arch_desc *arch = p->arch ? arch_find(p->arch) : NULL;
    keel_error why = KEEL_ERROR_INITIALIZER;
    keel_status s = KEEL_OK;
    if (!arch) {
        s = error_set(&why, KEEL_REFUSED, "arch %s is not one of this build's", p->arch ? p->arch : "?");
    } else if (!bodies_fit(p)) {
        s = error_set(&why, KEEL_REFUSED, "a phase or a body is none that its op has");
    } else if (p->n_pages > arch->n_pages) {
        s = error_set(&why, KEEL_REFUSED, "%u SMEM pages a worker; %s has %u", p->n_pages, p->arch, arch->n_pages);
    } else {
        s = plan_file_check("plan", p, &why);
    }
    return end(v, rank, s, &why);
}

/* Scratch of each instance stands in its slots behind the outputs, in call order, and nothing behind that. */
static keel_status bind_scratch(prover *v, prove_rank *r, uint32_t rank) {
    const plan *p = r->p;
    r->scratch_buffer = prove_array(v, r->t.n_scratches, sizeof *r->scratch_buffer);
    if (v->nomem) return KEEL_NOMEM_AT(v->err, "proof");
    for (uint32_t i = 0, k = 0; i < p->n_instances; i++) {
        const plan_instance *inst = &p->instances[i];
        int slot = inst->op->max_in + inst->op->max_weights + inst->op->n_out;
        for (; k < r->t.n_scratches && r->t.scratches[k].instance == i; k++, slot++) {
            const scratch *ask = &r->t.scratches[k];
            uint32_t b = slot < KP_BUFFERS ? inst->buffer[slot] : KP_NONE;
            if (b == KP_NONE || p->buffers[b].kind != BUFFER_SCRATCH || p->buffers[b].bytes < ask->bytes) {
                prove_reason(v, "%s%s: slot %d must hold its scratch %s of %llu bytes; it has %s",
                             prove_rank_text(v, rank).text, inst->name, slot, ask->name, (unsigned long long)ask->bytes,
                             b == KP_NONE ? "nothing" : p->buffers[b].name);
                return KEEL_REFUSED;
            }
            r->scratch_buffer[k] = b;
        }
        for (; slot < KP_BUFFERS; slot++) {
            if (inst->buffer[slot] == KP_NONE) continue;
            prove_reason(v, "%s%s: slot %d holds %s; op %s has no such slot", prove_rank_text(v, rank).text, inst->name,
                         slot, p->buffers[inst->buffer[slot]].name, inst->op->name);
            return KEEL_REFUSED;
        }
    }
    return KEEL_OK;
}

/* The parameters that bodies will see are those that the ops derive from this graph. */
static void check_params(prover *v, const prove_rank *r, uint32_t rank) {
    const plan *p = r->p;
    for (uint32_t i = 0; i < p->n_instances; i++) {
        const plan_instance *inst = &p->instances[i];
        uint32_t at = r->t.param_at[i].offset, bytes = r->t.param_at[i].bytes;
        v->checks++;
        if (inst->params_bytes == bytes && inst->params_offset <= p->params_bytes &&
            bytes <= p->params_bytes - inst->params_offset &&
            (!bytes || memcmp(p->params + inst->params_offset, r->t.params.data + at, bytes) == 0))
            continue;
        prove_reason(v, "%s%s: its parameters are not those that op %s derives from the graph",
                     prove_rank_text(v, rank).text, inst->name, inst->op->name);
    }
}

keel_status prove_describe(prover *v, uint32_t rank) {
    prove_rank *r = &v->ranks[rank];
    keel_error why = KEEL_ERROR_INITIALIZER;
    KEEL_TRY(end(v, rank, plan_graph(r->p, &r->g, &why), &why));
    KEEL_TRY(end(v, rank, graph_check_placement(r->g, &why), &why));
    tile_env env = plan_env(r->p);
    r->described = true;
    keel_status s = tiler_open(&r->t, r->g, &env, &why);
    if (s == KEEL_OK) s = plan_describe(&r->t, r->p, &why);
    KEEL_TRY(end(v, rank, s, &why));
    check_params(v, r, rank);
    return bind_scratch(v, r, rank);
}
