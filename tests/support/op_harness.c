/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_harness.h"

#include "core/mem.h"
#include "core/vec.h"
#include "exec/session.h"
#include "load/weights.h"
#include "support/op_ahead.h"
#include "support/op_memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HARNESS_WEIGHTS = 64 };

typedef struct harness_tensor_data {
    const char *key;
    void *data;
    float *f32;
    dtype dtype;
    uint64_t n;
} harness_weight_data;

struct harness {
    harness_config config;
    build build;
    graph *g;
    plan *p;
    weights *w;
    session *s;
    op_memory memory;
    harness_weight_data weight[HARNESS_WEIGHTS];
    int n_weights;
    keel_error err;
    const char *arch;
    float **shadow;       /* GPU: [n_buffers] what a test sees of an activation */
    session_options opts; /* GPU: the session is opened again where weights are new */
    bool stale;
};

static harness_count counted;

harness_count harness_counted(void) { return counted; }

static void check(harness *h, keel_status s, const char *what) {
    if (s == KEEL_OK) return;
    fprintf(stderr, "%s (seed %u): %s\n", what, h->config.seed, h->err.detail);
    fail();
}

float harness_uniform(unsigned seed, uint64_t i) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)seed * 0xd1342543de82ef95ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    return (float)((double)(x >> 40) / 8388608.0 - 1.0);
}

harness *harness_new(harness_config config) {
    harness *h = calloc(1, sizeof *h);
    assert_non_null(h);
    h->config = config;
    h->arch = getenv("KEEL_HARNESS_ARCH");
    if (h->arch) config.weight_dtype = DTYPE_BF16;
    if (op_ahead()) h->arch = NULL; /* the case runs on the CPU */
    if (!config.workers) h->config.workers = 2;
    if (!config.lanes) h->config.lanes = 2;
    if (!config.m_max) h->config.m_max = KP_M_MAX;
    if (!config.max_seq) h->config.max_seq = 256;
    check(h, build_begin(&h->build, "op harness", "op harness", config.weight_dtype, &h->err), "build_begin");
    return h;
}

build *harness_build(harness *h) { return &h->build; }

int harness_input(harness *h, const char *name, int64_t cols) { return build_input(&h->build, name, cols); }

/* The harness replaces the bytes that the synthetic recipe made. */
static void fill_weights(harness *h) {
    for (int id = 1; id <= h->g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(h->g, id);
        if (t->kind != TENSOR_WEIGHT) continue;
        assert_true(h->n_weights < HARNESS_WEIGHTS);
        harness_weight_data *w = &h->weight[h->n_weights++];
        w->key = t->key;
        w->n = (uint64_t)graph_elements(t);
        w->data = (void *)(uintptr_t)weights_find(h->w, t->name, &w->dtype);
        assert_non_null(w->data);
        w->f32 = calloc(w->n, sizeof *w->f32);
        float *values = calloc(w->n, sizeof *values);
        assert_true(w->f32 && values);
        for (uint64_t i = 0; i < w->n; i++) values[i] = harness_uniform(h->config.seed + (unsigned)id * 7919u, i);
        harness_set_weight(h, t->key, values);
        free(values);
    }
}

static harness_weight_data *find_weight(harness *h, const char *key) {
    for (int i = 0; i < h->n_weights; i++) {
        if (strcmp(h->weight[i].key, key) == 0) return &h->weight[i];
    }
    fail_msg("no weight %s", key);
    return NULL;
}

