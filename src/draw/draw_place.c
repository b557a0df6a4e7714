/* SPDX-License-Identifier: Apache-2.0 */
/* Rows and columns: within a section an op stands as low as its readers allow, so that lines are short; parallel
 * branches share a row; sources stand right of the ops, in the row above their first reader. */
#include "core/mem.h"
#include "draw/draw_route.h"

#include <limits.h>
#include <stdlib.h>

enum { PLACE_GAP = 36, PLACE_MARGIN = 20, PLACE_SIDE = 24 };

typedef struct placer {
    draw_scene *s;
    int *height;    /* [n_nodes] rows between a node and the bottom of its section */
    int *edge_from; /* [n_nodes + 1] edges ordered by their source: the first of each node */
    int *by_from;   /* [n_edges] */
    double *want;   /* [n_nodes] x of the middle where lines would be straight */
    int n_rows;
} placer;

static void sort_edges(placer *p) {
    draw_scene *s = p->s;
    for (int i = 0; i < s->n_edges; i++) p->edge_from[s->edges[i].from + 1]++;
    for (int i = 0; i < s->n_nodes; i++) p->edge_from[i + 1] += p->edge_from[i];
    for (int i = s->n_edges - 1; i >= 0; i--) p->by_from[--p->edge_from[s->edges[i].from + 1]] = i;
    /* every start has moved down to the one of its node */
    for (int i = 0; i < s->n_nodes; i++) p->edge_from[i] = p->edge_from[i + 1];
    p->edge_from[s->n_nodes] = s->n_edges;
}

/* Readers of an op stand behind it in the list of nodes. */
static void choose_rows(placer *p) {
    draw_scene *s = p->s;
    for (int i = s->n_nodes - 1; i >= 0; i--) {
        for (int k = p->edge_from[i]; k < p->edge_from[i + 1]; k++) {
            const draw_edge *e = &s->edges[p->by_from[k]];
            if (e->back || s->nodes[e->to].section != s->nodes[i].section) continue;
            if (p->height[e->to] >= p->height[i]) p->height[i] = p->height[e->to] + 1;
        }
    }
    for (int i = 0; i < s->n_sections; i++) {
        draw_section *d = &s->sections[i];
        int highest = 0;
        for (int k = 0; k < d->node_count; k++) {
            int h = p->height[d->node_first + k];
            if (h > highest) highest = h;
        }
        d->row_first = p->n_rows;
        d->row_count = d->node_count ? highest + 1 : 0;
        for (int k = 0; k < d->node_count; k++) {
            draw_node *n = &s->nodes[d->node_first + k];
            n->row = p->n_rows + highest - p->height[d->node_first + k];
            if (n->family == DRAW_MODEL) n->row = p->n_rows;
        }
        p->n_rows += d->row_count;
    }
}

static bool is_side(const draw_node *n) {
    return n->family == DRAW_MODEL || n->family == DRAW_CONST || n->family == DRAW_CACHE || n->family == DRAW_INPUT;
}

/* Nodes of a row: ops first, in the order of where their inputs stand, then the sources. */
typedef struct entry {
    int row, side, node;
    double want;
} entry;

