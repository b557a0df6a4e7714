/* SPDX-License-Identifier: Apache-2.0 */
/* A parsed GGUF file, as the converter sees it. */
#ifndef KEEL_LOAD_GGUF_INTERNAL_H
#define KEEL_LOAD_GGUF_INTERNAL_H

#include "core/arena.h"
#include "core/file.h"
#include "load/gguf.h"

#include <jansson.h>

enum { GGUF_MAX_RANK = 4 };

/* X(name, number in the file): types of metadata values. */
#define GGUF_VALUE_MAP(X)                                                                                              \
    X(U8, 0)                                                                                                           \
    X(I8, 1)                                                                                                           \
    X(U16, 2)                                                                                                          \
    X(I16, 3)                                                                                                          \
    X(U32, 4)                                                                                                          \
    X(I32, 5)                                                                                                          \
    X(F32, 6)                                                                                                          \
    X(BOOL, 7)                                                                                                         \
    X(STRING, 8)                                                                                                       \
    X(ARRAY, 9)                                                                                                        \
    X(U64, 10)                                                                                                         \
    X(I64, 11)                                                                                                         \
    X(F64, 12)

typedef enum gguf_value_type {
#define X(name, number) GGUF_##name = number,
    GGUF_VALUE_MAP(X)
#undef X
} gguf_value_type;

typedef struct gguf_string {
    const char *text; /* into the file, not terminated */
    uint64_t bytes;
} gguf_string;

typedef struct gguf_value {
    const char *key; /* terminated, in the arena */
    gguf_value_type type;
    gguf_value_type element; /* of an array, else = type */
    uint64_t count;          /* of an array, else 1 */
    const uint8_t *data;     /* first element, as it lies in the file; its extent was checked when parsed */
} gguf_value;

typedef struct gguf_tensor {
    const char *name; /* terminated, in the arena */
    uint32_t type;
    int rank;
    uint64_t dim[GGUF_MAX_RANK]; /* [rank], fastest first; beyond rank 1 */
    const uint8_t *data;
    uint64_t bytes;
} gguf_tensor;

struct gguf {
    arena arena;
    const char *file;
    file_map map;
    gguf_value *values; /* by key */
    size_t n_values;
    gguf_tensor *tensors; /* by name */
    size_t n_tensors;
};

static inline uint32_t le32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t le64(const uint8_t *p) { return le32(p) | (uint64_t)le32(p + 4) << 32; }

/* NULL when absent. */
const gguf_value *gguf_value_find(const gguf *g, const char *key);
const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name);

/* Typed look-ups: absent leaves *out alone and is KEEL_OK; a wrong type is KEEL_FORMAT, a value outside [lo, hi] is
 * KEEL_RANGE, both naming file and key. Integers of any width are taken. An array of equal integers counts as one where
 * a file states a per-layer value; differing ones are KEEL_UNSUPPORTED. */
keel_status gguf_opt_int(const gguf *g, const char *key, int64_t lo, int64_t hi, int64_t *out, keel_error *err);
keel_status gguf_opt_real(const gguf *g, const char *key, double *out, keel_error *err);
keel_status gguf_opt_bool(const gguf *g, const char *key, bool *out, keel_error *err);
keel_status gguf_opt_string(const gguf *g, const char *key, gguf_string *out, keel_error *err);
/* KEEL_MISSING when absent. */
keel_status gguf_get_array(const gguf *g, const char *key, gguf_value_type element, const gguf_value **out,
                           keel_error *err);
/* Element i of an integer array. */
int64_t gguf_int_at(const gguf_value *v, uint64_t i);
/* The string at *at, and *at moved behind it; for walking string arrays. */
gguf_string gguf_string_next(const uint8_t **at);

/* "Q4_K", or "type 99". text: scratch of at least 16 bytes, used for an unknown one. */
const char *gguf_type_name(uint32_t ggml_type, char *text);

/* What the metadata and the presence of tensors say about the model. */
typedef struct gguf_model {
    const char *arch; /* "llama" or "qwen3" */
    int64_t layers, hidden, ffn, heads, kv_heads, head_dim, vocab, context;
    double rms_eps, rope_theta;
    bool tied, attention_bias;
    json_t *rope_scaling; /* NULL when there is none; owned */
} gguf_model;

keel_status gguf_model_read(const gguf *g, gguf_model *m, keel_error *err);
void gguf_model_free(gguf_model *m);
/* config.json and generation_config.json; tokenizer.json and tokenizer_config.json, into folder dir. */
keel_status gguf_config_write(const gguf *g, const gguf_model *m, dtype to, const char *dir, keel_error *err);
keel_status gguf_tokenizer_write(const gguf *g, const gguf_model *m, const char *dir, keel_error *err);
/* Dumps root to DIR/NAME and releases it; a NULL root (from a failed jansson call) is KEEL_NOMEM. */
keel_status gguf_json_write(const char *dir, const char *name, json_t *root, size_t flags, keel_error *err);

#endif
