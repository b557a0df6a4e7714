/* SPDX-License-Identifier: Apache-2.0 */
#include "draw/draw_route.h"

#include "core/mem.h"

#include <limits.h>
#include <stdlib.h>

/* Drawings that ask for more than this many parallel lines in one place let them share. */
enum { ROUTE_MOST = 512, ROUTE_NEAR_SECTIONS = 1 };

static int out_x(const route *r, const draw_edge *e) {
    const draw_node *n = &r->s->nodes[e->from];
    return n->x + n->w * (e->out_port + 1) / (n->n_out + 1);
}

static bool is_direct(const route *r, const draw_edge *e) {
    return r->s->nodes[e->to].row == r->s->nodes[e->from].row + 1;
}

int route_lane_x(const route *r, int net) {
    int offset = 24 + ROUTE_LANE * r->lane[net];
    return r->right[net] ? r->right_edge + offset : r->left - offset;
}

/* Which channels a net's lane passes. */
typedef struct span {
    int net, lo, hi;
    bool far;
} span;

static int by_span(const void *a, const void *b) {
    const span *x = a, *y = b;
    if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
    return x->net < y->net ? -1 : x->net > y->net;
}

static void widen(span *s, int channel) {
    if (channel < s->lo) s->lo = channel;
    if (channel > s->hi) s->hi = channel;
}

/* First fit: the lowest number that is free again. free_at[k]: the last channel of the lane k. */
static int take_lane(int *free_at, int *n, const span *s) {
    int k = 0;
    while (k < *n && free_at[k] >= s->lo) k++;
    if (k == ROUTE_MOST) k--;
    if (k == *n) (*n)++;
    free_at[k] = s->hi;
    return k;
}

static bool choose_lanes(route *r) {
    const draw_scene *s = r->s;
    int left[ROUTE_MOST], right[ROUTE_MOST], n = 0;
    span *spans = mem_calloc((size_t)s->n_nets + 1, sizeof *spans);
    if (!spans) return false;
    for (int i = 0; i < s->n_nets; i++) spans[i] = (span){.net = i, .lo = INT_MAX, .hi = -1};
    for (int i = 0; i < s->n_edges; i++) {
        const draw_edge *e = &s->edges[i];
        const draw_node *from = &s->nodes[e->from], *to = &s->nodes[e->to];
        if (is_direct(r, e)) continue;
        widen(&spans[e->net], from->row + 1);
        widen(&spans[e->net], to->row);
        if (e->back || to->section - from->section > ROUTE_NEAR_SECTIONS) spans[e->net].far = true;
    }
    for (int i = 0; i < s->n_nets; i++) {
        r->lane[i] = -1;
        if (spans[i].hi >= 0) spans[n++] = spans[i];
    }
    if (n) qsort(spans, (size_t)n, sizeof *spans, by_span);
    for (int i = 0; i < n; i++) {
        bool far = r->right[spans[i].net] = spans[i].far;
        r->lane[spans[i].net] = take_lane(far ? right : left, far ? &r->n_right : &r->n_left, &spans[i]);
    }
    mem_free(spans);
    return true;
}

/* An edge as it comes to its target: ports are in the order of the x that lines come from. */
typedef struct arrival {
    int to, row, x, edge;
} arrival;

static int by_arrival(const void *a, const void *b) {
    const arrival *x = a, *y = b;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    if (x->x != y->x) return x->x < y->x ? -1 : 1;
    return x->edge < y->edge ? -1 : x->edge > y->edge;
}

static int by_place(const void *a, const void *b) {
    const arrival *x = a, *y = b;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    if (x->x != y->x) return x->x < y->x ? -1 : 1;
    return x->edge < y->edge ? -1 : x->edge > y->edge;
}

static void choose_ports(route *r, arrival *list, int n) {
    for (int i = 0; i < n; i++) {
        const draw_edge *e = &r->s->edges[i];
        list[i] = (arrival){e->to, r->s->nodes[e->to].row, is_direct(r, e) ? out_x(r, e) : route_lane_x(r, e->net), i};
    }
    if (n) qsort(list, (size_t)n, sizeof *list, by_arrival);
    for (int i = 0; i < n;) {
        const draw_node *to = &r->s->nodes[list[i].to];
        int ports = 1;
        while (i + ports < n && list[i + ports].to == list[i].to) ports++;
        for (int k = 0; k < ports; k++, i++) {
            r->port_x[list[i].edge] = list[i].x = to->x + (int)((int64_t)to->w * (k + 1) / (ports + 1));
        }
    }
}

/* Labels stand to the right of their lines; those that would touch go to different levels. */
static void choose_levels(route *r, arrival *list, int n) {
    int free_at[ROUTE_MOST];
    if (n) qsort(list, (size_t)n, sizeof *list, by_place);
    for (int i = 0; i < n; i++) {
        route_channel *c = &r->channels[list[i].row];
        int k = 0;
        while (k < c->levels && free_at[k] > list[i].x) k++;
        if (k == ROUTE_MOST) k--;
        if (k == c->levels) c->levels++;
        free_at[k] = list[i].x + r->s->edges[list[i].edge].text_w + 8;
        r->level[list[i].edge] = k;
    }
}

static int by_key(const route_piece *x, const route_piece *y) {
    if (x->channel != y->channel) return x->channel < y->channel ? -1 : 1;
    if (x->entry != y->entry) return x->entry < y->entry ? -1 : 1;
    return x->net < y->net ? -1 : x->net > y->net;
}

static int compare_key(const void *a, const void *b) { return by_key(a, b); }

static int by_left(const void *a, const void *b) {
    const route_piece *x = *(route_piece *const *)a, *y = *(route_piece *const *)b;
    if (x->channel != y->channel) return x->channel < y->channel ? -1 : 1;
    if (x->entry != y->entry) return x->entry < y->entry ? -1 : 1;
    if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
    return x->net < y->net ? -1 : x->net > y->net;
}

