/* SPDX-License-Identifier: Apache-2.0 */
/* The order of events of one run, by vector clocks, and the check that no other order is possible: every pair of steps
 * whose exchange could change anything is ordered by happens-before (docs/proof-model.md, "The reduction"). */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ACTORS = 512, MAX_EVENTS = 8192, GRANULE = 4, GRANULES = ARENA_BYTES / GRANULE, MAX_LIST = 256 };

typedef uint16_t clock_of[MAX_ACTORS];
typedef struct epoch {
    uint16_t actor, time;
} epoch;
typedef struct list {
    epoch at[MAX_LIST];
    uint32_t phase[MAX_LIST]; /* of a wait: the phase that must not complete before it; of a counter: its target */
    uint32_t n;
} list;

/* A barrier, counter or word. */
typedef struct sync {
    clock_of closed, before; /* all contributions to phases that completed; the same without the last phase */
    clock_of open;           /* contributions to the phase under way; of a word: its last store */
    list arrivals, expects, waits;
    list adds;
    clock_of sum[MAX_LIST]; /* [i] join of the first i + 1 adds */
    uint64_t last_value;    /* of a word, before its last store */
    bool stored;
} sync;

typedef struct granule {
    epoch write;
    uint16_t read[MAX_ACTORS];
} granule;

static struct {
    uint32_t actors, copy_base[MAX_COROUTINES];
    clock_of clock[MAX_ACTORS];
    sync *sync[ARENA_BYTES / 8];
    granule memory[GRANULES];
    struct {
        uint16_t actor, time;
        clock_of clock;
    } event[MAX_EVENTS];
    uint32_t n_events;
} order;

static void join(clock_of to, const clock_of from) {
    for (uint32_t i = 0; i < order.actors; i++) {
        if (from[i] > to[i]) to[i] = from[i];
    }
}

static bool before(const clock_of a, const clock_of b) {
    for (uint32_t i = 0; i < order.actors; i++) {
        if (a[i] > b[i]) return false;
    }
    return true;
}

static bool seen_by(epoch e, const clock_of c) { return c[e.actor] >= e.time; }

static void add(list *l, epoch e, uint32_t phase) {
    if (l->n == MAX_LIST) {
        fprintf(stderr, "model: MAX_LIST is too small\n");
        exit(2);
    }
    l->phase[l->n] = phase;
    l->at[l->n++] = e;
}

static sync *sync_of(const void *object) {
    size_t at = (size_t)((const unsigned char *)object - mc_arena) / 8;
    if (!order.sync[at]) order.sync[at] = calloc(1, sizeof(sync));
    if (!order.sync[at]) exit(2);
    return order.sync[at];
}

static const char *actor_name(uint32_t actor, char text[64]) {
    if (actor < mc.n_co) return world_lane_name(actor, text);
    uint32_t co = 0;
    while (co + 1 < mc.n_co && order.copy_base[co + 1] <= actor) co++;
    char lane[64];
    snprintf(text, 64, "a copy of %.50s", world_lane_name(co, lane));
    return text;
}

void order_open(void) {
    for (size_t i = 0; i < ARENA_BYTES / 8; i++) free(order.sync[i]);
    memset(&order, 0, sizeof order);
    order.actors = mc.n_co;
    for (uint32_t i = 0; i < mc.n_co; i++) {
        order.copy_base[i] = order.actors;
        uint32_t role = mc.co[i].ctx.role;
        if (role == KP_LOADER || role == KP_LAUNCHER)
            order.actors += mc.cfg.tasks * (mc.cfg.iterations + 1); /* a fault may add one */
    }
    if (order.actors > MAX_ACTORS) {
        fprintf(stderr, "model: MAX_ACTORS is too small\n");
        exit(2);
    }
}

static void record(uint32_t actor) {
    if (order.n_events == MAX_EVENTS) {
        fprintf(stderr, "model: MAX_EVENTS is too small\n");
        exit(2);
    }
    uint32_t i = order.n_events++;
    order.event[i].actor = (uint16_t)actor;
    order.event[i].time = order.clock[actor][actor];
    memcpy(order.event[i].clock, order.clock[actor], sizeof(clock_of));
}

/* ---- barriers ---- */

