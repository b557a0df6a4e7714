/* SPDX-License-Identifier: Apache-2.0 */
#include "load/safetensors.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was accepted lies inside the data and is found by its name. */
static void parse(const uint8_t *data, size_t size) {
    safetensors *s = NULL;
    keel_error err = KEEL_ERROR_INITIALIZER;
    if (safetensors_parse("fuzz", data, size, &s, &err) != KEEL_OK) return;
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const safetensor *t = safetensors_at(s, i);
        const uint8_t *p = t->data;
        if (p < data || t->bytes > size || p + t->bytes > data + size) __builtin_trap();
        if (safetensors_find(s, t->name) != t) __builtin_trap();
    }
    safetensors_close(s);
}

/* Once as it is, and once framed: the text up to the first byte 0xff (none in JSON) is the header, with its length put
 * before it, and the rest the data. Else nearly every mutation fails at the length. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    parse(data, size);
    const uint8_t *end = size ? memchr(data, 0xff, size) : NULL;
    size_t header = end ? (size_t)(end - data) : size, rest = end ? size - header - 1 : 0;
    uint8_t *framed = malloc(8 + header + rest);
    if (!framed) return 0;
    for (int i = 0; i < 8; i++) framed[i] = (uint8_t)((uint64_t)header >> (8 * i));
    if (header) memcpy(framed + 8, data, header);
    if (rest) memcpy(framed + 8 + header, end + 1, rest);
    parse(framed, 8 + header + rest);
    free(framed);
    return 0;
}
