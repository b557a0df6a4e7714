/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

world mc;
_Alignas(64) unsigned char mc_arena[ARENA_BYTES];
static _Alignas(64) char stacks[MAX_COROUTINES][STACK_BYTES];

const char *const finding_name[] = {"nothing", "deadlock",  "race",     "alias",    "stale",
                                    "value",   "half exit", "leftover", "disorder", "limit"};

/* The first finding stays: what comes after it may be its consequence. */
void world_found(enum finding_kind kind, const char *format, ...) {
    if (mc.found.kind != FOUND_NOTHING) return;
    if (mc.lenient >= 1 && (kind == FOUND_RACE || kind == FOUND_ALIAS)) return;
    if (mc.lenient >= 2 && kind == FOUND_VALUE) return;
    mc.found.kind = kind;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(mc.found.text, sizeof mc.found.text, format, arguments);
    va_end(arguments);
}

/* ---- names ---- */

static const char *const role_name[] = {"controller", "loader", "launcher", "consumer", "storer"};

const char *world_lane_name(uint32_t co, char text[64]) {
    const kp_ctx *c = &mc.co[co].ctx;
    const kp_launch *l = c->worker->launch;
    snprintf(text, 64, "worker %u %s lane %u", l->rank * l->n_workers + c->worker->index, role_name[c->role], c->lane);
    return text;
}

static const char *slot_word_name(const kp_slot *slot, const void *object) {
    if (object == &slot->arrived) return "arrived";
    if (object == &slot->claimed) return "claimed";
    if (object == &slot->ready) return "ready";
    if (object == &slot->loaded) return "loaded";
    if (object == &slot->computed) return "computed";
    if (object == &slot->finished) return "finished";
    for (uint32_t r = 0; r < KP_ROLES; r++) {
        if (object == &slot->join[r]) return role_name[r];
    }
    return "descriptor";
}

static bool within(const void *object, const void *base, size_t bytes) {
    return (const char *)object >= (const char *)base && (const char *)object < (const char *)base + bytes;
}

static bool worker_word_name(uint32_t w, const void *object, char text[64]) {
    const kp_worker *k = mc.worker[w];
    for (uint32_t s = 0; s < KP_SLOTS; s++) {
        const kp_slot *slot = &k->slot[s];
        if (!within(object, slot, sizeof *slot)) continue;
        bool join = within(object, slot->join, sizeof slot->join);
        snprintf(text, 64, "worker %u slot %u %s%s", w, s, join ? "join of " : "", slot_word_name(slot, object));
        return true;
    }
    for (uint32_t p = 0; p < k->n_pages; p++) {
        if (object == &k->page_free[p])
            snprintf(text, 64, "worker %u page %u barrier", w, p);
        else if (within(object, k->smem + p * k->page_bytes, k->page_bytes))
            snprintf(text, 64, "worker %u page %u", w, p);
        else if (object == &k->claims[p])
            snprintf(text, 64, "worker %u page %u claims", w, p);
        else
            continue;
        return true;
    }
    return false;
}

const char *world_name(const void *object, char text[64]) {
    snprintf(text, 64, "?");
    if (object == &mc.state->finished) snprintf(text, 64, "state");
    for (uint32_t r = 0; r < mc.cfg.ranks && mc.control[r]; r++) {
        const kp_control *ctl = mc.control[r];
        if (object == &ctl->arrived) snprintf(text, 64, "border count of rank %u", r);
        if (object == &ctl->ranks_arrived) snprintf(text, 64, "border count of all ranks");
        if (object == &ctl->go) snprintf(text, 64, "go word of rank %u", r);
        if (object == &ctl->stop_request) snprintf(text, 64, "stop request");
        for (uint32_t e = 0; e < mc.cfg.tasks; e++) {
            if (object == &mc.events[r][e].count) snprintf(text, 64, "event %u of rank %u", e, r);
        }
    }
    for (uint32_t w = 0; w < mc.cfg.workers && mc.worker[w]; w++) {
        if (worker_word_name(w, object, text)) return text;
        for (uint32_t i = 0; i < 2 * mc.cfg.tasks; i++) {
            if (within(object, mc_output(w, i / 2, 0, i), mc.cfg.lanes * sizeof(uint32_t)))
                snprintf(text, 64, "output of worker %u task %u", w, i / 2);
        }
    }
    return text;
}

/* ---- what the text calls ---- */

static __attribute__((noinline)) void to_explorer(void) {
    coroutine *co = mc.now;
    co->low = (char *)__builtin_frame_address(0) - 512;
    if (_setjmp(co->at) == 0) _longjmp(mc.explorer, 1);
}

