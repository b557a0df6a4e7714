/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF metadata to config.json and generation_config.json in Hugging Face's spelling. Keys: ggml's docs/gguf.md. */
#include "load/gguf_internal.h"

#include "core/json.h"
#include "core/buf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 96, MAX_LAYERS = 4096 };

/* "llama" + ".block_count" */
static const char *arch_key(const gguf_model *m, const char *key, char *text) {
    snprintf(text, KEY_BYTES, "%s.%s", m->arch, key);
    return text;
}

static keel_status arch_int(const gguf *g, const gguf_model *m, const char *name, int64_t hi, int64_t *out,
                            keel_error *err) {
    char key[KEY_BYTES];
    return gguf_opt_int(g, arch_key(m, name, key), 1, hi, out, err);
}

/* The shortest decimal that reads back as the same float, as a double: 1e-5f is 1e-05 in the JSON, not 9.99999975e-06.
 */
static double shortest(double v) {
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if ((float)strtod(text, NULL) == (float)v) return strtod(text, NULL);
    }
    return v;
}

static keel_status arch_real(const gguf *g, const gguf_model *m, const char *name, double *out, keel_error *err) {
    char key[KEY_BYTES];
    KEEL_TRY(gguf_opt_real(g, arch_key(m, name, key), out, err));
    if (!isfinite(*out) || *out < 0) {
        return error_set(err, KEEL_RANGE, "%s: metadata key %s: must be finite and not negative", g->file, key);
    }
    *out = shortest(*out);
    return KEEL_OK;
}

static keel_status arch_read(const gguf *g, gguf_model *m, keel_error *err) {
    gguf_string arch = {"", 0};
    KEEL_TRY(gguf_opt_string(g, "general.architecture", &arch, err));
    static const char *const known[] = {"llama", "qwen3"};
    for (size_t i = 0; i < 2; i++) {
        if (arch.bytes == strlen(known[i]) && memcmp(arch.text, known[i], arch.bytes) == 0) m->arch = known[i];
    }
    if (m->arch) return KEEL_OK;
    return error_set(err, KEEL_UNSUPPORTED, "%s: general.architecture is \"%.*s\"; llama and qwen3 can be converted",
                     g->file, (int)(arch.bytes < 64 ? arch.bytes : 64), arch.text);
}

static keel_status sizes_read(const gguf *g, gguf_model *m, keel_error *err) {
    int64_t value_dim = 0, rotary = 0, experts = 0;
    char key[KEY_BYTES];
    KEEL_TRY(arch_int(g, m, "block_count", MAX_LAYERS, &m->layers, err));
    KEEL_TRY(arch_int(g, m, "embedding_length", 1 << 24, &m->hidden, err));
    KEEL_TRY(arch_int(g, m, "feed_forward_length", 1 << 24, &m->ffn, err));
    KEEL_TRY(arch_int(g, m, "attention.head_count", 1 << 16, &m->heads, err));
    KEEL_TRY(arch_int(g, m, "context_length", INT64_C(1) << 40, &m->context, err));
    if (!m->layers || !m->hidden || !m->ffn || !m->heads || !m->context) {
        return error_set(err, KEEL_MISSING,
                         "%s: one of %s.block_count, embedding_length, feed_forward_length, attention.head_count and "
                         "context_length is missing",
                         g->file, m->arch);
    }
    m->kv_heads = m->heads;
    KEEL_TRY(arch_int(g, m, "attention.head_count_kv", m->heads, &m->kv_heads, err));
    m->head_dim = m->hidden / m->heads;
    KEEL_TRY(arch_int(g, m, "attention.key_length", 1 << 16, &m->head_dim, err));
    value_dim = rotary = m->head_dim;
    KEEL_TRY(arch_int(g, m, "attention.value_length", 1 << 16, &value_dim, err));
    KEEL_TRY(arch_int(g, m, "rope.dimension_count", 1 << 16, &rotary, err));
    KEEL_TRY(gguf_opt_int(g, arch_key(m, "expert_count", key), 0, INT32_MAX, &experts, err));
    if (experts)
        return error_set(err, KEEL_UNSUPPORTED, "%s: %lld experts; dense models only", g->file, (long long)experts);
    if (value_dim != m->head_dim || rotary != m->head_dim || m->head_dim % 2 || m->heads % m->kv_heads) {
        return error_set(
            err, KEEL_UNSUPPORTED,
            "%s: %lld and %lld heads of key %lld, value %lld, rotary %lld: key, value and rotary size must be "
            "the same even number, and kv heads divide heads",
            g->file, (long long)m->heads, (long long)m->kv_heads, (long long)m->head_dim, (long long)value_dim,
            (long long)rotary);
    }
    return KEEL_OK;
}