static bool any_sees(const list *arrivals, epoch e) {
    for (uint32_t i = 0; i < arrivals->n; i++) {
        uint16_t actor = arrivals->at[i].actor;
        for (uint32_t v = order.n_events; v-- > 0;) {
            if (order.event[v].actor != actor || order.event[v].time != arrivals->at[i].time) continue;
            if (seen_by(e, order.event[v].clock)) return true;
            break;
        }
    }
    return false;
}

static void complete(sync *s, const kp_bar *b) {
    uint32_t phase = mc_bar_phase(b);
    char name[64], who[64];
    for (uint32_t i = 0; i < s->expects.n; i++) {
        if (!any_sees(&s->arrivals, s->expects.at[i]))
            world_found(FOUND_STALE, "%s announces bytes on %s that its phase may complete without",
                        actor_name(s->expects.at[i].actor, who), world_name(b, name));
    }
    for (uint32_t i = 0; i < s->waits.n; i++) {
        if (s->waits.phase[i] == phase && !any_sees(&s->arrivals, s->waits.at[i]))
            world_found(FOUND_ALIAS, "%s may still be waiting when the next phase of %s completes",
                        actor_name(s->waits.at[i].actor, who), world_name(b, name));
    }
    memcpy(s->before, s->closed, sizeof s->closed);
    join(s->closed, s->open);
    memset(s->open, 0, sizeof s->open);
    s->arrivals.n = s->expects.n = 0;
}

static void contribute(uint32_t actor, const kp_bar *b, uint32_t arrivals, uint32_t expected, uint32_t landed) {
    sync *s = sync_of(b);
    uint16_t *c = order.clock[actor];
    epoch e = {(uint16_t)actor, c[actor]};
    char name[64], who[64];
    if (!before(s->closed, c))
        world_found(FOUND_STALE, "%s may arrive on %s before the phase that it belongs to has begun",
                    actor_name(actor, who), world_name(b, name));
    if (arrivals) add(&s->arrivals, e, 0);
    if (expected) add(&s->expects, e, 0);
    join(s->open, c);
    if (!expected && mc_bar_missing(b) == arrivals && mc_bar_bytes(b) == landed) complete(s, b);
}

static void await_bar(uint32_t actor, const kp_bar *b) {
    sync *s = sync_of(b);
    char name[64], who[64];
    if (!before(s->before, order.clock[actor]))
        world_found(FOUND_ALIAS, "%s may take an earlier phase of %s for the one it waits for", actor_name(actor, who),
                    world_name(b, name));
    add(&s->waits, (epoch){(uint16_t)actor, order.clock[actor][actor]}, mc_bar_phase(b));
    join(order.clock[actor], s->closed);
}

/* ---- counters ---- */

/* What lies beyond the first `target` adds must come after all of these, or another set could satisfy the wait. */
static void check_beyond(const sync *s, uint32_t target, uint32_t add_at, const void *object) {
    char name[64], who[64];
    if (target == 0 || add_at < target) return;
    epoch e = s->adds.at[add_at];
    for (uint32_t v = order.n_events; v-- > 0;) {
        if (order.event[v].actor != e.actor || order.event[v].time != e.time) continue;
        if (!before(s->sum[target - 1], order.event[v].clock))
            world_found(FOUND_ORDER, "%s may add to %s in place of one that target %u means", actor_name(e.actor, who),
                        world_name(object, name), target);
        return;
    }
}

static void check_after_store(uint32_t actor, const sync *s, const void *object) {
    char name[64], who[64];
    if (s->stored && !before(s->open, order.clock[actor]))
        world_found(FOUND_ORDER, "%s counts on %s before or after it is set back", actor_name(actor, who),
                    world_name(object, name));
}

static void add_counter(uint32_t actor, const op *o) {
    sync *s = sync_of(o->object);
    uint16_t *c = order.clock[actor];
    check_after_store(actor, s, o->object);
    for (uint32_t i = 0; i < o->value; i++) {
        uint32_t n = s->adds.n;
        add(&s->adds, (epoch){(uint16_t)actor, c[actor]}, 0);
        if (n)
            memcpy(s->sum[n], s->sum[n - 1], sizeof s->sum[n]);
        else
            memset(s->sum[0], 0, sizeof s->sum[0]);
        join(s->sum[n], c);
    }
}

