/* SPDX-License-Identifier: Apache-2.0 */
#include "load/safetensors.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    safetensors *s = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (safetensors_parse("fuzz", data, size, &s, &err) != KEEL_OK) return 0;
    /* What was accepted lies inside the data and is found by its name. */
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const safetensor *t = safetensors_at(s, i);
        const uint8_t *p = t->data;
        if (p < data || t->bytes > size || p + t->bytes > data + size) __builtin_trap();
        if (safetensors_find(s, t->name) != t) __builtin_trap();
    }
    safetensors_close(s);
    return 0;
}
