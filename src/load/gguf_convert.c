/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF to a Hugging Face folder: the tensors, and the folder that appears complete or not at all. */
#include "load/gguf_internal.h"

#include "core/mem.h"
#include "load/out_folder.h"
#include "load/safetensors.h"

#include <stdio.h>
#include <string.h>

/* Elements dequantised at a time, if a row is not longer. */
enum { CHUNK_ELEMENTS = 1 << 18 };

/* Sizes a tensor's dimensions are stated in. */
typedef enum tensor_size { SIZE_NONE, SIZE_VOCAB, SIZE_HIDDEN, SIZE_FFN, SIZE_Q, SIZE_KV, SIZE_HEAD } tensor_size;
typedef enum tensor_need { REQUIRED, OPTIONAL } tensor_need;
/* Whose heads' rows GGUF's llama conversion has permuted. */
typedef enum tensor_heads { HEADS_NONE, HEADS_Q, HEADS_KV } tensor_heads;

typedef struct tensor_rule {
    const char *gguf, *hf;     /* within a layer, or whole */
    tensor_size rows, columns; /* a vector has columns only */
    tensor_need need;
    tensor_heads heads;
} tensor_rule;

static const tensor_rule before_layers[] = {
    {"token_embd.weight", "model.embed_tokens.weight", SIZE_VOCAB, SIZE_HIDDEN, REQUIRED, HEADS_NONE},
};
static const tensor_rule in_layer[] = {
    {"attn_norm.weight", "input_layernorm.weight", SIZE_NONE, SIZE_HIDDEN, REQUIRED, HEADS_NONE},
    {"attn_q.weight", "self_attn.q_proj.weight", SIZE_Q, SIZE_HIDDEN, REQUIRED, HEADS_Q},
    {"attn_q.bias", "self_attn.q_proj.bias", SIZE_NONE, SIZE_Q, OPTIONAL, HEADS_Q},
    {"attn_k.weight", "self_attn.k_proj.weight", SIZE_KV, SIZE_HIDDEN, REQUIRED, HEADS_KV},
    {"attn_k.bias", "self_attn.k_proj.bias", SIZE_NONE, SIZE_KV, OPTIONAL, HEADS_KV},
    {"attn_v.weight", "self_attn.v_proj.weight", SIZE_KV, SIZE_HIDDEN, REQUIRED, HEADS_NONE},
    {"attn_v.bias", "self_attn.v_proj.bias", SIZE_NONE, SIZE_KV, OPTIONAL, HEADS_NONE},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", SIZE_NONE, SIZE_HEAD, OPTIONAL, HEADS_NONE},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", SIZE_NONE, SIZE_HEAD, OPTIONAL, HEADS_NONE},
    {"attn_output.weight", "self_attn.o_proj.weight", SIZE_HIDDEN, SIZE_Q, REQUIRED, HEADS_NONE},
    {"attn_output.bias", "self_attn.o_proj.bias", SIZE_NONE, SIZE_HIDDEN, OPTIONAL, HEADS_NONE},
    {"ffn_norm.weight", "post_attention_layernorm.weight", SIZE_NONE, SIZE_HIDDEN, REQUIRED, HEADS_NONE},
    {"ffn_gate.weight", "mlp.gate_proj.weight", SIZE_FFN, SIZE_HIDDEN, REQUIRED, HEADS_NONE},
    {"ffn_up.weight", "mlp.up_proj.weight", SIZE_FFN, SIZE_HIDDEN, REQUIRED, HEADS_NONE},
    {"ffn_down.weight", "mlp.down_proj.weight", SIZE_HIDDEN, SIZE_FFN, REQUIRED, HEADS_NONE},
};
static const tensor_rule behind_layers[] = {
    {"output_norm.weight", "model.norm.weight", SIZE_NONE, SIZE_HIDDEN, REQUIRED, HEADS_NONE},
    {"output.weight", "lm_head.weight", SIZE_VOCAB, SIZE_HIDDEN, OPTIONAL, HEADS_NONE},
};
enum { N_IN_LAYER = sizeof in_layer / sizeof *in_layer };