static void put_piece(route *r, int channel, bool entry, int net, int a, int b) {
    r->pieces[r->n_pieces++] = (route_piece){channel, net, a < b ? a : b, a < b ? b : a, 0, entry};
}

/* Pieces of the same tensor, channel and kind become one. */
static void merge_pieces(route *r) {
    int n = 0;
    if (r->n_pieces) qsort(r->pieces, (size_t)r->n_pieces, sizeof *r->pieces, compare_key);
    for (int i = 0; i < r->n_pieces; i++) {
        const route_piece *p = &r->pieces[i];
        if (n && by_key(&r->pieces[n - 1], p) == 0) {
            route_piece *whole = &r->pieces[n - 1];
            if (p->lo < whole->lo) whole->lo = p->lo;
            if (p->hi > whole->hi) whole->hi = p->hi;
        } else {
            r->pieces[n++] = *p;
        }
    }
    r->n_pieces = n;
}

/* First fit from the left; a piece without width needs no track of its own. */
static bool choose_tracks(route *r) {
    route_piece **order = mem_calloc((size_t)r->n_pieces + 1, sizeof *order);
    int free_at[ROUTE_MOST], n = 0, *count = NULL;
    if (!order) return false;
    for (int i = 0; i < r->n_pieces; i++) {
        if (r->pieces[i].lo < r->pieces[i].hi) order[n++] = &r->pieces[i];
    }
    if (n) qsort(order, (size_t)n, sizeof *order, by_left);
    for (int i = 0; i < n; i++) {
        route_piece *p = order[i];
        route_channel *c = &r->channels[p->channel];
        count = p->entry ? &c->entries : &c->exits;
        int k = 0;
        while (k < *count && free_at[k] + ROUTE_TRACK > p->lo) k++;
        if (k == ROUTE_MOST) k--;
        if (k == *count) (*count)++;
        free_at[k] = p->hi;
        p->track = k;
    }
    mem_free(order);
    return true;
}

bool route_choose(route *r) {
    const draw_scene *s = r->s;
    size_t edges = (size_t)s->n_edges + 1, nets = (size_t)s->n_nets + 1;
    r->channels = mem_calloc((size_t)r->n_rows + 2, sizeof *r->channels);
    r->pieces = mem_calloc(2 * edges, sizeof *r->pieces);
    r->lane = mem_calloc(nets, sizeof *r->lane);
    r->right = mem_calloc(nets, sizeof *r->right);
    r->port_x = mem_calloc(edges, sizeof *r->port_x);
    r->level = mem_calloc(edges, sizeof *r->level);
    arrival *list = mem_calloc(edges, sizeof *list);
    bool room = r->channels && r->pieces && r->lane && r->right && r->port_x && r->level && list;
    room = room && choose_lanes(r);
    if (room) {
        choose_ports(r, list, s->n_edges);
        choose_levels(r, list, s->n_edges);
        for (int i = 0; i < s->n_edges; i++) {
            const draw_edge *e = &s->edges[i];
            int from = out_x(r, e);
            bool direct = is_direct(r, e);
            int across = direct ? from : route_lane_x(r, e->net);
            if (!direct) put_piece(r, s->nodes[e->from].row + 1, false, e->net, from, across);
            put_piece(r, s->nodes[e->to].row, true, e->net, across, r->port_x[i]);
        }
        merge_pieces(r);
        room = choose_tracks(r);
    }
    mem_free(list);
    return room;
}

void route_free(route *r) {
    mem_free(r->channels);
    mem_free(r->pieces);
    mem_free(r->lane);
    mem_free(r->right);
    mem_free(r->port_x);
    mem_free(r->level);
}

static int piece_y(const route *r, int channel, bool entry, int net) {
    route_piece key = {.channel = channel, .entry = entry, .net = net};
    const route_piece *p = bsearch(&key, r->pieces, (size_t)r->n_pieces, sizeof *r->pieces, compare_key);
    const route_channel *c = &r->channels[channel];
    int first = entry ? c->entry_y : c->exit_y;
    return first + (p ? p->track * ROUTE_TRACK : 0);
}

static void put_point(draw_edge *e, int x, int y) {
    if (e->n_points && e->point[e->n_points - 1].x == x && e->point[e->n_points - 1].y == y) return;
    if (e->n_points > 1) { /* the middle of a straight piece says nothing */
        const draw_point *a = &e->point[e->n_points - 2], *b = a + 1;
        if ((a->x == b->x && b->x == x) || (a->y == b->y && b->y == y)) e->n_points--;
    }
    e->point[e->n_points++] = (draw_point){x, y};
}

void route_draw(const route *r) {
    for (int i = 0; i < r->s->n_edges; i++) {
        draw_edge *e = &r->s->edges[i];
        const draw_node *from = &r->s->nodes[e->from], *to = &r->s->nodes[e->to];
        int x0 = out_x(r, e), x1 = r->port_x[i], entry_y = piece_y(r, to->row, true, e->net), across = x0;
        e->n_points = 0;
        put_point(e, x0, from->y + from->h);
        if (!is_direct(r, e)) {
            int exit_y = piece_y(r, from->row + 1, false, e->net);
            across = route_lane_x(r, e->net);
            put_point(e, x0, exit_y);
            put_point(e, across, exit_y);
        }
        if (across != x1) {
            put_point(e, across, entry_y);
            put_point(e, x1, entry_y);
        }
        put_point(e, x1, to->y);
        const route_channel *c = &r->channels[to->row];
        e->text = (draw_point){x1 + 4, c->label_y + (c->levels - 1 - r->level[i]) * ROUTE_LABEL};
    }
}