/* llama3 scaling arrives as the tensor rope_freqs.weight, [head_dim / 2] divisors of the frequencies. The parameters
 * behind it are not stored; all published models use low 1, high 4 and an original context of 8192, and the factor is
 * the largest divisor. Whether that is what made the tensor is checked (formula: transformers,
 * _compute_llama3_parameters). */
static bool is_llama3(const gguf_model *m, const uint8_t *data, double factor, double low, double high,
                      double original) {
    const double turn = 6.283185307179586;
    for (int64_t i = 0; i < m->head_dim / 2; i++) {
        uint32_t u = le32(data + 4 * i);
        float divisor;
        memcpy(&divisor, &u, sizeof divisor);
        double wavelength = turn * pow(m->rope_theta, 2.0 * (double)i / (double)m->head_dim), want;
        if (wavelength < original / high) {
            want = 1;
        } else if (wavelength > original / low) {
            want = factor;
        } else {
            double smooth = (original / wavelength - low) / (high - low);
            want = 1 / ((1 - smooth) / factor + smooth);
        }
        if (!(fabs((double)divisor - want) <= 1e-4 * want)) return false;
    }
    return true;
}

static keel_status rope_freqs_read(const gguf *g, gguf_model *m, keel_error *err) {
    const gguf_tensor *t = gguf_tensor_find(g, "rope_freqs.weight");
    if (!t) return KEEL_OK;
    if (t->type != 0 || t->rank != 1 || t->dim[0] != (uint64_t)(m->head_dim / 2)) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: tensor rope_freqs.weight: must be %lld F32 values", g->file,
                         (long long)(m->head_dim / 2));
    }
    double factor = 1;
    for (int64_t i = 0; i < m->head_dim / 2; i++) {
        uint32_t u = le32(t->data + 4 * i);
        float divisor;
        memcpy(&divisor, &u, sizeof divisor);
        if ((double)divisor > factor) factor = (double)divisor;
    }
    if (!isfinite(factor) || !is_llama3(m, t->data, factor, 1, 4, 8192)) {
        return error_set(
            err, KEEL_UNSUPPORTED,
            "%s: tensor rope_freqs.weight: not the llama3 scaling of low 1, high 4, original context 8192; "
            "convert from the original checkpoint instead",
            g->file);
    }
    if (factor == 1) return KEEL_OK;
    if (m->rope_scaling) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: both rope_freqs.weight and rope.scaling are there", g->file);
    }
    m->rope_scaling =
        json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", shortest(factor), "low_freq_factor",
                  1.0, "high_freq_factor", 4.0, "original_max_position_embeddings", 8192);
    return m->rope_scaling ? KEEL_OK : KEEL_NOMEM_AT(err, g->file);
}

static bool same(gguf_string s, const char *word) {
    return s.bytes == strlen(word) && memcmp(s.text, word, s.bytes) == 0;
}

