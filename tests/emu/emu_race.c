/* SPDX-License-Identifier: Apache-2.0 */
/* Races: two accesses to the same bytes, one of them a write, that nothing orders. Orders are those of the PTX memory
 * model as far as device text uses it: syncwarp and bar.sync, mbarrier arrivals and tests, release and acquire.
 *
 * Time is counted by warp: an epoch of a warp ends when all its threads have met at a syncwarp. A clock says of every
 * warp up to which epoch all of its threads are known (all), and, of one later epoch, which single threads (solo): a
 * release by a thread covers what the warp did before its last syncwarp, and of what came after its own accesses alone.
 * A bulk copy is a warp of its own for its writes. Every two bytes have a shadow: the last write and two reads. */
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ENGINES = 8, TABLE = 1 << 14, GRAIN = 2, READS = 2, MOST_TOLD = 12 };

typedef struct tick {
    uint32_t all, solo, solo_lanes;
} tick;
typedef struct mark { /* an access */
    uint32_t epoch;   /* 0: none */
    uint16_t warp;
    uint8_t lane, atomic;
    uint32_t pc; /* from the module's base */
} mark;
typedef struct shadow {
    mark write, read[READS];
} shadow;
typedef struct object { /* what releases go through: a word, a barrier */
    const void *at;
    tick *open, *done; /* done: an mbarrier's phases that are over */
} object;
typedef struct warp_clock {
    uint32_t epoch, own; /* own: threads that acquired since the last syncwarp */
    tick *base, *of[EMU_WARP], *fence[EMU_WARP], *seen[EMU_WARP];
} warp_clock;

bool emu_races;
static unsigned n_warps, n_all, engine, told;
static warp_clock *clocks;
static object *objects;
static shadow **shared_shadow; /* by block */
static struct { uint32_t a, b; } seen_pairs[MOST_TOLD];

static unsigned warp_number(void) {
    return (unsigned)(emu_m.warp->block - emu_m.block) * emu_m.warp->block->n_warps + emu_m.warp->index;
}
static tick *new_clock(void) {
    tick *t = calloc(n_all, sizeof *t);
    if (!t) abort();
    return t;
}

static void join(tick *to, const tick *from) {
    for (unsigned i = 0; i < n_all; i++) {
        if (from[i].all > to[i].all) to[i].all = from[i].all;
        if (from[i].solo > to[i].solo)
            to[i].solo = from[i].solo, to[i].solo_lanes = from[i].solo_lanes;
        else if (from[i].solo == to[i].solo)
            to[i].solo_lanes |= from[i].solo_lanes;
    }
}

static tick *clock_of(warp_clock *w, unsigned lane) { return w->own >> lane & 1 ? w->of[lane] : w->base; }

static void acquire(warp_clock *w, unsigned lane, const tick *from) {
    if (!(w->own >> lane & 1)) {
        if (!w->of[lane]) w->of[lane] = new_clock();
        memcpy(w->of[lane], w->base, n_all * sizeof(tick));
        w->own |= 1u << lane;
    }
    join(w->of[lane], from);
}

static void release(const warp_clock *w, unsigned number, unsigned lane, tick *to) {
    join(to, w->own >> lane & 1 ? w->of[lane] : w->base);
    tick mine = {.all = w->epoch - 1, .solo = w->epoch, .solo_lanes = 1u << lane};
    if (mine.all > to[number].all) to[number].all = mine.all;
    if (mine.solo > to[number].solo)
        to[number].solo = mine.solo, to[number].solo_lanes = mine.solo_lanes;
    else if (mine.solo == to[number].solo)
        to[number].solo_lanes |= mine.solo_lanes;
}

static object *object_at(const void *p) {
    uint64_t h = (uint64_t)(uintptr_t)p * 0x9e3779b97f4a7c15u >> 32;
    for (unsigned i = 0; i < TABLE; i++) {
        object *o = &objects[(h + i) % TABLE];
        if (o->at == p) return o;
        if (o->at) continue;
        o->at = p;
        o->open = new_clock();
        return o;
    }
    abort();
}

/* ---- what orders ----------------------------------------------------------------------------------- */

void emu_race_warp_met(emu_warp *w) {
    if (!emu_races) return;
    unsigned number = (unsigned)(w->block - emu_m.block) * w->block->n_warps + w->index;
    warp_clock *c = &clocks[number];
    for (uint32_t m = c->own; m; m &= m - 1) join(c->base, c->of[__builtin_ctz(m)]);
    c->own = 0;
    c->base[number].all = c->epoch++;
}