void mc_point(op o) {
    mc.now->next = o;
    to_explorer();
}

/* Words that are waited for: the first look of a wait is answered "not yet", as every wait may be; it then yields with
 * its target and stands there until it holds, and the next look is the true one. All others are read as they are. */
static bool is_awaited(const void *p) {
    for (uint32_t r = 0; r < mc.cfg.ranks; r++) {
        if (p == &mc.control[r]->arrived || p == &mc.control[r]->ranks_arrived) return true;
        if (within(p, mc.events[r], mc.cfg.tasks * sizeof **mc.events)) return true;
    }
    return false;
}

static bool is_stop_request(const void *p) {
    for (uint32_t r = 0; r < mc.cfg.ranks; r++) {
        if (p == &mc.control[r]->stop_request) return true;
    }
    return false;
}

static bool take_grant(const void *p) {
    bool granted = mc.now->granted == p;
    mc.now->granted = NULL;
    return granted;
}

static void remember(uint64_t value) { mc.now->history = mc_mix(mc.now->history, value); }

uint32_t mc_load(const kp_u32 *p) {
    enum { NOT_YET = (int)0xC0000000 }; /* behind every target, modulo 2^32 */
    uint32_t value;
    if (take_grant(p) || (mc.abort == 2 && is_awaited(p))) {
        value = *p;
    } else if (is_awaited(p)) {
        return (uint32_t)NOT_YET;
    } else if (is_stop_request(p)) {
        if (!mc.cfg.stop || p != &mc.control[0]->stop_request) return 0;
        mc_point((op){.kind = OP_STOP, .object = (void *)(uintptr_t)p});
        value = mc.now->answer;
    } else {
        mc_point((op){.kind = OP_LOAD, .object = (void *)(uintptr_t)p});
        value = *p;
    }
    remember(value);
    return value;
}

uint64_t mc_load64(const kp_u64 *p) {
    if (!take_grant(p) && mc.abort != 2) return 0;
    remember(*p);
    return *p;
}

static bool bar_passed(const kp_bar *b, uint32_t parity) { return (mc_bar_phase(b) & 1) != parity; }

int mc_bar_test(kp_bar *b, kp_u32 parity) { return (take_grant(b) || mc.abort == 2) && bar_passed(b, parity); }

void mc_yield(kp_hint hint) {
    op o = {.value = hint.target};
    switch (hint.kind) {
    case KP_HINT_BAR:
        o.kind = OP_AWAIT_BAR;
        o.object = hint.bar;
        break;
    case KP_HINT_COUNTER:
        o.kind = OP_AWAIT_COUNTER;
        o.object = hint.count;
        break;
    default:
        o.kind = OP_AWAIT_GO;
        o.object = hint.go;
    }
    mc_point(o);
    mc.now->granted = o.object;
}

/* ---- steps ---- */

bool world_enabled(const op *o) {
    if (mc.abort && o->kind <= OP_AWAIT_GO) return true; /* to look, and leave */
    switch ((enum op_kind)o->kind) {
    case OP_AWAIT_BAR:
        return bar_passed(o->object, o->value);
    case OP_AWAIT_COUNTER:
        return (int32_t)(*(uint32_t *)o->object - o->value) >= 0;
    case OP_AWAIT_GO:
        return *(uint64_t *)o->object >> 1 >= o->value;
    case OP_FINISHED:
        return false;
    default:
        return true;
    }
}

/* A wait that held before this phase completed and does not hold after it: its lane was overtaken, and takes a later
 * phase for its own or waits for ever. */
static void look_for_overtaken(const kp_bar *b, uint32_t completed) {
    for (uint32_t i = 0; i < mc.n_co; i++) {
        const op *o = &mc.co[i].next;
        char lane[64], name[64];
        if (o->kind == OP_AWAIT_BAR && o->object == b && (completed & 1) != o->value)
            world_found(FOUND_ALIAS, "%s had not yet looked when the next phase of %s completed",
                        world_lane_name(i, lane), world_name(b, name));
    }
}

