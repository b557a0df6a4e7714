/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* Draws against the exact distribution: softmax in double precision, cut by a full sort. */
#include "sample.h"

#include "core/mem.h"
#include "support/op_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { DRAWS = 2000 };

typedef struct fixture {
    harness *h;
    float *logits; /* row 0, which both the one-row prompt and every decode pass predict from */
    uint32_t vocab;
} fixture;

static void fixture_open(fixture *f, uint32_t vocab, uint32_t workers, uint32_t lanes) {
    f->h = harness_new(
        (harness_config){.seed = vocab, .workers = workers, .lanes = lanes, .max_seq = 8192, .vocab = vocab});
    f->vocab = vocab;
    int id = harness_input(f->h, "logits", vocab);
    build_tail(harness_build(f->h), id, true);
    harness_ready(f->h);
    f->logits = harness_tensor(f->h, id);
}

static void generate(const fixture *f, harness_sampling how, uint32_t n, int32_t *out) {
    static const int32_t prompt[1] = {0};
    assert_int_equal(harness_generate(f->h, 1, prompt, how, n, out), n);
    for (uint32_t i = 0; i < n; i++) assert_true(out[i] >= 0 && (uint32_t)out[i] < f->vocab);
}

typedef struct rank {
    double s;
    uint32_t index;
} rank;

static int by_score(const void *a, const void *b) {
    const rank *x = a, *y = b;
    if (x->s != y->s) return x->s > y->s ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Exact probabilities [vocab] after temperature, top-k and top-p; 0 outside the support. */
static void exact(const float *logits, uint32_t vocab, harness_sampling how, double *p) {
    rank *order = mem_calloc(vocab, sizeof *order);
    assert_non_null(order);
    for (uint32_t i = 0; i < vocab; i++) {
        order[i] = (rank){isnan(logits[i]) ? -INFINITY : (double)(logits[i] / how.temperature), i};
        p[i] = 0;
    }
    qsort(order, vocab, sizeof *order, by_score);
    uint32_t kept = vocab;
    if (how.top_k > 0 && how.top_k < vocab) {
        kept = how.top_k;
        while (kept < vocab && order[kept].s == order[how.top_k - 1].s) kept++;
    }
    double total = 0, before = 0, cut = 0;
    for (uint32_t i = 0; i < kept; i++) total += exp(order[i].s - order[0].s);
    for (uint32_t i = 0; i < kept; i++) {
        bool top_p = how.top_p > 0 && how.top_p < 1;
        if (top_p && i > 0 && before >= (double)how.top_p * total) break;
        before += p[order[i].index] = exp(order[i].s - order[0].s);
        cut = before;
    }
    for (uint32_t i = 0; i < vocab; i++) p[i] /= cut;
    mem_free(order);
}

/* Pearson's χ² over the support; outside it no draw may fall. The bound is 6 standard deviations of χ² with df degrees.
 */
static void check_distribution(const fixture *f, harness_sampling how, const char *what) {
    double p[64], chi = 0, df = -1;
    int32_t out[DRAWS];
    uint32_t count[64] = {0};
    assert_true(f->vocab <= 64);
    exact(f->logits, f->vocab, how, p);
    generate(f, how, DRAWS, out);
    for (int i = 0; i < DRAWS; i++) count[out[i]]++;
    for (uint32_t i = 0; i < f->vocab; i++) {
        double expected = p[i] * DRAWS;
        if (p[i] == 0 && count[i]) fail_msg("%s: seed %u: token %u is outside the support", what, how.seed, i);
        if (p[i] == 0) continue;
        chi += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
        df++;
    }
    printf("%s: chi2 %.1f at %g degrees of freedom\n", what, chi, df);
    if (chi > df + 6 * sqrt(2 * df) + 1e-9) fail_msg("%s: seed %u: chi2 %.1f at %g degrees", what, how.seed, chi, df);
}

static void follows_the_exact_distribution(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, 12, 1, 2);
    static const float logits[12] = {0.5f, -1, 2, 1.5f, 0, -0.5f, 1, 1, 1, -2, 0.25f, 1.75f};
    memcpy(f.logits, logits, sizeof logits);
    check_distribution(&f, (harness_sampling){.temperature = 1, .seed = 1}, "plain");
    check_distribution(&f, (harness_sampling){.temperature = 0.6f, .seed = 2}, "temperature 0.6");
    check_distribution(&f, (harness_sampling){.temperature = 2.5f, .seed = 3}, "temperature 2.5");
    check_distribution(&f, (harness_sampling){.temperature = 1, .top_k = 1, .seed = 4}, "top-k 1");
    check_distribution(&f, (harness_sampling){.temperature = 1, .top_k = 3, .seed = 5}, "top-k 3");
    check_distribution(&f, (harness_sampling){.temperature = 1, .top_k = 5, .seed = 6}, "top-k 5, ties stay");
    check_distribution(&f, (harness_sampling){.temperature = 1, .top_k = 12, .seed = 7}, "top-k = vocab");
    check_distribution(&f, (harness_sampling){.temperature = 1, .top_k = 500, .seed = 8}, "top-k > vocab");
    check_distribution(&f, (harness_sampling){.temperature = 1, .top_p = 0.9f, .seed = 9}, "top-p 0.9");
    check_distribution(&f, (harness_sampling){.temperature = 1, .top_p = 0.5f, .seed = 10}, "top-p 0.5");
    check_distribution(&f, (harness_sampling){.temperature = 1, .top_p = 0.01f, .seed = 11}, "top-p 0.01: one");
    check_distribution(&f, (harness_sampling){.temperature = 1, .top_p = 1, .seed = 12}, "top-p 1");
    check_distribution(&f, (harness_sampling){.temperature = 0.8f, .top_k = 6, .top_p = 0.8f, .seed = 13}, "all three");
    harness_close(f.h);
}

