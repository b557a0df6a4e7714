/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"
#include "attention_tiled.h"

#include "core/vec.h"
#include "device/rows.h"
#include "graph/shape.h"
#include "plan/columns.h"

#include <math.h>
#include <string.h>

enum { APPEND, SPLIT, MERGE, STREAM };
enum { BLOCK_TOKENS = 64, BLOCK_UNITS = 16 };

/* ---- shapes and tiles ---------------------------------------------------------------------------- */

static bool is_rows(const graph *g, int id, int64_t cols) {
    return id && shape_is_rows(graph_tensor_at(g, id), GRAPH_M, cols);
}

static bool is_cache(const graph *g, int id, int64_t kv_heads, int64_t head_dim) {
    const graph_tensor *t = graph_tensor_at(g, id);
    return id && t->kind == TENSOR_CACHE && t->rank == 2 && t->dim[0] == kv_heads && t->dim[1] == head_dim;
}

static bool is_norm(const graph *g, int id, int64_t head_dim) {
    const graph_tensor *t = graph_tensor_at(g, id);
    return !id || (t->rank == 1 && t->dim[0] == head_dim);
}

static double usual_scale(const graph_op *op) { return 1 / sqrt(graph_attr_of(op, "head_dim")); }

static keel_status check_attrs(const graph_op *op, keel_error *err) {
    double heads = graph_attr_of(op, "q_heads"), kv = graph_attr_of(op, "kv_heads"),
           dim = graph_attr_of(op, "head_dim");
    bool whole = heads == floor(heads) && kv == floor(kv) && kv >= 1 && heads >= kv && heads <= 65536;
    if (!whole || fmod(heads, kv) != 0) {
        return error_set(err, KEEL_FORMAT, "%s: q_heads %g must be a multiple of kv_heads %g", op->name, heads, kv);
    }
    if (dim < 16 || dim > ATTENTION_HEAD_MAX || fmod(dim, 8) != 0) {
        return error_set(err, KEEL_FORMAT, "%s: head_dim %g must be a multiple of 8 from 16 to %d", op->name, dim,
                         ATTENTION_HEAD_MAX);
    }
    if (!(graph_attr_of(op, "eps") >= 0) || !(graph_attr_of(op, "scale") >= 0)) {
        return error_set(err, KEEL_FORMAT, "%s: eps and scale must not be negative", op->name);
    }
    return KEEL_OK;
}

static keel_status infer(const graph *g, const graph_op *op, graph_tensor *out, keel_error *err) {
    KEEL_TRY(check_attrs(op, err));
    int64_t q_heads = (int64_t)graph_attr_of(op, "q_heads"), kv_heads = (int64_t)graph_attr_of(op, "kv_heads");
    int64_t dim = (int64_t)graph_attr_of(op, "head_dim");
    if (!is_rows(g, op->in[ATTENTION_Q], q_heads * dim)) {
        return error_set(err, KEEL_FORMAT, "%s: input 0 (q) must be [M, %lld]", op->name, (long long)(q_heads * dim));
    }
    if (!is_rows(g, op->in[ATTENTION_K], kv_heads * dim) || !is_rows(g, op->in[ATTENTION_V], kv_heads * dim)) {
        return error_set(err, KEEL_FORMAT, "%s: inputs 1 and 2 (k, v) must be [M, %lld]", op->name,
                         (long long)(kv_heads * dim));
    }
    int rope = op->in[ATTENTION_ROPE];
    if (rope) {
        int64_t rotary = is_rows(g, rope, 0) ? graph_tensor_at(g, rope)->dim[1] : 0;
        if (rotary < 2 || rotary % 2 || rotary > dim) {
            return error_set(err, KEEL_FORMAT, "%s: input 3 (rope table) must be [M, rotary_dim], even, at most %lld",
                             op->name, (long long)dim);
        }
    }
    if (!is_cache(g, op->in[ATTENTION_CACHE_K], kv_heads, dim) ||
        !is_cache(g, op->in[ATTENTION_CACHE_V], kv_heads, dim) ||
        op->in[ATTENTION_CACHE_K] == op->in[ATTENTION_CACHE_V]) {
        return error_set(err, KEEL_FORMAT, "%s: inputs 4 and 5 must be two caches [%lld, %lld]", op->name,
                         (long long)kv_heads, (long long)dim);
    }
    if (!is_norm(g, op->weight[0], dim) || !is_norm(g, op->weight[1], dim)) {
        return error_set(err, KEEL_FORMAT, "%s: weights 0 and 1 (q and k norm) must be [%lld]", op->name,
                         (long long)dim);
    }
    shape_rows(&out[0], GRAPH_M, q_heads * dim);
    return KEEL_OK;
}

