/* SPDX-License-Identifier: Apache-2.0 */
/* Drawings against what the builders make: drawings/, made by make_drawings.py, and every geometry written plainly. */
#include "draw/drawing_support.h"

#include "core/buf.h"
#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"
#include "draw/drawing.h"
#include "graph/geometry.h"
#include "graph/model.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static graph *built(const char *config, const model_options *o) {
    json_t *json;
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    assert_int_equal(json_parse("config.json", config, strlen(config), &json, &err), KEEL_OK);
    keel_status s = model_build(json, "config.json", o, &g, &err);
    json_decref(json);
    if (s != KEEL_OK) fail_msg("%s", err.detail);
    return g;
}

static const char *geometry_named(const char *name) {
    for (const geometry *x = geometry_table; x->name; x++) {
        if (strcmp(x->name, name) == 0) return x->config;
    }
    fail_msg("no geometry %s", name);
    return NULL;
}

static graph *drawn(const char *file, const char *text, size_t bytes, const drawing_options *o) {
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = drawing_read(file, text, bytes, o, &g, &err);
    if (s != KEEL_OK) fail_msg("%s", err.detail);
    return g;
}

static char *drawing_file(const char *name, size_t *bytes) {
    char path[512], *text;
    keel_error err = KEEL_ERROR_INITIALIZER;
    snprintf(path, sizeof path, "%s/tests/draw/drawings/%s", KEEL_SOURCE_DIR, name);
    if (file_read(path, 1 << 24, &text, bytes, &err) != KEEL_OK) fail_msg("%s", err.detail);
    return text;
}

static void expect_same(const char *what, graph *want, graph *got) {
    char text[512];
    if (*graph_difference(want, got, text, sizeof text)) fail_msg("%s: %s", what, text);
    graph_close(want);
    graph_close(got);
}

/* ---- by hand ----------------------------------------------------------------------------------------- */

static void check_file(const char *name, const char *shape, bool sample) {
    size_t bytes;
    char *text = drawing_file(name, &bytes);
    graph *got = drawn(name, text, bytes, &(drawing_options){.sample = sample});
    graph *want = built(geometry_named(shape), &(model_options){.layer_last = -1, .sample = sample});
    free(text);
    /* The Llama drawings have plain frequencies; the config scales them. */
    if (strcmp(shape, "tiny-llama") == 0) {
        for (int i = 1; i <= want->n_tensors; i++) {
            const graph_tensor *a = graph_tensor_at(want, i);
            if (a->data) memcpy((void *)(uintptr_t)a->data, graph_tensor_at(got, i)->data, (size_t)a->dim[0] * 4);
        }
    }
    expect_same(name, want, got);
}

static void hand_drawn(void **state) {
    (void)state;
    for (int sample = 0; sample < 2; sample++) {
        check_file("qwen3-layers.drawio", "tiny-qwen3", sample);
        check_file("qwen3-page.drawio", "tiny-qwen3", sample);
        check_file("qwen3-page-compressed.drawio", "tiny-qwen3", sample);
        check_file("qwen3-range.drawio", "tiny-qwen3", sample);
        check_file("llama-layers.drawio", "tiny-llama", sample);
        check_file("llama-range.drawio", "tiny-llama", sample);
    }
}

/* ---- every geometry, written plainly ------------------------------------------------------------------ */

static const char *slot_name(const char *const *list, int slot) { return list[slot] ? list[slot] : "?"; }

static void write_shape(buf *b, const graph_tensor *t) {
    for (int i = 0; i < t->rank; i++) {
        buf_str(b, i ? "," : "[");
        if (t->dim[i] < 0) buf_str(b, t->dim[i] == GRAPH_M ? "M" : "M_logit");
        if (t->dim[i] >= 0) buf_printf(b, "%" PRId64, t->dim[i]);
    }
    buf_printf(b, "]%s", dtype_name(t->dtype));
}

static void begin_vertex(buf *b, const char *id, int number, const char *name, const char *kind) {
    buf_printf(b, "<mxCell id=\"%s%d\" vertex=\"1\" parent=\"1\" value=\"%s&lt;br&gt;kind=%s", id, number, name, kind);
}

