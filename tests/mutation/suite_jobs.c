/* SPDX-License-Identifier: Apache-2.0 */
#include "mutation/suite.h"

#include "core/json.h"
#include "graph/model.h"
#include "graph/shard.h"

#include <string.h>

/* Small, so that one run takes about a millisecond; each differs from the others in what its plan has. */
static const char qwen_one[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"hidden_size\": 32, \"intermediate_size\": 48, "
    "\"num_hidden_layers\": 1,"
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 16, \"vocab_size\": 64, \"rms_norm_eps\": "
    "1e-6,"
    "\"rope_theta\": 10000, \"max_position_embeddings\": 512, \"tie_word_embeddings\": true, \"attention_bias\": false,"
    "\"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\"}";
static const char qwen_two[] = "{\"architectures\": [\"Qwen3ForCausalLM\"], \"hidden_size\": 64, "
                               "\"intermediate_size\": 96, \"num_hidden_layers\": 2,"
                               "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, "
                               "\"vocab_size\": 2100, \"rms_norm_eps\": 1e-6,"
                               "\"rope_theta\": 10000, \"max_position_embeddings\": 512, \"tie_word_embeddings\": "
                               "false, \"attention_bias\": false,"
                               "\"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\"}";
static const char llama_two[] = "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 48, "
                                "\"intermediate_size\": 80, \"num_hidden_layers\": 2,"
                                "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"head_dim\": 16, "
                                "\"vocab_size\": 90, \"rms_norm_eps\": 1e-5,"
                                "\"rope_theta\": 500000, \"max_position_embeddings\": 512, \"tie_word_embeddings\": "
                                "false, \"attention_bias\": true,"
                                "\"mlp_bias\": true, \"hidden_act\": \"silu\", \"torch_dtype\": \"float32\"}";

/* Rows so long that a few tasks fill a worker's SMEM: pages go from hand to hand. */
static const char qwen_wide[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"hidden_size\": 2048, \"intermediate_size\": 1536, "
    "\"num_hidden_layers\": 1,"
    "\"num_attention_heads\": 16, \"num_key_value_heads\": 2, \"head_dim\": 64, \"vocab_size\": 256, \"rms_norm_eps\": "
    "1e-6,"
    "\"rope_theta\": 10000, \"max_position_embeddings\": 512, \"tie_word_embeddings\": true, \"attention_bias\": false,"
    "\"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\"}";

typedef struct recipe {
    const char *name, *config, *arch;
    uint32_t workers, m_max, splits, tp;
    bool sample, vocab_parallel;
} recipe;

static const recipe recipes[SUITE_REAL_JOBS] = {
    {"qwen-1 w1", qwen_one, "cpu", 1, 2, 0, 1, false, false},
    {"qwen-1 w2", qwen_one, "cpu", 2, 1, 0, 1, false, false},
    {"qwen-1 w3 splits", qwen_one, "cpu", 3, 2, 3, 1, true, false},
    {"qwen-1 sm_90a w2", qwen_one, "sm_90a", 2, 16, 2, 1, false, false},
    {"qwen-1 tp2 w2", qwen_one, "cpu", 2, 2, 0, 2, false, false},
    {"qwen-2 w1", qwen_two, "cpu", 1, 1, 0, 1, false, false},
    {"qwen-2 w3", qwen_two, "cpu", 3, 2, 0, 1, false, false},
    {"qwen-2 sm_90a w3", qwen_two, "sm_90a", 3, 16, 0, 1, false, false},
    {"qwen-wide sm_90a w1", qwen_wide, "sm_90a", 1, 16, 0, 1, false, false},
    {"qwen-wide sm_90a w2", qwen_wide, "sm_90a", 2, 16, 2, 1, true, false},
    {"qwen-wide sm_90a tp2 w1", qwen_wide, "sm_90a", 1, 16, 0, 2, false, false},
    {"llama-2 w2", llama_two, "cpu", 2, 3, 2, 1, false, false},
    {"llama-2 w5", llama_two, "cpu", 5, 2, 0, 1, false, false},
    {"llama-2 sm_90a w1", llama_two, "sm_90a", 1, 8, 0, 1, true, false},
    {"llama-2 tp2 w3", llama_two, "cpu", 3, 1, 0, 2, false, true},
    {"llama-2 tp2 w1", llama_two, "cpu", 1, 2, 2, 2, false, false},
};

static keel_status make_rank(const recipe *c, const graph *whole, uint32_t rank, plan **out, keel_error *err) {
    shard_options so = {.tp = c->tp, .ep = 1, .rank = rank, .vocab_parallel = c->vocab_parallel};
    plan_options po = {.arch = c->arch,
                       .workers = c->workers,
                       .m_max = c->m_max,
                       .max_seq = 256,
                       .page_tokens = 16,
                       .kv_splits = c->splits,
                       .allow_absent = true};
    graph *g = NULL;
    KEEL_TRY(graph_shard(whole, &so, &g, err));
    keel_status s = plan_build(g, &po, out, err);
    graph_close(g);
    return s;
}

/* Of one rank on the CPU, where all bodies are there. */
static keel_status make_runner(const recipe *c, const graph *whole, suite_job *job, keel_error *err) {
    shard_options so = {.tp = 1, .ep = 1};
    graph *g = NULL;
    if (c->tp > 1 || strcmp(c->arch, "cpu") != 0 || plan_check_bodies(job->ranks[0], NULL) != KEEL_OK) return KEEL_OK;
    KEEL_TRY(graph_shard(whole, &so, &g, err));
    return real_run_open(g, job->ranks[0], &job->real_run, err);
}

bool suite_real_job(size_t i, suite_job *job) {
    const recipe *c = &recipes[i];
    keel_error err = KEEL_ERROR_INITIALIZER;
    json_t *config = NULL;
    graph *whole = NULL;
    model_options mo = {.layer_last = -1, .sample = c->sample};
    *job = (suite_job){.n = c->tp};
    snprintf(job->name, sizeof job->name, "%s", c->name);
    keel_status s = json_parse(c->name, c->config, strlen(c->config), &config, &err);
    if (s == KEEL_OK) s = model_build(config, c->name, &mo, &whole, &err);
    for (uint32_t k = 0; k < c->tp && s == KEEL_OK; k++) s = make_rank(c, whole, k, &job->ranks[k], &err);
    if (s == KEEL_OK) s = make_runner(c, whole, job, &err);
    if (s != KEEL_OK) fprintf(stderr, "%s: %s\n", c->name, err.detail);
    graph_close(whole);
    json_decref(config);
    return s == KEEL_OK;
}
