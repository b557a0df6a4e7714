/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas, their order of operations and their precision are those of transformers 5
 * (src/transformers/modeling_rope_utils.py): tensors are f32, scalars are double and rounded to f32 where they meet a
 * tensor, and scalar / tensor is reciprocal × scalar. A difference in the last bit of a frequency is a phase of
 * position × 2^-24, which at long contexts shows. */
#include "graph/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Where the values stand: config.json itself, and the object in it that describes the scaling (may be NULL). */
typedef struct rope_source {
    const json_t *config, *dict;
    const char *file;
    char dict_where[512]; /* "config.json: rope_scaling" */
    const char *type;
    double base;
    int dim;
    keel_error *err;
} rope_source;

/* A number in (0, hi] from the scaling object; an absent one leaves *out, or is KEEL_MISSING when required. */
static keel_status dict_real(const rope_source *s, const char *key, double hi, bool required, double *out) {
    const json_t *v = json_object_get(s->dict, key);
    if (!v || json_is_null(v)) {
        if (!required) return KEEL_OK;
        return error_set(s->err, KEEL_MISSING, "%s: \"%s\" is missing (rope type %s needs it)", s->dict_where, key,
                         s->type);
    }
    double x = 0;
    KEEL_TRY(json_opt_real(s->dict_where, s->dict, key, &x, s->err));
    if (!(x > 0 && x <= hi)) {
        return error_set(s->err, KEEL_RANGE, "%s: \"%s\" is %g, outside 0 (exclusive) … %g", s->dict_where, key, x, hi);
    }
    *out = x;
    return KEEL_OK;
}

enum { ROPE_MAX_POSITION = 0x7fffffff };
static const double rope_max_factor = 1e6, rope_max_base = 1e15;

/* The outer key wins over the inner one, and max_position_embeddings stands in (standardize_rope_params). */
static keel_status original_positions(const rope_source *s, double *out) {
    int64_t n = 0;
    KEEL_TRY(json_opt_int(s->file, s->config, "original_max_position_embeddings", 1, ROPE_MAX_POSITION, &n, s->err));
    if (!n) {
        KEEL_TRY(
            json_opt_int(s->dict_where, s->dict, "original_max_position_embeddings", 1, ROPE_MAX_POSITION, &n, s->err));
    }
    if (!n) {
        KEEL_TRY(json_get_int(s->file, s->config, "max_position_embeddings", 1, ROPE_MAX_POSITION, &n, s->err));
    }
    *out = (double)n;
    return KEEL_OK;
}

/* base ** (2i / dim) */
static float power_of(double base, int dim, int i) {
    float exponent = (float)(2 * i) / (float)dim;
    return (float)pow((double)(float)base, (double)exponent);
}

static float position_frequency(const rope_source *s, int i) { return power_of(s->base, s->dim, i); }

void rope_plain(double theta, int half, float *inv_freq) {
    for (int i = 0; i < half; i++) inv_freq[i] = 1.0f / power_of(theta, 2 * half, i);
}

static keel_status rope_default(const rope_source *s, rope *out) {
    rope_plain(s->base, out->half, out->inv_freq);
    return KEEL_OK;
}

static keel_status rope_linear(const rope_source *s, rope *out) {
    double factor = 1;
    KEEL_TRY(dict_real(s, "factor", rope_max_factor, true, &factor));
    for (int i = 0; i < out->half; i++) out->inv_freq[i] = 1.0f / position_frequency(s, i) / (float)factor;
    return KEEL_OK;
}

static keel_status rope_llama3(const rope_source *s, rope *out) {
    double factor = 1, low = 1, high = 4, positions = 1;
    KEEL_TRY(dict_real(s, "factor", rope_max_factor, true, &factor));
    KEEL_TRY(dict_real(s, "low_freq_factor", rope_max_factor, true, &low));
    KEEL_TRY(dict_real(s, "high_freq_factor", rope_max_factor, true, &high));
    KEEL_TRY(original_positions(s, &positions));
    if (high <= low) {
        return error_set(s->err, KEEL_RANGE, "%s: \"high_freq_factor\" is %g, not above \"low_freq_factor\", %g",
                         s->dict_where, high, low);
    }
    float low_wavelength = (float)(positions / low), high_wavelength = (float)(positions / high);
    for (int i = 0; i < out->half; i++) {
        float f = 1.0f / position_frequency(s, i);
        float wavelength = 1.0f / f * (float)(2 * M_PI);
        float scaled = wavelength > low_wavelength ? f / (float)factor : f;
        if (!(wavelength < high_wavelength) && !(wavelength > low_wavelength)) {
            float turns = 1.0f / wavelength * (float)positions;
            float smooth = (turns - (float)low) / (float)(high - low);
            float slow = (1.0f - smooth) * scaled / (float)factor, fast = smooth * scaled;
            scaled = slow + fast;
        }
        out->inv_freq[i] = scaled;
    }
    return KEEL_OK;
}

