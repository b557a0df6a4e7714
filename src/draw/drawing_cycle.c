/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles: ops that wait for each other. Every cycle that shares no vertex with another is a fault of its own, the
 * shortest ones first: where k edges are wrong, there are at most k of them. */
#include "draw/drawing_internal.h"

#include "core/mem.h"

#include <string.h>

enum { CYCLE_STEPS = 4000000, CYCLE_NAMES = 8, CYCLE_ROUNDS = 50 };

typedef struct finder {
    drawing *d;
    const int *first, *next_of;
    int *held;
    int *number;           /* in the order in which a search meets the instances, from 1; 0: not yet */
    int *low;              /* the least number that is reached from there, of those not in a component yet */
    int *cursor;           /* where the search goes on in next_of */
    int *path, *open;      /* stacks: the way at hand, and what is in no component yet */
    int *component;        /* from 1; 0: none */
    int *members;          /* instances by component */
    int *from, *best_from; /* along a way, backwards */
    int *distance;         /* from the start of a search; −1: not reached */
    int n_members, n_open, n_path, numbers, components, steps;
} finder;

static bool alloc(finder *f) {
    size_t n = (size_t)f->d->n_instances + 1;
    int **const lists[] = {&f->number, &f->low,     &f->cursor,   &f->path,      &f->open,
                           &f->from,   &f->members, &f->distance, &f->best_from, &f->component};
    bool fine = true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        fine &= (*lists[i] = mem_calloc(n, sizeof **lists[i])) != NULL;
    return fine;
}

static void release(finder *f) {
    int *const lists[] = {f->number, f->low,     f->cursor,   f->path,      f->open,
                          f->from,   f->members, f->distance, f->best_from, f->component};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) mem_free(lists[i]);
}

/* ---- components: what is on a cycle together (Tarjan) ------------------------------------------------- */

static void enter(finder *f, int i) {
    f->number[i] = f->low[i] = ++f->numbers;
    f->cursor[i] = f->first[i];
    f->path[f->n_path++] = f->open[f->n_open++] = i;
}

static void leave(finder *f, int i) {
    f->n_path--;
    if (f->n_path && f->low[i] < f->low[f->path[f->n_path - 1]]) f->low[f->path[f->n_path - 1]] = f->low[i];
    if (f->low[i] < f->number[i]) return;
    f->components++;
    for (int member = -1; member != i;) {
        member = f->open[--f->n_open];
        f->component[member] = f->components;
        f->members[f->n_members++] = member;
    }
}

static void search_from(finder *f, int start) {
    enter(f, start);
    while (f->n_path) {
        int i = f->path[f->n_path - 1];
        if (f->cursor[i] == f->first[i + 1]) {
            leave(f, i);
            continue;
        }
        int next = f->next_of[f->cursor[i]++];
        if (f->held[next] <= 0) continue;
        if (!f->number[next]) {
            enter(f, next);
        } else if (!f->component[next] && f->number[next] < f->low[i]) {
            f->low[i] = f->number[next];
        }
    }
}

static void find_components(finder *f) {
    size_t bytes = (size_t)f->d->n_instances * sizeof *f->number;
    memset(f->number, 0, bytes);
    memset(f->component, 0, bytes);
    f->n_members = f->numbers = f->components = 0;
    for (int i = 0; i < f->d->n_instances; i++) {
        if (f->held[i] > 0 && !f->number[i]) search_from(f, i);
    }
}

/* ---- one component ------------------------------------------------------------------------------------- */

/* The length of the shortest way from `start` back to it: from[] leads back along it; 0 where none is shorter than
 * `most`. path serves as the list of what is reached. */
static int shortest(finder *f, int start, int most, const int *members, int n) {
    int head = 0, tail = 0;
    for (int i = 0; i < n; i++) f->distance[members[i]] = -1;
    f->steps -= n / 16;
    f->path[tail++] = start;
    f->distance[start] = 0;
    while (head < tail) {
        int i = f->path[head++];
        if (most && f->distance[i] + 1 >= most) return 0;
        for (int k = f->first[i]; k < f->first[i + 1]; k++, f->steps--) {
            int next = f->next_of[k];
            if (next == start) {
                f->from[start] = i;
                return f->distance[i] + 1;
            }
            if (f->component[next] != f->component[start] || f->distance[next] >= 0) continue;
            f->distance[next] = f->distance[i] + 1;
            f->from[next] = i;
            f->path[tail++] = next;
        }
    }
    return 0;
}

