/* SPDX-License-Identifier: Apache-2.0 */
#include "load/gguf.h"
#include "load/gguf_internal.h"

#include <stddef.h>
#include <string.h>

enum { MAX_ELEMENTS = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_values(const gguf *g) {
    for (size_t i = 0; i < g->n_values; i++) {
        const gguf_value *v = &g->values[i];
        int64_t n = 0;
        double x = 0;
        bool b = false;
        gguf_string s = {"", 0};
        (void)gguf_opt_int(g, v->key, INT64_MIN, INT64_MAX, &n, NULL);
        (void)gguf_opt_real(g, v->key, &x, NULL);
        (void)gguf_opt_bool(g, v->key, &b, NULL);
        (void)gguf_opt_string(g, v->key, &s, NULL);
        if (s.bytes && memchr(s.text, 0, (size_t)s.bytes) == v) __builtin_trap(); /* touches every byte */
        if (v->type != GGUF_ARRAY || v->element != GGUF_STRING) continue;
        const uint8_t *at = v->data;
        uint64_t sum = 0;
        for (uint64_t k = 0; k < v->count; k++) {
            s = gguf_string_next(&at);
            if (s.bytes) sum += (uint8_t)s.text[s.bytes - 1];
        }
        if (sum == UINT64_MAX) __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gguf *g = NULL;
    float out[MAX_ELEMENTS];
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (gguf_parse("fuzz", data, size, &g, &err) != KEEL_OK) return 0;
    read_values(g);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const gguf_tensor *t = &g->tensors[i];
        uint64_t n = t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
        if (t->bytes != gguf_type_bytes(t->type, n)) __builtin_trap();
        if (n > MAX_ELEMENTS) n = MAX_ELEMENTS; /* a multiple of every block's size */
        (void)gguf_dequantize(t->type, t->data, n, out, NULL);
    }
    gguf_model m = {0};
    (void)gguf_model_read(g, &m, &err);
    gguf_model_free(&m);
    gguf_close(g);
    return 0;
}