typedef struct planned {
    const gguf_tensor *from;
    const tensor_rule *rule;
} planned;

/* All tensors in the order in which they are written. */
typedef struct tensor_plan {
    arena arena;
    safetensor_decl *decls;
    planned *list;
    size_t n;
    uint64_t bytes; /* of output */
} tensor_plan;

static uint64_t size_of(const gguf_model *m, tensor_size s) {
    switch (s) {
    case SIZE_VOCAB:
        return (uint64_t)m->vocab;
    case SIZE_HIDDEN:
        return (uint64_t)m->hidden;
    case SIZE_FFN:
        return (uint64_t)m->ffn;
    case SIZE_Q:
        return (uint64_t)(m->heads * m->head_dim);
    case SIZE_KV:
        return (uint64_t)(m->kv_heads * m->head_dim);
    case SIZE_HEAD:
        return (uint64_t)m->head_dim;
    case SIZE_NONE:
        break;
    }
    return 1;
}

static bool is_required(const gguf_model *m, const tensor_rule *r) {
    bool norm = strstr(r->gguf, "_q_norm") || strstr(r->gguf, "_k_norm");
    bool bias = strcmp(r->gguf, "attn_q.bias") == 0 || strcmp(r->gguf, "attn_k.bias") == 0 ||
                strcmp(r->gguf, "attn_v.bias") == 0;
    return r->need == REQUIRED || (norm && strcmp(m->arch, "qwen3") == 0) || (bias && m->attention_bias);
}

static keel_status plan_add(const gguf *g, const gguf_model *m, const tensor_rule *r, int64_t layer, dtype to,
                            tensor_plan *p, keel_error *err) {
    char name[64];
    if (layer < 0) {
        snprintf(name, sizeof name, "%s", r->gguf);
    } else {
        snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, r->gguf);
    }
    const gguf_tensor *t = gguf_tensor_find(g, name);
    if (!t) {
        if (!is_required(m, r)) return KEEL_OK;
        return error_set(err, KEEL_MISSING, "%s: tensor %s is missing; is this the first of several split files?",
                         g->file, name);
    }
    uint64_t rows = size_of(m, r->rows), columns = size_of(m, r->columns);
    int rank = r->rows == SIZE_NONE ? 1 : 2;
    if (t->dim[0] != columns || t->dim[1] != rows || t->dim[2] != 1 || t->dim[3] != 1) {
        return error_set(err, KEEL_FORMAT,
                         "%s: tensor %s: [%llu, %llu, %llu, %llu], but the metadata says [%llu, %llu]", g->file, name,
                         (unsigned long long)t->dim[0], (unsigned long long)t->dim[1], (unsigned long long)t->dim[2],
                         (unsigned long long)t->dim[3], (unsigned long long)columns, (unsigned long long)rows);
    }
    keel_status status = gguf_dequantize(t->type, t->data, 0, NULL, err);
    if (status != KEEL_OK) return error_prefix(err, status, "%s: tensor %s", g->file, name);
    safetensor_decl *d = &p->decls[p->n];
    d->name = layer < 0 ? r->hf : arena_printf(&p->arena, "model.layers.%lld.%s", (long long)layer, r->hf);
    if (!d->name) return KEEL_NOMEM_AT(err, g->file);
    d->dtype = to;
    d->rank = rank;
    d->dim[0] = (int64_t)(rank == 1 ? columns : rows);
    if (rank == 2) d->dim[1] = (int64_t)columns;
    p->list[p->n++] = (planned){t, r};
    p->bytes += rows * columns * dtype_bytes(to);
    return KEEL_OK;
}