/* src/exec/cpu_prim.h, kp_bar_update: the same arithmetic, in one step. */
static void bar_update(kp_bar *b, uint32_t bytes, uint32_t arrivals) {
    uint32_t pending = mc_bar_bytes(b) + bytes, missing = mc_bar_missing(b), phase = mc_bar_phase(b);
    char name[64];
    if (arrivals > missing) {
        world_found(FOUND_STALE, "an arrival too many on %s", world_name(b, name));
        return;
    }
    missing -= arrivals;
    bool completes = missing == 0 && pending == 0;
    if (completes) {
        phase = (phase + 1) & 0xffff;
        missing = b->count;
    }
    b->word = (uint64_t)phase << 48 | (uint64_t)missing << 32 | pending;
    if (completes && !mc.certify && !mc.abort)
        look_for_overtaken(b, phase - 1); /* order.c sees it without meeting it */
}

static void start_copy(uint32_t co, const op *o) {
    uint32_t number = mc.co[co].copies++;
    copy *c = &mc.copies[mc.co[co].ring + number % COPY_RING];
    if (c->bar) {
        world_found(FOUND_LIMIT, "more than %d copies of one lane under way", COPY_RING);
        return;
    }
    *c = (copy){.dst = o->object, .src = o->src, .bar = o->bar, .uncounted = o->value != 0};
    c->phase = (uint16_t)mc_bar_phase(o->bar);
    c->number = (uint16_t)number;
    c->co = (uint16_t)co;
    if (!c->uncounted) bar_update(o->bar, sizeof(uint32_t), 0);
}

static void do_op(uint32_t co, const op *o) {
    switch ((enum op_kind)o->kind) {
    case OP_ARRIVE:
        bar_update(o->object, 0, 1);
        break;
    case OP_BULK:
        start_copy(co, o);
        break;
    case OP_ADD:
        *(uint32_t *)o->object += o->value;
        break;
    case OP_STORE:
        *(uint32_t *)o->object = o->value;
        break;
    case OP_STORE64:
        *(uint64_t *)o->object = o->value64;
        break;
    default:
        break;
    }
}

static void run(uint32_t co) {
    mc.now = &mc.co[co];
    if (_setjmp(mc.explorer) == 0) _longjmp(mc.now->at, 1);
    mc.now = NULL;
}

void world_step(uint32_t co, uint32_t answer) {
    coroutine *c = &mc.co[co];
    op o = c->next;
    c->answer = answer;
    c->history = mc_mix(c->history, o.kind);
    if (mc.certify) order_op(co, &o);
    c->next.object = NULL; /* it no longer waits */
    do_op(co, &o);
    if (mc.found.kind == FOUND_NOTHING) run(co);
}

void world_land(copy *c) {
    copy landing = *c;
    char name[64];
    if (mc.certify) order_landing(c);
    *landing.dst = *landing.src;
    *c = (copy){0};
    if (landing.uncounted) return;
    if (landing.phase != mc_bar_phase(landing.bar)) {
        world_found(FOUND_STALE, "a copy lands on a later use of %s than the one that started it",
                    world_name(landing.bar, name));
        return;
    }
    bar_update(landing.bar, 0u - (uint32_t)sizeof(uint32_t), 0);
}

bool world_over(void) {
    for (uint32_t i = 0; i < mc.n_co; i++) {
        if (mc.co[i].next.kind != OP_FINISHED) return false;
    }
    for (uint32_t i = 0; i < mc.n_copies; i++) {
        if (mc.copies[i].bar) return false;
    }
    return true;
}

static bool some_left_others_not(void) {
    bool left = false, at_border = false;
    for (uint32_t i = 0; i < mc.n_co; i++) {
        const op *o = &mc.co[i].next;
        if (mc.co[i].ctx.role != KP_CONTROLLER) continue;
        left = left || o->kind == OP_FINISHED;
        at_border = at_border || o->kind == OP_AWAIT_GO || o->kind == OP_AWAIT_COUNTER;
    }
    return left && at_border;
}

void world_check_stuck(void) {
    char text[400] = "", lane[64], name[64];
    size_t used = 0;
    for (uint32_t i = 0; i < mc.n_co && used < sizeof text - 140; i++) {
        const op *o = &mc.co[i].next;
        if (o->kind == OP_FINISHED) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s for %s", used ? "; " : "",
                                 world_lane_name(i, lane), world_name(o->object, name));
    }
    world_found(some_left_others_not() ? FOUND_HALF_EXIT : FOUND_DEADLOCK, "nobody can move: %s", text);
}

/* ---- what must hold at the end ---- */

static void check_bar(const kp_bar *b, uint32_t phases) {
    char name[64];
    if (mc_bar_missing(b) != b->count || mc_bar_bytes(b))
        world_found(FOUND_LEFTOVER, "%s is left in the middle of a phase", world_name(b, name));
    else if (mc_bar_phase(b) != phases)
        world_found(FOUND_LEFTOVER, "%s completed %u phases in %u uses", world_name(b, name), mc_bar_phase(b), phases);
}

