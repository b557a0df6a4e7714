/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 180 */
/* attention against softmax attention in double precision over a plain, unpaged history. */
#include "attention.h"

#include "core/mem.h"
#include "support/op_harness.h"

#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SEQ_MAX = 512, ROWS_MAX = 16 };

typedef struct shape {
    int64_t group, kv_heads, dim, rotary; /* rotary 0: no rope */
    bool q_norm, k_norm;
    double scale, amplitude; /* of q; scale 0: the default */
    uint32_t splits, lanes, workers;
    dtype weights;
    unsigned seed;
} shape;

/* Everything about one run of a shape: the graph in the harness, and the history as the reference sees it. */
typedef struct fixture {
    shape s;
    harness *h;
    int q, k, v, rope, out;
    double *keys, *values; /* [SEQ_MAX][kv_heads][dim] after norm and rope */
    double *want;          /* [ROWS_MAX][q_heads × dim] */
    uint32_t position;
} fixture;

static const double EPS = 1e-5;

static void fixture_open(fixture *f, shape s) {
    *f = (fixture){.s = s};
    f->h = harness_new((harness_config){.seed = s.seed,
                                        .workers = s.workers,
                                        .lanes = s.lanes,
                                        .max_seq = SEQ_MAX,
                                        .kv_splits = s.splits,
                                        .weight_dtype = s.weights});
    build *b = harness_build(f->h);
    f->q = harness_input(f->h, "q", s.group * s.kv_heads * s.dim);
    f->k = harness_input(f->h, "k", s.kv_heads * s.dim);
    f->v = harness_input(f->h, "v", s.kv_heads * s.dim);
    f->rope = s.rotary ? harness_input(f->h, "rope", s.rotary) : BUILD_NONE;
    op_spec spec = {.kind = "attention", .name = "attention"};
    int in[] = {f->q,
                f->k,
                f->v,
                f->rope,
                build_cache(b, "cache_k", s.kv_heads, s.dim),
                build_cache(b, "cache_v", s.kv_heads, s.dim)};
    memcpy(spec.in, in, sizeof in);
    spec.weight[0] = (weight_spec){.key = s.q_norm ? "q_norm" : "", .dim = {s.dim}};
    spec.weight[1] = (weight_spec){.key = s.k_norm ? "k_norm" : "", .dim = {s.dim}};
    graph_attr attrs[] = {{"q_heads", (double)(s.group * s.kv_heads)},
                          {"kv_heads", (double)s.kv_heads},
                          {"head_dim", (double)s.dim},
                          {"eps", EPS},
                          {"scale", s.scale}};
    memcpy(spec.attr, attrs, sizeof attrs);
    f->out = build_op(b, spec);
    harness_ready(f->h);
    size_t history = SEQ_MAX * (size_t)(s.kv_heads * s.dim);
    f->keys = mem_calloc(history, sizeof(double));
    f->values = mem_calloc(history, sizeof(double));
    f->want = mem_calloc(ROWS_MAX * (size_t)(s.group * s.kv_heads * s.dim), sizeof(double));
    assert_true(f->keys && f->values && f->want);
}

static void fixture_close(fixture *f) {
    mem_free(f->keys);
    mem_free(f->values);
    mem_free(f->want);
    harness_close(f->h);
}

/* The input of a position is the same whatever pass carries it. */
static void fill(const fixture *f, int id, uint32_t rows, int64_t cols, double amplitude, unsigned salt) {
    float *x = harness_tensor(f->h, id);
    for (uint32_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < cols; i++) {
            uint64_t n = (uint64_t)(f->position + r) * (uint64_t)cols + (uint64_t)i;
            x[r * cols + i] = (float)amplitude * harness_uniform(f->s.seed * 16 + salt, n);
        }
    }
}

static void fill_rope(const fixture *f, uint32_t rows) {
    float *x = harness_tensor(f->h, f->rope);
    int64_t half = f->s.rotary / 2;
    for (uint32_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < half; i++) {
            double angle = (f->position + r) * pow(10000, -(double)i / (double)half);
            x[r * f->s.rotary + i] = (float)cos(angle);
            x[r * f->s.rotary + half + i] = (float)sin(angle);
        }
    }
}