/* A tensor that no rule takes would be lost silently: refuse. */
static keel_status leftover_check(const gguf *g, const tensor_plan *p, keel_error *err) {
    size_t known = p->n + (gguf_tensor_find(g, "rope_freqs.weight") != NULL);
    if (known == g->n_tensors) return KEEL_OK;
    for (size_t i = 0; i < g->n_tensors; i++) {
        bool taken = strcmp(g->tensors[i].name, "rope_freqs.weight") == 0;
        for (size_t k = 0; k < p->n && !taken; k++) taken = p->list[k].from == &g->tensors[i];
        if (!taken) {
            return error_set(err, KEEL_UNSUPPORTED, "%s: tensor %s has no place in the architecture", g->file,
                             g->tensors[i].name);
        }
    }
    return KEEL_OK;
}

static keel_status plan_make(const gguf *g, const gguf_model *m, dtype to, tensor_plan *p, keel_error *err) {
    size_t most = (size_t)m->layers * N_IN_LAYER + 3;
    p->decls = arena_array(&p->arena, most, sizeof *p->decls);
    p->list = arena_array(&p->arena, most, sizeof *p->list);
    if (!p->decls || !p->list) return KEEL_NOMEM_AT(err, g->file);
    KEEL_TRY(plan_add(g, m, &before_layers[0], -1, to, p, err));
    for (int64_t layer = 0; layer < m->layers; layer++) {
        for (size_t i = 0; i < N_IN_LAYER; i++) KEEL_TRY(plan_add(g, m, &in_layer[i], layer, to, p, err));
    }
    for (size_t i = 0; i < 2; i++) KEEL_TRY(plan_add(g, m, &behind_layers[i], -1, to, p, err));
    return leftover_check(g, p, err);
}

/* The conversion's working memory and where it stands. */
typedef struct stream {
    safetensors_writer *writer;
    const gguf_model *model;
    dtype to;
    float *f32;     /* [CHUNK_ELEMENTS or a longer row] */
    uint16_t *bf16; /* the same number */
    uint64_t done, total;
    gguf_progress progress;
    void *user;
} stream;

/* Row of the file that holds row `row` of the checkpoint. GGUF's llama conversion turns each head's rows from
 * [2 halves][head_dim / 2] into [head_dim / 2][2], so that rotary pairs are neighbours. */
static uint64_t row_from(const stream *s, const tensor_rule *r, uint64_t row) {
    if (r->heads == HEADS_NONE || strcmp(s->model->arch, "llama") != 0) return row;
    uint64_t d = (uint64_t)s->model->head_dim, head = row / d, in_head = row % d;
    return head * d + in_head % (d / 2) * 2 + in_head / (d / 2);
}

static keel_status emit(stream *s, const float *f32, size_t n, keel_error *err) {
    const void *out = f32;
    if (s->to == DTYPE_BF16) {
        for (size_t i = 0; i < n; i++) s->bf16[i] = bf16_from_f32(f32[i]);
        out = s->bf16;
    }
    KEEL_TRY(safetensors_writer_put(s->writer, out, n * dtype_bytes(s->to), err));
    s->done += n * dtype_bytes(s->to);
    if (s->progress && !s->progress(s->user, s->done, s->total)) {
        return error_set(err, KEEL_ABORTED, "the conversion was stopped; nothing was written");
    }
    return KEEL_OK;
}

static keel_status matrix_stream(stream *s, const planned *p, keel_error *err) {
    const gguf_tensor *t = p->from;
    uint64_t columns = t->dim[0], rows = t->dim[1], row_bytes = gguf_type_bytes(t->type, columns);
    uint64_t step = columns < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / columns : 1;
    for (uint64_t first = 0; first < rows; first += step) {
        uint64_t n = rows - first < step ? rows - first : step;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t row = row_from(s, p->rule, first + i);
            KEEL_TRY(gguf_dequantize(t->type, t->data + row * row_bytes, columns, s->f32 + i * columns, err));
        }
        KEEL_TRY(emit(s, s->f32, (size_t)(n * columns), err));
    }
    return KEEL_OK;
}

