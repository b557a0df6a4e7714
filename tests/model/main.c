/* SPDX-License-Identifier: Apache-2.0 */
/* model [--large N]: see docs/proof-model.md. Exit 0: all is as it should be (the sound text without a finding and both
 * ways of looking agree; a planted fault is found), 1: it is not. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void) { /* of CPU */
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- one run with clocks ---- */

static uint32_t draw(uint32_t *random) {
    *random ^= *random << 13;
    *random ^= *random >> 17;
    *random ^= *random << 5;
    return *random;
}

typedef struct certificate {
    uint64_t hash;
    uint32_t events, asked; /* how often the stop request was read */
} certificate;

static bool move(uint32_t choice, uint32_t yes_at, certificate *out) {
    if (choice >= mc.n_co) {
        copy *c = &mc.copies[choice - mc.n_co];
        if (!c->bar) return false;
        world_land(c);
        return true;
    }
    const op *o = &mc.co[choice].next;
    if (!world_enabled(o)) return false;
    uint32_t answer = 0;
    if (o->kind == OP_STOP) answer = out->asked++ >= yes_at;
    world_step(choice, answer);
    return true;
}

/* schedule 0: always the first that can, 1: the last that can, else the seed of a random one */
static certificate certify(const config *cfg, uint32_t schedule, uint32_t yes_at) {
    certificate out = {0};
    world_open(cfg, true);
    uint32_t n = mc.n_co + mc.n_copies, random = schedule * 2654435761u + 1;
    while (!mc.found.kind && !world_over()) {
        uint32_t from = schedule > 1 ? draw(&random) % n : 0, i = 0;
        for (; i < n; i++) {
            uint32_t choice = schedule == 1 ? n - 1 - i : (from + i) % n;
            if (move(choice, yes_at, &out)) break;
        }
        if (i == n) world_check_stuck();
    }
    if (!mc.found.kind) order_end();
    if (!mc.found.kind) world_check_end();
    out.hash = order_hash();
    out.events = order_events();
    return out;
}

static bool show_finding(const char *way, const config *cfg) {
    if (mc.found.kind) printf("  %s, %s: %s: %s\n", way, cfg->name, finding_name[mc.found.kind], mc.found.text);
    return mc.found.kind != FOUND_NOTHING;
}

/* Every answer of the host, several schedules of each: no finding, and one and the same partial order. */
static bool certify_all(const config *cfg) {
    enum { SCHEDULES = 4 };
    double start = seconds();
    uint32_t loads = 0, runs = 0, events = 0;
    for (uint32_t yes = 0; yes <= loads; yes++) {
        uint32_t yes_at = yes ? yes - 1 : KP_NONE;
        certificate first = certify(cfg, 0, yes_at);
        runs++;
        if (show_finding("order", cfg)) return false;
        if (!yes) loads = first.asked;
        if (!yes) events = first.events;
        for (uint32_t s = 1; s < SCHEDULES; s++, runs++) {
            certificate again = certify(cfg, s, yes_at);
            if (show_finding("order", cfg)) return false;
            if (again.hash != first.hash || again.events != first.events) {
                printf("  order, %s: schedule %u gives another order\n", cfg->name, s);
                return false;
            }
        }
    }
    printf("  order   %-34s %6u events, %3u runs, %5.2f s: one order%s\n", cfg->name, events, runs, seconds() - start,
           loads ? " for each answer of the host" : "");
    return true;
}

/* ---- aborting ---- */

static bool step_first(uint32_t from) {
    uint32_t n = mc.n_co + mc.n_copies;
    certificate unused = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (move((from + i) % n, KP_NONE, &unused)) return true;
    }
    return false;
}