/* Splits only where the KV heads, or shares of their heads, alone leave workers idle, and never more than there are
 * pages. Streams: no worker has two of them, since the slowest one counts. */
static uint32_t choose_splits(const tile_env *env, uint32_t heads, bool streams) {
    uint32_t pages = (env->max_seq + env->page_tokens - 1) / env->page_tokens;
    uint32_t usual = streams ? env->workers / heads : (env->workers + heads - 1) / heads;
    uint32_t splits = env->kv_splits ? env->kv_splits : usual ? usual : 1;
    return splits < pages ? splits : pages > 0 ? pages : 1;
}

static uint64_t stream_smem(const attention_params *p) {
    return ((uint64_t)attention_q_elements(p) * 2 + 63) / 64 * 64 + (uint64_t)attention_acc_floats(p) * sizeof(float);
}

/* Where pages can stream: whole tiles, and a head's sums fit into registers and SMEM. */
static void choose_stream(attention_params *p, const tile_env *env) {
    uint32_t tokens = 64, element = 2 * (uint32_t)dtype_bytes(env->arch->act_dtype); /* of K and of V */
    while ((tokens * p->head_dim * element > env->arch->stage_bytes || env->page_tokens % tokens) &&
           tokens > ATTENTION_TILE)
        tokens /= 2;
    p->parts = env->arch->lanes[KP_CONSUMER];
    bool fits = env->arch->stage_bytes && env->m_max == 1 && tokens * p->head_dim * element <= env->arch->stage_bytes &&
                env->page_tokens % tokens == 0 && p->head_dim % ATTENTION_TILE == 0 &&
                p->head_dim <= ATTENTION_TILED_DIM && p->rotary_dim % 4 == 0 && p->group <= ATTENTION_TILED_GROUP &&
                p->parts <= ATTENTION_PARTS && stream_smem(p) <= (uint64_t)env->n_pages * env->arch->page_bytes;
    p->stage_tokens = fits ? tokens : 0;
    if (!fits) p->parts = 0;
}

static uint64_t split_q_bytes(const attention_params *p, uint64_t act) {
    return (uint64_t)p->m_max * p->group * p->head_dim * act;
}

static uint64_t split_acc_bytes(const attention_params *p) { return attention_partial_floats(p) * sizeof(float); }

/* Cuts the heads of a KV head into as few equal shares as fit SMEM, each region in pages of its own. */
static void choose_group(attention_params *p, const tile_env *env) {
    uint64_t page = env->arch->page_bytes, most = env->arch->most_pages ? env->arch->most_pages : env->n_pages;
    uint32_t whole = p->group;
    for (uint32_t shares = 1; shares <= whole; shares++) {
        if (whole % shares) continue;
        p->group = whole / shares;
        uint64_t q = split_q_bytes(p, dtype_bytes(env->arch->act_dtype)), acc = split_acc_bytes(p);
        if ((q + page - 1) / page + (acc + page - 1) / page <= most) return;
    }
}

static keel_status set_params(attention_params *p, const tiler *t, const graph *g, const graph_op *op,
                              keel_error *err) {
    const tile_env *env = tiler_env(t);
    p->q_heads = (kp_u32)graph_attr_of(op, "q_heads");
    p->kv_heads = (kp_u32)graph_attr_of(op, "kv_heads");
    p->head_dim = (kp_u32)graph_attr_of(op, "head_dim");
    p->group = p->q_heads / p->kv_heads;
    p->rotary_dim = op->in[ATTENTION_ROPE] ? (kp_u32)graph_tensor_at(g, op->in[ATTENTION_ROPE])->dim[1] : 0;
    p->page_tokens = env->page_tokens;
    p->m_max = env->m_max;
    choose_stream(p, env);
    if (!p->stage_tokens) choose_group(p, env);
    p->splits = choose_splits(env, p->q_heads / p->group, p->stage_tokens != 0);
    p->eps = (float)graph_attr_of(op, "eps");
    p->scale = (float)graph_attr_of(op, "scale");
    if (p->scale == 0) p->scale = (float)(1 / sqrt(p->head_dim));
    KEEL_TRY(columns_weight_dtype(t, g, op, 0, &p->q_norm_dtype, err));
    return columns_weight_dtype(t, g, op, 1, &p->k_norm_dtype, err);
}