static void await_counter(uint32_t actor, const op *o) {
    sync *s = sync_of(o->object);
    check_after_store(actor, s, o->object);
    add(&s->waits, (epoch){(uint16_t)actor, order.clock[actor][actor]}, o->value);
    if (o->value && o->value <= s->adds.n) join(order.clock[actor], s->sum[o->value - 1]);
}

static void check_counters(void) {
    for (size_t at = 0; at < ARENA_BYTES / 8; at++) {
        const sync *s = order.sync[at];
        for (uint32_t w = 0; s && s->adds.n && w < s->waits.n; w++) {
            for (uint32_t i = 0; i < s->adds.n; i++) check_beyond(s, s->waits.phase[w], i, mc_arena + at * 8);
        }
    }
}

/* ---- words ---- */

static void store_word(uint32_t actor, const op *o) {
    sync *s = sync_of(o->object);
    uint16_t *c = order.clock[actor];
    char name[64], who[64], other[64];
    for (uint32_t i = 0; i < s->waits.n; i++) {
        if (!seen_by(s->waits.at[i], c))
            world_found(FOUND_ORDER, "%s stores to %s while %s may still look at it", actor_name(actor, who),
                        world_name(o->object, name), actor_name(s->waits.at[i].actor, other));
    }
    if (!before(s->open, c) || (s->adds.n && !before(s->sum[s->adds.n - 1], c)))
        world_found(FOUND_ORDER, "%s stores to %s, not ordered with an earlier store or addition",
                    actor_name(actor, who), world_name(o->object, name));
    s->last_value = o->kind == OP_STORE64 ? *(uint64_t *)o->object : *(uint32_t *)o->object;
    s->adds.n = s->waits.n = 0;
    s->stored = true;
    memcpy(s->open, c, sizeof s->open);
}

static void read_word(uint32_t actor, const op *o) {
    sync *s = sync_of(o->object);
    char name[64], who[64];
    bool may_see_older = s->stored && !before(s->open, order.clock[actor]);
    if (o->kind == OP_AWAIT_GO) may_see_older = may_see_older && s->last_value >> 1 >= o->value;
    if (may_see_older)
        world_found(FOUND_ORDER, "%s may read %s before or after it changes", actor_name(actor, who),
                    world_name(o->object, name));
    add(&s->waits, (epoch){(uint16_t)actor, order.clock[actor][actor]}, 0);
    join(order.clock[actor], s->open);
}

/* ---- steps ---- */

void order_op(uint32_t co, const op *o) {
    order.clock[co][co]++;
    switch ((enum op_kind)o->kind) {
    case OP_AWAIT_BAR:
        await_bar(co, o->object);
        break;
    case OP_AWAIT_COUNTER:
        await_counter(co, o);
        break;
    case OP_ADD:
        add_counter(co, o);
        break;
    case OP_STORE:
    case OP_STORE64:
        store_word(co, o);
        break;
    case OP_LOAD:
    case OP_AWAIT_GO:
        read_word(co, o);
        break;
    default:
        break;
    }
    record(co);
    if (o->kind == OP_ARRIVE) contribute(co, o->object, 1, 0, 0);
    if (o->kind == OP_BULK && !o->value) contribute(co, o->bar, 0, sizeof(uint32_t), 0);
    if (o->kind != OP_BULK) return;
    uint32_t actor = order.copy_base[co] + mc.co[co].copies;
    if (actor >= order.actors || (co + 1 < mc.n_co && actor >= order.copy_base[co + 1])) {
        world_found(FOUND_LIMIT, "a lane starts more copies than there are tasks");
        return;
    }
    memcpy(order.clock[actor], order.clock[co], sizeof(clock_of));
}

static void access_memory(uint32_t actor, uint16_t time, const void *p, size_t bytes, bool write) {
    size_t from = (size_t)((const unsigned char *)p - mc_arena) / GRANULE, to = from + (bytes + GRANULE - 1) / GRANULE;
    const uint16_t *c = order.clock[actor];
    char name[64], who[64], other[64];
    for (size_t i = from; i < to; i++) {
        granule *g = &order.memory[i];
        const void *at = mc_arena + i * GRANULE;
        if (g->write.time && !seen_by(g->write, c) && g->write.actor != actor)
            world_found(FOUND_RACE, "%s %s %s while %s may be writing it", actor_name(actor, who),
                        write ? "writes" : "reads", world_name(at, name), actor_name(g->write.actor, other));
        for (uint32_t a = 0; write && a < order.actors; a++) {
            if (a != actor && g->read[a] > c[a])
                world_found(FOUND_RACE, "%s writes %s while %s may be reading it", actor_name(actor, who),
                            world_name(at, name), actor_name(a, other));
        }
        if (write)
            g->write = (epoch){(uint16_t)actor, time};
        else
            g->read[actor] = time;
    }
}