void emu_race_order(const void *p, enum emu_order what) {
    if (!emu_races) return;
    unsigned number = warp_number(), lane = emu_m.now.lane;
    warp_clock *w = &clocks[number];
    if (!w->fence[lane]) w->fence[lane] = new_clock(), w->seen[lane] = new_clock();
    if (what == EMU_FENCE) {
        acquire(w, lane, w->seen[lane]);
        release(w, number, lane, w->fence[lane]);
        return;
    }
    object *o = object_at(p);
    if (what & EMU_ACQUIRE) acquire(w, lane, o->open);
    if (what & EMU_RELEASE) release(w, number, lane, o->open);
    if (what == EMU_RELAXED_LOAD) join(w->seen[lane], o->open);
    if (what == EMU_RELAXED_STORE) join(o->open, w->fence[lane]);
}

void emu_race_arrive(const void *bar) {
    if (emu_races) release(&clocks[warp_number()], warp_number(), emu_m.now.lane, object_at(bar)->open);
}
void emu_race_phase(const void *bar) {
    if (!emu_races) return;
    object *o = object_at(bar);
    if (!o->done) o->done = new_clock();
    join(o->done, o->open);
}
void emu_race_passed(const void *bar) {
    if (!emu_races) return;
    object *o = object_at(bar);
    if (o->done) acquire(&clocks[warp_number()], emu_m.now.lane, o->done);
}

/* bar.sync: all threads of these warps. */
void emu_race_barrier_come(emu_block *b, unsigned barrier) { emu_race_arrive(&b->bar[barrier]); }
void emu_race_barrier_passed(emu_warp *w, unsigned barrier) {
    if (!emu_races) return;
    unsigned number = (unsigned)(w->block - emu_m.block) * w->block->n_warps + w->index;
    join(clocks[number].base, object_at(&w->block->bar[barrier])->open);
    emu_race_warp_met(w);
}

/* ---- accesses -------------------------------------------------------------------------------------- */

static bool ordered(const mark *m, unsigned number, unsigned lane) {
    const tick *c = clock_of(&clocks[number], lane);
    if (m->warp == number) return m->epoch < clocks[number].epoch || m->lane == lane;
    const tick *t = &c[m->warp];
    return t->all >= m->epoch || (t->solo == m->epoch && (t->solo_lanes >> m->lane & 1));
}

static void name_mark(const mark *m, char *text, size_t bytes) {
    if (m->warp >= n_warps) {
        snprintf(text, bytes, "a bulk copy of block %u", emu_m.block[(m->warp - n_warps) / ENGINES].index);
        return;
    }
    const emu_block *b = &emu_m.block[m->warp / emu_m.block[0].n_warps];
    snprintf(text, bytes, "block %u thread %u", b->index, m->warp % b->n_warps * EMU_WARP + m->lane);
}

static void tell(const void *p, const mark *before, bool wrote, const mark *now, bool writes) {
    for (unsigned i = 0; i < told && i < MOST_TOLD; i++)
        if (seen_pairs[i].a == before->pc && seen_pairs[i].b == now->pc) return;
    if (told >= MOST_TOLD) return;
    seen_pairs[told].a = before->pc, seen_pairs[told++].b = now->pc;
    char where[128], one[64], other[64];
    emu_address_text(p, where, sizeof where);
    name_mark(now, one, sizeof one);
    name_mark(before, other, sizeof other);
    emu_m.raced = true;
    emu_say("race: a %s by %s in %s, not ordered behind a %s by %s:", writes ? "write" : "read", one, where,
            wrote ? "write" : "read", other);
    emu_say_place(now->pc);
    fprintf(stderr, "      and\n");
    emu_say_place(before->pc);
}

/* All threads of a warp that write from one place write the same value: nobody's race. */
static bool together(const mark *a, const mark *b) {
    return a->warp == b->warp && a->epoch == b->epoch && a->pc == b->pc;
}

static void look(const void *p, shadow *s, const mark *now, bool writes, unsigned number, unsigned lane) {
    mark *w = &s->write;
    if (w->epoch && !(w->atomic && now->atomic) && !ordered(w, number, lane) && !(writes && together(w, now)))
        tell(p, w, true, now, writes);
    for (unsigned i = 0; writes && i < READS; i++) {
        mark *r = &s->read[i];
        if (r->epoch && !(r->atomic && now->atomic) && !ordered(r, number, lane)) tell(p, r, false, now, true);
        r->epoch = 0;
    }
    if (writes) {
        *w = *now;
        return;
    }
    unsigned slot = s->read[0].epoch && s->read[0].warp != now->warp ? 1 : 0;
    if (slot && s->read[1].epoch && s->read[1].warp != now->warp) slot = (unsigned)(emu_random() & 1);
    s->read[slot] = *now;
}