static keel_status params(tiler *t, const graph *g, const graph_op *op, keel_error *err) {
    attention_params *p = tiler_params(t, sizeof *p);
    if (!p) return KEEL_NOMEM_AT(err, op->name);
    KEEL_TRY(set_params(p, t, g, op, err));
    uint64_t units = (uint64_t)p->kv_heads * p->splits, partials = units * attention_shares(p);
    uint64_t partial = p->stage_tokens ? attention_left_floats(p) : attention_partial_floats(p);
    if (p->splits > 1) tiler_scratch(t, "partial", partials * partial * sizeof(float), partials);
    if (p->splits > 1 && p->stage_tokens)
        tiler_scratch_monotonic(t, "arrived", (uint64_t)p->kv_heads * 64, p->kv_heads);
    for (int i = ATTENTION_CACHE_K; i <= ATTENTION_CACHE_V; i++) tiler_units(t, op->in[i], units);
    return KEEL_OK;
}

static void tile(tiler *t, const graph *g, const graph_op *op) {
    (void)g, (void)op;
    const attention_params *p = tiler_params_of(t);
    uint32_t tasks = p->kv_heads * attention_shares(p);
    for (uint32_t h = 0; attention_shares(p) > 1 && h < p->kv_heads; h++) {
        for (uint32_t s = 0; s < p->splits; s++) tiler_task(t, APPEND, h, h + 1, s);
    }
    for (uint32_t h = 0; h < tasks; h++) {
        for (uint32_t s = 0; s < p->splits; s++) tiler_task(t, p->stage_tokens ? STREAM : SPLIT, h, h + 1, s);
    }
    for (uint32_t h = 0; !p->stage_tokens && p->splits > 1 && h < tasks; h++) tiler_task(t, MERGE, h, h + 1, 0);
}

/* Splits that stream: how many of them have pages, and so which of them writes the output, is a matter of the context.
 */
static void split_results(tiler *t, const graph_op *op, const attention_params *p, uint32_t h, int64_t unit) {
    int64_t q = (int64_t)p->group * p->head_dim;
    if (p->splits == 1) {
        tiler_write(t, op->out[0], h * q, (h + 1) * q);
        return;
    }
    tiler_write(t, tiler_scratch_of(t, 0), unit, unit + 1);
    if (!p->stage_tokens) return;
    tiler_count(t, tiler_scratch_of(t, 1), h, h + 1);
    tiler_write_last(t, op->out[0], h * q, (h + 1) * q);
}

static void split_regions(tiler *t, const attention_params *p, uint64_t act) {
    if (p->stage_tokens) {
        tiler_region(t, ATTENTION_REGION_Q, attention_q_elements(p) * act, KP_STORER);
        tiler_region(t, ATTENTION_REGION_ACC, attention_acc_floats(p) * sizeof(float), KP_STORER);
    } else {
        tiler_region(t, ATTENTION_REGION_Q, split_q_bytes(p, act), KP_CONSUMER);
        tiler_region(t, ATTENTION_REGION_ACC, split_acc_bytes(p), KP_STORER);
    }
}

/* Bytes of a row of k and v. */
static uint64_t append_bytes(const tiler *t, const graph_op *op, const attention_params *p) {
    return 2 * p->head_dim * dtype_bytes(tiler_dtype(t, op->in[ATTENTION_K]));
}

static void read_new(tiler *t, const graph_op *op, const attention_params *p, uint32_t h) {
    int64_t kv = p->head_dim;
    tiler_read(t, op->in[ATTENTION_K], h * kv, (h + 1) * kv);
    tiler_read(t, op->in[ATTENTION_V], h * kv, (h + 1) * kv);
}

static void append_task(tiler *t, const graph_op *op, const attention_params *p, uint32_t h, uint32_t s) {
    int64_t unit = (int64_t)h * p->splits + s;
    read_new(t, op, p, h);
    if (p->rotary_dim) tiler_read(t, op->in[ATTENTION_ROPE], 0, p->rotary_dim);
    for (int i = ATTENTION_CACHE_K; i <= ATTENTION_CACHE_V; i++) tiler_write(t, op->in[i], unit, unit + 1);
    tiler_region(t, ATTENTION_REGION_ACC, (uint64_t)p->m_max * p->head_dim * sizeof(float), KP_CONSUMER);
    tiler_cost(t, 0, append_bytes(t, op, p), 0);
}

