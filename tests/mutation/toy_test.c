/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 240
 * The mutation suite over toy graphs: any ops on any earlier tensors, in random tilings, that fill SMEM to the brim
 * (tests/plan/toy.h). Options: suite_main.h. */
#include "plan/toy.h"

#include "mutation/suite_main.h"

enum { ANY = 40 };

static bool add(suite *s, graph *g, const char *name, plan_options o) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    suite_job job = {.n = 1};
    snprintf(job.name, sizeof job.name, "%s %s w%u", name, o.arch, o.workers);
    keel_status status = plan_build(g, &o, &job.ranks[0], &err);
    graph_close(g);
    if (status == KEEL_REFUSED) return true; /* it asks for more SMEM than this arch has */
    if (status != KEEL_OK) fprintf(stderr, "%s: %s\n", job.name, err.detail);
    return status == KEEL_OK && suite_add(s, &job);
}

int main(int argc, char **argv) {
    suite s = {.program = "toy_test", .floors = SUITE_FLOORS_TOY};
    bool ok = true;
    for (int i = 0; i < 6 && ok; i++) {
        plan_options o = {.arch = i % 2 ? "sm_90a" : "cpu", .m_max = 2, .max_seq = 100, .allow_absent = true};
        o.workers = 1 + (uint32_t)i % 4;
        ok = add(&s, toy_decoder(1 + i % 3, 8, 1 + i), "toy decoder", o);
    }
    for (uint64_t seed = 1; seed <= ANY && ok; seed++) {
        char name[32];
        uint64_t r = seed * 977;
        plan_options o = {.arch = toy_random(&r, 2) ? "sm_90a" : "cpu", .max_seq = 100, .allow_absent = true};
        o.workers = 1 + toy_random(&r, 5);
        o.m_max = 1 + toy_random(&r, 3);
        snprintf(name, sizeof name, "toy any %u", (unsigned)seed);
        ok = add(&s, toy_any(seed), name, o);
    }
    if (s.n_jobs < ANY / 2) ok = false;
    return ok ? suite_main(&s, argc, argv) : 1;
}
