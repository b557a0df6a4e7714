/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer.json from anywhere: parsed, then used both ways on a text that meets added tokens, bad UTF-8, marks out
 * of order, digits and white space. */
#include "core/buf.h"
#include "load/tokenizer.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char text[] =
        "<|im_start|>The cat's 123  cafe\xCC\x81 s\xCC\x87\xCC\xA3 \xE4\xBD\xA0\xE5\xA5\xBD\r\n\t"
        "aaaaaaaaaaaaaaaa\xE4\xBD <think> \xF0\x9F\x98\x80\xC2\xA0"
        "ab ab<|im_end|>\n";
    tokenizer *t = NULL;
    if (tokenizer_parse("fuzz.json", (const char *)data, bytes, &t, NULL) != KEEL_OK) return 0;
    int32_t *ids = NULL;
    size_t n = 0;
    if (tokenizer_encode(t, text, sizeof text - 1, true, &ids, &n, NULL) == KEEL_OK) {
        token_stream s = {.tokenizer = t, .skip_special = n % 2 == 0};
        buf out = {0};
        for (size_t i = 0; i < n; i++) (void)token_stream_put(&s, ids[i], &out, NULL);
        token_stream_end(&s, &out);
        buf_free(&out);
        keel_free(ids);
    }
    tokenizer_close(t);
    return 0;
}
