/* SPDX-License-Identifier: Apache-2.0 */
/* Execution order: the order of the file as far as the edges allow. With ranges of layers all ops of layers come layer
 * by layer, in place of the first of them. */
#include "draw/drawing_internal.h"

#include "core/mem.h"

typedef struct sorter {
    drawing *d;
    uint64_t *key;        /* [n_instances] */
    int *first, *next_of; /* readers of an instance: next_of[first[i] … first[i + 1]) */
    int *waits;           /* inputs of an instance that are ops and not yet out */
    int *heap, n_heap;    /* least key on top */
} sorter;

static bool is_op(const drawing *d, int instance) { return d->nodes[d->instances[instance].node].kind == DRAWING_OP; }

/* ---- the heap --------------------------------------------------------------------------------------- */

static void swap(int *a, int *b) {
    int t = *a;
    *a = *b;
    *b = t;
}

static void heap_push(sorter *s, int instance) {
    int i = s->n_heap++;
    s->heap[i] = instance;
    for (; i && s->key[s->heap[(i - 1) / 2]] > s->key[s->heap[i]]; i = (i - 1) / 2)
        swap(&s->heap[(i - 1) / 2], &s->heap[i]);
}

static int heap_pop(sorter *s) {
    int top = s->heap[0], i = 0;
    s->heap[0] = s->heap[--s->n_heap];
    for (;;) {
        int least = i;
        for (int c = 2 * i + 1; c <= 2 * i + 2 && c < s->n_heap; c++) {
            if (s->key[s->heap[c]] < s->key[s->heap[least]]) least = c;
        }
        if (least == i) return top;
        swap(&s->heap[i], &s->heap[least]);
        i = least;
    }
}

/* ---- order ------------------------------------------------------------------------------------------ */

static void set_keys(sorter *s) {
    const drawing *d = s->d;
    bool ranges = false;
    int first_layer_node = d->n_nodes;
    for (int i = d->n_nodes; i-- > 0;) {
        const drawing_node *n = &d->nodes[i];
        if (n->kind != DRAWING_OP || n->layers.first < 0) continue;
        first_layer_node = i;
        ranges |= n->layers.last > n->layers.first;
    }
    for (int i = 0; i < d->n_instances; i++) {
        const drawing_instance *x = &d->instances[i];
        uint64_t block = ranges ? x->layer >= 0 ? 1 : x->node < first_layer_node ? 0 : 2 : 0;
        uint64_t layer = ranges && x->layer >= 0 ? (uint64_t)x->layer : 0;
        s->key[i] = block << 60 | layer << 40 | (uint64_t)x->node;
    }
}

static bool alloc(sorter *s) {
    size_t n = (size_t)s->d->n_instances + 2;
    s->key = mem_calloc(n, sizeof *s->key);
    s->first = mem_calloc(n, sizeof *s->first);
    s->waits = mem_calloc(n, sizeof *s->waits);
    s->heap = mem_calloc(n, sizeof *s->heap);
    s->next_of = mem_calloc((size_t)s->d->n_inputs + 1, sizeof *s->next_of);
    s->d->order = mem_calloc(n, sizeof *s->d->order);
    return s->key && s->first && s->waits && s->heap && s->next_of && s->d->order;
}

static void list_readers(sorter *s) {
    const drawing *d = s->d;
    for (int i = 0; i < d->n_instances; i++) {
        const drawing_instance *x = &d->instances[i];
        for (int k = 0; k < x->n_inputs; k++) {
            int source = d->inputs[x->inputs + k].source;
            s->first[source + 2]++;
            s->waits[i] += is_op(d, source);
        }
    }
    for (int i = 2; i <= d->n_instances; i++) s->first[i] += s->first[i - 1];
    for (int i = 0; i < d->n_instances; i++) {
        const drawing_instance *x = &d->instances[i];
        for (int k = 0; k < x->n_inputs; k++) s->next_of[s->first[d->inputs[x->inputs + k].source + 1]++] = i;
    }
}

static void run(sorter *s) {
    drawing *d = s->d;
    for (int i = 0; i < d->n_instances; i++) {
        if (is_op(d, i) && !s->waits[i]) heap_push(s, i);
    }
    while (s->n_heap) {
        int i = heap_pop(s);
        d->order[d->n_order++] = i;
        for (int k = s->first[i]; k < s->first[i + 1]; k++) {
            if (--s->waits[s->next_of[k]] == 0) heap_push(s, s->next_of[k]);
        }
    }
}

/* ---- the whole -------------------------------------------------------------------------------------- */

static bool held_back(const sorter *s) {
    int ops = 0;
    for (int i = 0; i < s->d->n_instances; i++) ops += is_op(s->d, i);
    return s->d->n_order < ops;
}

keel_status drawing_sort(drawing *d) {
    sorter s = {.d = d};
    keel_status status = alloc(&s) ? KEEL_OK : drawing_nomem(d);
    if (status == KEEL_OK) {
        set_keys(&s);
        list_readers(&s);
        run(&s);
        bool held = held_back(&s);
        if (held) status = drawing_cycles(d, s.first, s.next_of, s.waits);
        if (held && status == KEEL_OK && !d->n_faults) FAULT(d, -1, "some ops wait for each other");
    }
    mem_free(s.key);
    mem_free(s.first);
    mem_free(s.next_of);
    mem_free(s.waits);
    mem_free(s.heap);
    return status;
}