/* The host aborts after `steps` steps of a random schedule: every lane must leave. false: the run was over before. */
static bool abort_after(const config *cfg, uint32_t steps, uint32_t how) {
    enum { ENOUGH = 5000 };
    uint32_t random = 77 * how + 1, more = 0;
    world_open(cfg, false);
    for (uint32_t i = 0; i < steps && !mc.found.kind; i++) {
        if (!step_first(draw(&random) % (mc.n_co + mc.n_copies))) return false;
    }
    mc.abort = how;
    while (!mc.found.kind && step_first(draw(&random)) && more < ENOUGH) more++;
    if (!world_over()) world_found(FOUND_DEADLOCK, "aborted after %u steps, and not all lanes leave", steps);
    return true;
}

static bool abort_all(const config *cfg) {
    double start = seconds();
    for (uint32_t how = 1; how <= 2; how++) {
        for (uint32_t steps = 0; abort_after(cfg, steps, how) && !mc.found.kind; steps++) continue;
        if (show_finding("abort", cfg)) return false;
    }
    printf("  abort   %-34s after every step: all leave, %5.2f s\n", cfg->name, seconds() - start);
    return true;
}

/* ---- every interleaving ---- */

static bool search_all(const config *cfg, uint64_t limit) {
    double start = seconds();
    search_result r = search_run(cfg, limit, 0);
    if (show_finding("search", cfg)) return false;
    printf("  search  %-34s %9llu states, %9llu steps, depth %llu, %llu end(s), %5.2f s%s\n", cfg->name,
           (unsigned long long)r.states, (unsigned long long)r.steps, (unsigned long long)r.deepest,
           (unsigned long long)r.ends, seconds() - start, r.complete ? "" : ": LIMIT");
    if (!r.complete) return false;
    uint32_t asked = certify(cfg, 0, KP_NONE).asked;
    if (show_finding("order", cfg)) return false;
    if (cfg->stop) return r.ends == asked + 1; /* an end for each reading that may be the first "yes", and for none */
    uint64_t ideals = order_ideals(r.states + 1);
    if (ideals == r.states && r.ends == 1) return true;
    printf("  search  %s: the order has %llu states, the search found %llu\n", cfg->name, (unsigned long long)ideals,
           (unsigned long long)r.states);
    return false;
}

/* Ranks, workers, lanes, tasks, iterations, input pages, output pages, distance, stop, dealt, broken plan. */
static const config ordered[] = {
    {"2 workers 2 lanes 3 tasks 2 iter.", 1, 2, 2, 3, 2, 1, 2, 2, 0, 0, 0},
    {"2 workers 2 lanes 5 tasks 3 iter.", 1, 2, 2, 5, 3, 2, 3, 2, 0, 0, 0},
    {"2 workers 1 lane 8 tasks 3 iter.", 1, 2, 1, 8, 3, 3, 2, 3, 0, 0, 0},
    {"3 workers 2 lanes 5 tasks 2 iter.", 1, 3, 2, 5, 2, 1, 2, 2, 0, 0, 0},
    {"2 workers 2 lanes 3 tasks 3 iter. stop", 1, 2, 2, 3, 3, 1, 2, 2, 1, 0, 0},
    {"2 ranks of 2 2 lanes 3 tasks 3 iter.", 2, 4, 2, 3, 3, 1, 2, 2, 0, 0, 0},
    {"2 ranks of 1 2 lanes 3 tasks 2 iter. stop", 2, 2, 2, 3, 2, 1, 2, 2, 1, 0, 0},
};
static const config searched[] = {
    {"1 worker 1 lane 2 tasks 2 iter.", 1, 1, 1, 2, 2, 1, 2, 1, 0, 0, 0},
    {"1 worker 1 lane 3 tasks 2 iter.", 1, 1, 1, 3, 2, 1, 2, 2, 0, 0, 0},
    {"1 worker 1 lane 3 tasks 2 iter. stop", 1, 1, 1, 3, 2, 1, 2, 2, 1, 0, 0},
    {"1 worker 1 lane 5 tasks 2 iter.", 1, 1, 1, 5, 2, 2, 3, 2, 0, 0, 0},
    {"2 workers 1 lane 2 tasks dealt 1 iter.", 1, 2, 1, 2, 1, 1, 2, 1, 0, 1, 0},
    {"1 worker 2 lanes 1 task 2 iter.", 1, 1, 2, 1, 2, 1, 2, 1, 0, 0, 0},
};
/* By hand (--large N): up to minutes each. */
static const config searched_large[] = {
    {"2 workers 1 lane 2 tasks dealt 2 iter.", 1, 2, 1, 2, 2, 1, 2, 1, 0, 1, 0},
    {"2 workers 1 lane 3 tasks dealt 1 iter.", 1, 2, 1, 3, 1, 1, 2, 1, 0, 1, 0},
    {"2 workers 1 lane 1 task 2 iter.", 1, 2, 1, 1, 2, 1, 2, 1, 0, 0, 0},
    {"2 ranks of 1 1 lane 1 task 2 iter.", 2, 2, 1, 1, 2, 1, 2, 1, 0, 0, 0},
    {"1 worker 2 lanes 2 tasks 1 iter.", 1, 1, 2, 2, 1, 1, 2, 1, 0, 0, 0},
    {"1 worker 2 lanes 2 tasks 2 iter.", 1, 1, 2, 2, 2, 1, 2, 1, 0, 0, 0},
    {"2 workers 1 lane 2 tasks 1 iter.", 1, 2, 1, 2, 1, 1, 2, 1, 0, 0, 0},
};
/* Broken plans, the text being sound: waits must not point forward in a queue, and an event must count all its
 * triggers. */
