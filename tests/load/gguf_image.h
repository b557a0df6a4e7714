/* SPDX-License-Identifier: Apache-2.0 */
/* Builds GGUF files in memory, for tests. Written from ggml's docs/gguf.md; shares nothing with the reader. */
#ifndef KEEL_TESTS_GGUF_IMAGE_H
#define KEEL_TESTS_GGUF_IMAGE_H

#include "core/buf.h"

#include <string.h>

enum { KV_U32 = 4, KV_I32 = 5, KV_F32 = 6, KV_BOOL = 7, KV_STRING = 8, KV_ARRAY = 9 };

typedef struct gguf_image {
    buf values, infos, data;
    uint64_t n_values, n_tensors;
} gguf_image;

static inline void image_text(buf *b, const char *s) {
    buf_u64(b, strlen(s));
    buf_str(b, s);
}

static inline void image_key(gguf_image *m, const char *key, uint32_t type) {
    image_text(&m->values, key);
    buf_u32(&m->values, type);
    m->n_values++;
}

static inline void image_u32(gguf_image *m, const char *key, uint32_t v) {
    image_key(m, key, KV_U32);
    buf_u32(&m->values, v);
}

static inline void image_f32(gguf_image *m, const char *key, float v) {
    uint32_t u;
    memcpy(&u, &v, 4);
    image_key(m, key, KV_F32);
    buf_u32(&m->values, u);
}

static inline void image_bool(gguf_image *m, const char *key, int v) {
    image_key(m, key, KV_BOOL);
    buf_u8(&m->values, (uint8_t)v);
}

static inline void image_string(gguf_image *m, const char *key, const char *s) {
    image_key(m, key, KV_STRING);
    image_text(&m->values, s);
}

static inline void image_strings(gguf_image *m, const char *key, const char *const *list, size_t n) {
    image_key(m, key, KV_ARRAY);
    buf_u32(&m->values, KV_STRING);
    buf_u64(&m->values, n);
    for (size_t i = 0; i < n; i++) image_text(&m->values, list[i]);
}

static inline void image_i32s(gguf_image *m, const char *key, const int32_t *list, size_t n) {
    image_key(m, key, KV_ARRAY);
    buf_u32(&m->values, KV_I32);
    buf_u64(&m->values, n);
    for (size_t i = 0; i < n; i++) buf_u32(&m->values, (uint32_t)list[i]);
}

/* dim[0] fastest; dim[1] = 0 makes a vector. */
static inline void image_tensor(gguf_image *m, const char *name, uint32_t type, uint64_t dim0, uint64_t dim1,
                                const void *data, size_t bytes) {
    buf_align(&m->data, 32);
    image_text(&m->infos, name);
    buf_u32(&m->infos, dim1 ? 2 : 1);
    buf_u64(&m->infos, dim0);
    if (dim1) buf_u64(&m->infos, dim1);
    buf_u32(&m->infos, type);
    buf_u64(&m->infos, m->data.len);
    buf_put(&m->data, data, bytes);
    m->n_tensors++;
}

/* Frees m. */
static inline buf image_finish(gguf_image *m, uint32_t version) {
    buf b = {0};
    buf_str(&b, "GGUF");
    buf_u32(&b, version);
    buf_u64(&b, m->n_tensors);
    buf_u64(&b, m->n_values);
    buf_put(&b, m->values.data, m->values.len);
    buf_put(&b, m->infos.data, m->infos.len);
    if (m->data.len) buf_align(&b, 32);
    buf_put(&b, m->data.data, m->data.len);
    buf_free(&m->values);
    buf_free(&m->infos);
    buf_free(&m->data);
    *m = (gguf_image){0};
    return b;
}

#endif