void harness_set_weight(harness *h, const char *key, const float *values) {
    harness_weight_data *w = find_weight(h, key);
    h->stale = true;
    for (uint64_t i = 0; i < w->n; i++) {
        if (w->dtype == DTYPE_F32) {
            ((float *)w->data)[i] = values[i];
            w->f32[i] = values[i];
        } else if (w->dtype == DTYPE_F8E4M3) {
            ((uint8_t *)w->data)[i] = f8e4m3_from_f32(values[i]);
            w->f32[i] = f8e4m3_to_f32(((uint8_t *)w->data)[i]);
        } else if (w->dtype == DTYPE_BF16) {
            ((uint16_t *)w->data)[i] = bf16_from_f32(values[i]);
            w->f32[i] = bf16_to_f32(((uint16_t *)w->data)[i]);
        } else {
            ((uint16_t *)w->data)[i] = f16_from_f32(values[i]);
            w->f32[i] = f16_to_f32(((uint16_t *)w->data)[i]);
        }
    }
}

const float *harness_weight(harness *h, const char *key) { return find_weight(h, key)->f32; }

static void bind_weights(harness *h) {
    check(h, weights_open_synth(h->config.seed, &h->w, &h->err), "weights");
    check(h, weights_bind(h->w, h->g, &h->err), "weights");
}

static void fill_inputs(harness *h) {
    for (int id = 1; id <= h->g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(h->g, id);
        if (!t->external) continue;
        float *x = harness_tensor(h, id);
        uint64_t n = (uint64_t)graph_row_elements(t) * h->config.m_max;
        for (uint64_t i = 0; i < n; i++) x[i] = harness_uniform(h->config.seed + (unsigned)id * 104729u, i);
    }
}

/* ---- the GPU backend ------------------------------------------------------------------------------------------- */

static void make_shadows(harness *h) {
    h->shadow = calloc((size_t)h->p->n_buffers + 1, sizeof *h->shadow);
    assert_non_null(h->shadow);
    for (uint32_t i = 0; i < h->p->n_buffers; i++) {
        const plan_buffer *b = &h->p->buffers[i];
        if (b->kind != BUFFER_ACTIVATION) continue;
        h->shadow[i] = calloc(b->bytes, b->dtype == DTYPE_BF16 ? sizeof(float) / 2 : 1);
        assert_non_null(h->shadow[i]);
    }
}

/* A buffer as the GPU has it and as a test sees it; to: from the test's. Returns false where they differ. */
static bool convert(const plan_buffer *b, uint64_t bytes, void *raw, float *shadow, bool to) {
    if (b->dtype != DTYPE_BF16) {
        bool same = memcmp(raw, shadow, bytes) == 0;
        memcpy(to ? raw : (void *)shadow, to ? (const void *)shadow : raw, bytes);
        return same;
    }
    uint16_t *half = raw;
    bool same = true;
    for (uint64_t k = 0; k < bytes / 2; k++) {
        uint16_t rounded_half = bf16_from_f32(shadow[k]);
        same = same && half[k] == rounded_half;
        if (to) half[k] = rounded_half;
        shadow[k] = bf16_to_f32(half[k]);
    }
    return same;
}

/* to: inputs into device memory; the test then sees what is left after rounding. Else all back. */
static void exchange(harness *h, bool to) {
    for (uint32_t i = 0; i < h->p->n_buffers; i++) {
        const plan_buffer *b = &h->p->buffers[i];
        uint64_t bytes = op_memory_bytes(&h->memory, i);
        if (!h->shadow[i] || (to && !b->external)) continue;
        void *raw = calloc(1, bytes);
        assert_non_null(raw);
        if (!to) check(h, op_memory_read(&h->memory, h->s, i, raw, &h->err), "read");
        bool same = convert(b, bytes, raw, h->shadow[i], to);
        if (to) check(h, op_memory_write(&h->memory, h->s, i, raw, &h->err), "write");
        free(raw);
        if (!to && b->external && !same) fail_msg("input %s was written to (seed %u)", b->name, h->config.seed);
    }
}