static void fill_inputs(const fixture *f, uint32_t rows) {
    const shape *s = &f->s;
    fill(f, f->q, rows, s->group * s->kv_heads * s->dim, s->amplitude != 0 ? s->amplitude : 1, 1);
    fill(f, f->k, rows, s->kv_heads * s->dim, 1, 2);
    fill(f, f->v, rows, s->kv_heads * s->dim, 1, 3);
    if (s->rotary) fill_rope(f, rows);
}

/* One head through norm and rope, in double. */
static void reference_head(const fixture *f, const float *x, const char *norm, uint32_t r, double *out) {
    int64_t dim = f->s.dim, half = f->s.rotary / 2;
    double sum = 0;
    for (int64_t i = 0; i < dim; i++) sum += (double)x[i] * (double)x[i];
    const float *w = norm ? harness_weight(f->h, norm) : NULL;
    double inverse = 1 / sqrt(sum / (double)dim + EPS);
    for (int64_t i = 0; i < dim; i++) out[i] = w ? (double)x[i] * inverse * (double)w[i] : (double)x[i];
    const float *rope = f->s.rotary ? harness_tensor(f->h, f->rope) + r * f->s.rotary : NULL;
    for (int64_t i = 0; i < half; i++) {
        double a = out[i], b = out[i + half], c = (double)rope[i], s = (double)rope[half + i];
        out[i] = a * c - b * s;
        out[i + half] = b * c + a * s;
    }
}

static void reference_row(fixture *f, uint32_t r, int64_t head) {
    const shape *s = &f->s;
    int64_t dim = s->dim, kv = head / s->group, q_heads = s->group * s->kv_heads;
    uint32_t n = f->position + r + 1;
    double q[ATTENTION_HEAD_MAX], score[SEQ_MAX], most = -INFINITY, sum = 0;
    double *out = f->want + (r * q_heads + head) * dim;
    reference_head(f, harness_tensor(f->h, f->q) + (r * q_heads + head) * dim, s->q_norm ? "q_norm" : NULL, r, q);
    for (uint32_t t = 0; t < n; t++) {
        score[t] = 0;
        for (int64_t i = 0; i < dim; i++) score[t] += q[i] * f->keys[(t * s->kv_heads + kv) * dim + i];
        score[t] *= s->scale != 0 ? s->scale : 1 / sqrt((double)dim);
        if (score[t] > most) most = score[t];
    }
    for (uint32_t t = 0; t < n; t++) sum += score[t] = exp(score[t] - most);
    for (int64_t i = 0; i < dim; i++) {
        out[i] = 0;
        for (uint32_t t = 0; t < n; t++) out[i] += score[t] / sum * f->values[(t * s->kv_heads + kv) * dim + i];
    }
}