static shadow *shadow_of(const void *p, size_t bytes) {
    if (emu_in_shared(p, bytes)) {
        const emu_block *b = emu_m.warp->block;
        return shared_shadow[b - emu_m.block] + ((const char *)p - b->shared) / GRAIN;
    }
    return emu_global_shadow(p, bytes, sizeof(shadow) / GRAIN);
}

static void mark_all(const void *p, unsigned bytes, mark now, bool writes, unsigned number, unsigned lane) {
    shadow *s = shadow_of(p, bytes);
    if (!s) return;
    for (unsigned i = 0; i < (bytes + GRAIN - 1) / GRAIN; i++)
        look((const char *)p + (size_t)i * GRAIN, &s[i], &now, writes, number, lane);
}

void emu_race_access(const void *p, unsigned bytes, enum emu_access access, const void *pc) {
    if (!emu_races) return;
    unsigned number = warp_number(), lane = emu_m.now.lane;
    mark now = {.epoch = clocks[number].epoch,
                .warp = (uint16_t)number,
                .lane = (uint8_t)lane,
                .atomic = (access & EMU_ATOMIC) != 0,
                .pc = (uint32_t)((const char *)pc - (const char *)emu_m.launch.base)};
    mark_all(p, bytes, now, access & EMU_WRITE, number, lane);
}

/* The copy's engine: behind the thread that issues it, for what lies there; its writes are ordered by the barrier. */
void emu_race_copy(emu_copy *c, const void *pc) {
    if (!emu_races) return;
    unsigned number = warp_number(), lane = emu_m.now.lane;
    c->engine = n_warps + (unsigned)(emu_m.warp->block - emu_m.block) * ENGINES + engine++ % ENGINES;
    c->epoch = ++clocks[c->engine].epoch;
    emu_race_access(c->from, c->bytes, EMU_READ, pc);
    mark now = {.epoch = c->epoch,
                .warp = (uint16_t)c->engine,
                .pc = (uint32_t)((const char *)pc - (const char *)emu_m.launch.base)};
    mark_all(c->to, c->bytes, now, true, number, lane);
}
void emu_race_landed(const emu_copy *c) {
    if (!emu_races) return;
    tick *to = object_at(c->bar)->open;
    if (c->epoch > to[c->engine].all) to[c->engine].all = c->epoch;
}

/* ---- a launch --------------------------------------------------------------------------------------- */

void emu_race_end(void) {
    for (unsigned i = 0; clocks && i < n_all; i++) {
        free(clocks[i].base);
        for (unsigned l = 0; l < EMU_WARP; l++)
            free(clocks[i].of[l]), free(clocks[i].fence[l]), free(clocks[i].seen[l]);
    }
    for (unsigned i = 0; objects && i < TABLE; i++) free(objects[i].open), free(objects[i].done);
    for (unsigned i = 0; shared_shadow && i < n_all && shared_shadow[i]; i++)
        munmap(shared_shadow[i], EMU_SHARED_BYTES / GRAIN * sizeof(shadow));
    free(clocks), free(objects), free(shared_shadow);
    clocks = NULL, objects = NULL, shared_shadow = NULL;
    emu_clear_shadows();
}

bool emu_race_begin(void) {
    emu_races = getenv("KEEL_EMU_RACES") != NULL;
    if (!emu_races) return true;
    n_warps = emu_m.n_blocks * emu_m.block[0].n_warps;
    n_all = n_warps + emu_m.n_blocks * ENGINES;
    told = 0;
    clocks = calloc(n_all, sizeof *clocks);
    objects = calloc(TABLE, sizeof *objects);
    shared_shadow = calloc((size_t)n_all + 1, sizeof *shared_shadow);
    if (!clocks || !objects || !shared_shadow) return false;
    for (unsigned i = 0; i < n_all; i++) {
        clocks[i].epoch = i < n_warps;
        clocks[i].base = new_clock();
    }
    for (unsigned i = 0; i < emu_m.n_blocks; i++) {
        void *p = mmap(NULL, EMU_SHARED_BYTES / GRAIN * sizeof(shadow), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return false;
        shared_shadow[i] = p;
    }
    return true;
}
