/* SPDX-License-Identifier: Apache-2.0 */
/* Small drawings, cell by cell, and what is said against them. */
#ifndef KEEL_TESTS_DRAW_DRAWING_CELLS_H
#define KEEL_TESTS_DRAW_DRAWING_CELLS_H

#include "core/buf.h"
#include "draw/drawing.h"
#include "graph/op.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD "<mxfile><diagram name=\"main\"><mxGraphModel><root><mxCell id=\"0\"/><mxCell id=\"1\" parent=\"0\"/>"
#define TAIL "</root></mxGraphModel></diagram></mxfile>"
#define V(id, label) "<mxCell id=\"" id "\" vertex=\"1\" parent=\"1\" value=\"" label "\"/>"
#define IN(group, id, label) "<mxCell id=\"" id "\" vertex=\"1\" parent=\"" group "\" value=\"" label "\"/>"
#define E(id, from, to, label)                                                                                         \
    "<mxCell id=\"" id "\" edge=\"1\" parent=\"1\" source=\"" from "\" target=\"" to "\" value=\"" label "\"/>"

/* The smallest model: embedding, norm, head, argmax. */
#define EMBED V("e", "embed&#10;kind=embedding w=E[100,16]bf16")
#define NORM V("n", "norm&#10;kind=rmsnorm w=N[16] eps=1e-6 logit_rows=1")
#define LM V("h", "head&#10;kind=linear w=H[100,16] shard=col")
#define PICK V("a", "pick&#10;kind=argmax")
#define TO_NORM E("en", "e", "n", "")
#define TO_LM E("nh", "n", "h", "")
#define TO_PICK E("ha", "h", "a", "")
#define FROM_NORM NORM LM PICK TO_LM TO_PICK
#define SMALL EMBED FROM_NORM TO_NORM
/* One op between the embedding and the norm. */
#define BETWEEN(label)                                                                                                 \
    EMBED V("x", label)                                                                                                \
    FROM_NORM E("ex", "e", "x", "") E("xn", "x", "n", "")
/* An op of two inputs there, its edges as given. */
#define PAIR(label, edges)                                                                                             \
    EMBED V("x", label)                                                                                                \
    FROM_NORM edges E("xn", "x", "n", "")

static inline graph *drawn(const char *cells) {
    buf b = {0};
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    buf_printf(&b, HEAD "%s" TAIL, cells);
    assert_false(b.failed);
    if (drawing_read("x.drawio", (const char *)b.data, b.len, NULL, &g, &err) != KEEL_OK) fail_msg("%s", err.detail);
    buf_free(&b);
    return g;
}

static inline void refused_text(const char *text, size_t bytes, keel_status status, const char *const *words) {
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = drawing_read("x.drawio", text, bytes, NULL, &g, &err);
    if (s != status || err.status != s) fail_msg("%s: %s; wanted %s", keel_status_name(s), err.detail, words[0]);
    assert_null(g);
    assert_int_equal(strncmp(err.detail, "x.drawio: ", 10), 0);
    for (; *words; words++) {
        if (!strstr(err.detail, *words)) fail_msg("%s\nlacks: %s", err.detail, *words);
    }
    assert_int_equal(drawing_read("x.drawio", text, bytes, NULL, &g, NULL), status);
}

static inline void refused(keel_status status, const char *cells, const char *const *words) {
    buf b = {0};
    buf_printf(&b, HEAD "%s" TAIL, cells);
    assert_false(b.failed);
    refused_text((const char *)b.data, b.len, status, words);
    buf_free(&b);
}

#define REFUSED(status, cells, ...) refused(KEEL_##status, cells, (const char *const[]){__VA_ARGS__, NULL})
#define WRONG(cells, ...) REFUSED(FORMAT, cells, __VA_ARGS__)

#define CACHE(id) V(id, id "&#10;kind=cache out=[1,16]act")

#endif