static void reference(fixture *f, uint32_t rows) {
    const shape *s = &f->s;
    for (uint32_t r = 0; r < rows; r++) {
        for (int64_t h = 0; h < s->kv_heads; h++) {
            size_t at = (size_t)(((f->position + r) * s->kv_heads + h) * s->dim);
            const float *k = harness_tensor(f->h, f->k), *v = harness_tensor(f->h, f->v);
            int64_t from = (r * s->kv_heads + h) * s->dim;
            reference_head(f, k + from, s->k_norm ? "k_norm" : NULL, r, f->keys + at);
            for (int64_t i = 0; i < s->dim; i++) f->values[at + (size_t)i] = (double)v[from + i];
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        for (int64_t head = 0; head < s->group * s->kv_heads; head++) reference_row(f, r, head);
    }
}

/* A pass of `rows` rows behind those before it. */
static void run(fixture *f, uint32_t rows) {
    fill_inputs(f, rows);
    harness_run(f->h, rows, f->position, NULL, false);
}

static void run_and_compare(fixture *f, uint32_t rows) {
    uint32_t cols = (uint32_t)(f->s.group * f->s.kv_heads * f->s.dim);
    char what[160];
    snprintf(what, sizeof what, "G %d, KV heads %d, dim %d, rotary %d, splits %u, lanes %u: %u rows at %u",
             (int)f->s.group, (int)f->s.kv_heads, (int)f->s.dim, (int)f->s.rotary, f->s.splits, f->s.lanes, rows,
             f->position);
    run(f, rows);
    reference(f, rows);
    harness_compare(op_find("attention"), what, harness_tensor(f->h, f->out), f->want, rows, cols, cols, cols);
    f->position += rows;
}

/* Passes up to `to` positions, compared only where asked: the reference's history must know every position. */
static void run_to(fixture *f, uint32_t to, uint32_t chunk) {
    while (f->position < to) run_and_compare(f, to - f->position < chunk ? to - f->position : chunk);
}

static const shape plain = {.group = 2,
                            .kv_heads = 2,
                            .dim = 64,
                            .rotary = 64,
                            .q_norm = true,
                            .k_norm = true,
                            .splits = 1,
                            .lanes = 2,
                            .workers = 2,
                            .seed = 1};

static void groups_dims_norms_and_rope(void **state) {
    (void)state;
    static const shape shapes[] = {
        {.group = 1, .kv_heads = 1, .dim = 16, .splits = 1},
        {.group = 1, .kv_heads = 3, .dim = 64, .rotary = 64, .splits = 1},
        {.group = 2, .kv_heads = 2, .dim = 80, .rotary = 32, .splits = 2},
        {.group = 3, .kv_heads = 2, .dim = 80, .rotary = 80, .q_norm = true, .splits = 1},
        {.group = 7, .kv_heads = 1, .dim = 64, .rotary = 64, .k_norm = true, .splits = 3},
        {.group = 8, .kv_heads = 2, .dim = 128, .rotary = 128, .q_norm = true, .k_norm = true, .splits = 1},
        {.group = 16, .kv_heads = 1, .dim = 128, .rotary = 64, .q_norm = true, .k_norm = true, .splits = 2},
        {.group = 4, .kv_heads = 2, .dim = 128, .rotary = 2, .q_norm = true, .k_norm = true, .weights = DTYPE_BF16},
        {.group = 2, .kv_heads = 1, .dim = 256, .rotary = 256, .q_norm = true, .weights = DTYPE_BF16, .splits = 2},
        {.group = 2, .kv_heads = 1, .dim = 24, .rotary = 8, .q_norm = true, .k_norm = true, .splits = 1},
    };
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (uint32_t lanes = 1; lanes <= 2; lanes++) {
            shape s = shapes[i];
            if (harness_on_gpu() && lanes > 1) continue; /* its lanes are given */
            s.lanes = lanes;
            s.workers = 1 + i % 3;
            s.seed = 10 + i;
            fixture f;
            fixture_open(&f, s);
            run_to(&f, 70, 13);
            run_to(&f, 73, 1);
            fixture_close(&f);
        }
    }
}

/* More heads a KV head than SMEM has room for the sums of: 16 rows of 127 heads of 256 fit a CPU plan, of 8 of 128 a
 * GPU plan. */
static void heads_that_are_cut(void **state) {
    (void)state;
    static const shape many = {.group = 128, .kv_heads = 2, .dim = 256, .rotary = 64, .q_norm = true, .k_norm = true};
    static const shape few = {.group = 16, .kv_heads = 2, .dim = 128, .rotary = 128, .q_norm = true, .k_norm = true};
    static const shape odd = {.group = 9, .kv_heads = 1, .dim = 256, .rotary = 2, .k_norm = true};
    const shape *shapes[] = {harness_on_gpu() ? &few : &many, harness_on_gpu() ? &odd : &many};
    for (uint32_t splits = 1; splits <= 3; splits++) {
        shape s = *shapes[splits % 2];
        s.splits = splits;
        s.lanes = 1 + splits % 2;
        s.workers = splits;
        s.seed = 50 + splits;
        fixture f;
        fixture_open(&f, s);
        assert_true(harness_has_phase(f.h, "append"));
        run_to(&f, 70, 13); /* a pass over a page's border */
        run_to(&f, 72, 1);
        fixture_close(&f);
    }
    fixture f;
    fixture_open(&f, plain);
    assert_false(harness_has_phase(f.h, "append"));
    fixture_close(&f);
}

