/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include "core/vec.h"
#include "device/emit.h"
#include "graph/op.h"
#include "plan/tiler.h"

#include <math.h>
#include <string.h>

enum { BEST, GATHER, PICK };
enum { GRAIN = 16, WARP = 32 };

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    (void)out;
    const graph_tensor *x = graph_tensor_at(g, op->in[0]);
    if (!op->in[0] || x->kind != TENSOR_ACTIVATION || x->rank != 2 || x->dim[1] > INT32_MAX) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 must be logits [M_LOGIT, vocab]", op->name);
    }
    return KEEL_OK;
}

/* A GPU's tiles: SAMPLE_PARTS parts of the vocabulary each, whole turns of a warp. */
static void cut_vocab(sample_params *p, uint32_t workers) {
    uint32_t most = workers < SAMPLE_TILES ? workers : SAMPLE_TILES, parts = most * SAMPLE_PARTS;
    p->each = ((p->vocab + parts - 1) / parts + WARP - 1) / WARP * WARP;
    p->tiles = (p->vocab + p->each * SAMPLE_PARTS - 1) / (p->each * SAMPLE_PARTS);
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    sample_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    p->vocab = (kp_u32)graph_tensor_at(g, op->in[0])->dim[1];
    if (!tiler_env(t)->arch->stage_bytes) {
        tiler_scratch(t, "work", p->vocab * (sizeof(kp_u64) + sizeof(kp_u32)), 1);
        return KEEL_OK;
    }
    cut_vocab(p, tiler_env(t)->workers);
    uint64_t parts = (uint64_t)p->tiles * SAMPLE_PARTS;
    tiler_scratch(t, "best", parts * sizeof(sample_best), p->tiles);
    tiler_scratch(t, "sums", parts * sizeof(sample_sum), p->tiles);
    tiler_scratch(t, "lists", parts * SAMPLE_EACH * sizeof(sample_candidate), p->tiles);
    return KEEL_OK;
}

static void tile_bounds(const sample_params *p, uint32_t i, uint32_t *lo, uint32_t *hi) {
    uint64_t size = (uint64_t)p->each * SAMPLE_PARTS, end = (i + 1) * size;
    *lo = (uint32_t)(i * size);
    *hi = end < p->vocab ? (uint32_t)end : p->vocab;
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    const sample_params *p = tiler_params_of(t);
    for (int phase = BEST; phase < PICK; phase++) {
        for (uint32_t i = 0; i < p->tiles; i++) {
            uint32_t lo, hi;
            tile_bounds(p, i, &lo, &hi);
            tiler_task(t, phase, lo, hi, i);
        }
    }
    tiler_task(t, PICK, 0, p->vocab, 0);
}

static void tile_task(tiler *t, const graph_op *op, const op_task *k) {
    const sample_params *p = tiler_params_of(t);
    uint64_t width = k->hi - (uint64_t)k->lo;
    uint32_t lo, hi;
    tile_bounds(p, k->aux, &lo, &hi);
    if (k->aux >= p->tiles || k->lo != lo || k->hi != hi) tiler_refuse(t, "a tile other than number aux of the logits");
    tiler_read(t, op->in[0], k->lo, k->hi);
    tiler_state(t, false); /* is a token wanted? */
    tiler_cost(t, 0, width * dtype_bytes(tiler_dtype(t, op->in[0])), width * (k->phase == BEST ? 1 : 32));
    if (k->phase == BEST) {
        tiler_write(t, tiler_scratch_of(t, 0), k->aux, (int64_t)k->aux + 1);
        return;
    }
    tiler_read(t, tiler_scratch_of(t, 0), 0, p->tiles);
    tiler_write(t, tiler_scratch_of(t, 1), k->aux, (int64_t)k->aux + 1);
    tiler_write(t, tiler_scratch_of(t, 2), k->aux, (int64_t)k->aux + 1);
    tiler_region(t, SAMPLE_REGION_KEYS, (uint64_t)p->tiles * SAMPLE_PARTS * sizeof(kp_u32), KP_CONSUMER);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const sample_params *p = tiler_params_of(t);
    uint64_t vocab = p->vocab;
    bool gpu = tiler_env(t)->arch->stage_bytes > 0;
    if (k->phase != PICK && gpu) {
        tile_task(t, op, k);
        return;
    }
    if (k->phase != PICK || k->lo != 0 || k->hi != vocab || k->aux != 0)
        tiler_refuse(t, "the draw is one task over all logits");
    tiler_read(t, op->in[0], 0, (int64_t)vocab);
    if (gpu) {
        for (int i = 0; i < 3; i++) tiler_read(t, tiler_scratch_of(t, i), 0, p->tiles);
        tiler_region(t, SAMPLE_REGION_LIST, sizeof(sample_list), KP_CONSUMER);
    } else {
        tiler_write(t, tiler_scratch_of(t, 0), 0, 1);
    }
    tiler_state(t, false);
    tiler_state(t, true);
    tiler_region(t, SAMPLE_REGION_TOKEN, sizeof(kp_u32), KP_STORER);
    tiler_cost(t, 0, gpu ? 0 : vocab * dtype_bytes(tiler_dtype(t, op->in[0])), gpu ? 0 : vocab * 32);
}

