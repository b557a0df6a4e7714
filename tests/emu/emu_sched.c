/* SPDX-License-Identifier: Apache-2.0 */
/* Who runs next: a ready warp by the seed, in it its ready threads one after the other, until none is left or its turn
 * is over. A thread that polls what did not change sleeps until somebody writes there; when nothing else can run, late
 * copies land, then all pollers look once more, and when that changes nothing either the launch is stuck. */
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

emu_machine emu_m;

enum {
    TURN = 48,          /* threads that run in a warp's turn, about */
    STUCK_ROUNDS = 64,  /* looks that must have changed nothing */
    HOST_ROUNDS = 30000 /* … after the host wrote: a device may look at the host's words once in a while only */
};

/* splitmix64 */
uint64_t emu_random(void) {
    uint64_t z = emu_m.random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void emu_host_wrote(void) { __atomic_store_n(&emu_m.host_wrote, true, __ATOMIC_RELEASE); }

/* ---- ready and not ready ------------------------------------------------------------------------- */

static void list_warp(emu_warp *w) {
    if (w->place) return;
    emu_m.ready[emu_m.n_ready] = w;
    w->place = ++emu_m.n_ready;
}

static void unlist_warp(emu_warp *w) {
    emu_warp *last = emu_m.ready[--emu_m.n_ready];
    emu_m.ready[w->place - 1] = last;
    last->place = w->place;
    w->place = 0;
}

void emu_wake(emu_warp *w, uint32_t lanes) {
    for (uint32_t m = lanes; m; m &= m - 1) w->thread[__builtin_ctz(m)].state = EMU_READY;
    w->parked &= ~lanes;
    w->ready |= lanes;
    list_warp(w);
}

static emu_thread *take_thread(emu_warp *w) {
    unsigned from = (emu_m.now.lane + 1) % EMU_WARP;
    uint32_t above = w->ready >> from << from;
    unsigned lane = (unsigned)__builtin_ctz(above ? above : w->ready);
    w->ready &= ~(1u << lane);
    emu_m.now.lane = lane;
    emu_m.now.thread = w->index * EMU_WARP + lane;
    emu_m.thread = &w->thread[lane];
    return emu_m.thread;
}

/* Straight to the warp's next thread while its turn lasts, else to the scheduler. */
void emu_block_here(void) {
    emu_thread *me = emu_m.thread;
    emu_warp *w = emu_m.warp;
    if (w->ready && emu_m.quantum) {
        emu_m.quantum--;
        emu_thread *next = take_thread(w);
        if (next != me) emu_context_switch(&me->context, &next->context);
        return;
    }
    emu_context_switch(&me->context, &emu_m.scheduler);
}

static void yield(void) {
    emu_wake(emu_m.warp, 1u << emu_m.now.lane);
    emu_m.quantum = 0;
    emu_block_here();
}

/* ---- collectives ---------------------------------------------------------------------------------- */

static float half(uint32_t pair, int high) { /* bf16 */
    uint32_t h = high ? pair & 0xffff0000u : pair << 16;
    float f;
    memcpy(&f, &h, 4);
    return f;
}

/* m16n8k16: fragments as in the figures of the PTX manual. */
static void mma(emu_warp *w) {
    float a[16][16], b[16][8], d[16][8];
    for (unsigned l = 0; l < EMU_WARP; l++) {
        const emu_deal *deal = w->thread[l].deal;
        unsigned g = l / 4, c = l % 4 * 2;
        for (unsigned e = 0; e < 8; e++)
            a[g + (e >> 1 & 1) * 8][c + (e & 1) + (e >> 2) * 8] = half(deal->a[e >> 1], e & 1);
        for (unsigned e = 0; e < 4; e++) b[c + (e & 1) + (e >> 1) * 8][g] = half(deal->b[e >> 1], e & 1);
        for (unsigned e = 0; e < 4; e++) d[g + (e >> 1) * 8][c + (e & 1)] = deal->d[e];
    }
    for (unsigned i = 0; i < 16; i++)
        for (unsigned k = 0; k < 16; k++)
            for (unsigned j = 0; j < 8; j++) d[i][j] += a[i][k] * b[k][j];
    for (unsigned l = 0; l < EMU_WARP; l++)
        for (unsigned e = 0; e < 4; e++) w->thread[l].deal->d[e] = d[l / 4 + (e >> 1) * 8][l % 4 * 2 + (e & 1)];
}

static void vote(emu_warp *w) {
    uint32_t ballot = 0;
    for (unsigned l = 0; l < EMU_WARP; l++) ballot |= (uint32_t)(w->thread[l].deal->value != 0) << l;
    uint64_t result = w->kind == EMU_MEET_BALLOT ? ballot
                      : w->kind == EMU_MEET_ALL  ? ballot == 0xffffffffu
                                                 : ballot != 0;
    for (unsigned l = 0; l < EMU_WARP; l++) w->thread[l].deal->value = result;
}

static void shuffle(emu_warp *w) {
    uint64_t v[EMU_WARP];
    for (unsigned l = 0; l < EMU_WARP; l++) v[l] = w->thread[l].deal->value;
    for (unsigned l = 0; l < EMU_WARP; l++) {
        emu_deal *d = w->thread[l].deal;
        unsigned from = w->kind == EMU_MEET_SHFL       ? d->arg % EMU_WARP
                        : w->kind == EMU_MEET_SHFL_XOR ? l ^ d->arg
                                                       : l - d->arg;
        if (from < EMU_WARP) d->value = v[from];
    }
}

static void do_together(emu_warp *w) {
    switch (w->kind) {
    case EMU_MEET_MMA_BF16:
        mma(w);
        break;
    case EMU_MEET_ALL:
    case EMU_MEET_ANY:
    case EMU_MEET_BALLOT:
        vote(w);
        break;
    case EMU_MEET_SYNCWARP:
        break;
    default:
        shuffle(w);
    }
}

static const char *const meet_names[] = {
#define X(NAME, text) text,
    EMU_MEET_MAP(X)
#undef X
};

static void check_same(emu_warp *w, enum emu_meet_kind kind, const emu_deal *deal) {
    const emu_deal *first = w->thread[__builtin_ctz(w->meeting)].deal;
    if (w->kind == kind && first->line == deal->line && strcmp(first->file, deal->file) == 0) return;
    emu_fault("threads of one warp are at different places: thread %u at %s, %s:%u; this one at %s, %s:%u",
              w->index * EMU_WARP + (unsigned)__builtin_ctz(w->meeting), meet_names[w->kind], first->file, first->line,
              meet_names[kind], deal->file, deal->line);
}

static void meet(enum emu_meet_kind kind, emu_deal *deal) {
    emu_warp *w = emu_m.warp;
    emu_m.thread->deal = deal;
    if (w->meeting) check_same(w, kind, deal);
    w->kind = kind;
    w->meeting |= 1u << emu_m.now.lane;
    if (w->meeting != 0xffffffffu) {
        emu_m.thread->state = EMU_MEETING;
        emu_block_here();
        return;
    }
    do_together(w);
    w->meeting = 0;
    if (kind == EMU_MEET_SYNCWARP) emu_race_warp_met(w);
    emu_wake(w, ~(1u << emu_m.now.lane));
}

static void bar_sync(unsigned barrier, unsigned threads) {
    emu_warp *w = emu_m.warp;
    emu_block *b = w->block;
    if (barrier >= EMU_BARRIERS || threads % EMU_WARP || !threads || threads > emu_m.now.threads)
        emu_fault("bar.sync %u, %u", barrier, threads);
    if (!b->bar[barrier].come) b->bar[barrier].threads = threads;
    if (b->bar[barrier].threads != threads)
        emu_fault("bar.sync %u for %u threads; others came to it for %u", barrier, threads, b->bar[barrier].threads);
    emu_m.progress++;
    emu_race_barrier_come(b, barrier);
    if (++b->bar[barrier].come < threads) {
        emu_m.thread->state = EMU_BARRIER;
        emu_m.thread->barrier = barrier;
        emu_block_here();
        return;
    }
    b->bar[barrier].come = 0;
    for (unsigned i = 0; i < b->n_warps; i++) {
        uint32_t lanes = 0;
        for (unsigned l = 0; l < EMU_WARP; l++) {
            const emu_thread *t = &b->warp[i].thread[l];
            if (t->state == EMU_BARRIER && t->barrier == barrier) lanes |= 1u << l;
        }
        if (&b->warp[i] == w || lanes) emu_race_barrier_passed(&b->warp[i], barrier);
        if (lanes) emu_wake(&b->warp[i], lanes);
    }
}

/* ---- polls ---------------------------------------------------------------------------------------- */

static void polled(const void *p, const void *seen, unsigned bytes) {
    enum { OFTEN = 3 };
    emu_thread *t = emu_m.thread;
    uint64_t v[2] = {0, 0};
    memcpy(v, seen, bytes);
    emu_poll *q = NULL;
    for (unsigned i = 0; i < EMU_POLLS && !q; i++)
        if (t->poll[i].at == p) q = &t->poll[i];
    if (!q) {
        q = &t->poll[t->next_poll++ % EMU_POLLS];
        *q = (emu_poll){.at = p, .seen = {v[0], v[1]}};
        return;
    }
    if (memcmp(q->seen, v, sizeof v) != 0) {
        memcpy(q->seen, v, sizeof v);
        q->hits = 0;
        return;
    }
    if (++q->hits < OFTEN) return;
    t->state = EMU_POLLING;
    emu_m.warp->parked |= 1u << emu_m.now.lane;
    emu_block_here();
}

static bool polls_there(const emu_thread *t, const char *p, unsigned bytes) {
    for (unsigned i = 0; i < EMU_POLLS; i++) {
        const char *at = t->poll[i].at;
        if (at && at < p + bytes && p < at + 16) return true;
    }
    return false;
}

static void signal_at(const void *p, unsigned bytes) {
    emu_m.progress++;
    for (unsigned i = 0; i < EMU_POLLS; i++) emu_m.thread->poll[i].hits = 0;
    for (unsigned b = 0; b < emu_m.n_blocks; b++) {
        for (unsigned i = 0; i < emu_m.block[b].n_warps; i++) {
            emu_warp *w = &emu_m.block[b].warp[i];
            for (uint32_t m = w->parked; m; m &= m - 1) {
                emu_thread *t = &w->thread[__builtin_ctz(m)];
                if (t->state == EMU_POLLING && polls_there(t, p, bytes)) emu_wake(w, m & -m);
            }
        }
    }
}

static unsigned long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    emu_m.clock_reads++;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + emu_m.clock_ahead;
}

