/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/cuda_code.h"

#include "core/mem.h"
#include <string.h>

enum { CHECK_IN_S = 5 };

const char *const cuda_role_words[KP_ROLES] = {
#define X(NAME, number, text) [number] = #NAME,
    KP_ROLE_MAP(X)
#undef X
};

uint32_t cuda_code_lanes(const plan *p) {
    const arch_desc *arch = arch_find(p->arch);
    uint32_t sum = 0;
    for (int r = 0; r < KP_ROLES; r++) sum += arch->lanes[r];
    return sum;
}

/* What the pages leave. */
uint32_t cuda_code_stages(const plan *p) {
    const arch_desc *arch = arch_find(p->arch);
    return p->n_pages > arch->n_pages ? 0 : (arch->n_pages - p->n_pages) * arch->page_bytes / arch->stage_bytes;
}

uint32_t cuda_code_smem(const plan *p) {
    return p->n_pages * p->page_bytes + cuda_code_stages(p) * arch_find(p->arch)->stage_bytes;
}

/* Slots of an instance that hold tagged buffers, a bit each. */
static uint32_t tagged_slots(const plan *p, const plan_instance *inst) {
    uint32_t bits = 0;
    for (uint32_t k = 0; k < KP_BUFFERS; k++) {
        uint32_t b = inst->buffer[k];
        if (b != KP_NONE && p->buffers[b].kind == BUFFER_TAGGED) bits |= 1u << k;
    }
    return bits;
}

static bool same_case(const plan *p, const plan_phase *a, const plan_phase *b) {
    const plan_instance *x = &p->instances[a->instance], *y = &p->instances[b->instance];
    return x->op == y->op && a->phase == b->phase && x->params_bytes == y->params_bytes &&
           tagged_slots(p, x) == tagged_slots(p, y) &&
           (!x->params_bytes ||
            memcmp(p->params + x->params_offset, p->params + y->params_offset, x->params_bytes) == 0);
}

keel_status cuda_cases_make(const plan *p, cuda_cases *out, keel_error *err) {
    *out = (cuda_cases){.phase = mem_calloc((size_t)p->n_phases + 1, sizeof *out->phase),
                        .of_phase = mem_calloc((size_t)p->n_phases + 1, sizeof *out->of_phase)};
    if (!out->phase || !out->of_phase) {
        cuda_cases_free(out);
        return KEEL_NOMEM_AT(err, "device code");
    }
    for (uint32_t i = 0; i < p->n_phases; i++) {
        uint32_t k = 0;
        while (k < out->n && !same_case(p, &p->phases[out->phase[k]], &p->phases[i])) k++;
        if (k == out->n) out->phase[out->n++] = i;
        out->of_phase[i] = k;
    }
    return KEEL_OK;
}

void cuda_cases_free(cuda_cases *c) {
    mem_free(c->phase), mem_free(c->of_phase);
    *c = (cuda_cases){0};
}

static void put_constants(const plan *p, buf *out) {
    const arch_desc *arch = arch_find(p->arch);
    buf_printf(out, "#define KD_LANES_OF %u, %u, %u, %u, %u\n", arch->lanes[0], arch->lanes[1], arch->lanes[2],
               arch->lanes[3], arch->lanes[4]);
    buf_printf(out, "#define KD_M_MAX %u\n#define KP_EARLY\n#define KP_OWN_WAIT_EVENTS\n", p->m_max);
    buf_printf(out, "#define KD_LANES %u\n#define KD_PAGES %u\n#define KD_PAGE_BYTES %u\n", cuda_code_lanes(p),
               p->n_pages, p->page_bytes);
    buf_printf(out, "#define KD_STAGES %u\n#define KD_STAGE_BYTES %u\n#define KP_CLAIM_ROLE 2\n", cuda_code_stages(p),
               arch->stage_bytes);
    buf_printf(out, "#define KD_FIXED_BYTES %u\n",
               arch->smem_bytes - p->n_pages * p->page_bytes - cuda_code_stages(p) * arch->stage_bytes);
    buf_printf(out, "#define KD_CHECK_IN_NS %d000000000ull\n", CHECK_IN_S);
}

