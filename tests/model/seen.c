/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>

bool seen_open(seen_set *s) {
    s->mask = (1u << 16) - 1;
    s->used = 0;
    s->key = calloc(s->mask + 1, sizeof *s->key);
    return s->key != NULL;
}

static bool place(uint64_t (*table)[2], uint64_t mask, const uint64_t key[2]) {
    uint64_t i = key[0] & mask;
    for (; table[i][0] | table[i][1]; i = (i + 1) & mask) {
        if (table[i][0] == key[0] && table[i][1] == key[1]) return false;
    }
    table[i][0] = key[0];
    table[i][1] = key[1];
    return true;
}

static bool grow(seen_set *s) {
    uint64_t mask = 2 * s->mask + 1;
    uint64_t(*wider)[2] = calloc(mask + 1, sizeof *wider);
    if (!wider) return false;
    for (uint64_t i = 0; i <= s->mask; i++) {
        if (s->key[i][0] | s->key[i][1]) place(wider, mask, s->key[i]);
    }
    free(s->key);
    s->key = wider;
    s->mask = mask;
    return true;
}

int seen_add(seen_set *s, const uint64_t key[2]) {
    if (s->used * 3 > s->mask * 2 && !grow(s)) return -1;
    if (!place(s->key, s->mask, key)) return 0;
    s->used++;
    return 1;
}

void seen_close(seen_set *s) {
    free(s->key);
    s->key = NULL;
}