/* Others are ordered behind it only by what its lane does next. */
void order_access(const void *p, size_t bytes, bool write) {
    uint32_t actor = (uint32_t)(mc.now - mc.co);
    access_memory(actor, (uint16_t)(order.clock[actor][actor] + 1), p, bytes, write);
}

void order_landing(const copy *c) {
    uint32_t actor = order.copy_base[c->co] + c->number;
    order.clock[actor][actor] = 1;
    access_memory(actor, 1, c->src, sizeof *c->src, false);
    access_memory(actor, 1, c->dst, sizeof *c->dst, true);
    record(actor);
    if (!c->uncounted && c->phase == mc_bar_phase(c->bar)) contribute(actor, c->bar, 0, 0, sizeof *c->src);
}

void order_end(void) { check_counters(); }

uint32_t order_events(void) { return order.n_events; }

/* The same for every linearisation of the same partial order. */
uint64_t order_hash(void) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < order.n_events; i++) {
        uint64_t h = mc_mix(order.event[i].actor, order.event[i].time);
        for (uint32_t a = 0; a < order.actors; a++) h = mc_mix(h, order.event[i].clock[a]);
        sum += h;
    }
    return sum;
}

/* ---- how many states the order has ---- */

typedef struct ideal_walk {
    seen_set seen;
    uint16_t at[MAX_ACTORS];
    uint32_t n_of[MAX_ACTORS];
    uint32_t *by_actor[MAX_ACTORS];
} ideal_walk;

static void ideal_key(const ideal_walk *w, uint64_t key[2]) {
    key[0] = 1;
    key[1] = 2;
    for (uint32_t a = 0; a < order.actors; a++) {
        key[0] = mc_mix(key[0], w->at[a]);
        key[1] = mc_mix(key[1] + 77, (uint64_t)w->at[a] << 20);
    }
}

static bool ideal_may_grow(const ideal_walk *w, uint32_t actor) {
    if (w->at[actor] == w->n_of[actor]) return false;
    const uint16_t *c = order.event[w->by_actor[actor][w->at[actor]]].clock;
    for (uint32_t a = 0; a < order.actors; a++) {
        if (a != actor && c[a] > w->at[a]) return false;
    }
    return true;
}

static bool ideal_visit(ideal_walk *w, uint64_t limit) {
    static uint16_t path[MAX_EVENTS + 1], next[MAX_EVENTS + 1];
    uint32_t depth = 0;
    uint64_t key[2];
    ideal_key(w, key);
    seen_add(&w->seen, key);
    next[0] = 0;
    for (;;) {
        if (w->seen.used > limit) return false;
        uint32_t a = next[depth]++;
        if (a >= order.actors) {
            if (depth == 0) return true;
            w->at[path[depth--]]--;
            continue;
        }
        if (!ideal_may_grow(w, a)) continue;
        w->at[a]++;
        ideal_key(w, key);
        if (seen_add(&w->seen, key) == 1) {
            path[++depth] = (uint16_t)a;
            next[depth] = 0;
        } else {
            w->at[a]--;
        }
    }
}

uint64_t order_ideals(uint64_t limit) {
    static ideal_walk w;
    memset(&w, 0, sizeof w);
    for (uint32_t i = 0; i < order.n_events; i++) w.n_of[order.event[i].actor]++;
    bool ok = seen_open(&w.seen);
    for (uint32_t a = 0; a < order.actors; a++) {
        w.by_actor[a] = calloc(w.n_of[a] + 1, sizeof(uint32_t));
        ok = ok && w.by_actor[a];
    }
    for (uint32_t i = 0; ok && i < order.n_events; i++) w.by_actor[order.event[i].actor][order.event[i].time - 1] = i;
    ok = ok && ideal_visit(&w, limit);
    uint64_t count = ok ? w.seen.used : 0;
    for (uint32_t a = 0; a < order.actors; a++) free(w.by_actor[a]);
    seen_close(&w.seen);
    return count;
}
