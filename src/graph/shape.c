/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/shape.h"

enum { DIM_MAX = 1 << 30 };

void shape_rows(graph_tensor *out, int64_t rows, int64_t cols) {
    out->kind = TENSOR_ACTIVATION;
    out->dtype = DTYPE_ACT;
    out->rank = 2;
    out->dim[0] = rows;
    out->dim[1] = cols;
}

bool shape_is_rows(const graph_tensor *t, int64_t rows, int64_t cols) {
    return t->kind == TENSOR_ACTIVATION && t->rank == 2 && t->dim[0] == rows && (!cols || t->dim[1] == cols);
}

keel_status shape_plannable(const graph_op *op, const graph_tensor *w, keel_error *err) {
    if (w->dim[0] <= DIM_MAX && w->dim[1] <= DIM_MAX) return KEEL_OK;
    return error_set(err, KEEL_RANGE, "%s: weight %s is [%lld, %lld]; dimensions up to %d can be planned", op->name,
                     w->name, (long long)w->dim[0], (long long)w->dim[1], DIM_MAX);
}

keel_status shape_pair(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *a = graph_tensor_at(g, op->in[0]), *b = graph_tensor_at(g, op->in[1]);
    if (!shape_is_rows(a, a->dim[0], 0) || !shape_is_rows(b, a->dim[0], a->dim[1])) {
        return error_set(
            err, KEEL_FORMAT,
            "%s: expected two activations of one shape; %s has rank %d and %lld columns, %s rank %d and %lld "
            "columns%s",
            op->name, a->name, a->rank, (long long)a->dim[1], b->name, b->rank, (long long)b->dim[1],
            a->dim[0] != b->dim[0] ? ", and their rows differ" : "");
    }
    shape_rows(out, a->dim[0], a->dim[1]);
    return KEEL_OK;
}

static keel_status scale_fits(const graph_op *op, const graph_tensor *w, const graph_tensor *s, keel_error *err) {
    long long rows = (long long)fp8_blocks(w->dim[0]), cols = (long long)fp8_blocks(w->dim[1]);
    bool typed = s->dtype == DTYPE_F32 || s->dtype == DTYPE_BF16 || s->dtype == DTYPE_F16;
    if (typed && s->rank == 2 && s->dim[0] == rows && s->dim[1] == cols) return KEEL_OK;
    return error_set(
        err, KEEL_FORMAT,
        "%s: scale %s must be [%lld, %lld] of F32, BF16 or F16, one for each block of %d × %d of weight %s", op->name,
        s->name, rows, cols, FP8_BLOCK, FP8_BLOCK, w->name);
}

keel_status shape_scaled(const graph *g, const graph_op *op, int slot, keel_error *err) {
    int at = op->desc->scale[slot];
    const graph_tensor *w = graph_tensor_at(g, op->weight[slot]), *s = graph_tensor_at(g, at ? op->weight[at] : 0);
    bool has = at && op->weight[at];
    if (w->dtype == DTYPE_F8E4M3 && !at)
        return error_set(err, KEEL_UNSUPPORTED, "%s: weight %s is %s, which the slot %s of %s does not take", op->name,
                         w->name, dtype_name(w->dtype), op->desc->weight_name[slot], op->desc->name);
    if (w->dtype == DTYPE_F8E4M3 && has) return scale_fits(op, w, s, err);
    if (w->dtype == DTYPE_F8E4M3)
        return error_set(err, KEEL_FORMAT,
                         "%s: weight %s is %s and needs scales: [%lld, %lld] of F32 in the weight slot %s", op->name,
                         w->name, dtype_name(w->dtype), (long long)fp8_blocks(w->dim[0]),
                         (long long)fp8_blocks(w->dim[1]), op->desc->weight_name[at]);
    if (!has) return KEEL_OK;
    return error_set(err, KEEL_FORMAT, "%s: scale %s belongs to weight %s, which is %s; only %s has scales", op->name,
                     s->name, w->name, dtype_name(w->dtype), dtype_name(DTYPE_F8E4M3));
}

/* y [M, n] from input 0, the matrix in weight slot `matrix` and the bias in slot `slot`. */
static keel_status matmul_of(const graph *g, const graph_op *op, int matrix, int slot, graph_tensor *out,
                             keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[0]), *w = graph_tensor_at(g, op->weight[matrix]);
    if (x->kind != TENSOR_ACTIVATION || x->rank != 2 || w->rank != 2) {
        return error_set(
            err, KEEL_FORMAT,
            "%s: expected an activation [M, k] and a weight [n, k]; input %s has rank %d, weight %s rank %d", op->name,
            x->name, x->rank, w->name, w->rank);
    }
    if (x->dim[1] != w->dim[1]) {
        return error_set(err, KEEL_FORMAT,
                         "%s: input %s is [M, %lld] but weight %s is [%lld, %lld]: the last dimensions must be equal",
                         op->name, x->name, (long long)x->dim[1], w->name, (long long)w->dim[0], (long long)w->dim[1]);
    }
    KEEL_TRY(shape_plannable(op, w, err));
    KEEL_TRY(shape_scaled(g, op, matrix, err));
    const graph_tensor *bias = graph_tensor_at(g, op->weight[slot]);
    if (op->weight[slot] && (bias->rank != 1 || bias->dim[0] != w->dim[0])) {
        return error_set(err, KEEL_FORMAT, "%s: bias %s must be [%lld], as weight %s is [%lld, %lld]", op->name,
                         bias->name, (long long)w->dim[0], w->name, (long long)w->dim[0], (long long)w->dim[1]);
    }
    shape_rows(out, x->dim[0], w->dim[0]);
    return KEEL_OK;
}

keel_status shape_matmul(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    return matmul_of(g, op, 0, 1, out, err);
}

keel_status shape_norm(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    const graph_tensor *x = graph_tensor_at(g, op->in[0]), *w = graph_tensor_at(g, op->weight[0]);
    if (x->kind != TENSOR_ACTIVATION || x->rank != 2 || w->rank != 1 || w->dim[0] != x->dim[1]) {
        return error_set(
            err, KEEL_FORMAT,
            "%s: expected an activation [M, n] and a weight [n]; input %s has rank %d and %lld columns, weight %s "
            "rank %d and %lld elements",
            op->name, x->name, x->rank, (long long)x->dim[1], w->name, w->rank, (long long)w->dim[0]);
    }
    double eps = graph_attr_of(op, "eps"), logit_rows = graph_attr_of(op, "logit_rows");
    if (!(eps >= 0)) return error_set(err, KEEL_RANGE, "%s: eps %g must not be negative", op->name, eps);
    if (logit_rows != 0 && logit_rows != 1) {
        return error_set(err, KEEL_RANGE, "%s: logit_rows %g must be 0 or 1", op->name, logit_rows);
    }
    shape_rows(out, logit_rows != 0 ? GRAPH_M_LOGIT : x->dim[0], x->dim[1]);
    return KEEL_OK;
}

keel_status shape_norm_matmul(const graph *g, const graph_op *op, int matrices, graph_tensor *out, keel_error *err) {
    graph_tensor normed = {0};
    KEEL_TRY(shape_norm(g, op, &normed, err));
    for (int i = 0; i < matrices; i++) {
        KEEL_TRY(matmul_of(g, op, 1 + i, 1 + matrices + i, &out[i], err));
        out[i].dim[0] = normed.dim[0];
    }
    return KEEL_OK;
}
