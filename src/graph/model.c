/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/model.h"

#include "core/buf.h"

#include <string.h>

keel_status model_slice(const model_options *opts, int64_t n_layers, const char *file, int *first, int *last,
                        keel_error *err) {
    int64_t a = opts ? opts->layer_first : 0, z = opts ? opts->layer_last : -1;
    if (z == -1) z = n_layers - 1;
    if (a < 0 || z < a || z >= n_layers) {
        return error_set(err, KEEL_RANGE, "%s: layers %lld-%lld: the model has the layers 0-%lld", file, (long long)a,
                         (long long)z, (long long)n_layers - 1);
    }
    *first = (int)a;
    *last = (int)z;
    return KEEL_OK;
}

static bool is_one_of(const char *const *list, const char *name) {
    for (; list && *list; list++) {
        if (strcmp(*list, name) == 0) return true;
    }
    return false;
}

/* architectures[0]; NULL when the list is absent, null or empty. */
static keel_status first_architecture(const json_t *config, const char *file, const char **out, keel_error *err) {
    const json_t *list = json_object_get(config, "architectures");
    *out = NULL;
    if (!list || json_is_null(list)) return KEEL_OK;
    const json_t *first = json_array_get(list, 0);
    if (!json_is_array(list) || (first && !json_is_string(first))) {
        return error_set(err, KEEL_FORMAT, "%s: \"architectures\" must be a list of strings", file);
    }
    *out = first ? json_string_value(first) : NULL;
    return KEEL_OK;
}

static keel_status unknown_model(const char *file, const char *key, const char *name, keel_error *err) {
    buf known = {0};
    for (unsigned i = 0; i < model_registry_count; i++) {
        for (const char *const *a = model_registry[i]->architectures; *a; a++) {
            buf_printf(&known, "%s%s", known.len ? ", " : "", *a);
        }
    }
    if (known.failed) {
        buf_free(&known);
        return KEEL_NOMEM_AT(err, file);
    }
    keel_status s = error_set(err, KEEL_UNSUPPORTED, "%s: \"%s\": no model named %s; known architectures: %s", file,
                              key, name, known.data ? (const char *)known.data : "none");
    buf_free(&known);
    return s;
}

static keel_status find_model(const json_t *config, const char *file, const model_desc **out, keel_error *err) {
    const char *architecture, *type = NULL;
    KEEL_TRY(first_architecture(config, file, &architecture, err));
    if (!architecture) KEEL_TRY(json_opt_string(file, config, "model_type", &type, err));
    if (!architecture && !type) {
        return error_set(err, KEEL_MISSING, "%s: names no model: \"architectures\" and \"model_type\" are missing",
                         file);
    }
    for (unsigned i = 0; i < model_registry_count; i++) {
        const model_desc *m = model_registry[i];
        if (architecture ? is_one_of(m->architectures, architecture) : is_one_of(m->model_types, type)) {
            *out = m;
            return KEEL_OK;
        }
    }
    return unknown_model(file, architecture ? "architectures" : "model_type", architecture ? architecture : type, err);
}

keel_status model_quant_parse(const char *name, model_quant *out, keel_error *err) {
    *out = QUANT_NONE;
    if (!name || !*name) return KEEL_OK;
    if (strcmp(name, "fp8") != 0)
        return error_set(err, KEEL_USAGE, "weights cannot be quantised to \"%s\"; known: fp8", name);
    *out = QUANT_FP8;
    return KEEL_OK;
}

keel_status model_build(const json_t *config, const char *file, const model_options *opts, graph **out,
                        keel_error *err) {
    if (!json_is_object(config)) return error_set(err, KEEL_FORMAT, "%s: must be a JSON object", file);
    const model_desc *m;
    KEEL_TRY(find_model(config, file, &m, err));
    return m->build(config, file, opts, out, err);
}