static keel_status yarn_read(const gguf *g, gguf_model *m, double factor, keel_error *err) {
    int64_t original = 0;
    double attention = 0, fast = 0, slow = 0, log_multiplier = 0;
    KEEL_TRY(arch_int(g, m, "rope.scaling.original_context_length", INT64_C(1) << 40, &original, err));
    KEEL_TRY(arch_real(g, m, "rope.scaling.attn_factor", &attention, err));
    KEEL_TRY(arch_real(g, m, "rope.scaling.yarn_beta_fast", &fast, err));
    KEEL_TRY(arch_real(g, m, "rope.scaling.yarn_beta_slow", &slow, err));
    KEEL_TRY(arch_real(g, m, "rope.scaling.yarn_log_multiplier", &log_multiplier, err));
    if (!original || log_multiplier > 0 || (attention > 0 && attention != 1)) {
        return error_set(err, KEEL_UNSUPPORTED,
                         "%s: yarn scaling without an original context length, or with an attention factor or a log "
                         "multiplier of its own",
                         g->file);
    }
    m->rope_scaling = json_pack("{s:s, s:f, s:I}", "rope_type", "yarn", "factor", factor,
                                "original_max_position_embeddings", (json_int_t)original);
    if (!m->rope_scaling || (fast > 0 && json_object_set_new(m->rope_scaling, "beta_fast", json_real(fast)) != 0) ||
        (slow > 0 && json_object_set_new(m->rope_scaling, "beta_slow", json_real(slow)) != 0)) {
        return KEEL_NOMEM_AT(err, g->file);
    }
    return KEEL_OK;
}

static keel_status rope_read(const gguf *g, gguf_model *m, keel_error *err) {
    char key[KEY_BYTES];
    gguf_string type = {"none", 4};
    double factor = 0, old_factor = 0;
    m->rope_theta = 10000;
    KEEL_TRY(arch_real(g, m, "rope.freq_base", &m->rope_theta, err));
    KEEL_TRY(gguf_opt_string(g, arch_key(m, "rope.scaling.type", key), &type, err));
    KEEL_TRY(arch_real(g, m, "rope.scaling.factor", &factor, err));
    KEEL_TRY(arch_real(g, m, "rope.scale_linear", &old_factor, err));
    if (same(type, "none") && old_factor > 0 && old_factor != 1) {
        type = (gguf_string){"linear", 6};
        factor = old_factor;
    }
    if (same(type, "linear") && factor > 0) {
        if (factor != 1) m->rope_scaling = json_pack("{s:s, s:f}", "rope_type", "linear", "factor", factor);
        if (factor != 1 && !m->rope_scaling) return KEEL_NOMEM_AT(err, g->file);
    } else if (same(type, "yarn") && factor > 0) {
        KEEL_TRY(yarn_read(g, m, factor, err));
    } else if (!same(type, "none")) {
        return error_set(err, KEEL_UNSUPPORTED,
                         "%s: metadata key %s.rope.scaling.type is \"%.*s\" with factor %g; none, "
                         "linear and yarn are supported",
                         g->file, m->arch, (int)(type.bytes < 32 ? type.bytes : 32), type.text, factor);
    }
    return rope_freqs_read(g, m, err);
}

keel_status gguf_model_read(const gguf *g, gguf_model *m, keel_error *err) {
    KEEL_TRY(arch_read(g, m, err));
    KEEL_TRY(sizes_read(g, m, err));
    m->rms_eps = 1e-5;
    KEEL_TRY(arch_real(g, m, "attention.layer_norm_rms_epsilon", &m->rms_eps, err));
    KEEL_TRY(rope_read(g, m, err));
    const gguf_tensor *e = gguf_tensor_find(g, "token_embd.weight");
    if (!e)
        return error_set(err, KEEL_MISSING, "%s: tensor token_embd.weight is missing; is this a vocabulary only?",
                         g->file);
    if (e->dim[1] > INT32_MAX) return error_set(err, KEEL_RANGE, "%s: more than 2^31 tokens", g->file);
    m->vocab = (int64_t)e->dim[1];
    m->tied = !gguf_tensor_find(g, "output.weight");
    m->attention_bias = gguf_tensor_find(g, "blk.0.attn_q.bias") != NULL;
    return KEEL_OK;
}

