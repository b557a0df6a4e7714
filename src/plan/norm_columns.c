/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/norm_columns.h"

/* Pages of x and bytes that are left for the partial sums and the squares' sums; 0: x does not fit. */
static uint64_t room_beside_x(const tile_env *env, uint64_t x_bytes) {
    uint64_t page = env->arch->page_bytes, pages = (x_bytes + page - 1) / page;
    return pages < env->n_pages ? (env->n_pages - pages) * page : 0;
}

static uint64_t sums_bytes(const tile_env *env) {
    uint32_t lanes = env->arch->lanes[KP_LAUNCHER] ? env->arch->lanes[KP_LAUNCHER] : 1;
    return (uint64_t)env->m_max * lanes * sizeof(float);
}

/* Of a column as it is cut. */
static uint64_t column_bytes(const tiler *t, const kp_norm_matmul *p, bool paired) {
    return (paired ? 2 : 1) * kp_matmul_y_bytes(&p->m, tiler_env(t)->m_max);
}

bool norm_columns_fit(const tile_env *env, const graph *g, const graph_op *op, bool paired) {
    if (!env->arch->stage_bytes) return false;
    uint64_t k = (uint64_t)graph_tensor_at(g, op->weight[0])->dim[0], act = dtype_bytes(env->arch->act_dtype);
    kp_matmul p = {.x_rows = env->m_max, .parts = env->arch->lanes[KP_CONSUMER]};
    p.x_pitch = columns_x_pitch(env->arch, k);
    uint64_t band = KP_BAND * (paired ? 2 : 1) * kp_matmul_y_bytes(&p, env->m_max);
    return room_beside_x(env, kp_matmul_x_bytes(&p, (kp_u32)act)) >= band + sums_bytes(env);
}

keel_status norm_columns_params(tiler *t, const graph *g, const graph_op *op, bool paired, keel_error *err) {
    kp_norm_matmul *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    int matrices = paired ? 2 : op->desc->n_out, bias = 0;
    for (int i = 0; i < matrices; i++) {
        if (!bias && op->weight[1 + matrices + i]) bias = 1 + matrices + i;
    }
    KEEL_TRY(columns_matmul_fill(t, g, op, 1, bias ? bias : 1 + matrices, &p->m, err));
    KEEL_TRY(columns_weight_dtype(t, g, op, 0, &p->norm_dtype, err));
    p->m.logit_rows = graph_tensor_at(g, op->out[0])->dim[0] == GRAPH_M_LOGIT;
    p->eps = (float)graph_attr_of(op, "eps");
    p->m.n = 0;
    for (int i = 0; i < matrices; i++) {
        p->cols[i] = (kp_u32)graph_tensor_at(g, op->weight[1 + i])->dim[0];
        if (!paired || i == 0) p->m.n += kp_banded(p->cols[i]);
    }
    if (norm_columns_fit(tiler_env(t), g, op, paired)) return KEEL_OK;
    return error_set(err, KEEL_REFUSED, "%s: %u rows of %u columns do not fit SMEM; plan a smaller --batch", op->name,
                     tiler_env(t)->m_max, p->m.k);
}

void norm_columns_tile(tiler *t, bool paired) {
    const kp_norm_matmul *p = tiler_params_of(t);
    const tile_env *env = tiler_env(t);
    uint64_t room = room_beside_x(env, kp_matmul_x_bytes(&p->m, (kp_u32)dtype_bytes(env->arch->act_dtype)));
    uint64_t most = (room - sums_bytes(env)) / column_bytes(t, p, paired) / KP_BAND * KP_BAND;
    columns_tile(t, p->m.n, KP_BAND, (uint32_t)most);
}

/* What the task's columns come to in matrix i, which begins at column `first`: [*lo, *hi), empty where there are none. */
static void part_of(const kp_norm_matmul *p, const op_task *k, int i, uint32_t first, uint32_t *lo, uint32_t *hi) {
    uint32_t end = first + p->cols[i];
    *lo = (k->lo > first ? k->lo : first) - first;
    *hi = (k->hi < end ? k->hi : end);
    *hi = *hi > first ? *hi - first : 0;
}

void norm_columns_task(tiler *t, const graph *g, const graph_op *op, const op_task *k, bool paired) {
    (void)g;
    const kp_norm_matmul *p = tiler_params_of(t);
    const tile_env *env = tiler_env(t);
    uint64_t act = dtype_bytes(env->arch->act_dtype), type = dtype_bytes((dtype)p->m.weight_dtype), real = 0;
    columns_check(t, k);
    if (k->lo % KP_BAND || k->hi % KP_BAND || k->hi > p->m.n || k->lo >= k->hi) {
        tiler_refuse(t, "its columns are no whole bands");
        return;
    }
    tiler_read(t, op->in[0], 0, p->m.k);
    uint32_t first = 0, lo, hi;
    uint64_t bias = 0;
    for (int i = 0; i < KP_NORM_MATRICES && p->cols[i]; i++) {
        part_of(p, k, i, first, &lo, &hi);
        if (!paired) first += kp_banded(p->cols[i]);
        if (lo >= hi) continue;
        if (i < op->desc->n_out) tiler_write(t, op->out[i], lo, hi);
        real += hi - lo;
        if (!paired && op->weight[1 + op->desc->n_out + i]) bias += (hi - lo) * dtype_bytes((dtype)p->m.bias_dtype);
    }
    tiler_region(t, KP_MATMUL_X, kp_matmul_x_bytes(&p->m, (kp_u32)act), KP_CONSUMER);
    tiler_region(t, KP_MATMUL_Y, columns_width(k) * column_bytes(t, p, paired), KP_STORER);
    tiler_region(t, KP_NORM_SUMS, sums_bytes(env), KP_STORER);
    /* every task reads the norm's weight, but memory gives it once */
    uint64_t norm = k->lo ? 0 : p->m.k * dtype_bytes((dtype)p->norm_dtype), made = paired ? real / 2 : real;
    tiler_cost(t, real * p->m.k * type + bias + norm, (p->m.k + made) * act, (2 * real + 4) * p->m.k);
}
