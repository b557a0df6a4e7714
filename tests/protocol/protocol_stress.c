/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol under load, without any op: `phases` dependent steps an iteration over toy bodies with a known answer.
 *
 *   protocol_stress WORKERS LANES ITERATIONS SEED
 *
 * Exit 0: right answer. Built with -DKP_FAULT=n a protocol fault is planted; then either the answer is wrong, or the
 * run hangs (exit 3), or ThreadSanitizer reports (its exit status) — that is what the tests look for.
 *
 * One iteration: phase p of every worker reads all of phase p−1's output (COLUMNS words) through SMEM and writes its
 * own columns: out[j] = mix(sum(in) + j + iteration). Phase 0 reads what the last phase left the iteration before. Each
 * worker has two tasks a phase, so that tasks of one phase meet in the ring, and few pages, so that claims wait. */
#include "exec/cpu_prim.h"
#include "exec/cpu_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PHASES = 5,
    COLUMNS = 64,
    IN_PAGES = 2,
    OUT_PAGES = 5,
    PAGE_BYTES = 512,
    TASKS_A_WORKER = 4,
    MAX_WORKERS = 64,
    REGION_IN = 0,
    REGION_OUT = 1
};

typedef struct toy {
    kp_u32 *row[PHASES]; /* [COLUMNS] */
    kp_u32 n_tasks, iterations;
} toy;

static kp_u32 mix(kp_u32 x) {
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ x >> 16;
}

/* The toy's "params" are the toy itself; aux is the phase. */
static void toy_launcher(kp_ctx *c) {
    const toy *t = kb_params(c);
    kp_u32 a, b;
    kb_share(c, 0, COLUMNS, 16, &a, &b);
    const kp_u32 *in = t->row[(c->task->aux + PHASES - 1) % PHASES];
    for (kp_u32 j = a; j < b; j += 16) kb_bulk(c, (kp_u32 *)kb_region(c, REGION_IN) + j, in + j, 16 * sizeof *in);
}

static void toy_consumer(kp_ctx *c) {
    const kp_u32 *in = kb_region(c, REGION_IN);
    kp_u32 *out = kb_region(c, REGION_OUT), sum = 0, a, b;
    for (kp_u32 j = 0; j < COLUMNS; j++) sum += in[j];
    kb_share(c, c->task->lo, c->task->hi, 1, &a, &b);
    for (kp_u32 j = a; j < b; j++) out[j - c->task->lo] = mix(sum + j + c->iteration);
}

static void toy_storer(kp_ctx *c) {
    const toy *t = kb_params(c);
    const kp_u32 *out = kb_region(c, REGION_OUT);
    kp_u32 a, b;
    kb_share(c, c->task->lo, c->task->hi, 1, &a, &b);
    for (kp_u32 j = a; j < b; j++) t->row[c->task->aux][j] = out[j - c->task->lo];
}

static void begin_storer(kp_ctx *c) {
    kp_state *s = c->worker->launch->state;
    const toy *t = kb_params(c);
    if (c->lane == 0 && ++s->n_out == t->iterations) s->finished = 1;
}

static const kb_body bodies[2 * KP_ROLES] = {
    [KP_LAUNCHER] = toy_launcher,
    [KP_CONSUMER] = toy_consumer,
    [KP_STORER] = toy_storer,
    [KP_ROLES + KP_STORER] = begin_storer,
};

static kp_u32 expected_answer(kp_u32 iterations, kp_u32 *row) {
    memset(row, 0, COLUMNS * sizeof *row);
    for (kp_u32 i = 0; i < iterations; i++) {
        for (kp_u32 p = 0; p < PHASES; p++) {
            kp_u32 sum = 0;
            for (kp_u32 j = 0; j < COLUMNS; j++) sum += row[j];
            for (kp_u32 j = 0; j < COLUMNS; j++) row[j] = mix(sum + j + i);
        }
    }
    return row[0];
}