/* Top-p takes the tied tokens of lower index first: of eight equal ones, 0.5 keeps the first four. */
static void ties_at_the_cut(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, 8, 1, 1);
    memset(f.logits, 0, 8 * sizeof(float));
    f.logits[3] = -0.0f;
    int32_t out[400];
    generate(&f, (harness_sampling){.temperature = 1, .top_p = 0.5f, .seed = 3}, 400, out);
    unsigned seen = 0;
    for (int i = 0; i < 400; i++) seen |= 1u << out[i];
    assert_int_equal(seen, 0x0f);
    generate(&f, (harness_sampling){.temperature = 1, .top_k = 2, .seed = 3}, 400, out);
    for (int i = 0; i < 400; i++) seen |= 1u << out[i];
    assert_int_equal(seen, 0xff);
    harness_close(f.h);
}

static void temperature_zero_is_the_argmax(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, 1000, 2, 2);
    for (uint32_t i = 0; i < 1000; i++) f.logits[i] = harness_uniform(3, i);
    f.logits[437] = f.logits[438] = 2;
    f.logits[0] = NAN;
    int32_t out[5];
    generate(&f, (harness_sampling){.temperature = 0, .top_k = 50, .top_p = 0.9f, .seed = 1}, 5, out);
    for (int i = 0; i < 5; i++) assert_int_equal(out[i], 437);
    harness_close(f.h);
}

static void odd_logits(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, 6, 1, 2);
    static const harness_sampling ways[] = {{.temperature = 1, .seed = 1},
                                            {.temperature = 1, .top_k = 3, .seed = 2},
                                            {.temperature = 1, .top_p = 0.95f, .seed = 3},
                                            {.temperature = 0.5f, .top_k = 5, .top_p = 0.999f, .seed = 4}};
    for (unsigned w = 0; w < sizeof ways / sizeof *ways; w++) {
        int32_t out[300];
        memcpy(f.logits, (float[6]){NAN, 1, -INFINITY, 1.5f, 0.5f, NAN}, 6 * sizeof(float));
        generate(&f, ways[w], 300, out);
        unsigned seen = 0;
        for (int i = 0; i < 300; i++) seen |= 1u << out[i];
        assert_int_equal(seen, 1u << 1 | 1u << 3 | 1u << 4);
        memcpy(f.logits, (float[6]){NAN, 1, INFINITY, 1.5f, INFINITY, 0.5f}, 6 * sizeof(float));
        generate(&f, ways[w], 300, out);
        for (int i = 0; i < 300; i++) assert_true(out[i] == 2 || out[i] == 4);
        for (int i = 0; i < 6; i++) f.logits[i] = i % 2 ? NAN : -INFINITY;
        generate(&f, ways[w], 5, out);
        for (int i = 0; i < 5; i++) assert_int_equal(out[i], 0);
    }
    harness_close(f.h);
}

static void a_seed_decides(void **state) {
    (void)state;
    enum { N = 64 };
    int32_t first[N], again[N];
    for (uint32_t workers = 1; workers <= 3; workers++) {
        fixture f;
        fixture_open(&f, 1000, workers, 1 + workers % 2);
        for (uint32_t i = 0; i < 1000; i++) f.logits[i] = 3 * harness_uniform(4, i);
        harness_sampling how = {.temperature = 0.9f, .top_k = 400, .top_p = 0.97f, .seed = 5};
        generate(&f, how, N, workers == 1 ? first : again);
        if (workers > 1) assert_memory_equal(first, again, sizeof first);
        how.seed = 6;
        generate(&f, how, N, again);
        assert_true(memcmp(first, again, sizeof first) != 0);
        harness_close(f.h);
    }
}

/* A vocabulary of full size: draws stay in the support that a full sort gives, whose rim may shift by rounding alone.
 */
