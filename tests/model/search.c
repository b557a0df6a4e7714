/* SPDX-License-Identifier: Apache-2.0 */
/* Depth-first over every interleaving of the real text, without any reduction. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A step that can be undone: what it may have changed. */
typedef struct saved {
    coroutine co;
    uint32_t index; /* of the coroutine; n_co: a landing, which changes none */
    uint32_t next;  /* choice to try next in the state that the step led to */
    size_t stack_bytes;
    unsigned char *bytes; /* arena, then stack */
} saved;

enum { MAX_DEPTH = 8192 };
static saved path[MAX_DEPTH];

static void save(saved *s, uint32_t index) {
    s->index = index;
    s->stack_bytes = 0;
    if (index < mc.n_co) {
        s->co = mc.co[index];
        s->stack_bytes = (size_t)(world_stack_end(index) - s->co.low);
    }
    if (!s->bytes) s->bytes = malloc(ARENA_BYTES + STACK_BYTES);
    if (!s->bytes) exit(2);
    memcpy(s->bytes, mc_arena, mc.arena_used);
    if (index < mc.n_co) memcpy(s->bytes + mc.arena_used, s->co.low, s->stack_bytes);
}

static void undo(const saved *s) {
    memcpy(mc_arena, s->bytes, mc.arena_used);
    if (s->index == mc.n_co) return;
    mc.co[s->index] = s->co;
    memcpy(s->co.low, s->bytes + mc.arena_used, s->stack_bytes);
}

/* The state: shared memory, copies under way, and of each lane what it has read so far and what it is about to do. */
static void state_key(uint64_t key[2]) {
    uint64_t part[4] = {1, 2, 3, 4};
    size_t bytes = (size_t)((unsigned char *)mc.copies - mc_arena);
    for (size_t i = 0; i < bytes; i += sizeof part) { /* world_open rounds bytes up */
        uint64_t v[4];
        memcpy(v, mc_arena + i, sizeof v);
        for (int k = 0; k < 4; k++) {
            part[k] = (part[k] ^ v[k]) * 0x9E3779B97F4A7C15u;
            part[k] ^= part[k] >> 32; /* the product alone would never carry a difference downwards */
        }
    }
    uint64_t a = mc_mix(mc_mix(part[0], part[1]), part[2]), b = mc_mix(mc_mix(part[3], part[2]), part[0] + part[1]);
    for (uint32_t i = 0; i < mc.n_co; i++) {
        const coroutine *c = &mc.co[i];
        a = mc_mix(a, c->history);
        b = mc_mix(b, c->next.kind + (uint64_t)c->next.value * 64 + ((uint64_t)(uintptr_t)c->next.object << 20));
    }
    for (uint32_t i = 0; i < mc.n_copies; i++) {
        if (!mc.copies[i].bar) continue;
        a = mc_mix(a, i + 1);
        b = mc_mix(b, mc.copies[i].number);
    }
    key[0] = mc_mix(a, b);
    key[1] = mc_mix(b, a);
}

/* ---- races: two that may move, and touch the same word, one of them writing ---- */

typedef struct touch {
    const uint32_t *word;
    uint32_t words;
    bool write;
    uint32_t who; /* coroutine, or n_co + copy */
} touch;

static const char *who_name(uint32_t who, char text[64]) {
    if (who < mc.n_co) return world_lane_name(who, text);
    snprintf(text, 64, "a copy");
    return text;
}

static void check_races(void) {
    touch list[MAX_COROUTINES * (2 * COPY_RING + 1)];
    uint32_t n = 0;
    char name[64], one[64], two[64];
    for (uint32_t i = 0; i < mc.n_co; i++) {
        const op *o = &mc.co[i].next;
        if (o->kind == OP_READ || o->kind == OP_WRITE) list[n++] = (touch){o->object, o->value, o->kind == OP_WRITE, i};
        if (o->kind == OP_PLAIN) list[n++] = (touch){&mc.state->finished, 1, false, i};
    }
    for (uint32_t i = 0; i < mc.n_copies; i++) {
        if (!mc.copies[i].bar) continue;
        list[n++] = (touch){mc.copies[i].src, 1, false, mc.n_co + i};
        list[n++] = (touch){mc.copies[i].dst, 1, true, mc.n_co + i};
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            bool apart = list[i].word + list[i].words <= list[j].word || list[j].word + list[j].words <= list[i].word;
            if (!apart && list[i].who != list[j].who && (list[i].write || list[j].write))
                world_found(FOUND_RACE, "%s and %s are at %s at once", who_name(list[i].who, one),
                            who_name(list[j].who, two), world_name(list[i].word, name));
        }
    }
}

/* Choices in a state: 2i and 2i + 1: coroutine i goes on (the second answer only for OP_STOP); then the copies. */
static bool take(uint32_t choice, saved *s) {
    uint32_t i = choice / 2;
    if (i < mc.n_co) {
        const op *o = &mc.co[i].next;
        uint32_t asked = mc.control[0]->stop_request;
        if (o->kind == OP_STOP ? (choice & 1) < asked : choice & 1) return false;
        if (!world_enabled(o)) return false;
        save(s, i);
        if (o->kind == OP_STOP && (choice & 1)) mc.control[0]->stop_request = 1;
        world_step(i, choice & 1);
        return true;
    }
    copy *c = &mc.copies[choice - 2 * mc.n_co];
    if (!c->bar) return false;
    save(s, mc.n_co);
    world_land(c);
    return true;
}

static bool stuck(void) {
    for (uint32_t i = 0; i < mc.n_co; i++) {
        if (world_enabled(&mc.co[i].next)) return false;
    }
    for (uint32_t i = 0; i < mc.n_copies; i++) {
        if (mc.copies[i].bar) return false;
    }
    return true;
}

static void look(search_result *r) {
    if (mc.found.kind) return;
    check_races();
    if (world_over()) {
        r->ends++;
        world_check_end();
    } else if (stuck()) {
        world_check_stuck();
    }
}

search_result search_run(const config *cfg, uint64_t max_states, uint32_t lenient) {
    search_result r = {0};
    seen_set seen;
    uint64_t key[2];
    uint32_t depth = 0;
    world_open(cfg, false);
    mc.lenient = lenient;
    if (!seen_open(&seen)) exit(2);
    state_key(key);
    seen_add(&seen, key);
    path[0].next = 0;
    uint32_t choices = 2 * mc.n_co + mc.n_copies;
    look(&r);
    while (!mc.found.kind && seen.used <= max_states) {
        uint32_t choice = path[depth].next++;
        if (choice >= choices) {
            if (depth == 0) break;
            undo(&path[depth--]);
            continue;
        }
        if (depth + 1 == MAX_DEPTH) exit(2);
        if (!take(choice, &path[depth + 1])) continue;
        r.steps++;
        state_key(key);
        int fresh = mc.found.kind ? 0 : seen_add(&seen, key);
        if (fresh < 0) exit(2);
        if (fresh) {
            path[++depth].next = 0;
            if (depth > r.deepest) r.deepest = depth;
            look(&r);
        } else if (!mc.found.kind) {
            undo(&path[depth + 1]);
        }
    }
    r.states = seen.used;
    r.complete = !mc.found.kind && seen.used <= max_states;
    seen_close(&seen);
    return r;
}
