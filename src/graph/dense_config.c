/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/dense.h"

#include <string.h>

enum {
    DENSE_MAX_LAYERS = 1024,
    DENSE_MAX_DIM = 1 << 24,
    DENSE_MAX_HEADS = 1 << 16,
    DENSE_MAX_POSITION = 0x7fffffff,
};

static keel_status read_dtype(const json_t *config, const char *file, dtype *out, keel_error *err) {
    static const struct {
        const char *name;
        dtype type;
    } table[] = {{"bfloat16", DTYPE_BF16}, {"float16", DTYPE_F16}, {"float32", DTYPE_F32}};
    const char *key = "dtype", *name = NULL;
    KEEL_TRY(json_opt_string(file, config, key, &name, err));
    if (!name) KEEL_TRY(json_opt_string(file, config, key = "torch_dtype", &name, err));
    *out = DTYPE_BF16;
    if (!name) return KEEL_OK;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(name, table[i].name) == 0) {
            *out = table[i].type;
            return KEEL_OK;
        }
    }
    return error_set(err, KEEL_UNSUPPORTED, "%s: \"%s\" is \"%s\"; known: bfloat16, float16, float32", file, key, name);
}

/* What config.json may ask for and this decoder does not do. */
static keel_status refuse_layer_types(const json_t *config, const char *file, keel_error *err) {
    const json_t *types = json_object_get(config, "layer_types");
    if (!types || json_is_null(types)) return KEEL_OK;
    if (!json_is_array(types)) return error_set(err, KEEL_FORMAT, "%s: \"layer_types\" must be a list", file);
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *name = json_string_value(json_array_get(types, i));
        if (!name) return error_set(err, KEEL_FORMAT, "%s: \"layer_types\"[%zu] must be a string", file, i);
        if (strcmp(name, "full_attention") != 0) {
            return error_set(err, KEEL_UNSUPPORTED, "%s: \"layer_types\"[%zu] is \"%s\"; only full_attention is known",
                             file, i, name);
        }
    }
    return KEEL_OK;
}

static keel_status refuse_features(const json_t *config, const char *file, keel_error *err) {
    const char *act = "silu";
    KEEL_TRY(json_opt_string(file, config, "hidden_act", &act, err));
    if (strcmp(act, "silu") != 0) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: \"hidden_act\" is \"%s\"; only silu is known", file, act);
    }
    int64_t window = 0;
    bool windowed = true;
    KEEL_TRY(json_opt_int(file, config, "sliding_window", 0, DENSE_MAX_POSITION, &window, err));
    KEEL_TRY(json_opt_bool(file, config, "use_sliding_window", &windowed, err));
    if (window && windowed) {
        return error_set(err, KEEL_UNSUPPORTED, "%s: \"sliding_window\" is %lld; only full attention is known", file,
                         (long long)window);
    }
    return refuse_layer_types(config, file, err);
}

/* "quantization_config", in the form of the FP8 checkpoints of DeepSeek-V3 and Qwen3: weights by blocks; how their own
 * runtimes quantise activations is nothing to us, who do not. */
static keel_status read_blocks(const json_t *q, const char *file, keel_error *err) {
    const char *method = NULL, *fmt = "e4m3";
    KEEL_TRY(json_opt_string(file, q, "quant_method", &method, err));
    KEEL_TRY(json_opt_string(file, q, "fmt", &fmt, err));
    if (!method || strcmp(method, "fp8") != 0)
        return error_set(err, KEEL_UNSUPPORTED,
                         "%s: \"quantization_config\" (%s): of quantized weights only fp8 in blocks is known", file,
                         method ? method : "no quant_method");
    if (strcmp(fmt, "e4m3") != 0)
        return error_set(err, KEEL_UNSUPPORTED, "%s: \"quantization_config\": \"fmt\" is \"%s\"; only e4m3 is known",
                         file, fmt);
    const json_t *size = json_object_get(q, "weight_block_size");
    for (size_t i = 0; i < 2; i++) {
        if (json_array_size(size) == 2 && json_integer_value(json_array_get(size, i)) == FP8_BLOCK) continue;
        return error_set(err, KEEL_UNSUPPORTED,
                         "%s: \"quantization_config\": \"weight_block_size\" must be [%d, %d]; other scales of fp8 are "
                         "not known",
                         file, FP8_BLOCK, FP8_BLOCK);
    }
    return KEEL_OK;
}