static void wake_all(void) {
    for (unsigned b = 0; b < emu_m.n_blocks; b++) {
        for (unsigned i = 0; i < emu_m.block[b].n_warps; i++) {
            emu_warp *w = &emu_m.block[b].warp[i];
            if (w->parked) emu_wake(w, w->parked);
        }
    }
}

/* ---- blocks --------------------------------------------------------------------------------------- */

static void thread_main(void *argument) {
    emu_thread *me = argument;
    emu_m.launch.entry->call(emu_m.launch.taken);
    me->state = EMU_LEFT;
    emu_m.warp->block->left++;
    emu_m.progress++;
    for (;;) emu_block_here();
}

static void start_block(emu_block *b) {
    b->index = emu_m.next_block++;
    b->left = b->n_names = 0;
    b->busy = true;
    b->shared_used = (emu_m.launch.dynamic_bytes + 15) / 16 * 16;
    memset(b->shared, 0xfd, b->shared_used);
    memset(b->bar, 0, sizeof b->bar);
    for (unsigned i = 0; i < b->n_warps; i++) {
        emu_warp *w = &b->warp[i];
        w->meeting = w->parked = 0;
        for (unsigned l = 0; l < EMU_WARP; l++) {
            emu_thread *t = &w->thread[l];
            memset(t->poll, 0, sizeof t->poll);
            emu_context_make(&t->context, t->stack, EMU_STACK, thread_main, t);
        }
        emu_wake(w, emu_m.launch.threads - i * EMU_WARP >= EMU_WARP
                        ? 0xffffffffu
                        : (1u << (emu_m.launch.threads - i * EMU_WARP)) - 1);
    }
}