static void check_worker_bars(const kp_worker *w, uint32_t iterations) {
    uint32_t tasks = (mc.queue_first[w->index + 1] - mc.queue_first[w->index]) * iterations;
    for (uint32_t s = 0; s < KP_SLOTS; s++) {
        const kp_slot *slot = &w->slot[s];
        uint32_t uses = tasks / KP_SLOTS + (s < tasks % KP_SLOTS);
        check_bar(&slot->arrived, uses + (s == tasks % KP_SLOTS)); /* and TERMINATE */
        const kp_bar *bars[] = {&slot->claimed, &slot->loaded, &slot->computed, &slot->finished, &slot->ready};
        for (size_t i = 0; i < sizeof bars / sizeof *bars; i++) check_bar(bars[i], uses);
        for (uint32_t r = KP_LOADER; r < KP_ROLES; r++) check_bar(&slot->join[r], w->lanes[r] > 1 ? uses : 0);
    }
    for (uint32_t p = 0; p < w->n_pages; p++) check_bar(&w->page_free[p], w->claims[p]);
}

void world_check_end(void) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < mc.n_co; i++) {
        const kp_ctx *c = &mc.co[i].ctx;
        if (c->role != KP_CONTROLLER) continue;
        char lane[64];
        if (i == 0)
            last = c->iteration;
        else if (c->iteration != last)
            world_found(FOUND_HALF_EXIT, "%s leaves after iteration %u, worker 0 after %u", world_lane_name(i, lane),
                        c->iteration, last);
    }
    if (!mc.cfg.stop && last + 1 != mc.cfg.iterations)
        world_found(FOUND_HALF_EXIT, "all leave after iteration %u of %u", last, mc.cfg.iterations);
    for (uint32_t w = 0; w < mc.cfg.workers; w++) {
        check_worker_bars(mc.worker[w], last + 1);
        for (uint32_t k = 0; k < mc.cfg.tasks; k++) {
            for (uint32_t l = 0; l < mc.cfg.lanes && world_has_task(w, k); l++) {
                if (*mc_output(w, k, l, last) != mc_output_value(w, k, l, last))
                    world_found(FOUND_VALUE, "the output of worker %u task %u is wrong at the end", w, k);
            }
        }
    }
}

uint32_t mc_weight_value(uint32_t word) { return 7000 + word; }
uint32_t *mc_output(uint32_t worker, uint32_t task, uint32_t lane, uint32_t iteration) {
    const config *g = &mc.cfg;
    return &mc.output[(((iteration & 1) * g->workers + worker) * g->tasks + task) * g->lanes + lane];
}
uint32_t mc_output_value(uint32_t worker, uint32_t task, uint32_t lane, uint32_t iteration) {
    return 1 + lane + 10 * task + 100 * worker + 1000 * (iteration + 1);
}

/* ---- the beginning ---- */

static void *take(size_t bytes) {
    size_t at = (mc.arena_used + 7) & ~(size_t)7; /* the arena is zero where nothing was put */
    if (at + bytes > ARENA_BYTES) {
        fprintf(stderr, "model: ARENA_BYTES is too small\n");
        exit(2);
    }
    mc.arena_used = at + bytes;
    return mc_arena + at;
}

bool world_has_task(uint32_t worker, uint32_t task) { return !mc.cfg.dealt || task % mc.cfg.workers == worker; }

static void plan_tasks(void) {
    const config *g = &mc.cfg;
    for (uint32_t k = 0; k < g->tasks; k++) {
        kp_task *t = &mc.tasks[k];
        bool waits = k >= g->distance || (g->broken == FORWARD_WAIT && k == 0);
        *t = (kp_task){.lo = k, .trigger = k, .n_waits = waits, .n_spans = 2, .n_regions = 2};
        t->wait_first = k >= g->distance ? k - g->distance : g->tasks - 1;
        t->span[0] = (kp_span){(kp_u16)(k % g->in_pages), 1, KP_CONSUMER};
        t->span[1] = (kp_span){(kp_u16)(g->in_pages + k % g->out_pages), 1, KP_STORER};
        for (uint32_t r = 0; r < 2; r++)
            t->region_offset[r] = t->span[r].first_page * (kp_u32)(PAGE_WORDS * sizeof(uint32_t));
        mc.waits[k] = k;
        mc.triggers[k] = (g->dealt ? 1 : g->workers) - (g->broken == UNDERCOUNT);
        mc.event_ranks[k] = 1;
    }
    uint32_t n = 0;
    for (uint32_t w = 0; w < g->workers; w++) {
        mc.queue_first[w] = n;
        for (uint32_t k = 0; k < g->tasks; k++) {
            if (world_has_task(w, k)) mc.queue[n++] = k;
        }
    }
    mc.queue_first[g->workers] = n;
}

