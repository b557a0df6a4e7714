# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF of a given geometry with random bf16 weights, for timing llama.cpp against `keel bench --synth`.

Geometry comes from a Hugging Face config.json (architecture qwen3). Weights are random with a small spread, norms are 1, the
tokenizer is a stand-in of the right size: the file is for speed, not for text. Tied embeddings stay tied (no
output.weight), as in the published checkpoint.

Usage: python synth_gguf.py CONFIG_JSON OUT_GGUF      needs: pip install gguf numpy
"""
import json
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType


def bf16(rng, shape, scale):
    """Normal values as raw bf16 bytes; the same 4 Mi values over again for large tensors, which costs less time to draw."""
    count = int(np.prod(shape))
    base = (rng.standard_normal(min(count, 1 << 22), dtype=np.float32) * scale).view(np.uint32) >> 16
    return np.resize(base.astype(np.uint16), shape).view(np.uint8)


def add_tokenizer(writer, vocab):
    """Byte tokens and fillers: a valid gpt2-type vocabulary without merges."""
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    others = [b for b in range(256) if b not in printable]
    tokens = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]
    tokens += [f"<filler_{i}>" for i in range(vocab - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.NORMAL] * 256 + [TokenType.UNUSED] * (vocab - 256))
    writer.add_token_merges(["! !"])
    writer.add_bos_token_id(vocab - 2)
    writer.add_eos_token_id(vocab - 1)
    writer.add_add_bos_token(False)


def add_geometry(writer, c):
    writer.add_name("synthetic " + c["model_type"])
    writer.add_file_type(32)  # MOSTLY_BF16
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_key_length(c["head_dim"])
    writer.add_value_length(c["head_dim"])
    writer.add_rope_freq_base(float(c["rope_theta"]))
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])


def add_weights(writer, c):
    rng = np.random.default_rng(0)
    hidden, ffn, d = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d

    def matrix(name, rows, cols):
        writer.add_tensor(name, bf16(rng, (rows, cols), 0.02), raw_dtype=GGMLQuantizationType.BF16)

    def ones(name, n):
        writer.add_tensor(name, np.ones(n, dtype=np.float32))

    matrix("token_embd.weight", c["vocab_size"], hidden)
    ones("output_norm.weight", hidden)
    if not c["tie_word_embeddings"]:
        matrix("output.weight", c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        ones(f"blk.{i}.attn_norm.weight", hidden)
        matrix(f"blk.{i}.attn_q.weight", q, hidden)
        matrix(f"blk.{i}.attn_k.weight", kv, hidden)
        matrix(f"blk.{i}.attn_v.weight", kv, hidden)
        ones(f"blk.{i}.attn_q_norm.weight", d)
        ones(f"blk.{i}.attn_k_norm.weight", d)
        matrix(f"blk.{i}.attn_output.weight", hidden, q)
        ones(f"blk.{i}.ffn_norm.weight", hidden)
        matrix(f"blk.{i}.ffn_gate.weight", ffn, hidden)
        matrix(f"blk.{i}.ffn_up.weight", ffn, hidden)
        matrix(f"blk.{i}.ffn_down.weight", hidden, ffn)


def main():
    with open(sys.argv[1]) as f:
        config = json.load(f)
    if config["model_type"] != "qwen3":
        raise SystemExit("only model_type qwen3 is written here, not " + config["model_type"])
    writer = GGUFWriter(sys.argv[2], "qwen3")
    add_geometry(writer, config)
    add_tokenizer(writer, config["vocab_size"])
    add_weights(writer, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
