/* SPDX-License-Identifier: Apache-2.0 */
/* The text under test with the explorer's primitives, and the bodies. Compiled with -fsanitize=thread, but linked with
 * the hooks of hooks.c in place of ThreadSanitizer: the explorer thus sees every plain access to shared memory. */
#include "model.h"

KP_FN kp_u32 kp_load_acquire(const kp_u32 *p) { return mc_load(p); }
KP_FN kp_u64 kp_load_acquire64(const kp_u64 *p) { return mc_load64(p); }
KP_FN void kp_store_release(kp_u32 *p, kp_u32 v) { mc_point((op){.kind = OP_STORE, .object = p, .value = v}); }
KP_FN void kp_store_release64(kp_u64 *p, kp_u64 v) { mc_point((op){.kind = OP_STORE64, .object = p, .value64 = v}); }
KP_FN void kp_add_release(kp_u32 *p, kp_u32 v) { mc_point((op){.kind = OP_ADD, .object = p, .value = v}); }
KP_FN void kp_bar_init(kp_bar *b, kp_u32 count) {
    b->count = count;
    b->word = (kp_u64)count << 32;
}
KP_FN void kp_bar_arrive(kp_bar *b) { mc_point((op){.kind = OP_ARRIVE, .object = b}); }
KP_FN int kp_bar_test(kp_bar *b, kp_u32 parity) { return mc_bar_test(b, parity); }
KP_FN int kp_abort_poll(const kp_ctx *c) {
    (void)c;
    return mc.abort != 0;
}
KP_FN void kp_yield(kp_ctx *c, kp_hint hint) {
    (void)c;
    mc_yield(hint);
}
KP_FN void kp_slot_fill(kp_ctx *c, kp_slot *slot, kp_u32 q) {
    slot->task = c->worker->launch->tasks[c->worker->launch->queue[q]];
}
KP_FN void kp_events_passed(kp_ctx *c, const kp_task *t) { (void)c, (void)t; }
KP_FN kp_u32 kp_count(kp_u32 *p) { return (*p)++; }
KP_FN int kp_run_over(const kp_launch *l) {
    mc_point((op){.kind = OP_PLAIN});
    return l->state->finished != 0;
}
void kp_dispatch(kp_ctx *c);

#include "device/protocol.h"

/* A fault of a backend, not of the text: the bytes of a copy are not announced. */
enum { UNCOUNTED = KP_FAULT == KP_FAULT_UNCOUNTED_COPY };

/* A body's accesses to `words` words are one step; what they race with is looked for word by word. */
static void about_to(uint32_t kind, uint32_t *p, uint32_t words) {
    mc_point((op){.kind = kind, .object = p, .value = words});
}

/* Counted over all ranks. */
static uint32_t this_worker(const kp_ctx *c) {
    const kp_launch *l = c->worker->launch;
    return l->rank * l->n_workers + c->worker->index;
}

static void expect(const kp_ctx *c, const uint32_t *p, uint32_t want, const char *what) {
    char name[64];
    uint32_t got = *p;
    if (got != want && !mc.certify) /* with clocks, the race behind it is what must be seen */
        world_found(FOUND_VALUE, "worker %u task %u iteration %u reads %s: found %u instead of %u in %s",
                    this_worker(c), c->task->lo, c->iteration, what, got, want, world_name(p, name));
}

/* Regions: 0 input page (words: the weights of each lane, the activations of each lane), 1 output page. */
static uint32_t *region(kp_ctx *c, uint32_t i) { return kb_region(c, i); }

/* Whose output a task reads: the task `distance` before, of the next worker; the first tasks that of the last
 * iteration. */
static uint32_t source_task(const kp_ctx *c) { return (c->task->lo + mc.cfg.tasks - mc.cfg.distance) % mc.cfg.tasks; }
static uint32_t source_worker(const kp_ctx *c) {
    return (mc.cfg.dealt ? source_task(c) : this_worker(c) + 1) % mc.cfg.workers;
}

static uint32_t source_value(const kp_ctx *c, uint32_t lane) {
    if (c->task->lo >= mc.cfg.distance) return mc_output_value(source_worker(c), source_task(c), lane, c->iteration);
    return c->iteration ? mc_output_value(source_worker(c), source_task(c), lane, c->iteration - 1) : 0;
}

static void bulk(kp_ctx *c, uint32_t *dst, uint32_t *src) {
    mc_point((op){.kind = OP_BULK, .object = dst, .src = src, .bar = &c->slot->loaded, .value = UNCOUNTED});
}

static void consumer_body(kp_ctx *c) {
    uint32_t *in = region(c, 0), *out = &region(c, 1)[c->lane];
    about_to(OP_READ, in, PAGE_WORDS);
    for (uint32_t l = 0; l < mc.cfg.lanes; l++) {
        expect(c, &in[l], mc_weight_value(l), "a weight");
        expect(c, &in[MAX_LANES + l], source_value(c, l), "an input");
    }
    about_to(OP_WRITE, out, 1);
    *out = mc_output_value(this_worker(c), c->task->lo, c->lane, c->iteration);
}

static void storer_body(kp_ctx *c) {
    kp_u32 w = this_worker(c), k = c->task->lo;
    kp_u32 from = mc.cfg.lanes - 1 - c->lane; /* written by the other lane of the consumer */
    uint32_t *result = &region(c, 1)[from], *to = mc_output(w, k, from, c->iteration);
    about_to(OP_READ, result, 1);
    expect(c, result, mc_output_value(w, k, from, c->iteration), "a result");
    about_to(OP_WRITE, to, 1);
    *to = mc_output_value(w, k, from, c->iteration);
    if (w == 0 && k == 0 && c->lane == 0 && c->iteration + 1 == mc.cfg.iterations) {
        about_to(OP_WRITE, &mc.state->finished, 1);
        c->worker->launch->state->finished = 1;
    }
}

/* Where the launcher claims the pages, as on the GPU, nothing of the loader may go into them: the launcher brings the
 * weights too, by plain stores. */
enum { LAUNCHER_CLAIMS = KP_CLAIM_ROLE == 2 };

static void loader_body(kp_ctx *c) {
    if (!LAUNCHER_CLAIMS) bulk(c, &region(c, 0)[c->lane], &mc.weight[c->lane]);
}

static void launcher_body(kp_ctx *c) {
    if (LAUNCHER_CLAIMS) {
        uint32_t *to = &region(c, 0)[c->lane];
        about_to(OP_WRITE, to, 1);
        *to = mc_weight_value(c->lane);
    }
    kp_u32 iteration = c->task->lo >= mc.cfg.distance ? c->iteration : c->iteration + 1; /* modulo 2: the one before */
    bulk(c, &region(c, 0)[MAX_LANES + c->lane], mc_output(source_worker(c), source_task(c), c->lane, iteration));
}

void kp_dispatch(kp_ctx *c) {
    switch (c->role) {
    case KP_LOADER:
        loader_body(c);
        break;
    case KP_LAUNCHER:
        launcher_body(c);
        break;
    case KP_CONSUMER:
        consumer_body(c);
        break;
    default:
        storer_body(c);
    }
}

void mc_text_init(kp_worker *w) { kp_worker_init(w); }
uint32_t mc_text_fault(void) { return KP_FAULT; }
void mc_text_main(kp_ctx *c) { kp_role_main(c); }