static void full_vocabulary(void **state) {
    (void)state;
    enum { VOCAB = 151936, N = 20 };
    static const harness_sampling ways[] = {{.temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .seed = 1},
                                            {.temperature = 1, .top_p = 0.9f, .seed = 2},
                                            {.temperature = 1, .top_k = 50, .seed = 3},
                                            {.temperature = 1, .seed = 4}};
    fixture f;
    fixture_open(&f, VOCAB, 2, 1);
    for (uint32_t i = 0; i < VOCAB; i++) {
        f.logits[i] = 8 * harness_uniform(5, 3 * i) * harness_uniform(5, 3 * i + 1) + harness_uniform(5, 3 * i + 2);
    }
    double *p = mem_calloc(VOCAB, sizeof *p);
    assert_non_null(p);
    for (unsigned w = 0; w < sizeof ways / sizeof *ways; w++) {
        int32_t out[N];
        harness_sampling wider = ways[w];
        if (wider.top_p > 0) wider.top_p += 1e-4f;
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        generate(&f, ways[w], N, out);
        clock_gettime(CLOCK_MONOTONIC, &b);
        exact(f.logits, VOCAB, wider, p);
        for (int i = 0; i < N; i++) assert_true(p[out[i]] > 0);
        printf("vocabulary %d, top-k %u, top-p %g: %.2f ms a token\n", VOCAB, ways[w].top_k, (double)ways[w].top_p,
               ((double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6) / N);
    }
    mem_free(p);
    harness_close(f.h);
}

static double uniform(kp_u32 seed, kp_u32 n) { return (double)(sample_number(seed, n) >> 11) * 0x1p-53; }

/* Neighbours in 8 × 8 equal bins, along the tokens of one seed and along the seeds of one token: uniform, and not of
 * each other's making. */
static void the_number_is_uniform(void **state) {
    (void)state;
    enum { SIDE = 8, BINS = SIDE * SIDE, N = 64000 };
    for (int along_seeds = 0; along_seeds <= 1; along_seeds++) {
        double chi = 0;
        uint32_t count[BINS] = {0};
        for (uint32_t i = 0; i < 2 * N; i += 2) {
            double u = uniform(along_seeds ? i : 42, along_seeds ? 0 : i);
            double v = uniform(along_seeds ? i + 1 : 42, along_seeds ? 0 : i + 1);
            assert_true(u >= 0 && u < 1 && v >= 0 && v < 1);
            count[(int)(u * SIDE) * SIDE + (int)(v * SIDE)]++;
        }
        for (int i = 0; i < BINS; i++) {
            double d = (double)count[i] - (double)N / BINS;
            chi += d * d / ((double)N / BINS);
        }
        assert_true(chi < BINS - 1 + 6 * sqrt(2 * (BINS - 1)));
    }
}

/* The integer exponential against the library's, and where it ends. */
static void the_exponential_is_one(void **state) {
    (void)state;
    double worst = 0;
    for (float d = 0; d < 27.9f; d += 0.00037f) {
        double want = ldexp(exp(-(double)d), 40), error = fabs((double)sample_exp(-d) - want);
        double allowed = want * 5e-8 + 1; /* d has 26 binary places, the result whole numbers */
        if (error / allowed > worst) worst = error / allowed;
    }
    printf("worst %.2f of what is allowed\n", worst);
    assert_true(worst <= 1);
    assert_true(sample_exp(0) == (kp_u64)1 << 40 && sample_exp(-0.0f) == (kp_u64)1 << 40);
    assert_true(sample_exp(-28) == 0 && sample_exp(-1e30f) == 0 && sample_exp(-INFINITY) == 0 && sample_exp(NAN) == 0);
}

static void products_of_64_bits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        kp_u64 a = sample_number(1, i), b = sample_number(2, i) >> (i % 40 + 1);
        assert_true(sample_scale(a, b) == (kp_u64)((unsigned __int128)a * b >> 64));
        float p = (float)(sample_number(3, i) >> 40) * 0x1p-24f;
        unsigned __int128 exact = (unsigned __int128)(kp_u64)(p * 0x1p32f) * (b >> 1);
        kp_u64 up = (kp_u64)(exact >> 32) + ((exact & 0xffffffffu) != 0);
        assert_true(sample_share(p, b >> 1) == up);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_exact_distribution),
        cmocka_unit_test(ties_at_the_cut),
        cmocka_unit_test(temperature_zero_is_the_argmax),
        cmocka_unit_test(odd_logits),
        cmocka_unit_test(a_seed_decides),
        cmocka_unit_test(full_vocabulary),
        cmocka_unit_test(the_number_is_uniform),
        cmocka_unit_test(the_exponential_is_one),
        cmocka_unit_test(products_of_64_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