static keel_status read_quantization(const json_t *config, const char *file, dense_config *c, keel_error *err) {
    const json_t *q = json_object_get(config, "quantization_config");
    if (!q || json_is_null(q)) return KEEL_OK;
    KEEL_TRY(read_blocks(q, file, err));
    c->fp8 = true;
    const json_t *list = json_object_get(q, "modules_to_not_convert");
    if (!list || json_is_null(list)) return KEEL_OK;
    bool good = json_is_array(list);
    for (size_t i = 0; good && i < json_array_size(list); i++) good = json_is_string(json_array_get(list, i));
    if (!good)
        return error_set(err, KEEL_FORMAT, "%s: \"modules_to_not_convert\" must be a list of names of modules", file);
    c->unconverted = list;
    return KEEL_OK;
}

static keel_status read_heads(const dense_arch *arch, const json_t *config, const char *file, dense_config *c,
                              keel_error *err) {
    KEEL_TRY(json_get_int(file, config, "num_attention_heads", 1, DENSE_MAX_HEADS, &c->heads, err));
    c->kv_heads = c->heads;
    KEEL_TRY(json_opt_int(file, config, "num_key_value_heads", 1, DENSE_MAX_HEADS, &c->kv_heads, err));
    if (c->heads % c->kv_heads) {
        return error_set(err, KEEL_RANGE,
                         "%s: \"num_attention_heads\", %lld, is no multiple of \"num_key_value_heads\", %lld", file,
                         (long long)c->heads, (long long)c->kv_heads);
    }
    c->head_dim = arch->head_dim;
    KEEL_TRY(json_opt_int(file, config, "head_dim", 2, 2 * ROPE_MAX_HALF, &c->head_dim, err));
    if (!c->head_dim) {
        c->head_dim = c->hidden / c->heads;
        if (c->head_dim < 2 || c->head_dim > 2 * ROPE_MAX_HALF || c->hidden % c->heads) {
            return error_set(
                err, KEEL_RANGE,
                "%s: \"hidden_size\", %lld, over \"num_attention_heads\", %lld, gives no head_dim in 2..%d", file,
                (long long)c->hidden, (long long)c->heads, 2 * ROPE_MAX_HALF);
        }
    }
    if (c->heads * c->head_dim > DENSE_MAX_DIM) {
        return error_set(err, KEEL_RANGE, "%s: \"num_attention_heads\" × \"head_dim\" is %lld, more than %d", file,
                         (long long)(c->heads * c->head_dim), DENSE_MAX_DIM);
    }
    return KEEL_OK;
}

static keel_status read_sizes(const json_t *config, const char *file, dense_config *c, keel_error *err) {
    KEEL_TRY(json_get_int(file, config, "vocab_size", 1, DENSE_MAX_DIM, &c->vocab, err));
    KEEL_TRY(json_get_int(file, config, "hidden_size", 1, DENSE_MAX_DIM, &c->hidden, err));
    KEEL_TRY(json_get_int(file, config, "intermediate_size", 1, DENSE_MAX_DIM, &c->intermediate, err));
    KEEL_TRY(json_get_int(file, config, "num_hidden_layers", 1, DENSE_MAX_LAYERS, &c->n_layers, err));
    KEEL_TRY(json_get_int(file, config, "max_position_embeddings", 1, DENSE_MAX_POSITION, &c->max_position, err));
    c->eps = 1e-6;
    KEEL_TRY(json_opt_real(file, config, "rms_norm_eps", &c->eps, err));
    if (!(c->eps > 0 && c->eps <= 1)) {
        return error_set(err, KEEL_RANGE, "%s: \"rms_norm_eps\" is %g, outside 0 (exclusive) … 1", file, c->eps);
    }
    return KEEL_OK;
}

keel_status dense_read(const dense_arch *arch, const json_t *config, const char *file, dense_config *out,
                       keel_error *err) {
    dense_config c = {.qk_norm = arch->qk_norm};
    KEEL_TRY(refuse_features(config, file, err));
    KEEL_TRY(read_quantization(config, file, &c, err));
    KEEL_TRY(read_sizes(config, file, &c, err));
    KEEL_TRY(read_heads(arch, config, file, &c, err));
    KEEL_TRY(json_opt_bool(file, config, "attention_bias", &c.attention_bias, err));
    if (arch->mlp_bias) KEEL_TRY(json_opt_bool(file, config, "mlp_bias", &c.mlp_bias, err));
    KEEL_TRY(json_opt_bool(file, config, "tie_word_embeddings", &c.tied, err));
    KEEL_TRY(read_dtype(config, file, &c.weight_dtype, err));
    KEEL_TRY(rope_from_config(config, file, c.head_dim, &c.rope, err));
    if (2 * c.rope.half != c.head_dim) {
        return error_set(err, KEEL_UNSUPPORTED,
                         "%s: \"partial_rotary_factor\": %d of %lld elements of a head rotate; "
                         "only whole heads are known",
                         file, 2 * c.rope.half, (long long)c.head_dim);
    }
    *out = c;
    return KEEL_OK;
}