/* A block that another program holds back never starts. */
static unsigned startable(void) { return emu_m.launch.grid - emu_m.launch.held; }

static void block_left(emu_block *b) {
    b->busy = false;
    emu_m.blocks_left++;
    if (emu_m.next_block < startable()) start_block(b);
}

static void run_warp(emu_warp *w) {
    emu_m.warp = w;
    emu_m.now.block = w->block->index;
    emu_m.now.lane = (unsigned)emu_random() % EMU_WARP;
    emu_m.quantum = 1 + (unsigned)(emu_random() % (2 * TURN));
    emu_thread *t = take_thread(w);
    emu_context_switch(&emu_m.scheduler, &t->context);
    if (!w->ready) unlist_warp(w);
    if (w->block->left == emu_m.launch.threads) block_left(w->block);
}

/* ---- the machine ---------------------------------------------------------------------------------- */

/* Stacks are kept for the next launch: to map them takes longer than a small kernel. The first word of one that is free
 * leads to the next. */
static char *free_stacks;

static char *take_stack(void) {
    enum { GUARD = 4096 };
    char *stack = free_stacks;
    if (stack) {
        memcpy(&free_stacks, stack, sizeof free_stacks);
        return stack;
    }
    char *p = mmap(NULL, EMU_STACK + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED || mprotect(p, GUARD, PROT_NONE) ? NULL : p + GUARD;
}

static void give_stack(char *stack) {
    memcpy(stack, &free_stacks, sizeof free_stacks);
    free_stacks = stack;
}

static bool make_block(emu_block *b, unsigned n_warps) {
    *b = (emu_block){.n_warps = n_warps, .warp = calloc(n_warps, sizeof(emu_warp))};
    char *shared = mmap(NULL, EMU_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!b->warp || shared == MAP_FAILED) return false;
    b->shared = shared;
    for (unsigned i = 0; i < n_warps; i++) {
        b->warp[i].block = b;
        b->warp[i].index = i;
        for (unsigned l = 0; l < EMU_WARP; l++) {
            if (!(b->warp[i].thread[l].stack = take_stack())) return false;
        }
    }
    return true;
}

static void free_blocks(void) {
    for (unsigned i = 0; i < emu_m.n_blocks; i++) {
        emu_block *b = &emu_m.block[i];
        for (unsigned k = 0; b->warp && k < b->n_warps * EMU_WARP; k++) {
            char *stack = b->warp[k / EMU_WARP].thread[k % EMU_WARP].stack;
            if (stack) give_stack(stack);
        }
        if (b->shared) munmap(b->shared, EMU_SHARED_BYTES);
        free(b->warp);
    }
    free(emu_m.block), free(emu_m.ready), free(emu_m.copy);
    emu_m.block = NULL, emu_m.ready = NULL, emu_m.copy = NULL;
    emu_m.n_blocks = 0;
}

static bool make_machine(const emu_launch *launch) {
    enum { COPIES = 4096 };
    unsigned warps = (launch->threads + EMU_WARP - 1) / EMU_WARP;
    unsigned blocks = launch->grid < launch->sms ? launch->grid : launch->sms;
    const char *seed = getenv("KEEL_EMU_SEED");
    emu_m = (emu_machine){.launch = *launch, .random = seed ? strtoull(seed, NULL, 0) : 1, .most_copies = COPIES};
    emu_m.now.threads = launch->threads, emu_m.now.blocks = launch->grid;
    emu_m.block = calloc(blocks, sizeof *emu_m.block);
    emu_m.ready = calloc((size_t)blocks * warps, sizeof *emu_m.ready);
    emu_m.copy = calloc(COPIES, sizeof *emu_m.copy);
    if (!emu_m.block || !emu_m.ready || !emu_m.copy) return false;
    for (unsigned i = 0; i < blocks; i++) {
        emu_m.n_blocks++;
        if (!make_block(&emu_m.block[i], warps)) return false;
    }
    return true;
}

/* Nothing is ready and nothing on its way. false: stuck for good. */
static bool look_again(void) {
    unsigned *rounds = &emu_m.stuck.rounds, *patience = &emu_m.stuck.patience;
    if (__atomic_exchange_n(&emu_m.host_wrote, false, __ATOMIC_ACQUIRE)) *rounds = 0, *patience = HOST_ROUNDS;
    if (emu_m.progress != emu_m.stuck.progress) *rounds = *patience = 0;
    if (emu_m.clock_reads != emu_m.stuck.clock_reads) { /* somebody waits for the time */
        emu_m.clock_ahead += 20000000;
        *rounds = 0;
    }
    emu_m.stuck.progress = emu_m.progress, emu_m.stuck.clock_reads = emu_m.clock_reads;
    if (++*rounds > STUCK_ROUNDS && *rounds > *patience) {
        *rounds = 0;
        if (!getenv("KEEL_EMU_WAIT")) return false;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    emu_m.quiet = *rounds > 1;
    wake_all();
    return emu_m.n_ready != 0;
}

static bool step(void) {
    if (__atomic_load_n(&emu_m.host_wrote, __ATOMIC_ACQUIRE) && emu_m.n_ready == 0) wake_all();
    if (emu_m.n_copies && (!emu_m.n_ready || emu_random() % 16 == 0))
        emu_copy_land((unsigned)(emu_random() % emu_m.n_copies));
    else if (emu_m.n_ready)
        run_warp(emu_m.ready[emu_random() % emu_m.n_ready]);
    else if (!look_again()) {
        emu_report_stuck();
        return false;
    }
    return true;
}

int emu_run(const emu_launch *launch) {
    enum { OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719 };
    free_blocks();
    if (!make_machine(launch)) return OUT_OF_MEMORY;
    if (!emu_race_begin()) return OUT_OF_MEMORY;
    for (unsigned i = 0; i < emu_m.n_blocks && emu_m.next_block < startable(); i++) start_block(&emu_m.block[i]);
    while (emu_m.blocks_left < startable() && !emu_m.failed) {
        if (!step()) emu_m.failed = true;
    }
    while (emu_m.n_copies) emu_copy_land(0);
    emu_race_end();
    emu_m.thread = NULL;
    return emu_m.failed || emu_m.raced ? LAUNCH_FAILED : 0;
}

void emu_machine_free(void) { free_blocks(); }

/* ---- what device text calls ------------------------------------------------------------------------ */

static void fail(const char *what, const char *file, unsigned line) { emu_fault("%s, %s:%u", what, file, line); }

__attribute__((visibility("default"))) const emu_api emu_functions = {.now = &emu_m.now,
                                                                      .meet = meet,
                                                                      .bar_sync = bar_sync,
                                                                      .touch = emu_touch,
                                                                      .polled = polled,
                                                                      .order = emu_race_order,
                                                                      .plain = emu_plain,
                                                                      .signal = signal_at,
                                                                      .mbar_init = emu_mbar_init,
                                                                      .mbar_arrive = emu_mbar_arrive,
                                                                      .mbar_expect = emu_mbar_expect,
                                                                      .mbar_test = emu_mbar_test,
                                                                      .mbar_try = emu_mbar_try,
                                                                      .bulk_load = emu_bulk_load,
                                                                      .shared = emu_shared_of,
                                                                      .shared_dynamic = emu_shared_dynamic,
                                                                      .shared_offset = emu_shared_offset,
                                                                      .now_ns = now_ns,
                                                                      .yield = yield,
                                                                      .fail = fail};