static void split_task(tiler *t, const graph_op *op, const attention_params *p, uint32_t h, uint32_t s) {
    int64_t q = (int64_t)p->group * p->head_dim, unit = (int64_t)(h / attention_shares(p)) * p->splits + s;
    uint64_t act = dtype_bytes(tiler_dtype(t, op->in[ATTENTION_Q]));
    bool appends = attention_shares(p) == 1;
    tiler_read(t, op->in[ATTENTION_Q], h * q, (h + 1) * q);
    if (appends) read_new(t, op, p, h);
    if (p->rotary_dim) tiler_read(t, op->in[ATTENTION_ROPE], 0, p->rotary_dim);
    for (int i = ATTENTION_CACHE_K; i <= ATTENTION_CACHE_V; i++) {
        tiler_read(t, op->in[i], unit, unit + 1);
        if (appends) tiler_write(t, op->in[i], unit, unit + 1);
    }
    split_results(t, op, p, h, (int64_t)h * p->splits + s);
    split_regions(t, p, act);
    /* q, out, k, v; the cache counts by position, not by task */
    tiler_cost(t, 0, 2 * (uint64_t)q * act + (appends ? append_bytes(t, op, p) : 0), 4 * (uint64_t)q);
}

static void merge_task(tiler *t, const graph_op *op, const attention_params *p, uint32_t h) {
    int64_t q = (int64_t)p->group * p->head_dim, first = (int64_t)h * p->splits;
    tiler_read(t, tiler_scratch_of(t, 0), first, first + p->splits);
    tiler_write(t, op->out[0], h * q, (h + 1) * q);
    tiler_region(t, ATTENTION_REGION_ACC, (uint64_t)p->m_max * (uint64_t)q * sizeof(float), KP_STORER);
    tiler_cost(t, 0, (uint64_t)q * p->splits * sizeof(float), 2 * (uint64_t)q * p->splits);
}

static void task(tiler *t, const graph *g, const graph_op *op, const op_task *k) {
    (void)g;
    const attention_params *p = tiler_params_of(t);
    bool merge = k->phase == MERGE, append = k->phase == APPEND;
    bool here = p->stage_tokens ? k->phase == STREAM
                                : k->phase == SPLIT || (merge && p->splits > 1) || (append && attention_shares(p) > 1);
    uint32_t heads = p->kv_heads * (append ? 1 : attention_shares(p));
    if (!here || k->lo >= heads || k->hi != k->lo + 1 || k->aux >= (merge ? 1 : p->splits)) {
        tiler_refuse(t, "lo must be a KV head, or a share of one's heads, hi the next one, aux a split");
    } else if (append) {
        append_task(t, op, p, k->lo, k->aux);
    } else if (merge) {
        merge_task(t, op, p, k->lo);
    } else {
        split_task(t, op, p, k->lo, k->aux);
    }
}

/* ---- append and split ---------------------------------------------------------------------------- */

/* Of a KV head: position 0 of a logical page, [page_tokens][head_dim]. */
static float *cache_page(const kp_ctx *c, const attention_params *p, kp_u32 which, kp_u32 head, kp_u32 seq,
                         kp_u32 page) {
    const kp_request *q = c->worker->launch->request;
    size_t physical = q->page_table[(size_t)seq * q->pages_per_seq + page];
    return (float *)kb_buffer(c, which) + (physical * p->kv_heads + head) * p->page_tokens * p->head_dim;
}

/* x ← rope(rmsnorm(x)) */
static void prepare(const attention_params *p, float *x, const void *norm, kp_u32 norm_dtype, const float *rope) {
    if (norm) vec_rmsnorm(x, (dtype)norm_dtype, norm, p->eps, x, p->head_dim);
    kp_u32 half = p->rotary_dim / 2;
    for (kp_u32 i = 0; i < half; i++) {
        float a = x[i], b = x[i + half], cosine = rope[i], sine = rope[i + half];
        x[i] = a * cosine - b * sine;
        x[i + half] = b * cosine + a * sine;
    }
}

