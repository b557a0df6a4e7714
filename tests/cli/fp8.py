# SPDX-License-Identifier: Apache-2.0
"""FP8 checkpoints, by the definition of OCP's E4M3 and of block scales, with nothing but the standard library.

Usage: fp8.py make DIR                 a Qwen3 folder with random weights, blocks of all kinds among them
       fp8.py check DIR QUANTISED      QUANTISED is what DIR becomes, to the bit
       fp8.py dequantise QUANTISED OUT the same weights as F32: codes times scales
       fp8.py golden KEEL DEQUANTISED RECORDS OUT STEPS
                                       a golden.json of STEPS greedy tokens for the prompts of RECORDS, from the logits
                                       of `keel run DEQUANTISED --device cpu`
"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

WIDTH = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1}
BLOCK = 128


def value(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = (mantissa / 8) * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0**(exponent - 7)
    return -magnitude if code & 128 else magnitude


VALUES = [float("nan") if code & 127 == 127 else value(code) for code in range(256)]
MAGNITUDES = VALUES[:127]


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def nearest(x):
    """Code of the E4M3 nearest to x, ties to the even one."""
    a = abs(x)
    low, high = 0, 126
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if MAGNITUDES[middle] <= a else (low, middle - 1)
    if low < 126:
        down, up = a - MAGNITUDES[low], MAGNITUDES[low + 1] - a
        low += up < down or (up == down and low & 1)
    return low | (128 if struct.pack("<d", x)[7] & 128 else 0)


def read_file(path):
    with open(path, "rb") as f:
        blob = f.read()
    (n,) = struct.unpack_from("<Q", blob)
    head = json.loads(blob[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (t["dtype"], t["shape"], blob[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for k, t in head.items()}


def read(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(read_file(os.path.join(folder, name)))
    return tensors


def write(folder, tensors, config):
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)


def floats(dtype, data):
    if dtype == "F32":
        return struct.unpack(f"<{len(data) // 4}f", data)
    if dtype == "F16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[0::2], data[1::2]
    return struct.unpack(f"<{len(data) // 2}f", bytes(wide))


def bf16(values):
    words = []
    for v in values:
        (w,) = struct.unpack("<I", struct.pack("<f", v))
        words.append((w + 0x7FFF + (w >> 16 & 1)) >> 16 & 0xFFFF)
    return struct.pack(f"<{len(words)}H", *words)


def is_quantised(name, shape):
    return len(shape) == 2 and name.startswith("model.layers.")


def make(folder):
    hidden, ffn, heads, kv, d, vocab = 160, 288, 4, 2, 64, 300
    config = {"architectures": ["Qwen3ForCausalLM"], "hidden_size": hidden, "intermediate_size": ffn,
              "num_hidden_layers": 2, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": d,
              "hidden_act": "silu", "vocab_size": vocab, "rms_norm_eps": 1e-6, "max_position_embeddings": 256,
              "rope_theta": 10000.0, "tie_word_embeddings": False, "dtype": "bfloat16", "eos_token_id": 2}
    rng = random.Random(4)
    tensors = {}

    def add(name, *shape, spread=0.1, offset=0.0):
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [offset + rng.gauss(0, spread) for _ in range(n)]
        tensors[name] = ("BF16", list(shape), bf16(values))

    add("model.embed_tokens.weight", vocab, hidden, spread=1.0)
    for i in range(2):
        p = f"model.layers.{i}."
        add(p + "input_layernorm.weight", hidden, offset=1.0)
        add(p + "post_attention_layernorm.weight", hidden, offset=1.0)
        add(p + "self_attn.q_norm.weight", d, offset=1.0)
        add(p + "self_attn.k_norm.weight", d, offset=1.0)
        add(p + "self_attn.q_proj.weight", heads * d, hidden)
        add(p + "self_attn.k_proj.weight", kv * d, hidden)
        add(p + "self_attn.v_proj.weight", kv * d, hidden)
        add(p + "self_attn.o_proj.weight", hidden, heads * d, spread=0.02)
        add(p + "mlp.gate_proj.weight", ffn, hidden)
        add(p + "mlp.up_proj.weight", ffn, hidden)
        add(p + "mlp.down_proj.weight", hidden, ffn, spread=3e-3)
    add("model.norm.weight", hidden, offset=1.0)
    add("lm_head.weight", vocab, hidden)
    # a block of zeros, one of values whose scale is below the smallest f32 that is normal, ties and signed zeros
    name = "model.layers.1.mlp.down_proj.weight"
    values = list(floats("BF16", tensors[name][2]))
    for i in range(BLOCK):
        for j in range(BLOCK):
            values[i * ffn + j] = 0.0
            values[i * ffn + BLOCK + j] = (1 + j) * 2.0**-126
    for i in range(BLOCK, hidden):
        for j in range(BLOCK):
            values[i * ffn + j] = (j - 64) * (448 / 64) * (0.5 if i & 1 else 1)
    tensors[name] = ("BF16", tensors[name][1], bf16(values))
    write(folder, tensors, config)


def quantise(dtype, shape, data):
    n, k = shape
    values, codes, scales = floats(dtype, data), bytearray(n * k), []
    for top in range(0, n, BLOCK):
        for left in range(0, k, BLOCK):
            rows, cols = range(top, min(n, top + BLOCK)), range(left, min(k, left + BLOCK))
            most = max(abs(values[i * k + j]) for i in rows for j in cols)
            scale = f32(most / 448) if most else 1.0
            scale = max(scale, 2.0**-126)
            scales.append(scale)
            for i in rows:
                for j in cols:
                    codes[i * k + j] = nearest(f32(values[i * k + j] / scale))
    return bytes(codes), struct.pack(f"<{len(scales)}f", *scales)


def check(folder, quantised):
    before, after = read(folder), read(quantised)
    for name, (dtype, shape, data) in before.items():
        if not is_quantised(name, shape):
            assert after.pop(name) == (dtype, shape, data), name
            continue
        codes, scales = quantise(dtype, shape, data)
        blocks = [(s + BLOCK - 1) // BLOCK for s in shape]
        assert after.pop(name + "_scale_inv") == ("F32", blocks, scales), name + "_scale_inv"
        assert after.pop(name) == ("F8_E4M3", shape, codes), name
    assert not after, f"tensors that nobody asked for: {list(after)}"
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(os.path.join(quantised, "config.json"), encoding="utf-8") as f:
        got = json.load(f)
    q = got.pop("quantization_config")
    assert got == config and q["quant_method"] == "fp8" and q["weight_block_size"] == [BLOCK, BLOCK], got


def dequantise(quantised, out):
    tensors, whole = read(quantised), {}
    for name, (dtype, shape, data) in tensors.items():
        if name.endswith("_scale_inv"):
            continue
        if dtype != "F8_E4M3":
            whole[name] = (dtype, shape, data)
            continue
        n, k = shape
        form, _, words = tensors[name + "_scale_inv"]
        scales, across, values = floats(form, words), (k + BLOCK - 1) // BLOCK, []
        for i in range(n):
            for b in range(across):
                scale = scales[i // BLOCK * across + b]
                values += [VALUES[c] * scale for c in data[i * k + b * BLOCK:i * k + min(k, (b + 1) * BLOCK)]]
        whole[name] = ("F32", shape, struct.pack(f"<{n * k}f", *values))
    with open(os.path.join(quantised, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    del config["quantization_config"]
    write(out, whole, config)
    for name in os.listdir(quantised):
        if name.endswith(".json") and name != "config.json" and "index" not in name:
            shutil.copy(os.path.join(quantised, name), out)


def golden(keel, model, records, out, steps):
    with open(records, encoding="utf-8") as f:
        records = json.load(f)
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for r in records:
            tokens, logits = os.path.join(folder, "tokens"), os.path.join(folder, "logits")
            subprocess.run([keel, "run", model, "--device", "cpu", "--tokens", ",".join(map(str, r["prompt_ids"])),
                            "--max-new-tokens", steps, "--ignore-eos", "--save-tokens", tokens, "--save-logits", logits],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with open(tokens, encoding="utf-8") as f:
                ids = json.load(f)["token_ids"]
            _, (rows, vocab), data = read_file(logits)["logits"]
            flat, margins = floats("F32", data), []
            for i in range(rows):
                first, second = sorted(flat[i * vocab:(i + 1) * vocab])[:-3:-1]
                margins.append(round(first - second, 4))
            assert len(ids) == rows
            made.append({"prompt_ids": r["prompt_ids"], "greedy_ids": ids, "top1_minus_top2_logit": margins})
    with open(out, "w", encoding="utf-8") as f:
        json.dump(made, f)


{"make": make, "check": check, "dequantise": dequantise, "golden": golden}[sys.argv[1]](*sys.argv[2:])
