/* SPDX-License-Identifier: Apache-2.0 */
#include "draw/draw_text.h"
#include "graph/graph_text.h"

typedef void (*slot_text)(char out[GRAPH_TEXT_BYTES], const op_desc *desc, int i);

/* "x, residual"; optional ones in brackets. */
static void put_slots(buf *out, const char *what, const op_desc *op, slot_text name, int min, int max) {
    char slot[GRAPH_TEXT_BYTES];
    if (!max) return;
    buf_printf(out, "    %-11s ", what);
    for (int i = 0; i < max; i++) {
        name(slot, op, i);
        buf_printf(out, "%s%s%s%s", i ? ", " : "", i < min ? "" : "[", slot, i < min ? "" : "]");
    }
    buf_str(out, "\n");
}

static void put_attr(buf *out, const op_attr *a) {
    char value[GRAPH_TEXT_BYTES];
    graph_text_real(value, a->fallback);
    buf_printf(out, "    %-11s %s: %s", "attribute", a->name, a->doc ? a->doc : "");
    if (a->required) {
        buf_str(out, " (required)\n");
    } else {
        buf_printf(out, " (default %s)\n", value);
    }
}

void graph_show_ops(buf *out) {
    for (unsigned i = 0; i < op_registry_count; i++) {
        const op_desc *op = op_registry[i];
        buf_printf(out, "%s%s\n    %s\n", i ? "\n" : "", op->name, op->summary ? op->summary : "");
        put_slots(out, "inputs", op, graph_text_input, op->min_in, op->max_in);
        put_slots(out, "weights", op, graph_text_weight, op->min_weights, op->max_weights);
        if (op->n_out != 1) buf_printf(out, "    %-11s %d\n", "outputs", op->n_out);
        for (int k = 0; k < OP_ATTRS && op->attrs[k].name; k++) put_attr(out, &op->attrs[k]);
        if (op->collective) buf_printf(out, "    %-11s %s\n", "collective", op->collective);
    }
}

static void put_slots_json(buf *out, const char *what, const op_desc *op, slot_text name, int min, int max) {
    char slot[GRAPH_TEXT_BYTES];
    buf_printf(out, ", \"%s\": [", what);
    for (int i = 0; i < max; i++) {
        name(slot, op, i);
        buf_str(out, i ? ", {\"slot\": " : "{\"slot\": ");
        graph_put_json(out, slot);
        buf_printf(out, ", \"required\": %s}", i < min ? "true" : "false");
    }
    buf_str(out, "]");
}

static void put_attr_json(buf *out, const op_attr *a) {
    char value[GRAPH_TEXT_BYTES];
    graph_text_real(value, a->fallback);
    buf_str(out, "{\"name\": ");
    graph_put_json(out, a->name);
    buf_printf(out, ", \"required\": %s, \"default\": %s, \"doc\": ", a->required ? "true" : "false",
               a->required ? "null" : value);
    graph_put_json(out, a->doc ? a->doc : "");
    buf_str(out, "}");
}

void graph_show_ops_json(buf *out) {
    buf_str(out, "[");
    for (unsigned i = 0; i < op_registry_count; i++) {
        const op_desc *op = op_registry[i];
        buf_str(out, i ? ",\n {\"kind\": " : "\n {\"kind\": ");
        graph_put_json(out, op->name);
        buf_str(out, ", \"summary\": ");
        graph_put_json(out, op->summary ? op->summary : "");
        put_slots_json(out, "inputs", op, graph_text_input, op->min_in, op->max_in);
        put_slots_json(out, "weights", op, graph_text_weight, op->min_weights, op->max_weights);
        buf_str(out, ", \"attributes\": [");
        for (int k = 0; k < OP_ATTRS && op->attrs[k].name; k++) {
            if (k) buf_str(out, ", ");
            put_attr_json(out, &op->attrs[k]);
        }
        buf_printf(out, "], \"outputs\": %d, \"collective\": ", op->n_out);
        if (op->collective) {
            graph_put_json(out, op->collective);
        } else {
            buf_str(out, "null");
        }
        buf_str(out, "}");
    }
    buf_str(out, "\n]\n");
}
