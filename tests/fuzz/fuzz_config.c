/* SPDX-License-Identifier: Apache-2.0 */
/* timeout: 120 */
/* config.json: bytes → JSON → graph, whole and as a slice. What is built must hold together. */
#include "graph/model.h"

#include <stdlib.h>

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
    }
    if (!g->logits || graph_tensor_at(g, g->logits)->dim[1] != g->vocab) abort();
}

static void run(const json_t *config, const model_options *opts) {
    graph *g = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    keel_status s = model_build(config, "config.json", opts, &g, &err);
    if (s == KEEL_OK) {
        check(g);
    } else if (g || err.status != s || !err.detail[0]) {
        abort();
    }
    graph_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *config;
    if (json_parse("config.json", (const char *)data, bytes, &config, NULL) != KEEL_OK) return 0;
    run(config, NULL);
    run(config, &(model_options){.layer_first = 1, .layer_last = 2, .sample = true});
    json_decref(config);
    return 0;
}
