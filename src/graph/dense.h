/* SPDX-License-Identifier: Apache-2.0 */
/* The dense pre-norm decoder that most open models share: embedding, layers of grouped-query attention and a gated MLP,
 * final norm, head. A model file states what is peculiar to it and calls dense_build(), or takes the parts. */
#ifndef KEEL_GRAPH_DENSE_H
#define KEEL_GRAPH_DENSE_H

#include "graph/build.h"
#include "graph/model.h"
#include "graph/rope.h"

/* What tells one such architecture from another. */
typedef struct dense_arch {
    const char *architecture; /* "Qwen3ForCausalLM" */
    bool qk_norm;             /* RMSNorm over each head of q and k, before the rotation */
    bool mlp_bias;    /* knows the key "mlp_bias"; without it the MLP has no biases, whatever config.json says */
    int64_t head_dim; /* where config.json gives none; 0: hidden_size / num_attention_heads */
} dense_arch;

/* config.json, checked. */
typedef struct dense_config {
    int64_t vocab, hidden, intermediate, max_position;
    int64_t n_layers, heads, kv_heads, head_dim;
    double eps;
    bool qk_norm, attention_bias, mlp_bias, tied;
    dtype weight_dtype;
    bool fp8;                  /* linear weights of the layers are F8E4M3 with block scales, in weight_scale_inv */
    const json_t *unconverted; /* modules that are not, as config.json lists them (borrowed); or NULL */
    rope rope;
} dense_config;

keel_status dense_read(const dense_arch *arch, const json_t *config, const char *file, dense_config *out,
                       keel_error *err);

/* The parts; each takes and returns a tensor [M][hidden]. dense_attention and dense_mlp include their norm and
 * residual. Weight keys carry b->layer. */
int dense_embedding(build *b, const dense_config *c);
int dense_rope(build *b, const dense_config *c);
int dense_attention(build *b, const dense_config *c, int x, int rope_table);
int dense_mlp(build *b, const dense_config *c, int x);
void dense_tail(build *b, const dense_config *c, int x, bool sample);

/* The whole model. */
keel_status dense_build(const dense_arch *arch, const json_t *config, const char *file, const model_options *opts,
                        graph **out, keel_error *err);

#endif