static const config backward = {"a wait for a later task of the queue", 1, 1, 1, 3, 1, 1, 2, 2, 0, 0, FORWARD_WAIT};
static const config undercount = {"an event that counts one task too few", 1, 2, 1, 2, 1, 1, 2, 1, 0, 0, UNDERCOUNT};

/* Where each planted fault of device/protocol.h is looked for, and what each way of looking must say. */
static const config one_lane = {"1 worker 1 lane 3 tasks 2 iter.", 1, 1, 1, 3, 2, 1, 2, 2, 0, 0, 0};
static const config two_lanes = {"1 worker 2 lanes 3 tasks 2 iter.", 1, 1, 2, 3, 2, 1, 2, 2, 0, 0, 0};
static const config two_workers = {"2 workers 1 lane 1 task 2 iter.", 1, 2, 1, 1, 2, 1, 2, 1, 0, 0, 0};
static const config events = {"2 workers 2 lanes 3 tasks 2 iter.", 1, 2, 2, 3, 2, 1, 2, 2, 0, 0, 0};
static const config ranks = {"2 ranks of 1 1 lane 2 tasks 2 iter.", 2, 2, 1, 2, 2, 1, 2, 1, 0, 0, 0};
/* The uses of the one output page follow each other by events; the input pages let the loader run ahead. */
static const config chained = {"1 worker 1 lane 4 tasks 2 iter. chained", 1, 1, 1, 4, 2, 4, 1, 1, 0, 0, 0};
static const struct planted {
    uint32_t fault;
    const config *cfg;
    enum finding_kind by_order, by_search;
} planted[] = {
    {1, &one_lane, FOUND_RACE, FOUND_RACE},          {2, &one_lane, FOUND_RACE, FOUND_RACE},
    {3, &events, FOUND_RACE, FOUND_VALUE},           {4, &two_workers, FOUND_RACE, FOUND_RACE},
    {5, &two_lanes, FOUND_RACE, FOUND_RACE},         {6, &one_lane, FOUND_RACE, FOUND_RACE},
    {7, &chained, FOUND_ALIAS, FOUND_ALIAS},         {8, &one_lane, FOUND_STALE, FOUND_RACE},
    {9, &one_lane, FOUND_DEADLOCK, FOUND_DEADLOCK},  {10, &events, FOUND_ORDER, FOUND_DEADLOCK},
    {11, &one_lane, FOUND_DEADLOCK, FOUND_DEADLOCK}, {12, &two_workers, FOUND_HALF_EXIT, FOUND_HALF_EXIT},
    {13, &one_lane, FOUND_DEADLOCK, FOUND_DEADLOCK}, {14, &one_lane, FOUND_RACE, FOUND_RACE},
    {15, &events, FOUND_RACE, FOUND_RACE},           {16, &one_lane, FOUND_DEADLOCK, FOUND_ALIAS},
    {17, &events, FOUND_RACE, FOUND_VALUE},          {18, &two_workers, FOUND_RACE, FOUND_VALUE},
    {19, &ranks, FOUND_DEADLOCK, FOUND_DEADLOCK},    {20, &ranks, FOUND_RACE, FOUND_VALUE},
    {21, &events, FOUND_DEADLOCK, FOUND_DEADLOCK},
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool sound(void) {
    bool ok = true;
    for (size_t i = 0; i < COUNT(ordered); i++) ok = certify_all(&ordered[i]) && ok;
    const config *faults_at[] = {&one_lane, &two_lanes, &two_workers, &events, &ranks, &chained};
    for (size_t i = 0; i < COUNT(faults_at); i++) ok = certify_all(faults_at[i]) && ok;
    for (size_t i = 0; i < COUNT(searched); i++) {
        if (searched[i].tasks > 2 || KP_SLOTS == 2)
            ok = search_all(&searched[i], 4000000) && ok; /* the rest is the same */
    }
    ok = abort_all(&events) && abort_all(&ranks) && ok;
    bool refused = !certify_all(&backward) && mc.found.kind == FOUND_DEADLOCK;
    refused = !search_all(&backward, 1000000) && mc.found.kind == FOUND_DEADLOCK && refused;
    refused = !certify_all(&undercount) && !search_all(&undercount, 1000000) && refused;
    return ok && refused;
}

static bool faulty(const struct planted *p) {
    enum { NO_POLL = 21 }; /* shows only when the run is aborted */
    if (p->fault == NO_POLL) return !abort_all(p->cfg) && mc.found.kind == FOUND_DEADLOCK;
    bool by_order = !certify_all(p->cfg) && mc.found.kind == p->by_order;
    search_run(p->cfg, 300000, 0);
    bool by_search = show_finding("search", p->cfg) && mc.found.kind == p->by_search;
    for (uint32_t lenient = 1; lenient <= 2; lenient++) {
        enum finding_kind before = mc.found.kind;
        if (before > FOUND_VALUE || before < FOUND_RACE) break;
        search_run(p->cfg, 60000, lenient);
        if (mc.found.kind == before || !show_finding("leads to", p->cfg)) break;
    }
    if (!by_order) printf("  the order does not show it as %s\n", finding_name[p->by_order]);
    if (!by_search) printf("  the search does not show it as %s\n", finding_name[p->by_search]);
    return by_order && by_search;
}

static int usage(void) {
    fprintf(stderr, "usage: model [--large N], N from 0 to %zu\n", COUNT(searched_large) - 1);
    return 2;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("fault %u, %d slots\n", mc_text_fault(), (int)KP_SLOTS);
    if (argc == 3 && strcmp(argv[1], "--large") == 0) {
        unsigned long n = strtoul(argv[2], NULL, 10);
        if (n >= COUNT(searched_large)) return usage();
        return search_all(&searched_large[n], 400000000) ? 0 : 1;
    }
    if (argc != 1) return usage();
    if (!mc_text_fault()) return sound() ? 0 : 1;
    for (size_t i = 0; i < COUNT(planted); i++) {
        if (planted[i].fault == mc_text_fault()) return faulty(&planted[i]) ? 0 : 1;
    }
    printf("  no configuration says what this fault must lead to\n");
    return 1;
}