static void open_gpu(harness *h) {
    if (!h->stale) return;
    session_close(h->s);
    h->s = NULL;
    keel_status s = session_open(h->p, h->w, &h->opts, &h->s, &h->err);
    if (s == KEEL_UNSUPPORTED || s == KEEL_MISSING) { /* what the GPU backend refuses is no case of its */
        print_message("skipped: %s\n", h->err.detail);
        counted.skipped++;
        skip();
    }
    check(h, s, "session");
    h->stale = false;
    counted.cases++;
    for (uint32_t i = 0; i < h->p->n_buffers; i++) { /* new memory holds anything */
        if (h->p->buffers[i].kind != BUFFER_CACHE) continue;
        check(h, op_memory_fill(&h->memory, h->s, i, 0xff, &h->err), "poison");
    }
}

void harness_ready(harness *h) {
    check(h, build_finish(&h->build, &h->g), "graph");
    h->g->vocab = h->config.vocab ? h->config.vocab : 1 << 20;
    h->g->max_position = h->config.max_seq;
    bind_weights(h);
    plan_options o = {.arch = h->arch ? h->arch : "cpu",
                      .workers = h->config.workers,
                      .m_max = h->config.m_max,
                      .max_seq = h->config.max_seq,
                      .page_tokens = 64,
                      .kv_splits = h->config.kv_splits,
                      .no_reuse = true};
    check(h, plan_build(h->g, &o, &h->p, &h->err), "plan");
    check(h, op_memory_open(&h->memory, h->p, &h->err), "canaries");
    if (op_ahead()) {
        o.arch = getenv("KEEL_HARNESS_ARCH");
        op_ahead_plan(h->g, &o);
    }
    h->opts = (session_options){
        .lanes = h->config.lanes, .seed = h->config.seed | 1, .page_seed = h->config.seed | 1, .watchdog_s = 20};
    if (h->arch) {
        h->opts.cache_dir = ".";
        h->stale = true;
        make_shadows(h);
    } else {
        check(h, session_open(h->p, h->w, &h->opts, &h->s, &h->err), "session");
    }
    fill_weights(h);
    fill_inputs(h);
}

static uint32_t buffer_of(harness *h, int id) {
    const char *name = graph_tensor_at(h->g, id)->name;
    for (uint32_t i = 0; i < h->p->n_buffers; i++) {
        if (strcmp(h->p->buffers[i].name, name) == 0) return i;
    }
    return KP_NONE;
}

float *harness_tensor(harness *h, int id) {
    uint32_t b = buffer_of(h, id);
    if (h->shadow) return b == KP_NONE ? NULL : h->shadow[b];
    return b == KP_NONE ? NULL : session_buffer(h->s, b);
}

static void poison(harness *h) {
    if (h->arch) open_gpu(h);
    for (uint32_t i = 0; i < h->p->n_buffers; i++) {
        const plan_buffer *b = &h->p->buffers[i];
        if ((b->kind != BUFFER_ACTIVATION && b->kind != BUFFER_SCRATCH) || b->external) continue;
        check(h, op_memory_fill(&h->memory, h->s, i, 0xff, &h->err), "poison");
    }
    if (h->arch) exchange(h, true);
    check(h, op_memory_guard(&h->memory, h->s, h->config.planted, &h->err), "canaries");
}

static void look_after(harness *h) {
    keel_status s = op_memory_check(&h->memory, h->s, h->config.planted, &h->err);
    if (h->config.planted) {
        if (s != KEEL_REFUSED) fail_msg("%s", "the planted fault was not seen");
        print_message("planted: %s\n", h->err.detail);
    } else {
        check(h, s, "run");
    }
    if (h->arch) exchange(h, false);
    counted.runs++;
}

static kp_u32 *prompt_of(uint32_t n_rows, const int32_t *tokens) {
    kp_u32 *prompt = calloc(n_rows + 1, sizeof *prompt);
    assert_non_null(prompt);
    for (uint32_t r = 0; r < n_rows; r++) prompt[r] = tokens ? (kp_u32)tokens[r] : r;
    return prompt;
}

