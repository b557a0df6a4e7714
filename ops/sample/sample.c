/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include "core/vec.h"
#include "device/emit.h"
#include "graph/op.h"
#include "plan/tiler.h"

#include <math.h>
#include <string.h>

enum { GRAIN = 16 };

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)out;
    const graph_tensor *x = graph_tensor_at(g, op->in[0]);
    if (!op->in[0] || x->kind != TENSOR_ACTIVATION || x->rank != 2 || x->dim[1] > INT32_MAX) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 must be logits [M_LOGIT, vocab]", op->name);
    }
    return KEEL_OK;
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    sample_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->vocab = (kp_u32)graph_tensor_at(g, op->in[0])->dim[1];
    tiler_scratch(t, "work", 2 * (uint64_t)p->vocab * sizeof(float), 1);
    return KEEL_OK;
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    const sample_params *p = tiler_params_of(t);
    tiler_task(t, 0, 0, p->vocab, 0);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const sample_params *p = tiler_params_of(t);
    uint64_t vocab = p->vocab;
    if (k->lo != 0 || k->hi != vocab || k->aux != 0) tiler_refuse(t, "the draw is one task over all logits");
    tiler_read(t, op->in[0], 0, (int64_t)vocab);
    tiler_write(t, tiler_scratch_of(t, 0), 0, 1);
    tiler_state(t, false);
    tiler_state(t, true);
    tiler_region(t, SAMPLE_REGION_TOKEN, sizeof(kp_u32), KP_STORER);
    tiler_cost(t, 0, vocab * dtype_bytes(tiler_dtype(t, op->in[0])), vocab * 32);
}

/* Unsigned integers in the order of the floats; NaN below everything, −0 equal to 0. */
static kp_u32 order_key(float f) {
    union {
        float f;
        kp_u32 u;
    } x = {f + 0.0f};
    if (f != f) return 0;
    return x.u & 0x80000000u ? ~x.u : x.u | 0x80000000u;
}

/* Walks down the distinct keys, largest first, adding up weight[i] (null: 1 each), and returns the key at which the sum
 * first reaches `target` (the smallest key of any weight when it never does); *above = the sum of all larger keys.
 * Radix selection: the bins of 11, 11 and 10 bits, each time within the bin that holds the answer. */
static kp_u32 select_key(const kp_u32 *key, const float *weight, kp_u32 n, double target, double *above) {
    enum { BINS = 2048 };
    static const kp_u32 shift[3] = {21, 10, 0};
    double mass[BINS];
    kp_u32 prefix = 0, mask = 0;
    *above = 0;
    for (int pass = 0; pass < 3; pass++) {
        kp_u32 bins = pass < 2 ? BINS : BINS / 2, s = shift[pass];
        memset(mass, 0, sizeof mass);
        for (kp_u32 i = 0; i < n; i++) {
            if ((key[i] & mask) == prefix) mass[key[i] >> s & (bins - 1)] += weight ? (double)weight[i] : 1;
        }
        kp_u32 bin = bins, found = 0;
        double sum = *above;
        while (bin > 0 && sum < target) {
            bin--;
            if (mass[bin] > 0) {
                *above = sum;
                found = bin;
                sum += mass[bin];
            }
        }
        prefix |= found << s;
        mask |= (bins - 1) << s;
    }
    return prefix;
}

static void keep_top_k(const kp_u32 *key, float *e, kp_u32 n, kp_u32 k) {
    double above;
    kp_u32 cut = select_key(key, NULL, n, k, &above);
    for (kp_u32 i = 0; i < n; i++) {
        if (key[i] < cut) e[i] = 0;
    }
}

static void keep_top_p(const kp_u32 *key, float *e, kp_u32 n, double p) {
    double total = 0, above;
    for (kp_u32 i = 0; i < n; i++) total += (double)e[i];
    kp_u32 cut = select_key(key, e, n, p * total, &above);
    for (kp_u32 i = 0; i < n; i++) {
        if (key[i] > cut) continue;
        bool keep = key[i] == cut && above < p * total;
        if (keep) above += (double)e[i];
        if (!keep) e[i] = 0;
    }
}

static kp_u32 draw(const float *e, kp_u32 n, double uniform) {
    double total = 0, sum = 0;
    for (kp_u32 i = 0; i < n; i++) total += (double)e[i];
    kp_u32 token = 0;
    for (kp_u32 i = 0; i < n; i++) {
        if (e[i] == 0) continue;
        token = i;
        sum += (double)e[i];
        if (sum > uniform * total) break;
    }
    return token;
}

/* e[i] = e^(s[i] − max), 0 where s is NaN. */
static void exponentiate(float *s, kp_u32 n, float max) {
    if (isinf(max)) { /* ∞ − ∞ is no exponent: the infinite ones share everything */
        for (kp_u32 i = 0; i < n; i++) s[i] = s[i] == max ? 1 : 0;
        return;
    }
    vec_exp_sum(s, max, n);
    for (kp_u32 i = 0; i < n; i++) s[i] = s[i] > 0 ? s[i] : 0;
}

static kp_u32 choose(const kp_request *q, const float *x, kp_u32 n, kp_u32 *key, float *e, double uniform) {
    kp_u32 best = (kp_u32)vec_argmax(x, n);
    float t = q->temperature;
    if (!(t > 0)) return best;
    float max = x[best] / t;
    if (!(max > -INFINITY)) return best; /* nothing above −∞: no distribution to draw from */
    for (kp_u32 i = 0; i < n; i++) {
        e[i] = x[i] / t;
        key[i] = order_key(e[i]);
    }
    exponentiate(e, n, max);
    if (q->top_k > 0 && q->top_k < n) keep_top_k(key, e, n, q->top_k);
    if (q->top_p > 0 && q->top_p < 1) keep_top_p(key, e, n, (double)q->top_p);
    return draw(e, n, uniform);
}

static void compute(kp_ctx *c) {
    const kp_launch *l = c->worker->launch;
    kp_u32 vocab = ((const sample_params *)kb_params(c))->vocab;
    if (!kp_emit_wanted(l)) return;
    const float *x = (const float *)kb_buffer(c, SAMPLE_LOGITS) + (size_t)(kb_rows_live(c) - 1) * vocab;
    if (l->request->logits) {
        kp_u32 from, to;
        kb_share(c, 0, vocab, GRAIN, &from, &to);
        memcpy(l->request->logits + (size_t)l->state->n_out * vocab + from, x + from, (to - from) * sizeof(float));
    }
    if (c->lane != 0) return;
    kp_u32 *key = kb_buffer(c, SAMPLE_WORK);
    float *e = (float *)kb_buffer(c, SAMPLE_WORK) + vocab;
    kp_u32 *token = kb_region(c, SAMPLE_REGION_TOKEN);
    *token = choose(l->request, x, vocab, key, e, sample_uniform(l->request->seed, l->state->n_out));
}

static void store(kp_ctx *c) {
    const kp_launch *l = c->worker->launch;
    if (c->lane != 0 || !kp_emit_wanted(l)) return;
    kp_emit_token(l, *(const kp_u32 *)kb_region(c, SAMPLE_REGION_TOKEN));
}

const op_desc keel_op_sample = {
    .name = "sample",
    .summary = "token drawn from softmax(logits[last row] / temperature), cut to top-k and top-p",
    .min_in = 1,
    .max_in = 1,
    .in_name = {"logits"},
    .phases = {{.name = "",
                .needs = KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 1,
    .max_rel_error = 0,
};
