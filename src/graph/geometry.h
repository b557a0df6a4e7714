/* SPDX-License-Identifier: Apache-2.0 */
/* Published shapes of models, built in: models/geometries/NAME.json, each a config.json. For synthetic weights. */
#ifndef KEEL_GRAPH_GEOMETRY_H
#define KEEL_GRAPH_GEOMETRY_H

typedef struct geometry {
    const char *name;   /* NULL ends the table */
    const char *config; /* the text of a config.json */
} geometry;

extern const geometry geometry_table[];

#endif
