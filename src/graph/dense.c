/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/dense.h"

#include "graph/op.h"

#include <math.h>
#include <string.h>

/* Weight keys of a layer, as Hugging Face checkpoints spell them. */
static const char *layer_key(build *b, const char *name) { return build_text(b, "model.layers.%d.%s", b->layer, name); }

static int dense_norm(build *b, const dense_config *c, const char *name, const char *key, int x, bool logit_rows) {
    op_spec op = {.kind = "rmsnorm", .name = name, .in = {x}};
    op.weight[0] = (weight_spec){.key = key, .dim = {c->hidden}, .shard = SHARD_REP, .shard_dim = 0};
    op.attr[0] = (graph_attr){"eps", c->eps};
    if (logit_rows) op.attr[1] = (graph_attr){"logit_rows", 1};
    return build_op(b, op);
}

static bool ends_in_module(const char *name, const char *tail) {
    size_t n = strlen(name), m = strlen(tail);
    return n >= m && strcmp(name + n - m, tail) == 0 && (n == m || name[n - m - 1] == '.');
}

/* Whether config.json's list names the module, whole, by its end ("mlp.gate") or by what it is a part of. */
static bool unconverted(const dense_config *c, const char *module) {
    for (size_t i = 0; i < json_array_size(c->unconverted); i++) {
        const char *entry = json_string_value(json_array_get(c->unconverted, i));
        size_t n = strlen(entry);
        if (ends_in_module(module, entry)) return true;
        if (strncmp(module, entry, n) == 0 && module[n] == '.') return true;
    }
    return false;
}

/* The matrix in weight slot `slot`, the checkpoint's module of the layer, in the type that the model has it in: F8E4M3
 * brings its scales, which are cut like it. */
static void dense_type(build *b, const dense_config *c, op_spec *op, int slot, const char *module) {
    const op_desc *desc = op_find(op->kind);
    const weight_spec *w = &op->weight[slot];
    const char *name = build_text(b, "model.layers.%d.%s", b->layer, module);
    if (!op->typed) {
        for (int i = 0; i < GRAPH_WEIGHTS; i++) op->weight_dtype[i] = c->weight_dtype;
    }
    op->typed = true;
    if (!c->fp8 || !desc || !desc->scale[slot] || unconverted(c, name)) return;
    int at = desc->scale[slot];
    op->weight_dtype[slot] = DTYPE_F8E4M3;
    op->weight_dtype[at] = DTYPE_F32;
    op->weight[at] = (weight_spec){.key = build_text(b, "%s.weight_scale_inv", name),
                                   .dim = {fp8_blocks(w->dim[0]), fp8_blocks(w->dim[1])},
                                   .shard = w->shard,
                                   .shard_dim = w->shard_dim};
    for (int i = 0; i < at; i++) { /* holes */
        if (!op->weight[i].key) op->weight[i].key = "";
    }
}

/* name is the op's ("attn.q_proj"), module the checkpoint's ("self_attn.q_proj"). A residual makes it linear_residual.
 * The bias of a column-parallel weight is cut with it; that of a row-parallel one is whole and added once. */
static int dense_linear(build *b, const dense_config *c, const char *name, const char *module, int x, int residual,
                        int64_t n, int64_t k, shard_rule shard, bool bias) {
    op_spec op = {.kind = residual ? "linear_residual" : "linear", .name = name, .in = {x, residual}};
    op.weight[0] = (weight_spec){.key = build_text(b, "model.layers.%d.%s.weight", b->layer, module),
                                 .dim = {n, k},
                                 .shard = shard,
                                 .shard_dim = 0};
    op.weight[0].shard_dim = shard == SHARD_ROW ? 1 : 0;
    if (bias) {
        op.weight[1] = (weight_spec){.key = build_text(b, "model.layers.%d.%s.bias", b->layer, module),
                                     .dim = {n},
                                     .shard = SHARD_REP,
                                     .shard_dim = 0};
        if (shard == SHARD_COL) op.weight[1].shard = SHARD_COL;
    }
    dense_type(b, c, &op, 0, module);
    return build_op(b, op);
}

int dense_embedding(build *b, const dense_config *c) {
    op_spec op = {.kind = "embedding", .name = "embed"};
    op.weight[0] = (weight_spec){
        .key = "model.embed_tokens.weight", .dim = {c->vocab, c->hidden}, .shard = SHARD_REP, .shard_dim = 0};
    return build_op(b, op);
}

int dense_rope(build *b, const dense_config *c) {
    op_spec op = {.kind = "rope_table", .name = "rope"};
    op.in[0] = build_const(b, "rope.inv_freq", c->rope.inv_freq, c->rope.half);
    op.attr[0] = (graph_attr){"attention_factor", c->rope.attention_factor};
    return build_op(b, op);
}