static void lay_out_worker(uint32_t w) {
    const config *g = &mc.cfg;
    uint32_t pages = g->in_pages + g->out_pages, each = g->workers / g->ranks;
    kp_worker *k = mc.worker[w] = take(sizeof *k);
    *k = (kp_worker){.index = w % each,
                     .lanes = {1, g->lanes, g->lanes, g->lanes, g->lanes},
                     .n_pages = pages,
                     .launch = &mc.launch[w / each]};
    k->page_bytes = PAGE_WORDS * sizeof(uint32_t);
    k->smem = take((size_t)pages * k->page_bytes);
    k->page_free = take(pages * sizeof *k->page_free);
    k->claims = take(pages * sizeof *k->claims);
}

static void lay_out_rank(uint32_t r) {
    const config *g = &mc.cfg;
    mc.events[r] = take(g->tasks * sizeof **mc.events);
    mc.control[r] = take(sizeof **mc.control);
    mc.launch[r] = (kp_launch){.n_workers = g->workers / g->ranks,
                               .tasks = mc.tasks,
                               .queue = mc.queue,
                               .queue_first = mc.queue_first,
                               .waits = mc.waits,
                               .triggers = mc.triggers,
                               .events = mc.events[r],
                               .control = mc.control[r],
                               .state = mc.state,
                               .world = g->ranks,
                               .rank = r,
                               .event_ranks = mc.event_ranks,
                               .rank_events = mc.events,
                               .rank_control = mc.control};
}

static void lay_out(void) {
    const config *g = &mc.cfg;
    for (uint32_t w = 0; w < g->workers; w++) lay_out_worker(w);
    mc.state = take(sizeof *mc.state);
    for (uint32_t r = 0; r < g->ranks; r++) lay_out_rank(r);
    mc.weight = take(PAGE_WORDS * sizeof *mc.weight);
    mc.output = take(2 * g->workers * g->tasks * g->lanes * sizeof *mc.output);
    for (uint32_t i = 0; i < PAGE_WORDS; i++) mc.weight[i] = mc_weight_value(i);
}

static void lane_main(void) {
    to_explorer();
    mc_text_main(&mc.now->ctx);
    mc.now->next = (op){.kind = OP_FINISHED};
    to_explorer();
}

static void start_lane(kp_worker *w, uint32_t role, uint32_t lane) {
    ucontext_t here, there;
    uint32_t i = mc.n_co++;
    coroutine *co = &mc.co[i];
    co->ctx = (kp_ctx){.worker = w, .role = role, .lane = lane};
    co->ring = mc.n_copies;
    if (role == KP_LOADER || role == KP_LAUNCHER) mc.n_copies += COPY_RING;
    getcontext(&there);
    there.uc_stack.ss_sp = stacks[i];
    there.uc_stack.ss_size = STACK_BYTES;
    there.uc_link = NULL;
    makecontext(&there, lane_main, 0);
    mc.now = co;
    if (_setjmp(mc.explorer) == 0) swapcontext(&here, &there);
    mc.now = NULL;
}

void world_open(const config *cfg, bool certify) {
    memset(&mc, 0, sizeof mc);
    memset(mc_arena, 0, sizeof mc_arena);
    mc.cfg = *cfg;
    plan_tasks();
    lay_out();
    take(-mc.arena_used & 31); /* search.c hashes whole pieces of 32 bytes */
    mc.copies = take(cfg->workers * cfg->lanes * 2 * COPY_RING * sizeof *mc.copies);
    for (uint32_t w = 0; w < cfg->workers; w++) {
        mc_text_init(mc.worker[w]);
        for (uint32_t role = 0; role < KP_ROLES; role++) {
            for (uint32_t l = 0; l < (role == KP_CONTROLLER ? 1 : cfg->lanes); l++) start_lane(mc.worker[w], role, l);
        }
    }
    mc.certify = certify;
    if (certify) order_open();
    for (uint32_t i = 0; i < mc.n_co; i++) run(i);
}

/* The stack of a lane, for search.c. */
char *world_stack_end(uint32_t co) { return stacks[co] + STACK_BYTES; }