void gguf_model_free(gguf_model *m) { json_decref(m->rope_scaling); }

keel_status gguf_json_write(const char *dir, const char *name, json_t *root, size_t flags, keel_error *err) {
    char *path = path_join(dir, name);
    keel_status status =
        path && root ? json_write(path, root, flags | JSON_REAL_PRECISION(9), err) : KEEL_NOMEM_AT(err, name);
    json_decref(root);
    keel_free(path);
    return status;
}

/* Adds key: id when the file names one inside the vocabulary. */
static keel_status token_id(const gguf *g, const gguf_model *m, const char *which, int64_t *id, keel_error *err) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", which);
    return gguf_opt_int(g, key, 0, m->vocab - 1, id, err);
}

static json_t *id_or_null(int64_t id) { return id < 0 ? json_null() : json_integer(id); }

static keel_status generation_write(const gguf *g, const gguf_model *m, const char *dir, int64_t bos, int64_t eos,
                                    keel_error *err) {
    int64_t others[2] = {-1, -1};
    KEEL_TRY(token_id(g, m, "eot", &others[0], err));
    KEEL_TRY(token_id(g, m, "eom", &others[1], err));
    json_t *ids = json_array();
    if (eos >= 0) json_array_append_new(ids, json_integer(eos));
    for (int i = 0; i < 2; i++) {
        if (others[i] >= 0 && others[i] != eos && (i == 0 || others[1] != others[0])) {
            json_array_append_new(ids, json_integer(others[i]));
        }
    }
    if (json_array_size(ids) == 1) {
        json_decref(ids);
        ids = json_integer(eos >= 0 ? eos : others[0] >= 0 ? others[0] : others[1]);
    }
    json_t *root = json_pack("{s:o, s:o}", "bos_token_id", id_or_null(bos), "eos_token_id", ids);
    return gguf_json_write(dir, "generation_config.json", root, JSON_INDENT(2), err);
}

keel_status gguf_config_write(const gguf *g, const gguf_model *m, dtype to, const char *dir, keel_error *err) {
    int64_t bos = -1, eos = -1;
    KEEL_TRY(token_id(g, m, "bos", &bos, err));
    KEEL_TRY(token_id(g, m, "eos", &eos, err));
    json_t *root = json_pack(
        "{s:[s], s:b, s:f, s:o, s:o, s:I, s:s, s:I, s:f, s:I, s:b, s:s, s:I, s:I, s:I, s:f, s:O?, s:f, s:b, s:s, s:b, "
        "s:I}",
        "architectures", strcmp(m->arch, "llama") == 0 ? "LlamaForCausalLM" : "Qwen3ForCausalLM", "attention_bias",
        (int)m->attention_bias, "attention_dropout", 0.0, "bos_token_id", id_or_null(bos), "eos_token_id",
        id_or_null(eos), "head_dim", (json_int_t)m->head_dim, "hidden_act", "silu", "hidden_size",
        (json_int_t)m->hidden, "initializer_range", 0.02, "intermediate_size", (json_int_t)m->ffn, "mlp_bias", 0,
        "model_type", m->arch, "num_attention_heads", (json_int_t)m->heads, "num_hidden_layers", (json_int_t)m->layers,
        "num_key_value_heads", (json_int_t)m->kv_heads, "rms_norm_eps", m->rms_eps, "rope_scaling", m->rope_scaling,
        "rope_theta", m->rope_theta, "tie_word_embeddings", (int)m->tied, "torch_dtype",
        to == DTYPE_BF16 ? "bfloat16" : "float32", "use_cache", 1, "vocab_size", (json_int_t)m->vocab);
    if (root && json_object_set_new(root, "max_position_embeddings", json_integer(m->context)) != 0) {
        json_decref(root);
        root = NULL;
    }
    KEEL_TRY(gguf_json_write(dir, "config.json", root, JSON_INDENT(2), err));
    return generation_write(g, m, dir, bos, eos, err);
}
