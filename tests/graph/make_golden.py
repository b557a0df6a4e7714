"""Makes rope_golden.json and keys_golden.json with transformers: the rotary frequencies of its own rope code, and what
its own model classes (on the meta device, no weights) call their parameters and how they shape them.

Usage: python make_golden.py CONFIG_DIR   (a folder of config.json files named after the model)
"""
import json
import os
import struct
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

HERE = os.path.dirname(os.path.abspath(__file__))
MADE_WITH = {"transformers": transformers.__version__, "torch": torch.__version__}
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 16}
LLAMA3 = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}

ROPES = [  # name, rotary_dim, config
    ("default, old spelling", 128, {"rope_theta": 1000000.0, "max_position_embeddings": 40960}),
    ("default, no theta", 64, {"max_position_embeddings": 2048}),
    ("default, new spelling", 64, {"rope_parameters": {"rope_type": "default", "rope_theta": 70000.0}, "max_position_embeddings": 2048}),
    ("linear, old spelling", 64, {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 3.0}, "max_position_embeddings": 2048}),
    ("linear, half a head", 64, {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2.0},
                                 "max_position_embeddings": 2048}),
    ("llama3, old spelling", 128, {"rope_theta": 500000.0, "max_position_embeddings": 131072, "rope_scaling": {**LLAMA3, "rope_type": "llama3"}}),
    ("llama3, new spelling", 64, {"max_position_embeddings": 131072, "rope_parameters": {**LLAMA3, "factor": 32.0, "rope_theta": 500000.0, "rope_type": "llama3"}}),
    ("yarn", 128, {"rope_theta": 1000000.0, "max_position_embeddings": 131072,
                   "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}),
    ("yarn, mscale", 64, {"rope_theta": 10000, "max_position_embeddings": 163840,
                          "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.9, "mscale_all_dim": 0.707,
                                           "original_max_position_embeddings": 4096}}),
    ("yarn, not truncated", 64, {"rope_theta": 150000, "max_position_embeddings": 131072,
                                 "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                                                  "original_max_position_embeddings": 4096}}),
    ("yarn, factor from the lengths", 64, {"rope_theta": 10000.0, "max_position_embeddings": 8192,
                                           "rope_scaling": {"rope_type": "yarn", "factor": None, "attention_factor": 1.25,
                                                            "original_max_position_embeddings": 1024}}),
    ("yarn, empty ramp", 16, {"rope_theta": 10000.0, "max_position_embeddings": 64,
                              "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 0.33, "beta_slow": 0.33, "truncate": False,
                                               "original_max_position_embeddings": 64}}),
    ("yarn, ramp past the last pair", 64, {"rope_theta": 10000.0, "max_position_embeddings": 524288,
                                           "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 131072}}),
    ("yarn, ramp cut at the width", 64, {"rope_theta": 100.0, "max_position_embeddings": 2147483647,
                                         "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2000000000}}),
    ("yarn, original length outside", 64, {"rope_theta": 10000.0, "max_position_embeddings": 8192, "original_max_position_embeddings": 2048,
                                           "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}}),
    ("yarn, default original length", 64, {"rope_theta": 10000.0, "max_position_embeddings": 8192, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
]


def ropes():
    for name, dim, config in ROPES:
        made = LlamaConfig(**SMALL, head_dim=dim, **json.loads(json.dumps(config)))
        if "partial_rotary_factor" in config:  # LlamaModel cannot run it, the function can
            inv_freq, factor = ROPE_INIT_FUNCTIONS[made.rope_parameters["rope_type"]](made, None)
        else:
            rope = LlamaRotaryEmbedding(made)
            inv_freq, factor = rope.inv_freq, rope.attention_scaling
        bits = [struct.unpack("<I", struct.pack("<f", v))[0] for v in inv_freq.tolist()]
        yield {"name": name, "rotary_dim": dim, "config": config, "attention_factor": factor, "inv_freq_bits": bits}


def fnv1a64(text):
    h = 0xcbf29ce484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001b3) % 2**64
    return h


def keys(folder):
    configs = {name[:-5]: json.load(open(os.path.join(folder, name))) for name in sorted(os.listdir(folder))}
    llama, qwen3 = configs["llama-3.2-1b"], configs["qwen3-0.6b"]
    configs["llama, biases, no kv heads, no head_dim"] = {
        **{k: v for k, v in llama.items() if k not in ("num_key_value_heads", "head_dim", "rope_scaling")}, "num_hidden_layers": 2,
        "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}
    configs["qwen3, attention bias, no head_dim"] = {**{k: v for k, v in qwen3.items() if k != "head_dim"}, "num_hidden_layers": 2,
                                                     "attention_bias": True, "mlp_bias": True}
    for name, config in configs.items():
        if config["architectures"][0] not in ("LlamaForCausalLM", "Qwen3ForCausalLM"):
            continue
        with torch.device("meta"):
            made = AutoConfig.for_model(**json.loads(json.dumps(config)))
            model = AutoModelForCausalLM.from_config(made)
        shapes = {key: list(t.shape) for key, t in model.state_dict().items()}
        if config["tie_word_embeddings"]:
            shapes.pop("lm_head.weight", None)
        lines = "".join(f"{key} {'x'.join(map(str, shapes[key]))}\n" for key in sorted(shapes))
        elements = sum(torch.Size(s).numel() for s in shapes.values())
        yield {"name": name, "config": config, "n_keys": len(shapes), "n_elements": elements, "fnv1a64": f"{fnv1a64(lines):016x}"}


def write(name, what, cases):
    with open(os.path.join(HERE, name), "w") as f:
        f.write(json.dumps({"made_by": "make_golden.py", **MADE_WITH, "what": what})[:-1] + ', "cases": [\n')
        f.write(",\n".join(json.dumps(case) for case in cases) + "\n]}\n")


write("rope_golden.json", "rotary frequencies as IEEE 754 binary32 bits", ropes())
write("keys_golden.json", "sorted lines 'KEY D0xD1\\n' of all parameters: how many, their elements, FNV-1a 64 of the text", keys(sys.argv[1]))