void harness_run(harness *h, uint32_t n_rows, uint32_t start, const int32_t *tokens, bool logits_last) {
    poison(h);
    kp_u32 *prompt = prompt_of(n_rows, tokens);
    kp_request q = {.prompt = prompt, .n_prompt = n_rows, .chunk = n_rows, .start = start, .all_logits = !logits_last};
    session_result r;
    check(h, session_run(h->s, &q, NULL, NULL, &r, &h->err), "run");
    free(prompt);
    look_after(h);
}

static void on_token(void *user, uint32_t index, uint32_t token, uint64_t ns) {
    (void)ns;
    ((int32_t *)user)[index] = (int32_t)token;
}

uint32_t harness_generate(harness *h, uint32_t n_rows, const int32_t *tokens, harness_sampling sampling,
                          uint32_t max_new, int32_t *out) {
    poison(h);
    kp_u32 *prompt = prompt_of(n_rows, tokens);
    kp_request q = {.prompt = prompt,
                    .n_prompt = n_rows,
                    .chunk = n_rows,
                    .max_new = max_new,
                    .temperature = sampling.temperature,
                    .top_k = sampling.top_k,
                    .top_p = sampling.top_p,
                    .seed = sampling.seed};
    session_result r;
    check(h, session_run(h->s, &q, on_token, out, &r, &h->err), "generate");
    free(prompt);
    look_after(h);
    return r.n_tokens;
}

void harness_close(harness *h) {
    session_close(h->s);
    for (uint32_t i = 0; h->shadow && i < h->p->n_buffers; i++) free(h->shadow[i]);
    free(h->shadow);
    plan_close(h->p);
    weights_close(h->w);
    graph_close(h->g);
    for (int i = 0; i < h->n_weights; i++) free(h->weight[i].f32);
    free(h);
}

bool harness_has_phase(const harness *h, const char *phase) {
    for (uint32_t b = 0; b < h->p->n_bodies; b++) {
        if (strcmp(h->p->bodies[b].op->phases[h->p->bodies[b].phase].name, phase) == 0) return true;
    }
    return false;
}

bool harness_on_gpu(void) { return getenv("KEEL_HARNESS_ARCH") != NULL; }

double harness_tolerance(double cpu) { return harness_on_gpu() ? 4e-3 : cpu; }

void harness_compare(const op_desc *op, const char *what, const float *got, const double *want, uint32_t rows,
                     uint32_t cols, uint32_t ld_got, uint32_t ld_want) {
    double dot = 0, gg = 0, ww = 0, worst = 0, top = 0;
    bool nan = false, exact = op->min_cosine >= 1 && op->max_rel_error <= 0, gpu = harness_on_gpu() && !op_ahead();
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < cols; c++) {
            double g = got[(size_t)r * ld_got + c], w = want[(size_t)r * ld_want + c];
            if (exact && gpu) w = bf16_to_f32(bf16_from_f32((float)w));
            nan = nan || isnan(g);
            dot += g * w, gg += g * g, ww += w * w;
            if (fabs(g - w) > worst) worst = fabs(g - w);
            if (fabs(w) > top) top = fabs(w);
        }
    }
    if (gpu && rows * cols < 64 && top < 1 && top > 0)
        top = 1; /* a few sums may all be small, what is rounded is not */
    double cosine = gg > 0 && ww > 0 ? dot / sqrt(gg) / sqrt(ww)
                    : gg == ww       ? 1
                                     : 0,
           rel = top > 0 ? worst / top : worst;
    double least = op->min_cosine, most = op->max_rel_error;
    if (gpu) least = fmin(least, 0.9999), most = fmax(most, 0.02); /* 8 bits of mantissa */
    bool ok = !nan && (exact ? worst <= 0 : cosine >= least && rel <= most);
    if (!ok) fprintf(stderr, "%s: cosine %.9f, max|d|/max|ref| %.3g%s\n", what, cosine, rel, nan ? ", NaN" : "");
    assert_true(ok);
}
