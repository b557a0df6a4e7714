/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: which layers their names say, and what was meant to be a page of layers and is not called so. What stands on
 * such a page is not judged: where it lies is not known. */
#include "draw/drawing_internal.h"

#include <string.h>

enum { LOOKS = 1 << 20 };

void drawing_pages(drawing *d) {
    for (int i = 0; i < d->n_pages; i++) {
        drawing_page *p = &d->pages[i];
        char shown[64];
        p->unread = drawing_layers_of(p->name, &p->layers) == DRAWING_MALFORMED;
        if (!p->unread) continue;
        FAULT(d, -1, "page \"%s\": a page of layers is called layer*30 or layer{4-29}, numbers below %d",
              drawing_show(p->name, shown, sizeof shown), DRAWING_LAYERS);
    }
}

static int page_of(const drawing *d, const drawing_node *n) { return d->cells[n->cell].page; }

static bool lies_outside(const drawing_node *n) {
    return n->layers.first < 0 && !n->unplaced && n->kind != DRAWING_REF && n->kind != DRAWING_MODEL;
}

/* Whether the op's keys have the number of a layer: 1 yes, −1 no, 0 there are none. */
static int counts_layers(const drawing_node *n) {
    if (n->kind != DRAWING_OP || !lies_outside(n)) return 0;
    for (int i = 0; i < n->n_weights; i++) {
        if (strstr(n->weights[i].key, "{i}")) return 1;
    }
    return n->n_weights ? -1 : 0;
}

/* The layers of a ref elsewhere that names something of the page. Looks are counted down. */
static drawing_range asked_for(const drawing *d, int page, int *steps) {
    for (int i = 0; i<d->n_nodes && * steps> 0; i++, --*steps) {
        const drawing_node *ref = &d->nodes[i];
        if (ref->kind != DRAWING_REF || !ref->prefixed || !ref->name || page_of(d, ref) == page) continue;
        for (int k = 0; k<d->n_nodes && * steps> 0; k++, --*steps) {
            const drawing_node *n = &d->nodes[k];
            if (n->name && page_of(d, n) == page && lies_outside(n) && strcmp(n->name, ref->name) == 0)
                return ref->layers;
        }
    }
    return (drawing_range){-1, -1};
}

static void fault_page(drawing *d, int page, int *steps) {
    char shown[64];
    drawing_range r = asked_for(d, page, steps);
    const char *name = drawing_show(d->pages[page].name, shown, sizeof shown);
    static const char what[] = "is no page of layers, but its keys have {i}; name it";
    if (r.first < 0) {
        FAULT(d, -1, "page \"%s\" %s layer*N, N the number of layers", name, what);
    } else if (r.first == 0 || r.first == r.last) { /* a ref to one layer names the last, mostly */
        FAULT(d, -1, "page \"%s\" %s layer*%d", name, what, r.last + 1);
    } else {
        FAULT(d, -1, "page \"%s\" %s layer{%d-%d}", name, what, r.first, r.last);
    }
    d->pages[page].unread = true;
}

keel_status drawing_strange_pages(drawing *d) {
    int *with = arena_array(&d->arena, (size_t)d->n_pages + 1, sizeof *with);
    int *without = arena_array(&d->arena, (size_t)d->n_pages + 1, sizeof *without);
    if (!with || !without) return drawing_nomem(d);
    for (int i = 0; i < d->n_pages; i++) with[i] = without[i] = 0;
    for (int i = 0; i < d->n_nodes; i++) {
        int counts = counts_layers(&d->nodes[i]), page = page_of(d, &d->nodes[i]);
        with[page] += counts > 0;
        without[page] += counts < 0;
    }
    int steps = LOOKS;
    for (int i = 0; i < d->n_pages; i++) {
        if (with[i] > 1 && with[i] > without[i]) fault_page(d, i, &steps);
    }
    for (int i = 0; i < d->n_nodes; i++) {
        drawing_node *n = &d->nodes[i];
        if (d->pages[page_of(d, n)].unread && lies_outside(n)) drawing_unplace(d, n);
    }
    return KEEL_OK;
}