/* A bias: its elements are permuted like the rows of its matrix. Twice its length fits the buffer (see buffers_make).
 */
static keel_status vector_stream(stream *s, const planned *p, keel_error *err) {
    const gguf_tensor *t = p->from;
    uint64_t n = t->dim[0];
    float *in_order = s->f32 + n;
    KEEL_TRY(gguf_dequantize(t->type, t->data, n, s->f32, err));
    for (uint64_t i = 0; i < n; i++) in_order[i] = s->f32[row_from(s, p->rule, i)];
    return emit(s, in_order, (size_t)n, err);
}

static keel_status buffers_make(stream *s, const tensor_plan *p, const char *file, keel_error *err) {
    uint64_t longest = CHUNK_ELEMENTS;
    for (size_t i = 0; i < p->n; i++) {
        uint64_t n = 2 * p->list[i].from->dim[0];
        if (n > longest) longest = n;
    }
    s->f32 = mem_alloc((size_t)longest * sizeof *s->f32);
    s->bf16 = mem_alloc((size_t)longest * sizeof *s->bf16);
    return s->f32 && s->bf16 ? KEEL_OK : KEEL_NOMEM_AT(err, file);
}

static keel_status weights_write(const gguf *g, const tensor_plan *p, stream *s, const char *dir, keel_error *err) {
    char *path = path_join(dir, "model.safetensors");
    keel_status status = path ? KEEL_OK : KEEL_NOMEM_AT(err, dir);
    if (status == KEEL_OK) status = buffers_make(s, p, g->file, err);
    if (status == KEEL_OK) status = safetensors_writer_open(path, p->decls, p->n, &s->writer, err);
    for (size_t i = 0; status == KEEL_OK && i < p->n; i++) {
        status = p->list[i].rule->rows == SIZE_NONE ? vector_stream(s, &p->list[i], err)
                                                    : matrix_stream(s, &p->list[i], err);
    }
    if (status == KEEL_OK) {
        status = safetensors_writer_commit(s->writer, err);
    } else {
        safetensors_writer_abandon(s->writer);
    }
    mem_free(s->f32);
    mem_free(s->bf16);
    keel_free(path);
    return status;
}

static keel_status convert_into(const gguf *g, const char *dir, dtype to, stream *s, keel_error *err) {
    gguf_model m = {0};
    tensor_plan p = {0};
    keel_status status = gguf_model_read(g, &m, err);
    if (status == KEEL_OK) status = plan_make(g, &m, to, &p, err);
    if (status == KEEL_OK) status = gguf_config_write(g, &m, to, dir, err);
    if (status == KEEL_OK) status = gguf_tokenizer_write(g, &m, dir, err);
    s->model = &m;
    s->to = to;
    s->total = p.bytes;
    if (status == KEEL_OK) status = weights_write(g, &p, s, dir, err);
    arena_free(&p.arena);
    gguf_model_free(&m);
    return status;
}

static keel_status convert_to_folder(const char *gguf_path, const char *dir, dtype to, stream *s, keel_error *err) {
    gguf *g;
    KEEL_TRY(gguf_open(gguf_path, &g, err));
    keel_status status = convert_into(g, dir, to, s, err);
    gguf_close(g);
    return status;
}

keel_status gguf_convert(const char *gguf_path, const char *out_dir, dtype to, gguf_progress progress, void *user,
                         keel_error *err) {
    if (to != DTYPE_F32 && to != DTYPE_BF16) {
        return error_set(err, KEEL_USAGE, "%s: conversion to %s; F32 and BF16 are possible", gguf_path, dtype_name(to));
    }
    out_folder folder;
    stream s = {.progress = progress, .user = user};
    KEEL_TRY(out_folder_begin(out_dir, &folder, err));
    return out_folder_end(&folder, convert_to_folder(gguf_path, folder.tmp, to, &s, err), err);
}
