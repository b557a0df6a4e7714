/* SPDX-License-Identifier: Apache-2.0 */
/* Lines between boxes that stand in rows. Above row c, and below the last one, lies channel c; a line changes its x
 * there and nowhere else. A line to the next row stays in the channel between; any other runs down (or up) a lane
 * beside all boxes. Lines of one tensor share lane and tracks. */
#ifndef KEEL_GRAPH_DRAW_ROUTE_H
#define KEEL_GRAPH_DRAW_ROUTE_H

#include "draw/draw_scene.h"

enum { ROUTE_TRACK = 10, ROUTE_LANE = 14, ROUTE_LABEL = 12 };

/* What a channel needs of height, from top to bottom: tracks of lines that leave for a lane, (between two sections:
 * the containers' edges), tracks of lines that arrive, levels of labels. */
typedef struct route_channel {
    int exits, entries, levels;   /* how many */
    int exit_y, entry_y, label_y; /* of the first; label_y the middle of the topmost level */
} route_channel;

/* A horizontal piece: one tensor in one channel. */
typedef struct route_piece {
    int channel, net, lo, hi, track;
    bool entry;
} route_piece;

typedef struct route {
    draw_scene *s;
    int n_rows;
    route_channel *channels; /* [n_rows + 1] */
    route_piece *pieces;     /* [n_pieces] by channel, kind, net */
    int n_pieces;
    int *lane;            /* [n_nets] −1 without; its number on its side */
    bool *right;          /* [n_nets] the lane is on the right side */
    int *port_x;          /* [n_edges] where it meets its target */
    int *level;           /* [n_edges] of its label, 0 the lowest */
    int n_left, n_right;  /* lanes */
    int left, right_edge; /* boxes lie between; lanes beside */
} route;

/* Chooses lanes, ports, tracks and levels; boxes have their rows and x. r->s and r->n_rows are set, the rest is zeroed.
 * False when memory is short. */
bool route_choose(route *r);
/* Sets the points of every edge and the places of labels; channels have their y. */
void route_draw(const route *r);
void route_free(route *r);
/* The x of a lane. */
int route_lane_x(const route *r, int net);

#endif