static void page_borders_and_splits(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1, 63, 64, 65, 128, 129, 330};
    static const uint32_t splits[] = {1, 2, 3, 5};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (unsigned j = 0; j < sizeof splits / sizeof *splits; j++) {
            shape s = plain;
            s.splits = splits[j];
            s.lanes = 1 + (i + j) % 2;
            s.seed = 100 + i * 10 + j;
            fixture f;
            fixture_open(&f, s);
            run_to(&f, lengths[i], 16);
            run_to(&f, lengths[i] + 3, 1);
            fixture_close(&f);
        }
    }
}

static void every_number_of_rows(void **state) {
    (void)state;
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        for (uint32_t splits = 1; splits <= 2; splits++) {
            shape s = plain;
            s.lanes = lanes;
            s.splits = splits;
            fixture f;
            fixture_open(&f, s);
            for (uint32_t rows = 1; rows <= 16; rows++) run_and_compare(&f, rows);
            for (int i = 0; i < 3; i++) run_and_compare(&f, 1);
            fixture_close(&f);
        }
    }
}

/* Scores of ±100 and more: without subtracting the greatest, e^score overflows; and the greatest keeps changing. */
static void large_scores(void **state) {
    (void)state;
    if (harness_on_gpu()) skip(); /* it rounds q, and with it scores by more than the softmax forgives */
    for (uint32_t splits = 1; splits <= 3; splits++) {
        shape s = plain;
        s.q_norm = s.k_norm = false;
        s.scale = 1;
        s.amplitude = 30;
        s.splits = splits;
        fixture f;
        fixture_open(&f, s);
        run_to(&f, 200, 16);
        fixture_close(&f);
    }
}

static float *collect(shape s, const uint32_t *passes, uint32_t total) {
    size_t cols = (size_t)(s.group * s.kv_heads * s.dim);
    float *rows = mem_calloc(total * cols, sizeof *rows);
    assert_non_null(rows);
    fixture f;
    fixture_open(&f, s);
    for (uint32_t i = 0; f.position < total; i++) {
        uint32_t n = passes[i % 3] < total - f.position ? passes[i % 3] : total - f.position;
        run(&f, n);
        memcpy(rows + f.position * cols, harness_tensor(f.h, f.out), n * cols * sizeof *rows);
        f.position += n;
    }
    fixture_close(&f);
    return rows;
}

/* For a given number of splits a row's bits depend on nothing but its position. */
static void same_bits_whatever_the_passes_lanes_and_workers(void **state) {
    (void)state;
    static const uint32_t passes[][3] = {{16, 16, 16}, {1, 1, 1}, {5, 16, 3}, {11, 2, 7}};
    enum { TOTAL = 140 };
    for (uint32_t splits = 1; splits <= 3; splits += 2) {
        shape s = plain;
        s.group = 3;
        s.splits = splits;
        float *first = collect(s, passes[0], TOTAL);
        for (unsigned i = 1; i < sizeof passes / sizeof *passes; i++) {
            s.lanes = 1 + i % 2;
            s.workers = i;
            float *again = collect(s, passes[i], TOTAL);
            assert_memory_equal(first, again, TOTAL * (size_t)(s.group * s.kv_heads * s.dim) * sizeof *first);
            mem_free(again);
        }
        mem_free(first);
    }
}

static bool any_nan(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (x[i] != x[i]) return true;
    }
    return false;
}

/* A NaN in q spoils that head of that row alone; one in k spoils that KV head's rows from there on, through the merge
 * too. */
