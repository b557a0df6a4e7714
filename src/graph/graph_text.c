/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph_text.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void graph_text_real(char out[GRAPH_TEXT_BYTES], double v) {
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, GRAPH_TEXT_BYTES, "%.*g", digits, v);
        double back = strtod(out, NULL);
        if (memcmp(&back, &v, sizeof v) == 0) return;
    }
}

void graph_text_float(char out[GRAPH_TEXT_BYTES], float v) {
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(out, GRAPH_TEXT_BYTES, "%.*g", digits, (double)v);
        float back = strtof(out, NULL);
        if (memcmp(&back, &v, sizeof v) == 0) return;
    }
}

void graph_text_dtype(char out[GRAPH_TEXT_BYTES], dtype t) {
    snprintf(out, GRAPH_TEXT_BYTES, "%s", dtype_name(t));
    for (char *c = out; *c; c++) *c = (char)tolower((unsigned char)*c);
}

dtype graph_dtype_named(const char *text, size_t bytes) {
    char name[GRAPH_TEXT_BYTES];
    for (int t = 0; t < DTYPE_COUNT; t++) {
        graph_text_dtype(name, (dtype)t);
        size_t i = 0;
        while (i < bytes && name[i] && tolower((unsigned char)text[i]) == name[i]) i++;
        if (i == bytes && !name[i]) return (dtype)t;
    }
    return DTYPE_COUNT;
}

void graph_text_dim(char out[GRAPH_TEXT_BYTES], int64_t dim) {
    if (dim == GRAPH_M || dim == GRAPH_M_LOGIT) {
        snprintf(out, GRAPH_TEXT_BYTES, "%s", dim == GRAPH_M ? "M" : "M_logit");
    } else {
        snprintf(out, GRAPH_TEXT_BYTES, "%lld", (long long)dim);
    }
}

void graph_put_shape(buf *b, const graph_tensor *t) {
    char text[GRAPH_TEXT_BYTES];
    buf_str(b, "[");
    for (int i = 0; i < t->rank; i++) {
        graph_text_dim(text, t->dim[i]);
        buf_printf(b, "%s%s", i ? "," : "", text);
    }
    graph_text_dtype(text, t->dtype);
    buf_printf(b, "]%s", text);
}

void graph_put_json(buf *b, const char *s) {
    buf_str(b, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') buf_str(b, "\\");
        if (c < 0x20) {
            buf_printf(b, "\\u%04x", c);
        } else {
            buf_u8(b, c);
        }
    }
    buf_str(b, "\"");
}

static void slot_name(char out[GRAPH_TEXT_BYTES], const char *name, const char *otherwise, int i) {
    if (name) {
        snprintf(out, GRAPH_TEXT_BYTES, "%s", name);
    } else {
        snprintf(out, GRAPH_TEXT_BYTES, "%s%d", otherwise, i);
    }
}

void graph_text_input(char out[GRAPH_TEXT_BYTES], const op_desc *desc, int i) {
    slot_name(out, desc->in_name[i], "in", i);
}

void graph_text_weight(char out[GRAPH_TEXT_BYTES], const op_desc *desc, int i) {
    slot_name(out, desc->weight_name[i], "weight", i);
}

int graph_name_layer(const char *name, const char **rest) {
    const char *at = name + 1;
    int layer = 0;
    *rest = name;
    if (name[0] != 'l' || !isdigit((unsigned char)*at)) return -1;
    if (at[0] == '0' && at[1] != '.') return -1;
    for (; isdigit((unsigned char)*at); at++) {
        if (layer > (INT_MAX - 9) / 10) return -1;
        layer = 10 * layer + (*at - '0');
    }
    if (*at != '.' || !at[1]) return -1;
    *rest = at + 1;
    return layer;
}

int graph_usual_shard_dim(const graph_tensor *weight) { return weight->shard == SHARD_ROW ? weight->rank - 1 : 0; }

const graph_attr *graph_attr_set(const graph_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++) {
        if (strcmp(op->attr[i].name, name) == 0) return &op->attr[i];
    }
    return NULL;
}
