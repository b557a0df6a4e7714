/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3, dense. Reference: transformers, models/qwen3 (head_dim is 128 unless config.json says otherwise). */
#include "graph/dense.h"

static keel_status qwen3_build(const json_t *config, const char *file, const model_options *opts, graph **out,
                               keel_error *err) {
    static const dense_arch arch = {.architecture = "Qwen3ForCausalLM", .qk_norm = true, .head_dim = 128};
    return dense_build(&arch, config, file, opts, out, err);
}

const model_desc keel_model_qwen3 = {
    .name = "qwen3",
    .architectures = (const char *const[]){"Qwen3ForCausalLM", NULL},
    .model_types = (const char *const[]){"qwen3", NULL},
    .build = qwen3_build,
};