static int by_want(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    if (x->side != y->side) return x->side < y->side ? -1 : 1;
    if (x->want != y->want) return x->want < y->want ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static int middle(const draw_node *n) { return n->x + n->w / 2; }

/* One row of ops, side by side, the middle at 0; what it feeds then wants to stand below it. */
static void place_ops(placer *p, entry *row, int n) {
    draw_scene *s = p->s;
    int w = -PLACE_GAP;
    if (n) qsort(row, (size_t)n, sizeof *row, by_want);
    for (int i = 0; i < n; i++) w += s->nodes[row[i].node].w + PLACE_GAP;
    for (int i = 0, x = -(w / 2); i < n; i++) {
        s->nodes[row[i].node].x = x;
        x += s->nodes[row[i].node].w + PLACE_GAP;
    }
}

/* One row of ops goes to its place; the ops of the next row then want to stand below what they read. */
static void place_row(placer *p, entry *row, int n, int *count) {
    draw_scene *s = p->s;
    for (int i = 0; i < n; i++) {
        row[i].want = count[row[i].node] ? p->want[row[i].node] / count[row[i].node] : 0;
    }
    place_ops(p, row, n);
    for (int i = 0; i < n; i++) {
        for (int k = p->edge_from[row[i].node]; k < p->edge_from[row[i].node + 1]; k++) {
            const draw_edge *e = &s->edges[p->by_from[k]];
            if (s->nodes[e->to].row != row->row + 1) continue;
            p->want[e->to] += middle(&s->nodes[row[i].node]);
            count[e->to]++;
        }
    }
}

/* The sources of a row, above their readers where there is room to the right of the ops; the model stands left. */
static void place_sides(placer *p, entry *row, int n, int x) {
    draw_scene *s = p->s;
    for (int i = 0; i < n; i++) {
        int from = p->edge_from[row[i].node], to = p->edge_from[row[i].node + 1];
        double sum = 0;
        for (int k = from; k < to; k++) sum += middle(&s->nodes[s->edges[p->by_from[k]].to]);
        row[i].want = to > from ? sum / (to - from) : -1e6;
    }
    if (n) qsort(row, (size_t)n, sizeof *row, by_want);
    for (int i = 0; i < n; i++) {
        draw_node *node = &s->nodes[row[i].node];
        int want = row[i].want <= -1e6 ? -node->w - PLACE_GAP : (int)row[i].want - node->w / 2;
        node->x = want > x ? want : x;
        x = node->x + node->w + PLACE_GAP;
    }
}

/* Sources are placed last, when their readers stand. */
static void choose_columns(placer *p, entry *list, int *count) {
    draw_scene *s = p->s;
    for (int i = 0; i < s->n_nodes; i++) list[i] = (entry){s->nodes[i].row, is_side(&s->nodes[i]), i, 0};
    qsort(list, (size_t)s->n_nodes, sizeof *list, by_want);
    for (int i = 0; i < s->n_nodes;) {
        int n = 0;
        while (i + n < s->n_nodes && list[i + n].row == list[i].row && !list[i + n].side) n++;
        place_row(p, list + i, n, count);
        i += n ? n : 1; /* a source */
    }
    for (int i = 0; i < s->n_nodes;) {
        int n = 0, sides = 0, x = INT_MIN / 2;
        for (; i + n < s->n_nodes && list[i + n].row == list[i].row && !list[i + n].side; n++) {
            const draw_node *node = &s->nodes[list[i + n].node];
            x = node->x + node->w + PLACE_GAP;
        }
        while (i + n + sides < s->n_nodes && list[i + n + sides].row == list[i].row) sides++;
        place_sides(p, list + i + n, sides, x);
        i += n + sides;
    }
}

static draw_section *section_of_row(draw_scene *s, int row, int *at) {
    while (*at < s->n_sections && row >= s->sections[*at].row_first + s->sections[*at].row_count) (*at)++;
    return *at < s->n_sections ? &s->sections[*at] : NULL;
}

/* The heights of channels and rows, from top to bottom. row_h: [n_rows]. Returns the drawing's height. */
static int choose_y(placer *p, route *r, const int *row_h, int *row_y) {
    draw_scene *s = p->s;
    int y = PLACE_MARGIN, at = 0;
    draw_section *open = NULL;
    for (int row = 0; row <= p->n_rows; row++) {
        route_channel *c = &r->channels[row];
        draw_section *next = row < p->n_rows ? section_of_row(s, row, &at) : NULL;
        c->exit_y = y + ROUTE_TRACK;
        if (row) y += ROUTE_TRACK + c->exits * ROUTE_TRACK;
        if (open && open != next) {
            open->h = y + ROUTE_TRACK - open->y;
            y += open->label ? 3 * ROUTE_TRACK : 0;
        }
        if (next && next != open) {
            next->y = y;
            if (next->label) y += DRAW_HEADER;
        }
        c->entry_y = y + ROUTE_TRACK / 2;
        y += c->entries * ROUTE_TRACK + ROUTE_TRACK / 2;
        c->label_y = y + ROUTE_LABEL / 2;
        y += c->levels * ROUTE_LABEL + ROUTE_TRACK;
        if (row == p->n_rows) break;
        row_y[row] = y;
        y += row_h[row];
        open = next;
    }
    return y + PLACE_MARGIN;
}

static void choose_sides(const placer *p, route *r) {
    const draw_scene *s = p->s;
    int left = INT_MAX, right = INT_MIN;
    for (int i = 0; i < s->n_nodes; i++) {
        const draw_node *n = &s->nodes[i];
        if (n->x < left) left = n->x;
        if (n->x + n->w > right) right = n->x + n->w;
    }
    /* a label may reach beyond the last box */
    for (int i = 0; i < s->n_edges; i++) {
        const draw_node *to = &s->nodes[s->edges[i].to];
        if (to->x + to->w + s->edges[i].text_w > right + 2 * PLACE_GAP) right = to->x + to->w;
    }
    r->left = left;
    r->right_edge = right + PLACE_SIDE;
}

/* Moves everything so that the left margin is at 0, and sets the containers. */
static void finish(placer *p, route *r, int height) {
    draw_scene *s = p->s;
    int left = r->left - PLACE_SIDE - ROUTE_LANE * r->n_left, dx = PLACE_MARGIN - left;
    int right = r->right_edge;
    for (int i = 0; i < s->n_nodes; i++) s->nodes[i].x += dx;
    for (int i = 0; i < s->n_sections; i++) {
        s->sections[i].x = PLACE_MARGIN;
        s->sections[i].w = right - left;
        s->sections[i].label_x = r->left + dx;
    }
    r->left += dx;
    r->right_edge += dx;
    for (int i = 0; i < s->n_edges; i++) r->port_x[i] += dx;
    s->w = r->right_edge + PLACE_SIDE + ROUTE_LANE * r->n_right + PLACE_MARGIN;
    s->h = height;
    route_draw(r);
    for (int i = 0; i < s->n_edges; i++) {
        int end = s->edges[i].text.x + s->edges[i].text_w + PLACE_MARGIN;
        if (end > s->w) s->w = end;
    }
}

static bool place(placer *p, route *r) {
    draw_scene *s = p->s;
    int *row_h = mem_calloc((size_t)p->n_rows + 1, sizeof *row_h);
    int *row_y = mem_calloc((size_t)p->n_rows + 1, sizeof *row_y);
    bool room = row_h && row_y && route_choose(r);
    if (room) {
        for (int i = 0; i < s->n_nodes; i++) {
            if (s->nodes[i].h > row_h[s->nodes[i].row]) row_h[s->nodes[i].row] = s->nodes[i].h;
        }
        int height = choose_y(p, r, row_h, row_y);
        for (int i = 0; i < s->n_nodes; i++) s->nodes[i].y = row_y[s->nodes[i].row];
        finish(p, r, height);
    }
    mem_free(row_h);
    mem_free(row_y);
    return room;
}

keel_status draw_scene_place(draw_scene *s, keel_error *err) {
    placer p = {.s = s};
    route r = {.s = s};
    size_t nodes = (size_t)s->n_nodes + 2;
    p.height = mem_calloc(nodes, sizeof *p.height);
    p.edge_from = mem_calloc(nodes, sizeof *p.edge_from);
    p.by_from = mem_calloc((size_t)s->n_edges + 1, sizeof *p.by_from);
    p.want = mem_calloc(nodes, sizeof *p.want);
    entry *list = mem_calloc(nodes, sizeof *list);
    int *count = mem_calloc(nodes, sizeof *count);
    bool room = p.height && p.edge_from && p.by_from && p.want && list && count;
    if (room) {
        sort_edges(&p);
        choose_rows(&p);
        choose_columns(&p, list, count);
        r.n_rows = p.n_rows;
        choose_sides(&p, &r);
        room = place(&p, &r);
    }
    mem_free(p.height);
    mem_free(p.edge_from);
    mem_free(p.by_from);
    mem_free(p.want);
    mem_free(list);
    mem_free(count);
    route_free(&r);
    return room ? KEEL_OK : KEEL_NOMEM_AT(err, "drawing");
}