/* Queue of a worker: its tasks of phase 0, 1, …, before them on worker 0 the counting task. Pages go round. */
static kp_u32 plan_tasks(kp_task *tasks, kp_u32 *queue_first, kp_u32 workers) {
    kp_u32 n = 0, per_phase = workers * TASKS_A_WORKER;
    for (kp_u32 w = 0; w < workers; w++) {
        kp_u32 round = 0;
        queue_first[w] = n;
        if (w == 0) tasks[n++] = (kp_task){.body = 1, .trigger = KP_NONE};
        for (kp_u32 p = 0; p < PHASES; p++) {
            for (kp_u32 k = 0; k < TASKS_A_WORKER; k++) {
                kp_u32 tile = k * workers + w;
                kp_task *t = &tasks[n++];
                *t = (kp_task){
                    .body = 0, .aux = p, .lo = COLUMNS * tile / per_phase, .hi = COLUMNS * (tile + 1) / per_phase};
                t->wait_first = p ? p - 1 : 0;
                t->n_waits = p ? 1 : 0;
                t->trigger = p;
                t->n_spans = 2;
                t->n_regions = 2;
                t->span[0] = (kp_span){(kp_u16)(round % IN_PAGES), 1, KP_CONSUMER};
                t->span[1] = (kp_span){(kp_u16)(IN_PAGES + round % OUT_PAGES), 1, KP_STORER};
                t->region_offset[REGION_IN] = t->span[0].first_page * PAGE_BYTES;
                t->region_offset[REGION_OUT] = t->span[1].first_page * PAGE_BYTES;
                round++;
            }
        }
    }
    queue_first[workers] = n;
    return n;
}

static int run(kp_u32 workers, kp_u32 lanes, kp_u32 iterations, kp_u32 seed) {
    static kp_task tasks[MAX_WORKERS * PHASES * TASKS_A_WORKER + 1];
    static kp_u32 queue_first[MAX_WORKERS + 1], queue[MAX_WORKERS * PHASES * TASKS_A_WORKER + 1], rows[PHASES][COLUMNS];
    static kp_event events[PHASES];
    static kp_control control;
    static kp_state state;
    kp_u32 waits[PHASES], triggers[PHASES];
    toy t = {.iterations = iterations};
    t.n_tasks = plan_tasks(tasks, queue_first, workers);
    for (kp_u32 i = 0; i < t.n_tasks; i++) queue[i] = i;
    for (kp_u32 p = 0; p < PHASES; p++) {
        t.row[p] = rows[p];
        waits[p] = p;
        triggers[p] = workers * TASKS_A_WORKER;
    }
    kp_instance instance = {.params = &t};
    kp_launch launch = {.n_workers = workers,
                        .tasks = tasks,
                        .queue = queue,
                        .queue_first = queue_first,
                        .waits = waits,
                        .triggers = triggers,
                        .events = events,
                        .control = &control,
                        .instances = &instance,
                        .state = &state};
    cpu_config config = {
        .lanes = lanes, .seed = seed, .n_pages = IN_PAGES + OUT_PAGES, .page_bytes = PAGE_BYTES, .bodies = bodies};
    keel_error err = KEEL_ERROR_INITIALIZER;
    cpu_engine *engine = NULL;
    if (cpu_engine_open(&launch, &config, &engine, &err) != KEEL_OK || cpu_engine_start(engine, &err) != KEEL_OK) {
        fprintf(stderr, "%s\n", err.detail);
        return 2;
    }
    uint64_t last = 0;
    int quiet_ms = 0, hung = 0;
    while (!cpu_engine_done(engine)) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        uint64_t now = cpu_engine_progress(engine);
        quiet_ms = now == last ? quiet_ms + 2 : 0;
        last = now;
        if (quiet_ms > 3000) {
            hung = 1;
            __atomic_store_n(&control.abort, 1, __ATOMIC_RELEASE);
        }
    }
    cpu_engine_join(engine);
    cpu_engine_close(engine);
    kp_u32 want[COLUMNS];
    expected_answer(iterations, want);
    int wrong = memcmp(want, rows[PHASES - 1], sizeof want) != 0 || state.n_out != iterations;
    printf("workers %u lanes %u iterations %u seed %u: %s\n", workers, lanes, iterations, seed,
           hung    ? "HANG"
           : wrong ? "WRONG"
                   : "right");
    return hung ? 3 : wrong ? 1 : 0;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: protocol_stress WORKERS LANES ITERATIONS SEED\n");
        return 2;
    }
    return run((kp_u32)atoi(argv[1]), (kp_u32)atoi(argv[2]), (kp_u32)atoi(argv[3]), (kp_u32)atoi(argv[4]));
}