static void nan_comes_through(void **state) {
    (void)state;
    for (uint32_t splits = 1; splits <= 3; splits += 2) {
        shape s = plain;
        s.splits = splits;
        fixture f;
        fixture_open(&f, s);
        fill_inputs(&f, 4);
        int64_t cols = s.group * s.kv_heads * s.dim;
        harness_tensor(f.h, f.q)[2 * cols + s.dim] = NAN; /* row 2, head 1 */
        harness_run(f.h, 4, 0, NULL, false);
        const float *out = harness_tensor(f.h, f.out);
        for (int64_t i = 0; i < 4 * s.group * s.kv_heads; i++) {
            assert_int_equal(any_nan(out + i * s.dim, (size_t)s.dim), i == 2 * s.group * s.kv_heads + 1);
        }
        f.position = 4;
        fill_inputs(&f, 3);
        harness_tensor(f.h, f.k)[1 * s.kv_heads * s.dim + 7] = NAN; /* row 1, KV head 0 */
        harness_run(f.h, 3, 4, NULL, false);
        for (int64_t i = 0; i < 3 * s.group * s.kv_heads; i++) {
            int64_t row = i / (s.group * s.kv_heads), head = i % (s.group * s.kv_heads);
            assert_int_equal(any_nan(out + i * s.dim, (size_t)s.dim), row >= 1 && head < s.group);
        }
        f.position = 7;
        while (f.position < 67) { /* now the last rows lie in the next page, and so in another split */
            run(&f, 12);
            f.position += 12;
        }
        for (int64_t i = 0; i < 12 * s.group * s.kv_heads; i++) {
            assert_int_equal(any_nan(out + i * s.dim, (size_t)s.dim), i % (s.group * s.kv_heads) < s.group);
        }
        fixture_close(&f);
    }
}

/* Rows of several sequences in one pass, which no request makes yet: the consumer's body over a cache and a page table
 * of the test's own. Whatever lies in pages of no sequence is NaN. */
static void rows_of_several_sequences(void **state) {
    (void)state;
    enum { DIM = 16, TOKENS = 64, PAGES = 9, PER_SEQ = 3, ROWS = 5, HEADS = 2, G = 2 };
    static const kp_u32 table[2 * PER_SEQ] = {7, 2, 5, 3, 8, 0};
    static float cache_k[PAGES][HEADS][TOKENS][DIM], cache_v[PAGES][HEADS][TOKENS][DIM], out[ROWS][HEADS * G * DIM];
    static _Alignas(64) float smem[4096];
    memset(cache_k, 0xff, sizeof cache_k);
    memset(cache_v, 0xff, sizeof cache_v);
    kp_step step = {.n_rows = ROWS, .position = {70, 150, 3, 71, 64}, .seq = {0, 1, 1, 0, 1}};
    kp_request request = {.page_table = table, .pages_per_seq = PER_SEQ};
    attention_params params = {.q_heads = HEADS * G,
                               .kv_heads = HEADS,
                               .head_dim = DIM,
                               .group = G,
                               .splits = 1,
                               .page_tokens = TOKENS,
                               .m_max = 16,
                               .scale = 1};
    kp_instance instance = {.params = &params};
    instance.buffer[ATTENTION_CACHE_K] = cache_k;
    instance.buffer[ATTENTION_CACHE_V] = cache_v;
    instance.buffer[ATTENTION_OUT] = out;
    kp_launch launch = {.instances = &instance, .step = &step, .request = &request};
    kp_worker worker = {.lanes = {1, 2, 2, 2, 2}, .launch = &launch, .smem = (kp_u8 *)smem};
    kp_task task = {.region_offset = {0, 16 * G * DIM * sizeof(float)}};
    for (uint32_t i = 0; i < 2 * PER_SEQ * HEADS * TOKENS * DIM; i++) {
        uint32_t d = i % DIM, t = i / DIM % TOKENS, h = i / DIM / TOKENS % HEADS, page = i / DIM / TOKENS / HEADS;
        cache_k[table[page]][h][t][d] = harness_uniform(1, i);
        cache_v[table[page]][h][t][d] = harness_uniform(2, i);
    }
    static double want[ROWS][HEADS * G * DIM];
    for (kp_u32 h = 0; h < HEADS; h++) {
        task.lo = h;
        for (uint32_t u = 0; u < ROWS * G; u++) {
            double sum = 0, *w = want[u / G] + (h * G + u % G) * DIM;
            float *q = smem + u * DIM;
            for (uint32_t d = 0; d < DIM; d++) q[d] = harness_uniform(3 + h, u * DIM + d);
            for (uint32_t t = 0; t <= step.position[u / G]; t++) {
                kp_u32 page = table[step.seq[u / G] * PER_SEQ + t / TOKENS];
                double score = 0;
                for (uint32_t d = 0; d < DIM; d++) score += (double)q[d] * (double)cache_k[page][h][t % TOKENS][d];
                sum += exp(score);
                for (uint32_t d = 0; d < DIM; d++) w[d] += exp(score) * (double)cache_v[page][h][t % TOKENS][d];
            }
            for (uint32_t d = 0; d < DIM; d++) w[d] /= sum;
        }
        static const enum kp_role order[] = {KP_CONSUMER, KP_STORER};
        for (kp_u32 i = 0; i < 4; i++) {
            kp_ctx c = {.worker = &worker, .role = KP_CONSUMER, .lane = i % 2, .task = &task};
            op_find("attention")->phases[1].cpu[order[i / 2]](&c);
        }
    }
    harness_compare(op_find("attention"), "two sequences", out[0], want[0], ROWS, HEADS * G * DIM, HEADS * G * DIM,
                    HEADS * G * DIM);
}