static const float *rope_row(const kp_ctx *c, const attention_params *p, kp_u32 r) {
    return p->rotary_dim ? (const float *)kb_buffer(c, ATTENTION_ROPE) + (size_t)r * p->rotary_dim : NULL;
}

static void append_row(const kp_ctx *c, const attention_params *p, kp_u32 r) {
    const kp_step *step = kb_step(c);
    kp_u32 page = step->position[r] / p->page_tokens, head = c->task->lo; /* none that appends has a share of one */
    if (page % p->splits != c->task->aux) return;
    size_t from = ((size_t)r * p->kv_heads + head) * p->head_dim;
    size_t to = (size_t)(step->position[r] % p->page_tokens) * p->head_dim, bytes = p->head_dim * sizeof(float);
    float *k = cache_page(c, p, ATTENTION_CACHE_K, head, step->seq[r], page) + to;
    memcpy(k, (const float *)kb_buffer(c, ATTENTION_K) + from, bytes);
    prepare(p, k, kb_buffer(c, ATTENTION_K_NORM), p->k_norm_dtype, rope_row(c, p, r));
    memcpy(cache_page(c, p, ATTENTION_CACHE_V, head, step->seq[r], page) + to,
           (const float *)kb_buffer(c, ATTENTION_V) + from, bytes);
}

static void append_rows(kp_ctx *c) {
    kb_rows rows = kb_rows_of(c, 0);
    for (kp_u32 r = rows.from; r < rows.to; r++) append_row(c, kb_params(c), r);
}

/* Appends here and not in the consumer, whose lanes read what both lanes append: the slot's `loaded` barrier, which
 * joins the launcher's lanes and the copies, stands between. */
static void split_launch(kp_ctx *c) {
    const attention_params *p = kb_params(c);
    kp_u32 cols = p->group * p->head_dim, lo = c->task->lo * cols;
    kb_fetch_rows(c, ATTENTION_REGION_Q, ATTENTION_Q, p->q_heads * p->head_dim, lo, lo + cols, 0);
    if (attention_shares(p) == 1) append_rows(c);
}

/* The (row, head) units of a task in its regions; unit u is head u mod group of row u / group. */
typedef struct split_view {
    const attention_params *p;
    const kp_step *step;
    float *q, *acc; /* [units][head_dim] */
    float *ml;      /* [units][2]: greatest score, sum of e^(score − it) */
} split_view;

static split_view view_of(const kp_ctx *c) {
    split_view v = {.p = kb_params(c), .step = kb_step(c)};
    v.q = kb_region(c, ATTENTION_REGION_Q);
    v.acc = kb_region(c, ATTENTION_REGION_ACC);
    v.ml = v.acc + (size_t)v.p->m_max * v.p->group * v.p->head_dim;
    return v;
}

static kp_u32 unit_position(const split_view *v, kp_u32 u) { return v->step->position[u / v->p->group]; }

/* Online softmax of one unit over n scores: rescales what it has and turns the scores into weights. */
static void soften(const split_view *v, kp_u32 u, float *score, kp_u32 n) {
    float *m = &v->ml[2 * (size_t)u], *l = m + 1, *acc = v->acc + (size_t)u * v->p->head_dim;
    float block = vec_max(score, n), most = block > *m ? block : *m, keep = expf(*m - most);
    *l = *l * keep + vec_exp_sum(score, most, n);
    if (keep != 1) vec_scale(keep, acc, acc, v->p->head_dim);
    *m = most;
}

/* Units [u0, u0 + count) against n positions from `start` on. K and V pass through the caches once for all of them. */
static void attend_block(const split_view *v, kp_u32 u0, kp_u32 count, const float *k, const float *value, kp_u32 start,
                         kp_u32 n) {
    float score[BLOCK_UNITS][BLOCK_TOKENS];
    kp_u32 seen[BLOCK_UNITS], dim = v->p->head_dim;
    vec_matmul(DTYPE_F32, k, n, dim, v->q + (size_t)u0 * dim, dim, count, score[0], BLOCK_TOKENS);
    for (kp_u32 i = 0; i < count; i++) {
        kp_u32 end = unit_position(v, u0 + i) + 1;
        seen[i] = end <= start ? 0 : end - start < n ? end - start : n;
        if (seen[i]) soften(v, u0 + i, score[i], seen[i]);
    }
    for (kp_u32 i = 0, j; i < count; i = j) { /* units that see equally far: a row's heads, or all of them */
        for (j = i + 1; j < count && seen[j] == seen[i]; j++) continue;
        vec_accumulate(score[i], BLOCK_TOKENS, j - i, value, seen[i], dim, v->acc + (size_t)(u0 + i) * dim, dim);
    }
}