/* The factor by which YaRN scales attention logits, from the paper (arXiv 2309.00071, §3.4). */
static double yarn_mscale(double scale, double mscale) { return scale <= 1 ? 1.0 : 0.1 * mscale * log(scale) + 1.0; }

static keel_status yarn_attention_factor(const rope_source *s, double factor, double *out) {
    const double hi = rope_max_factor;
    double given = 0, mscale = 0, mscale_all_dim = 0;
    KEEL_TRY(dict_real(s, "attention_factor", hi, false, &given));
    KEEL_TRY(json_opt_real(s->dict_where, s->dict, "mscale", &mscale, s->err));
    KEEL_TRY(json_opt_real(s->dict_where, s->dict, "mscale_all_dim", &mscale_all_dim, s->err));
    if (given > 0) {
        *out = given;
    } else if (mscale != 0 && mscale_all_dim != 0) {
        *out = yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim);
    } else {
        *out = yarn_mscale(factor, 1);
    }
    if (*out > 0 && *out <= hi) return KEEL_OK;
    return error_set(s->err, KEEL_RANGE, "%s: \"mscale\" and \"mscale_all_dim\" make an attention factor of %g",
                     s->dict_where, *out);
}

/* The pair of frequency indices between which YaRN goes over from extrapolation to interpolation. */
static keel_status yarn_range(const rope_source *s, double positions, double *low, double *high) {
    double beta[2] = {0, 0}; /* fast, slow; 0 is the default too, as in the reference */
    bool truncate = true;
    KEEL_TRY(json_opt_real(s->dict_where, s->dict, "beta_fast", &beta[0], s->err));
    KEEL_TRY(json_opt_real(s->dict_where, s->dict, "beta_slow", &beta[1], s->err));
    KEEL_TRY(json_opt_bool(s->dict_where, s->dict, "truncate", &truncate, s->err));
    if (beta[0] == 0) beta[0] = 32;
    if (beta[1] == 0) beta[1] = 1;
    if (!(beta[1] > 0 && beta[0] >= beta[1] && beta[0] <= rope_max_factor)) {
        return error_set(s->err, KEEL_RANGE, "%s: \"beta_fast\" %g and \"beta_slow\" %g: need 0 < slow <= fast <= %g",
                         s->dict_where, beta[0], beta[1], rope_max_factor);
    }
    double at[2];
    for (int i = 0; i < 2; i++) {
        at[i] = s->dim * log(positions / (beta[i] * 2 * M_PI)) / (2 * log(s->base));
        if (truncate) at[i] = i == 0 ? floor(at[i]) : ceil(at[i]);
    }
    *low = fmax(at[0], 0);
    *high = fmin(at[1], s->dim - 1);
    if (*low == *high) *high += 0.001;
    return KEEL_OK;
}

static keel_status rope_yarn(const rope_source *s, rope *out) {
    double factor = 1, positions = 1, low = 0, high = 0;
    KEEL_TRY(original_positions(s, &positions));
    if (json_is_null(json_object_get(s->dict, "factor"))) { /* present and null: the ratio of the two lengths */
        int64_t longest = 0;
        KEEL_TRY(json_get_int(s->file, s->config, "max_position_embeddings", 1, ROPE_MAX_POSITION, &longest, s->err));
        factor = (double)longest / positions;
    } else {
        KEEL_TRY(dict_real(s, "factor", rope_max_factor, true, &factor));
    }
    KEEL_TRY(yarn_attention_factor(s, factor, &out->attention_factor));
    KEEL_TRY(yarn_range(s, positions, &low, &high));
    for (int i = 0; i < out->half; i++) {
        float frequency = position_frequency(s, i);
        float extrapolation = 1.0f / frequency, interpolation = 1.0f / ((float)factor * frequency);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        float keep = 1.0f - (ramp < 0 ? 0.0f : ramp > 1 ? 1.0f : ramp);
        float slow = interpolation * (1.0f - keep), fast = extrapolation * keep;
        out->inv_freq[i] = slow + fast;
    }
    return KEEL_OK;
}