/* Parameters as constants: the compiler folds what is read of them. */
static void put_params(const plan *p, const cuda_cases *cases, buf *out) {
    for (uint32_t k = 0; k < cases->n; k++) {
        const plan_instance *inst = &p->instances[p->phases[cases->phase[k]].instance];
        buf_printf(out, "static __device__ const kp_u32 kd_params_%u[] __attribute__((aligned(16))) = {", k);
        for (uint32_t at = 0; at < inst->params_bytes; at += 4) {
            uint32_t word = 0, left = inst->params_bytes - at;
            memcpy(&word, p->params + inst->params_offset + at, left < 4 ? left : 4);
            buf_printf(out, "%s0x%xu", at ? ", " : "", word);
        }
        buf_printf(out, "%s};\n", inst->params_bytes ? "" : "0");
    }
}

/* The cases of one role, or of what its launcher does early: which function runs a task. */
static void put_role(const plan *p, const cuda_cases *cases, unsigned role, buf *out) {
    buf_printf(out, "    switch (c->slot->record.variant) {\n");
    for (uint32_t k = 0; k < cases->n; k++) {
        const plan_phase *ph = &p->phases[cases->phase[k]];
        const op_desc *op = p->instances[ph->instance].op;
        const char *phase = op->phases[ph->phase].name;
        if (!*phase) phase = "main";
        for (const arch_body *a = arch_cuda_bodies; a->op; a++) {
            if (a->role != role || strcmp(a->op, op->name) != 0 || strcmp(a->phase, phase) != 0) continue;
            buf_printf(out, "    case %u: c->params = kd_params_%u; c->tagged = 0x%x; kd_%s_%s_%s(c); break;\n", k, k,
                       tagged_slots(p, &p->instances[ph->instance]), op->name, phase,
                       role == ARCH_EARLY ? "EARLY" : cuda_role_words[role]);
        }
    }
    buf_printf(out, "    }\n");
}

static void put_dispatch(const plan *p, const cuda_cases *cases, buf *out) {
    put_params(p, cases, out);
    for (unsigned r = KP_LOADER; r < KP_ROLES; r++) {
        buf_printf(out, "KP_FN void kd_run_%s(kp_ctx *c) {\n", cuda_role_words[r]);
        put_role(p, cases, r, out);
        buf_printf(out, "}\n");
    }
    buf_printf(out, "KP_FN void kp_dispatch_early(kp_ctx *c) {\n");
    put_role(p, cases, ARCH_EARLY, out);
    buf_printf(out, "}\nKP_FN void kp_dispatch(kp_ctx *c) {\n    switch (c->role) {\n");
    for (unsigned r = KP_LOADER; r < KP_ROLES; r++)
        buf_printf(out, "    case KP_%s: kd_run_%s(c); break;\n", cuda_role_words[r], cuda_role_words[r]);
    buf_printf(out, "    }\n}\n");
}

/* Constants, bodies, and which task runs which. */
static keel_status put_bodies(const plan *p, buf *out, keel_error *err) {
    cuda_cases cases;
    KEEL_TRY(cuda_cases_make(p, &cases, err));
    put_constants(p, out);
    buf_printf(out, "#include \"device/cuda_body.cuh\"\n");
    for (uint32_t b = 0; b < p->n_bodies; b++) {
        bool before = false;
        for (uint32_t a = 0; a < b; a++) before = before || p->bodies[a].op == p->bodies[b].op;
        if (!before) buf_printf(out, "#include \"%s.cuh\"\n", p->bodies[b].op->name);
    }
    put_dispatch(p, &cases, out);
    cuda_cases_free(&cases);
    return KEEL_OK;
}

static keel_status end(buf *out, keel_error *err) {
    buf_put(out, "", 1);
    return out->failed ? KEEL_NOMEM_AT(err, "device code") : KEEL_OK;
}

keel_status cuda_code_source(const plan *p, buf *out, keel_error *err) {
    KEEL_TRY(put_bodies(p, out, err));
    buf_printf(out, "#include \"device/cuda_main.cuh\"\n");
    return end(out, err);
}

keel_status cuda_code_probes(const plan *p, buf *out, keel_error *err) {
    const arch_desc *arch = arch_find(p->arch);
    KEEL_TRY(put_bodies(p, out, err));
    buf_printf(out, "#include \"device/cuda_probe.cuh\"\n");
    for (unsigned r = 0; r < KP_ROLES; r++)
        buf_printf(out, "KD_PROBE(%s, %u)\n", cuda_role_words[r], arch->registers[r]);
    return end(out, err);
}
