/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/norm_columns.h"

static int matrices_of(const graph_op *op, bool paired) { return paired ? 2 : op->desc->n_out; }

/* The first bias that is bound; where there is none, the slot of one. */
static int bias_slot(const graph_op *op, int matrices) {
    for (int i = 0; i < matrices; i++) {
        if (op->weight[1 + matrices + i]) return 1 + matrices + i;
    }
    return 1 + matrices;
}

/* Σ x² of the launcher's lanes; on the CPU the launcher norms. */
static uint64_t sums_bytes(const tile_env *env) {
    uint64_t bytes = (uint64_t)env->m_max * env->arch->lanes[KP_LAUNCHER] * sizeof(float);
    return (bytes + 63) / 64 * 64;
}

/* Bytes that a task has for its columns, beside x and the sums. Where weights stream, a task may take all pages; else
 * half of them, so that the next one's are free while it computes. */
static uint64_t room_for_columns(const tile_env *env, uint64_t x_bytes) {
    uint64_t page = env->arch->page_bytes, pages = env->arch->stage_bytes ? env->n_pages : env->n_pages / 2;
    uint64_t x_pages = (x_bytes + page - 1) / page, left = x_pages < pages ? (pages - x_pages) * page : 0;
    return left > sums_bytes(env) ? left - sums_bytes(env) : 0;
}

static kp_u32 parts_of(const arch_desc *arch, bool paired) {
    return (arch->stage_bytes ? arch->lanes[KP_CONSUMER] : 1u) * (paired ? 2u : 1u);
}

static bool same_types(const graph *g, const graph_op *op, int first, int n) {
    const graph_tensor *one = NULL;
    for (int i = first; i < first + n; i++) {
        const graph_tensor *w = op->weight[i] ? graph_tensor_at(g, op->weight[i]) : NULL;
        if (w && one && w->dtype != one->dtype) return false;
        if (w) one = w;
    }
    return true;
}

bool norm_columns_fit(const tile_env *env, const graph *g, const graph_op *op, bool paired) {
    int matrices = matrices_of(op, paired);
    uint64_t k = (uint64_t)graph_tensor_at(g, op->weight[0])->dim[0];
    kp_matmul p = {.x_rows = env->m_max, .parts = parts_of(env->arch, paired)};
    p.x_pitch = columns_x_pitch(env, k);
    uint64_t x_bytes = kp_matmul_x_bytes(&p, (kp_u32)dtype_bytes(env->arch->act_dtype));
    return same_types(g, op, 1, matrices) && same_types(g, op, 1 + matrices, matrices) &&
           same_types(g, op, 1 + 2 * matrices, matrices) &&
           room_for_columns(env, x_bytes) >= KP_BAND * kp_matmul_y_bytes(&p, env->m_max);
}

keel_status norm_columns_params(tiler *t, const graph *g, const graph_op *op, bool paired, keel_error *err) {
    const tile_env *env = tiler_env(t);
    kp_norm_matmul *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    int matrices = matrices_of(op, paired);
    KEEL_TRY(columns_matmul_fill(t, g, op, 1, bias_slot(op, matrices), &p->m, err));
    KEEL_TRY(columns_weight_dtype(t, g, op, 0, &p->norm_dtype, err));
    p->m.logit_rows = graph_tensor_at(g, op->out[0])->dim[0] == GRAPH_M_LOGIT;
    p->m.x_rows = env->m_max;
    p->m.parts = parts_of(env->arch, paired);
    p->eps = (float)graph_attr_of(op, "eps");
    p->paired = paired;
    p->m.n = 0;
    for (int i = 0; i < matrices; i++) {
        p->cols[i] = (kp_u32)graph_tensor_at(g, op->weight[1 + i])->dim[0];
        if (!paired || i == 0) p->m.n += kp_banded(p->cols[i]);
    }
    if (norm_columns_fit(env, g, op, paired)) return KEEL_OK;
    return error_set(err, KEEL_REFUSED,
                     "%s: %u rows of %u columns do not fit SMEM, or its matrices or biases are not of one type; plan a "
                     "smaller --batch, or one without fused ops (--lever chain)",
                     op->name, env->m_max, p->m.k);
}

static uint64_t x_bytes_of(const tiler *t, const kp_norm_matmul *p) {
    return kp_matmul_x_bytes(&p->m, (kp_u32)dtype_bytes(tiler_env(t)->arch->act_dtype));
}

void norm_columns_tile(tiler *t) {
    const kp_norm_matmul *p = tiler_params_of(t);
    uint64_t room = room_for_columns(tiler_env(t), x_bytes_of(t, p));
    uint64_t most = room / kp_matmul_y_bytes(&p->m, tiler_env(t)->m_max) / KP_BAND * KP_BAND;
    columns_tile(t, p->m.n, KP_BAND, (uint32_t)(most < p->m.n ? most : p->m.n));
}

void norm_columns_task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const kp_norm_matmul *p = tiler_params_of(t);
    const tile_env *env = tiler_env(t);
    uint64_t act = dtype_bytes(env->arch->act_dtype), type = dtype_bytes((dtype)p->m.weight_dtype), real = 0, more = 0;
    columns_check(t, k);
    if (k->lo % KP_BAND || k->hi % KP_BAND || k->hi > p->m.n || k->lo >= k->hi) {
        tiler_refuse(t, "its columns are no whole bands");
        return;
    }
    tiler_read(t, op->in[0], 0, p->m.k);
    int matrices = matrices_of(op, p->paired);
    for (int i = 0; i < matrices; i++) {
        uint32_t lo, hi;
        kp_norm_part(p, (kp_u32)i, k->lo, k->hi, &lo, &hi);
        if (lo == hi) continue;
        if (i < op->desc->n_out) tiler_write(t, op->out[i], lo, hi);
        real += hi - lo;
        if (p->m.scale != KP_NONE) more += columns_scale_bytes(lo, hi - lo, p->m.k, (dtype)p->m.scale_dtype);
        if (op->weight[1 + matrices + i]) more += (hi - lo) * dtype_bytes((dtype)p->m.bias_dtype);
    }
    tiler_region(t, KP_MATMUL_X, x_bytes_of(t, p), KP_CONSUMER);
    tiler_region(t, KP_MATMUL_Y, columns_width(k) * kp_matmul_y_bytes(&p->m, env->m_max), KP_STORER);
    if (env->arch->stage_bytes) tiler_region(t, KP_NORM_SUMS, sums_bytes(env), KP_STORER);
    /* every task reads the norm's weight, but memory gives it once */
    uint64_t norm = k->lo ? 0 : p->m.k * dtype_bytes((dtype)p->norm_dtype), made = p->paired ? real / 2 : real;
    tiler_cost(t, real * p->m.k * type + more + norm, (p->m.k + made) * act, (2 * real + 4) * p->m.k);
}