/* Walks down the distinct keys, largest first, adding up weight[i] (null: 1 each), and returns the key at which the sum
 * first reaches `target` (the smallest key of any weight when it never does); *above = the sum of all larger keys.
 * Radix selection: the bins of 11, 11 and 10 bits, each time within the bin that holds the answer. */
static kp_u32 select_key(const kp_u32 *key, const kp_u64 *weight, kp_u32 n, kp_u64 target, kp_u64 *above) {
    enum { BINS = 2048 };
    static const kp_u32 shift[3] = {21, 10, 0};
    kp_u64 mass[BINS];
    kp_u32 prefix = 0, mask = 0;
    *above = 0;
    for (int pass = 0; pass < 3; pass++) {
        kp_u32 bins = pass < 2 ? BINS : BINS / 2, s = shift[pass];
        memset(mass, 0, sizeof mass);
        for (kp_u32 i = 0; i < n; i++) {
            if ((key[i] & mask) == prefix) mass[key[i] >> s & (bins - 1)] += weight ? weight[i] : 1;
        }
        kp_u32 bin = bins, found = 0;
        kp_u64 sum = *above;
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

static kp_u64 sum_of(const kp_u64 *w, kp_u32 n) {
    kp_u64 total = 0;
    for (kp_u32 i = 0; i < n; i++) total += w[i];
    return total;
}

static void keep_top_k(const kp_u32 *key, kp_u64 *w, kp_u32 n, kp_u32 k) {
    kp_u64 above;
    kp_u32 cut = select_key(key, NULL, n, k, &above);
    for (kp_u32 i = 0; i < n; i++) {
        if (key[i] < cut) w[i] = 0;
    }
}

static void keep_top_p(const kp_u32 *key, kp_u64 *w, kp_u32 n, float p) {
    kp_u64 above, share = sample_share(p, sum_of(w, n));
    kp_u32 cut = select_key(key, w, n, share, &above);
    for (kp_u32 i = 0; i < n; i++) {
        if (key[i] > cut) continue;
        bool keep = key[i] == cut && above < share;
        if (keep) above += w[i];
        if (!keep) w[i] = 0;
    }
}

static kp_u32 draw(const kp_u64 *w, kp_u32 n, kp_u64 number) {
    kp_u64 at = sample_scale(number, sum_of(w, n)), sum = 0;
    for (kp_u32 i = 0; i < n; i++) {
        sum += w[i];
        if (sum > at) return i;
    }
    return 0; /* the largest logit weighs something: not reached */
}

static kp_u32 choose(const kp_request *q, const float *x, kp_u32 n, kp_u64 *w, kp_u32 *key, kp_u64 number) {
    kp_u32 best = (kp_u32)vec_argmax(x, n);
    float t = q->temperature;
    if (!(t > 0)) return best;
    float max = x[best] / t;
    if (!(max > -INFINITY)) return best; /* nothing above −∞: no distribution to draw from */
    for (kp_u32 i = 0; i < n; i++) {
        w[i] = sample_weight(x[i] / t, max);
        key[i] = sample_key(x[i]);
    }
    if (q->top_k > 0 && q->top_k < n) keep_top_k(key, w, n, q->top_k);
    if (q->top_p > 0 && q->top_p < 1) keep_top_p(key, w, n, q->top_p);
    return draw(w, n, number);
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
    kp_u64 *weight = kb_buffer(c, SAMPLE_WORK);
    kp_u32 *token = kb_region(c, SAMPLE_REGION_TOKEN);
    *token = choose(l->request, x, vocab, weight, (kp_u32 *)(weight + vocab),
                    sample_number(l->request->seed, l->state->n_out));
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
    .phases = {{.name = "best", .needs = KP_ROLE_BIT(KP_CONSUMER), .gpu_only = true},
               {.name = "gather", .needs = KP_ROLE_BIT(KP_CONSUMER), .gpu_only = true},
               {.name = "pick",
                .needs = KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_CONSUMER] = compute, [KP_STORER] = store}}},
    .infer = infer,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 1,
    .max_rel_error = 0,
};