/* Units [a, b), all of sequence seq, against this split's pages up to position `last`. */
static void attend(const kp_ctx *c, const split_view *v, kp_u32 a, kp_u32 b, kp_u32 seq, kp_u32 last) {
    const attention_params *p = v->p;
    kp_u32 tokens = p->page_tokens, head = c->task->lo / attention_shares(p);
    for (kp_u32 page = c->task->aux; page <= last / tokens; page += p->splits) {
        const float *k = cache_page(c, p, ATTENTION_CACHE_K, head, seq, page);
        const float *value = cache_page(c, p, ATTENTION_CACHE_V, head, seq, page);
        kp_u32 start = page * tokens, live = last - start + 1 < tokens ? last - start + 1 : tokens;
        for (kp_u32 t = 0; t < live; t += BLOCK_TOKENS) {
            kp_u32 n = live - t < BLOCK_TOKENS ? live - t : BLOCK_TOKENS;
            size_t at = (size_t)t * p->head_dim;
            for (kp_u32 u = a; u < b; u += BLOCK_UNITS) {
                attend_block(v, u, b - u < BLOCK_UNITS ? b - u : BLOCK_UNITS, k + at, value + at, start + t, n);
            }
        }
    }
}

static void split_compute(kp_ctx *c) {
    split_view v = view_of(c);
    const attention_params *p = v.p;
    kp_u32 dim = p->head_dim, from, to;
    kb_share(c, 0, kb_rows_live(c) * p->group, 1, &from, &to);
    for (kp_u32 u = from; u < to; u++) {
        float *q = v.q + (size_t)u * dim;
        prepare(p, q, kb_buffer(c, ATTENTION_Q_NORM), p->q_norm_dtype, rope_row(c, p, u / p->group));
        vec_scale(p->scale, q, q, dim);
        memset(v.acc + (size_t)u * dim, 0, dim * sizeof(float));
        v.ml[2 * (size_t)u] = -INFINITY;
        v.ml[2 * (size_t)u + 1] = 0;
    }
    for (kp_u32 a = from, b; a < to; a = b) {
        kp_u32 seq = v.step->seq[a / p->group], last = 0;
        for (b = a; b < to && v.step->seq[b / p->group] == seq; b++) {
            if (unit_position(&v, b) > last) last = unit_position(&v, b);
        }
        attend(c, &v, a, b, seq, last);
    }
    for (kp_u32 u = from; u < to && p->splits == 1; u++) {
        vec_scale(1 / v.ml[2 * (size_t)u + 1], v.acc + (size_t)u * dim, v.acc + (size_t)u * dim, dim);
    }
}

/* ---- results ------------------------------------------------------------------------------------- */

/* The task's columns of the output, from ATTENTION_REGION_ACC. */
static void store_rows(kp_ctx *c) {
    const attention_params *p = kb_params(c);
    kp_u32 cols = p->group * p->head_dim, lo = c->task->lo * cols;
    kb_store_rows(c, ATTENTION_REGION_ACC, ATTENTION_OUT, p->q_heads * p->head_dim, lo, lo + cols, 0);
}

static float *partial_of(const kp_ctx *c, const attention_params *p, kp_u32 split) {
    size_t at = ((size_t)c->task->lo * p->splits + split) * attention_partial_floats(p);
    return (float *)kb_buffer(c, ATTENTION_PARTIAL) + at;
}

static void split_store(kp_ctx *c) {
    split_view v = view_of(c);
    const attention_params *p = v.p;
    if (p->splits == 1) {
        store_rows(c);
        return;
    }
    float *acc = partial_of(c, p, c->task->aux), *ml = acc + (v.ml - v.acc);
    kp_u32 from, to;
    kb_share(c, 0, kb_rows_live(c) * p->group, 1, &from, &to);
    if (from == to) return;
    size_t dim = p->head_dim, units = to - from;
    memcpy(acc + from * dim, v.acc + from * dim, units * dim * sizeof(float));
    memcpy(ml + 2 * (size_t)from, v.ml + 2 * (size_t)from, 2 * units * sizeof(float));
}

/* ---- merge --------------------------------------------------------------------------------------- */

