/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/cuda_code.h"

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

/* What the pages leave, in whole turns of the consumer's lanes. */
uint32_t cuda_code_stages(const plan *p) {
    const arch_desc *arch = arch_find(p->arch);
    if (p->n_pages > arch->n_pages) return 0;
    uint32_t room = (arch->n_pages - p->n_pages) * arch->page_bytes / arch->stage_bytes,
             lanes = arch->lanes[KP_CONSUMER];
    return room / lanes * lanes;
}

uint32_t cuda_code_smem(const plan *p) {
    return p->n_pages * p->page_bytes + cuda_code_stages(p) * arch_find(p->arch)->stage_bytes;
}

static void put_constants(const plan *p, buf *out) {
    const arch_desc *arch = arch_find(p->arch);
    buf_printf(out, "#define KD_LANES_OF %u, %u, %u, %u, %u\n", arch->lanes[0], arch->lanes[1], arch->lanes[2],
               arch->lanes[3], arch->lanes[4]);
    buf_printf(out, "#define KD_LANES %u\n#define KD_PAGES %u\n#define KD_PAGE_BYTES %u\n", cuda_code_lanes(p),
               p->n_pages, p->page_bytes);
    buf_printf(out, "#define KD_STAGES %u\n#define KD_STAGE_BYTES %u\n#define KP_CLAIM_ROLE 2\n", cuda_code_stages(p),
               arch->stage_bytes);
    buf_printf(out, "#define KD_CHECK_IN_NS %d000000000ull\n", CHECK_IN_S);
}

/* The body table of one role: which function a task's body number stands for. */
static void put_role(const plan *p, unsigned role, buf *out) {
    buf_printf(out, "    case KP_%s:\n        switch (c->task->body) {\n", cuda_role_words[role]);
    for (uint32_t b = 0; b < p->n_bodies; b++) {
        const op_desc *op = p->bodies[b].op;
        const char *phase = op->phases[p->bodies[b].phase].name;
        if (!*phase) phase = "main";
        for (const arch_body *a = arch_cuda_bodies; a->op; a++) {
            if (a->role != role || strcmp(a->op, op->name) != 0 || strcmp(a->phase, phase) != 0) continue;
            buf_printf(out, "        case %u: kd_%s_%s_%s(c); break;\n", b, op->name, phase, cuda_role_words[role]);
        }
    }
    buf_printf(out, "        }\n        break;\n");
}

/* Constants, bodies, and which task runs which. */
static void put_bodies(const plan *p, buf *out) {
    put_constants(p, out);
    buf_printf(out, "#include \"device/cuda_body.cuh\"\n");
    for (uint32_t b = 0; b < p->n_bodies; b++) {
        bool before = false;
        for (uint32_t a = 0; a < b; a++) before = before || p->bodies[a].op == p->bodies[b].op;
        if (!before) buf_printf(out, "#include \"%s.cuh\"\n", p->bodies[b].op->name);
    }
    buf_printf(out, "KP_FN void kp_dispatch(kp_ctx *c) {\n    switch (c->role) {\n");
    for (unsigned r = KP_LOADER; r < KP_ROLES; r++) put_role(p, r, out);
    buf_printf(out, "    }\n}\n");
}

static keel_status end(buf *out, keel_error *err) {
    buf_put(out, "", 1);
    return out->failed ? KEEL_NOMEM_AT(err, "device code") : KEEL_OK;
}

keel_status cuda_code_source(const plan *p, buf *out, keel_error *err) {
    put_bodies(p, out);
    buf_printf(out, "#include \"device/cuda_main.cuh\"\n");
    return end(out, err);
}

keel_status cuda_code_probes(const plan *p, buf *out, keel_error *err) {
    const arch_desc *arch = arch_find(p->arch);
    put_bodies(p, out);
    buf_printf(out, "#include \"device/cuda_probe.cuh\"\n");
    for (unsigned r = 0; r < KP_ROLES; r++)
        buf_printf(out, "KD_PROBE(%s, %u)\n", cuda_role_words[r], arch->registers[r]);
    return end(out, err);
}