typedef struct rope_kind {
    const char *name;
    keel_status (*compute)(const rope_source *s, rope *out);
} rope_kind;
static const rope_kind rope_kinds[] = {
    {"default", rope_default}, {"linear", rope_linear}, {"llama3", rope_llama3}, {"yarn", rope_yarn}};

/* Finds the scaling object: rope_scaling when it says anything, else rope_parameters (convert_rope_params_to_dict). */
static keel_status find_dict(rope_source *s) {
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_object_get(s->config, names[i]);
        if (!v || json_is_null(v)) continue;
        if (!json_is_object(v))
            return error_set(s->err, KEEL_FORMAT, "%s: \"%s\" must be an object", s->file, names[i]);
        if (!json_object_size(v)) continue;
        s->dict = v;
        snprintf(s->dict_where, sizeof s->dict_where, "%.400s: %s", s->file, names[i]);
        break;
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)s->dict, key, value) {
        if (json_is_object(value)) {
            return error_set(s->err, KEEL_UNSUPPORTED, "%s: \"%s\": parameters by layer type; this build has one rope",
                             s->dict_where, key);
        }
    }
    return KEEL_OK;
}

/* Type, base and rotary width; the inner object wins over the outer keys. */
static keel_status read_common(rope_source *s, int64_t rotary_dim) {
    double partial = 1;
    s->type = "default";
    s->base = 10000;
    KEEL_TRY(json_opt_string(s->dict_where, s->dict, "type", &s->type, s->err));
    KEEL_TRY(json_opt_string(s->dict_where, s->dict, "rope_type", &s->type, s->err));
    KEEL_TRY(json_opt_real(s->file, s->config, "rope_theta", &s->base, s->err));
    KEEL_TRY(json_opt_real(s->dict_where, s->dict, "rope_theta", &s->base, s->err));
    KEEL_TRY(json_opt_real(s->file, s->config, "partial_rotary_factor", &partial, s->err));
    KEEL_TRY(json_opt_real(s->dict_where, s->dict, "partial_rotary_factor", &partial, s->err));
    if (!(s->base > 1 && s->base <= rope_max_base)) {
        return error_set(s->err, KEEL_RANGE, "%s: \"rope_theta\" is %g, outside 1 (exclusive) … %g", s->file, s->base,
                         rope_max_base);
    }
    if (!(partial > 0 && partial <= 1)) {
        return error_set(s->err, KEEL_RANGE, "%s: \"partial_rotary_factor\" is %g, outside 0 (exclusive) … 1", s->file,
                         partial);
    }
    s->dim = rotary_dim > 2 * ROPE_MAX_HALF ? 0 : (int)((double)rotary_dim * partial);
    if (s->dim < 2 || s->dim % 2) {
        return error_set(s->err, KEEL_RANGE, "%s: %g of a head of %lld elements rotate; needs an even number in 2..%d",
                         s->file, (double)rotary_dim * partial, (long long)rotary_dim, 2 * ROPE_MAX_HALF);
    }
    return KEEL_OK;
}

keel_status rope_from_config(const json_t *config, const char *file, int64_t rotary_dim, rope *out, keel_error *err) {
    rope_source s = {.config = config, .file = file, .err = err};
    KEEL_TRY(find_dict(&s));
    KEEL_TRY(read_common(&s, rotary_dim));
    for (size_t i = 0; i < sizeof rope_kinds / sizeof *rope_kinds; i++) {
        if (strcmp(rope_kinds[i].name, s.type) != 0) continue;
        rope r = {.half = s.dim / 2, .attention_factor = 1};
        KEEL_TRY(rope_kinds[i].compute(&s, &r));
        *out = r;
        return KEEL_OK;
    }
    char known[128] = "";
    for (size_t i = 0, used = 0; i < sizeof rope_kinds / sizeof *rope_kinds && used < sizeof known; i++) {
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", rope_kinds[i].name);
    }
    return error_set(err, KEEL_UNSUPPORTED, "%s: rope type \"%s\" is unknown; known types: %s", s.dict_where, s.type,
                     known);
}