/* What the shape rule refuses; each differs from a good op in one thing. */
typedef struct wrong {
    const char *text; /* stands in the message */
    int64_t q, k, rope, cache_heads, cache_dim, norm;
    double q_heads, kv_heads, dim;
} wrong;

static void refuses_wrong_shapes(void **state) {
    (void)state;
    static const wrong cases[] = {
        {NULL, 128, 64, 32, 2, 32, 32, 4, 2, 32},
        {"input 0 (q)", 96, 64, 32, 2, 32, 32, 4, 2, 32},
        {"inputs 1 and 2", 128, 32, 32, 2, 32, 32, 4, 2, 32},
        {"rope table", 128, 64, 64, 2, 32, 32, 4, 2, 32},
        {"rope table", 128, 64, 31, 2, 32, 32, 4, 2, 32},
        {"two caches", 128, 64, 32, 4, 32, 32, 4, 2, 32},
        {"two caches", 128, 64, 32, 2, 16, 32, 4, 2, 32},
        {"norm", 128, 64, 32, 2, 32, 64, 4, 2, 32},
        {"multiple of kv_heads", 128, 64, 32, 2, 32, 32, 5, 2, 32},
        {"multiple of kv_heads", 128, 64, 32, 2, 32, 32, 4, 0, 32},
        {"head_dim", 32, 16, 8, 2, 8, 8, 4, 2, 8},
        {"head_dim", 128, 64, 32, 2, 32, 32, 4, 2, 20},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wrong *w = &cases[i];
        build b;
        keel_error err = {0};
        graph *g = NULL;
        build_begin(&b, NULL, "test", DTYPE_F32, &err);
        op_spec spec = {.kind = "attention", .name = "a"};
        int in[] = {build_input(&b, "q", w->q),
                    build_input(&b, "k", w->k),
                    build_input(&b, "v", w->k),
                    build_input(&b, "rope", w->rope),
                    build_cache(&b, "ck", w->cache_heads, w->cache_dim),
                    build_cache(&b, "cv", w->cache_heads, w->cache_dim)};
        memcpy(spec.in, in, sizeof in);
        spec.weight[0] = (weight_spec){.key = "n", .dim = {w->norm}};
        graph_attr attrs[] = {{"q_heads", w->q_heads}, {"kv_heads", w->kv_heads}, {"head_dim", w->dim}};
        memcpy(spec.attr, attrs, sizeof attrs);
        build_op(&b, spec);
        keel_status status = build_finish(&b, &g);
        assert_int_equal(status, w->text ? KEEL_FORMAT : KEEL_OK);
        if (w->text) assert_non_null(strstr(err.detail, w->text));
        if (status == KEEL_OK) graph_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_dims_norms_and_rope),
        cmocka_unit_test(heads_that_are_cut),
        cmocka_unit_test(page_borders_and_splits),
        cmocka_unit_test(every_number_of_rows),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(same_bits_whatever_the_passes_lanes_and_workers),
        cmocka_unit_test(nan_comes_through),
        cmocka_unit_test(rows_of_several_sequences),
        cmocka_unit_test(refuses_wrong_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
