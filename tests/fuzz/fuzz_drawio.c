/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* A drawing → a graph: the bytes as they are, and once more as the label of an op in a sound drawing. What is accepted
 * must hold together; what is refused must say why. */
#include "core/buf.h"
#include "draw/drawing.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(const graph *g) {
    for (int i = 0; i < g->n_ops; i++) {
        const graph_op *op = &g->ops[i];
        for (int k = 0; k < op->n_in; k++) {
            if (op->in[k] && graph_tensor_at(g, op->in[k])->producer >= i) abort();
        }
    }
    for (int id = 1; id <= g->n_tensors; id++) {
        const graph_tensor *t = graph_tensor_at(g, id);
        if (t->kind == TENSOR_WEIGHT && graph_elements(t) < 1) abort();
        if (t->kind == TENSOR_WEIGHT && (t->shard_dim < 0 || t->shard_dim >= t->rank)) abort();
    }
    if (!g->logits || graph_tensor_at(g, g->logits)->dim[1] != g->vocab || g->hidden < 1) abort();
}

static void run(const char *text, size_t bytes, bool sample) {
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = drawing_read("fuzz.drawio", text, bytes, &(drawing_options){.sample = sample}, &g, &err);
    if (s == KEEL_OK) {
        check(g);
    } else if (g || err.status != s || !err.detail[0]) {
        abort();
    }
    graph_close(g);
}

static void put_escaped(buf *b, const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        bool plain = data[i] >= 0x20 && data[i] < 0x7f && !strchr("<>&\"", data[i]);
        bool known = data[i] >= 0x20 || data[i] == '\t' || data[i] == '\n';
        if (plain) {
            buf_u8(b, data[i]);
        } else if (known) {
            buf_printf(b, "&#%d;", data[i]);
        }
    }
}

static void run_as_label(const uint8_t *data, size_t bytes) {
    static const char before[] =
        "<mxGraphModel><root><mxCell id=\"0\"/><mxCell id=\"1\" parent=\"0\"/>"
        "<mxCell id=\"e\" vertex=\"1\" parent=\"1\" value=\"embed&#10;kind=embedding w=E[100,16]\"/>"
        "<mxCell id=\"x\" vertex=\"1\" parent=\"1\" value=\"";
    static const char after[] =
        "\"/><mxCell id=\"n\" vertex=\"1\" parent=\"1\" value=\"norm&#10;kind=rmsnorm w=N eps=0 logit_rows=1\"/>"
        "<mxCell id=\"h\" vertex=\"1\" parent=\"1\" value=\"head&#10;kind=linear w=H[100,16]\"/>"
        "<mxCell id=\"a\" vertex=\"1\" parent=\"1\" value=\"pick&#10;kind=argmax\"/>"
        "<mxCell id=\"1e\" edge=\"1\" source=\"e\" target=\"x\"/><mxCell id=\"2e\" edge=\"1\" source=\"x\" "
        "target=\"n\"/>"
        "<mxCell id=\"3e\" edge=\"1\" source=\"n\" target=\"h\"/><mxCell id=\"4e\" edge=\"1\" source=\"h\" "
        "target=\"a\"/>"
        "</root></mxGraphModel>";
    buf b = {0};
    buf_str(&b, before);
    put_escaped(&b, data, bytes);
    buf_str(&b, after);
    if (!b.failed) run((const char *)b.data, b.len, true);
    buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    run((const char *)data, bytes, false);
    run_as_label(data, bytes);
    return 0;
}