static void write_source(buf *b, const graph *g, int id) {
    const graph_tensor *t = graph_tensor_at(g, id);
    bool constant = t->kind == TENSOR_CONST;
    begin_vertex(b, "t", id, t->name, constant ? "const" : t->kind == TENSOR_CACHE ? "cache" : "input");
    buf_str(b, " out=");
    write_shape(b, t);
    for (int64_t i = 0; constant && i < t->dim[0]; i++) buf_printf(b, "%s%.9g", i ? " " : " values=", t->data[i]);
    buf_str(b, "\"/>");
}

static void write_op(buf *b, const graph *g, int index) {
    const graph_op *op = &g->ops[index];
    begin_vertex(b, "o", index, op->name, op->desc->name);
    for (int i = 0; i < op->n_in; i++) {
        buf_str(b, i ? "," : " in=");
        write_shape(b, graph_tensor_at(g, op->in[i]));
    }
    for (int i = 0; i < op->n_out; i++) {
        buf_str(b, i ? "," : " out=");
        write_shape(b, graph_tensor_at(g, op->out[i]));
    }
    for (int i = 0; i < op->n_weights; i++) {
        const graph_tensor *t = graph_tensor_at(g, op->weight[i]);
        if (!op->weight[i]) continue;
        buf_printf(b, " w:%s=%s", slot_name(op->desc->weight_name, i), t->key);
        write_shape(b, t);
        buf_printf(b, " shard=%s", shard_name(t->shard));
        if (t->shard != SHARD_REP) buf_printf(b, "(dim=%d)", t->shard_dim);
    }
    for (int i = 0; i < op->n_attrs; i++) buf_printf(b, " %s=%.17g", op->attr[i].name, op->attr[i].value);
    if (*op->notes) buf_printf(b, " %s", op->notes);
    buf_str(b, "\"/>");
}

static void write_edges(buf *b, const graph *g, int index) {
    const graph_op *op = &g->ops[index];
    for (int i = 0; i < op->n_in; i++) {
        const graph_tensor *t = graph_tensor_at(g, op->in[i]);
        buf_printf(b, "<mxCell id=\"e%d.%d\" edge=\"1\" parent=\"1\" source=\"", index, i);
        buf_printf(b, t->producer < 0 ? "t%d" : "o%d", t->producer < 0 ? op->in[i] : t->producer);
        buf_printf(b, "\" target=\"o%d\" value=\"%s \xe2\x86\x92 %s\"/>", index, t->name,
                   slot_name(op->desc->in_name, i));
    }
}

static char *written(const graph *g) {
    buf b = {0};
    buf_str(&b, "<mxGraphModel><root><mxCell id=\"0\"/><mxCell id=\"1\" parent=\"0\"/>");
    begin_vertex(&b, "m", 0, "model", "model");
    buf_printf(&b, " architecture=%s max_position=%" PRId64 "\"/>", g->architecture, g->max_position);
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (t->producer < 0 && t->kind != TENSOR_WEIGHT) write_source(&b, g, id);
    }
    for (int i = 1; i < g->n_ops; i++) write_op(&b, g, i);
    for (int i = 1; i < g->n_ops; i++) write_edges(&b, g, i);
    buf_str(&b, "</root></mxGraphModel>");
    return buf_take(&b);
}

static void round_trip(const char *what, graph *g, bool sample) {
    char *text = written(g);
    assert_non_null(text);
    expect_same(what, g, drawn(what, text, strlen(text), &(drawing_options){.sample = sample}));
    keel_free(text);
}

static void every_geometry(void **state) {
    (void)state;
    for (const geometry *x = geometry_table; x->name; x++) {
        round_trip(x->name, built(x->config, NULL), false);
        round_trip(x->name, built(x->config, &(model_options){.layer_last = -1, .sample = true}), false);
        round_trip(x->name, built(x->config, &(model_options){.layer_first = 1, .layer_last = 1}), false);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------- */

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char *const files[] = {"qwen3-page-compressed.drawio", "qwen3-range.drawio"};
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        char *text = drawing_file(files[i], &bytes);
        for (uint64_t n = 1;; n++) {
            graph *g = NULL;
            keel_error err = KEEL_ERROR_INITIALIZER;
            mem_fail_after(n);
            keel_status s = drawing_read(files[i], text, bytes, NULL, &g, &err);
            mem_fail_after(0);
            graph_close(g);
            if (s == KEEL_OK) {
                assert_true(n > 40);
                break;
            }
            if (s != KEEL_NOMEM || err.status != s || g) fail_msg("%d: %s", (int)n, err.detail);
        }
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_drawn),
        cmocka_unit_test(every_geometry),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