int dense_attention(build *b, const dense_config *c, int x, int rope_table) {
    int64_t q_width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
    int y = dense_norm(b, c, "attn.norm", layer_key(b, "input_layernorm.weight"), x, false);
    int q =
        dense_linear(b, c, "attn.q_proj", "self_attn.q_proj", y, 0, q_width, c->hidden, SHARD_COL, c->attention_bias);
    int k =
        dense_linear(b, c, "attn.k_proj", "self_attn.k_proj", y, 0, kv_width, c->hidden, SHARD_COL, c->attention_bias);
    int v =
        dense_linear(b, c, "attn.v_proj", "self_attn.v_proj", y, 0, kv_width, c->hidden, SHARD_COL, c->attention_bias);
    int cache_k = build_cache(b, "attn.cache_k", c->kv_heads, c->head_dim);
    int cache_v = build_cache(b, "attn.cache_v", c->kv_heads, c->head_dim);

    op_spec op = {.kind = "attention", .name = "attn", .in = {q, k, v, rope_table, cache_k, cache_v}};
    op.attr[0] = (graph_attr){"q_heads", (double)c->heads};
    op.attr[1] = (graph_attr){"kv_heads", (double)c->kv_heads};
    op.attr[2] = (graph_attr){"head_dim", (double)c->head_dim};
    op.attr[3] = (graph_attr){"scale", 1.0 / sqrt((double)c->head_dim)};
    if (c->qk_norm) {
        op.weight[0] = (weight_spec){
            .key = layer_key(b, "self_attn.q_norm.weight"), .dim = {c->head_dim}, .shard = SHARD_REP, .shard_dim = 0};
        op.weight[1] = (weight_spec){
            .key = layer_key(b, "self_attn.k_norm.weight"), .dim = {c->head_dim}, .shard = SHARD_REP, .shard_dim = 0};
        op.attr[4] = (graph_attr){"eps", c->eps};
    }
    int a = build_op(b, op);
    return dense_linear(b, c, "attn.o_proj", "self_attn.o_proj", a, x, c->hidden, q_width, SHARD_ROW,
                        c->attention_bias);
}

int dense_mlp(build *b, const dense_config *c, int x) {
    int64_t n = c->intermediate;
    int y = dense_norm(b, c, "mlp.norm", layer_key(b, "post_attention_layernorm.weight"), x, false);
    int gate = dense_linear(b, c, "mlp.gate_proj", "mlp.gate_proj", y, 0, n, c->hidden, SHARD_COL, c->mlp_bias);
    int up = dense_linear(b, c, "mlp.up_proj", "mlp.up_proj", y, 0, n, c->hidden, SHARD_COL, c->mlp_bias);
    int act = build_op(b, (op_spec){.kind = "silu_mul", .name = "mlp.act", .in = {gate, up}});
    return dense_linear(b, c, "mlp.down_proj", "mlp.down_proj", act, x, c->hidden, n, SHARD_ROW, c->mlp_bias);
}

void dense_tail(build *b, const dense_config *c, int x, bool sample) {
    int y = dense_norm(b, c, "final.norm", "model.norm.weight", x, true);
    op_spec op = {.kind = "linear", .name = "lm_head", .in = {y}};
    op.weight[0] =
        (weight_spec){.key = "lm_head.weight", .dim = {c->vocab, c->hidden}, .shard = SHARD_COL, .shard_dim = 0};
    if (c->tied) { /* one tensor, one rule: the embedding's */
        op.weight[0].key = "model.embed_tokens.weight";
        op.weight[0].shard = SHARD_REP;
    }
    build_tail(b, build_op(b, op), sample);
}

keel_status dense_build(const dense_arch *arch, const json_t *config, const char *file, const model_options *opts,
                        graph **out, keel_error *err) {
    dense_config c;
    int first, last;
    KEEL_TRY(dense_read(arch, config, file, &c, err));
    if (opts && opts->quant == QUANT_FP8) c.fp8 = true;
    KEEL_TRY(model_slice(opts, c.n_layers, file, &first, &last, err));
    build b;
    if (build_begin(&b, file, arch->architecture, c.weight_dtype, err) == KEEL_OK) {
        b.g->n_layers = last - first + 1;
        b.g->layer_first = first;
        b.g->vocab = c.vocab;
        b.g->hidden = c.hidden;
        b.g->max_position = c.max_position;
    }
    int x = dense_embedding(&b, &c), rope_table = dense_rope(&b, &c);
    for (b.layer = first; b.layer <= last; b.layer++) {
        x = dense_attention(&b, &c, x, rope_table);
        x = dense_mlp(&b, &c, x);
    }
    b.layer = -1;
    dense_tail(&b, &c, x, opts && opts->sample);
    return build_finish(&b, out);
}
