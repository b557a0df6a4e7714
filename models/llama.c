/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 2 and 3.x, and what was trained in their shape (SmolLM2, …). Reference: transformers, models/llama. */
#include "graph/dense.h"

static keel_status llama_build(const json_t *config, const char *file, const model_options *opts, graph **out,
                               keel_error *err) {
    static const dense_arch arch = {.architecture = "LlamaForCausalLM", .mlp_bias = true};
    return dense_build(&arch, config, file, opts, out, err);
}

const model_desc keel_model_llama = {
    .name = "llama",
    .architectures = (const char *const[]){"LlamaForCausalLM", NULL},
    .model_types = (const char *const[]){"llama", NULL},
    .build = llama_build,
};
