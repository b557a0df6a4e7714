# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of architecture qwen3 as a GGUF file: the way back from what `keel convert` does.

The weights keep their bits (norms, which GGUF wants in f32, are widened), so that the converted folder must give the
tokens of the original. Format: ggml's docs/gguf.md, version 3; standard library only.

Usage: make_gguf.py CHECKPOINT_DIR OUT_GGUF
"""
import json
import os
import struct
import sys

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
TYPE_F32, TYPE_BF16 = 0, 30
ALIGNMENT = 32
IN_LAYER = {
    "input_layernorm.weight": "attn_norm.weight", "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
}
WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STRING:
        return text(v)
    if kind == ARRAY:
        inner, items = v
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, i) for i in items)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def metadata(config, tokenizer):
    vocab = dict(tokenizer["model"]["vocab"])
    special = {t["content"] for t in tokenizer["added_tokens"]}
    vocab.update({t["content"]: t["id"] for t in tokenizer["added_tokens"]})
    tokens = sorted(vocab, key=vocab.get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    rope = config.get("rope_parameters") or {"rope_theta": config["rope_theta"]}
    return [
        ("general.architecture", STRING, "qwen3"),
        ("qwen3.block_count", U32, config["num_hidden_layers"]),
        ("qwen3.context_length", U32, config["max_position_embeddings"]),
        ("qwen3.embedding_length", U32, config["hidden_size"]),
        ("qwen3.feed_forward_length", U32, config["intermediate_size"]),
        ("qwen3.attention.head_count", U32, config["num_attention_heads"]),
        ("qwen3.attention.head_count_kv", U32, config["num_key_value_heads"]),
        ("qwen3.attention.key_length", U32, config["head_dim"]),
        ("qwen3.attention.value_length", U32, config["head_dim"]),
        ("qwen3.attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"]),
        ("qwen3.rope.freq_base", F32, rope["rope_theta"]),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "qwen2"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.ggml.token_type", ARRAY, (I32, [3 if t in special else 1 for t in tokens])),
        ("tokenizer.ggml.merges", ARRAY, (STRING, merges)),
        ("tokenizer.ggml.eos_token_id", U32, config["eos_token_id"]),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
    ]


def gguf_name(key):
    if key in WHOLE:
        return WHOLE[key]
    _, _, layer, rest = key.split(".", 3)
    return f"blk.{layer}.{IN_LAYER[rest]}"


def widen(bf16):
    return b"".join(b"\0\0" + bf16[i:i + 2] for i in range(0, len(bf16), 2))


def tensors(path):
    with open(path, "rb") as f:
        blob = f.read()
    (n,) = struct.unpack_from("<Q", blob)
    for key, t in json.loads(blob[8:8 + n]).items():
        if key == "__metadata__":
            continue
        assert t["dtype"] == "BF16", key
        first, last = t["data_offsets"]
        data = blob[8 + n + first:8 + n + last]
        wide = len(t["shape"]) == 1
        yield gguf_name(key), t["shape"], TYPE_F32 if wide else TYPE_BF16, widen(data) if wide else data


def main():
    folder, out = sys.argv[1:]
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    pairs = metadata(config, tokenizer)
    infos, data, count = b"", b"", 0
    for name, shape, kind, content in tensors(os.path.join(folder, "model.safetensors")):
        data += bytes(-len(data) % ALIGNMENT)
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(data))
        data += content
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(pairs))
    head += b"".join(text(k) + struct.pack("<I", kind) + value(kind, v) for k, kind, v in pairs) + infos
    with open(out, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGNMENT) + data)


main()
