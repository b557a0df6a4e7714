/* SPDX-License-Identifier: Apache-2.0 */
/* Words that are nearly one that means something. */
#include "draw/drawing.h"
#include "graph/op.h"

#include <string.h>

enum { NEAR_BYTES = 24, LONG_BYTES = 6 };

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static int least(int a, int b) { return a < b ? a : b; }

/* How many letters are wrong, missing, too many, or in each other's place. Both shorter than NEAR_BYTES. */
static int distance(const char *a, int n_a, const char *b, int n_b) {
    int d[NEAR_BYTES + 1][NEAR_BYTES + 1];
    for (int i = 0; i <= n_a; i++) {
        for (int k = 0; k <= n_b; k++) {
            if (!i || !k) {
                d[i][k] = i + k;
                continue;
            }
            bool same = lower(a[i - 1]) == lower(b[k - 1]);
            d[i][k] = least(d[i - 1][k - 1] + !same, 1 + least(d[i - 1][k], d[i][k - 1]));
            bool turned = i > 1 && k > 1 && lower(a[i - 1]) == lower(b[k - 2]) && lower(a[i - 2]) == lower(b[k - 1]);
            if (turned) d[i][k] = least(d[i][k], 1 + d[i - 2][k - 2]);
        }
    }
    return d[n_a][n_b];
}

/* One letter is a slip, of long words two; of `w` and `in` nothing can be told. */
static bool is_near(const char *key, size_t bytes, const char *word) {
    size_t n = strlen(word);
    if (n < 3 || n > NEAR_BYTES || bytes > NEAR_BYTES) return false;
    int most = n >= LONG_BYTES ? 2 : 1, off = distance(key, (int)bytes, word, (int)n);
    return off > 0 && off <= most;
}

const char *drawing_near(const char *const *words, const char *key, size_t bytes) {
    for (; *words; words++) {
        if (is_near(key, bytes, *words)) return *words;
    }
    return NULL;
}

/* A key with a colon is no slip: `w:SLOT=` is read elsewhere. */
const char *drawing_slip(const op_desc *desc, const char *key, size_t bytes) {
    static const char *const words[] = {"out", "shard", "collective", NULL};
    if (memchr(key, ':', bytes)) return NULL;
    for (int i = 0; i < OP_ATTRS && desc->attrs[i].name; i++) {
        if (is_near(key, bytes, desc->attrs[i].name)) return desc->attrs[i].name;
    }
    return drawing_near(words, key, bytes);
}