static void merge_unit(const kp_ctx *c, const attention_params *p, kp_u32 u, float *out) {
    size_t dim = p->head_dim, ml = (size_t)p->m_max * p->group * dim + 2 * (size_t)u;
    float most = -INFINITY, sum = 0;
    for (kp_u32 s = 0; s < p->splits; s++) {
        const float *m = partial_of(c, p, s) + ml;
        if (m[1] != 0 && m[0] > most) most = m[0];
    }
    memset(out, 0, dim * sizeof(float));
    for (kp_u32 s = 0; s < p->splits; s++) {
        const float *acc = partial_of(c, p, s) + u * dim, *m = partial_of(c, p, s) + ml;
        if (m[1] == 0) continue; /* not "> 0": a NaN must come through */
        float weight = expf(m[0] - most);
        sum += weight * m[1];
        vec_axpy(weight, acc, out, dim);
    }
    vec_scale(1 / sum, out, out, dim);
}

static void merge_compute(kp_ctx *c) {
    const attention_params *p = kb_params(c);
    float *out = kb_region(c, ATTENTION_REGION_ACC);
    kp_u32 from, to;
    kb_share(c, 0, kb_rows_live(c) * p->group, 1, &from, &to);
    for (kp_u32 u = from; u < to; u++) merge_unit(c, p, u, out + (size_t)u * p->head_dim);
}

/* The heads are cut, with what belongs to them: q, k, v and the caches alike; the rope table and the norms are of every
 * head. */
static const char *place(const graph_op *op, op_places *places) {
    (void)op;
    const placement *in = places->in, p = in[ATTENTION_Q];
    places->out[0] = p;
    if (p == PLACE_PARTIAL || in[ATTENTION_K] != p || in[ATTENTION_V] != p || in[ATTENTION_CACHE_K] != p ||
        in[ATTENTION_CACHE_V] != p) {
        return "q, k, v and the caches must be alike, all sharded by heads or all whole";
    }
    if (in[ATTENTION_ROPE] != PLACE_WHOLE) return "the rope table must be whole";
    bool rep = places->weight[0] == SHARD_REP && places->weight[1] == SHARD_REP;
    return rep ? NULL : "the norms of q and k must be rep: each head has all of them";
}

static bool tags(const void *params) { return ((const attention_params *)params)->stage_tokens != 0; }

const op_desc keel_op_attention = {
    .name = "attention",
    .summary = "out = softmax(scale × rope(norm(q)) · K, causal) V over the paged cache, k and v appended first",
    .attrs = {{"q_heads", true, 0, "query heads", .per_rank = true},
              {"kv_heads", true, 0, "KV heads; a divisor of q_heads", .per_rank = true},
              {"head_dim", true, 0, "elements of a head, 16 to 256"},
              {"eps", false, 1e-6, "of the norms of q and k, where these are bound"},
              {"scale", false, 0, "multiplies the scores; 0: 1/√head_dim", .meaning = usual_scale}},
    .min_in = 6,
    .max_in = 6,
    .max_weights = 2,
    .n_out = 1,
    .tagged_in = 7,
    .tagged_out = 1,
    .tags = tags,
    .in_name = {"q", "k", "v", "rope", "cache_k", "cache_v"},
    .weight_name = {"q_norm", "k_norm"},
    .phases = {{.name = "append", .needs = KP_ROLE_BIT(KP_LAUNCHER), .cpu = {[KP_LAUNCHER] = append_rows}},
               {.name = "split",
                .needs = KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_LAUNCHER] = split_launch, [KP_CONSUMER] = split_compute, [KP_STORER] = split_store}},
               {.name = "merge",
                .needs = KP_ROLE_BIT(KP_CONSUMER) | KP_ROLE_BIT(KP_STORER),
                .cpu = {[KP_CONSUMER] = merge_compute, [KP_STORER] = store_rows}},
               {.name = "stream", /* attention_tiled.cuh */
                .ring = true,
                .by_aux = true,
                .needs = KP_ROLE_BIT(KP_LOADER) | KP_ROLE_BIT(KP_LAUNCHER) | KP_ROLE_BIT(KP_CONSUMER) |
                         KP_ROLE_BIT(KP_STORER)}},
    .infer = infer,
    .place = place,
    .params = params,
    .tile = tile,
    .task = task,
    .min_cosine = 0.9999,
    .max_rel_error = 1e-4,
};