/* Between layers an edge that could not be read may be the one that makes a carry of another. */
static keel_status fault_cycle(drawing *d, int start, const int *from, int length) {
    buf text = {0};
    int *way = mem_alloc(((size_t)length + 1) * sizeof *way);
    if (!way) return drawing_nomem(d);
    for (int i = length, x = start; i >= 0; i--, x = from[x]) way[i] = x;
    for (int i = 0; i <= length; i++) {
        if (i == CYCLE_NAMES && length > CYCLE_NAMES + 1) buf_str(&text, " -> ...");
        if (i < CYCLE_NAMES || i + 1 >= length)
            buf_printf(&text, "%s%.40s", i ? " -> " : "", d->instances[way[i]].name);
    }
    bool failed = text.failed, judged = !d->lost || d->instances[start].layer < 0;
    if (!failed && judged) {
        FAULT(d, d->nodes[d->instances[start].node].cell, "ops wait for each other: %s; turn or cut an edge%s",
              (const char *)text.data,
              d->instances[start].layer >= 0 ? ", or name the slot of an edge between layers" : "");
    }
    buf_free(&text);
    mem_free(way);
    return failed ? drawing_nomem(d) : KEEL_OK;
}

/* The shortest cycle of a component, or one of the shorter ones where steps are short. Its vertices, in all layers, are
 * marked in used[]; a component that has one is left for the next round. */
static keel_status fault_component(finder *f, const int *members, int n, bool *used, bool *any) {
    drawing *d = f->d;
    int best = 0, best_start = -1;
    for (int i = 0; i < n; i++) {
        if (used[d->instances[members[i]].node]) return KEEL_OK;
    }
    /* The first instance in the file first: members stand in no order that a person knows. */
    for (int i = n; i-- > 0 && best != 1 && (f->steps > 0 || !best);) {
        int length = shortest(f, members[i], best, members, n);
        if (!length) continue;
        best = length;
        best_start = members[i];
        for (int k = 0; k < n; k++) f->best_from[members[k]] = f->from[members[k]];
    }
    if (!best) return KEEL_OK;
    *any = true;
    for (int i = 0, x = best_start; i < best; i++, x = f->best_from[x]) used[d->instances[x].node] = true;
    return fault_cycle(d, best_start, f->best_from, best);
}

static keel_status one_round(finder *f, bool *used, bool *any) {
    find_components(f);
    keel_status s = KEEL_OK;
    int *begin = f->cursor; /* by component: where in members[]; −1: done */
    for (int i = f->n_members; i-- > 0;) begin[f->component[f->members[i]]] = i;
    for (int i = 0; i < f->d->n_instances && s == KEEL_OK; i++) { /* in the order of the file */
        int c = f->component[i];
        if (!c || begin[c] < 0) continue;
        int from = begin[c], to = from;
        while (to < f->n_members && f->component[f->members[to]] == c) to++;
        s = fault_component(f, f->members + from, to - from, used, any);
        begin[c] = -1;
    }
    for (int i = 0; i < f->d->n_instances; i++) {
        if (used[f->d->instances[i].node]) f->held[i] = 0;
    }
    return s;
}

keel_status drawing_cycles(drawing *d, const int *first, const int *next_of, int *held) {
    finder f = {.d = d, .first = first, .next_of = next_of, .held = held, .steps = CYCLE_STEPS};
    bool *used = mem_calloc((size_t)d->n_nodes + 1, sizeof *used);
    keel_status s = alloc(&f) && used ? KEEL_OK : drawing_nomem(d);
    bool any = true;
    for (int i = 0; i < CYCLE_ROUNDS && s == KEEL_OK && any; i++) {
        any = false;
        s = one_round(&f, used, &any);
    }
    release(&f);
    mem_free(used);
    return s;
}
