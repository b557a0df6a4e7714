/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/names.h"

#include "core/mem.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct names_slot {
    const char *name; /* NULL: empty */
    uint32_t hash;
    name_space space;
    int id;
} names_slot;

struct names {
    names_slot *slots;
    size_t cap, used; /* cap is a power of two, at most half full */
};

enum { NAMES_FIRST_CAP = 256 };

/* FNV-1a. */
static uint32_t names_hash(name_space space, const char *name) {
    uint32_t h = 2166136261u ^ (uint32_t)space;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return h;
}

static names_slot *names_slot_of(names_slot *slots, size_t cap, name_space space, const char *name, uint32_t hash) {
    size_t i = hash & (cap - 1);
    while (slots[i].name && (slots[i].hash != hash || slots[i].space != space || strcmp(slots[i].name, name) != 0)) {
        i = (i + 1) & (cap - 1);
    }
    return &slots[i];
}

names *names_new(void) {
    names *n = mem_calloc(1, sizeof *n);
    names_slot *slots = n ? mem_calloc(NAMES_FIRST_CAP, sizeof *slots) : NULL;
    if (!slots) {
        mem_free(n);
        return NULL;
    }
    n->slots = slots;
    n->cap = NAMES_FIRST_CAP;
    return n;
}

void names_free(names *n) {
    if (!n) return;
    mem_free(n->slots);
    mem_free(n);
}

int names_find(const names *n, name_space space, const char *name) {
    const names_slot *s = names_slot_of(n->slots, n->cap, space, name, names_hash(space, name));
    return s->name ? s->id : -1;
}

static bool names_grow(names *n) {
    size_t cap = 2 * n->cap;
    names_slot *slots = mem_calloc(cap, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < n->cap; i++) {
        const names_slot *s = &n->slots[i];
        if (s->name) *names_slot_of(slots, cap, s->space, s->name, s->hash) = *s;
    }
    mem_free(n->slots);
    n->slots = slots;
    n->cap = cap;
    return true;
}

bool names_put(names *n, name_space space, const char *name, int id) {
    if (2 * (n->used + 1) > n->cap && !names_grow(n)) return false;
    uint32_t hash = names_hash(space, name);
    names_slot *s = names_slot_of(n->slots, n->cap, space, name, hash);
    *s = (names_slot){.name = name, .hash = hash, .space = space, .id = id};
    n->used++;
    return true;
}
