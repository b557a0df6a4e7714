/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* Bytes → graph JSON → graph → JSON. What is read must be written so that it reads back the same, and can be drawn,
 * shown and compared. */
#include "draw/draw.h"
#include "graph/graph_diff.h"
#include "graph/graph_json.h"
#include "draw/draw_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void again(const graph *g, const buf *text) {
    graph *back = NULL;
    buf other = {0}, lines = {0};
    size_t n = 1;
    if (graph_json_read("x.json", (const char *)text->data, text->len, NULL, &back, NULL) != KEEL_OK) abort();
    graph_json_write(back, &other);
    if (other.len != text->len || memcmp(other.data, text->data, text->len) != 0) abort();
    if (graph_diff(g, back, &lines, &n, NULL) != KEEL_OK || n || lines.len) abort();
    graph_close(back);
    buf_free(&other);
    buf_free(&lines);
}

static void draw(const graph *g) {
    keel_error err = KEEL_ERROR_INITIALIZER;
    for (int fold = 0; fold < 2; fold++) {
        buf out = {0};
        draw_options o = {.fold = fold};
        keel_status s = draw_drawio(g, &o, &out, &err);
        if (s != KEEL_OK && s != KEEL_UNSUPPORTED) abort();
        if (draw_svg(g, &o, &out, &err) != KEEL_OK || graph_show(g, &out, &err) != KEEL_OK) abort();
        buf_free(&out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = graph_json_read("x.json", (const char *)data, bytes, NULL, &g, &err);
    if (s != KEEL_OK) {
        if (g || err.status != s || !err.detail[0]) abort();
        return 0;
    }
    buf text = {0};
    graph_json_write(g, &text);
    if (text.failed) abort();
    again(g, &text);
    draw(g);
    buf_free(&text);
    graph_close(g);
    return 0;
}
