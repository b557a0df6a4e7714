# SPDX-License-Identifier: Apache-2.0
"""Copies a checkpoint folder and damages the copy in one way.

Usage: make_bad.py CASE CHECKPOINT_DIR OUT_DIR      (cases: the functions below, with - for _)
"""
import json
import os
import shutil
import struct
import sys

WEIGHTS = "model.safetensors"
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
K_PROJ = "model.layers.0.self_attn.k_proj.weight"


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def edit_json(path, change):
    value = json.loads(read(path))
    change(value)
    write(path, json.dumps(value).encode())


def edit_header(folder, change):
    """Changes the safetensors header as an object; the data stay where they are."""
    path = os.path.join(folder, WEIGHTS)
    blob = read(path)
    (n,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8:8 + n])
    change(header)
    text = json.dumps(header).encode()
    write(path, struct.pack("<Q", len(text)) + text + blob[8 + n:])


def edit_config(folder, **values):
    edit_json(os.path.join(folder, "config.json"), lambda c: c.update(values))


def edit_tokenizer(folder, change):
    edit_json(os.path.join(folder, "tokenizer.json"), change)


def set_length(folder, length):
    path = os.path.join(folder, WEIGHTS)
    write(path, struct.pack("<Q", length) + read(path)[8:])


def truncated(d):
    path = os.path.join(d, WEIGHTS)
    write(path, read(path)[:-100])


def truncated_header(d):
    path = os.path.join(d, WEIGHTS)
    write(path, read(path)[:200])


def tiny_file(d):
    write(os.path.join(d, WEIGHTS), b"12345")


def empty_file(d):
    write(os.path.join(d, WEIGHTS), b"")


def header_past_file(d):
    set_length(d, os.path.getsize(os.path.join(d, WEIGHTS)))


def header_huge(d):
    set_length(d, (1 << 64) - 1)


def header_no_json(d):
    path = os.path.join(d, WEIGHTS)
    blob = read(path)
    write(path, blob[:8] + b"x" + blob[9:])


def overlapping(d):
    def change(h):
        h[Q_PROJ]["data_offsets"] = [x - 128 for x in h[Q_PROJ]["data_offsets"]]
    edit_header(d, change)


def range_past_file(d):
    def change(h):
        h[Q_PROJ]["data_offsets"] = [x + (1 << 40) for x in h[Q_PROJ]["data_offsets"]]
    edit_header(d, change)


def range_not_shape(d):
    def change(h):
        h[Q_PROJ]["data_offsets"][1] -= 2
    edit_header(d, change)


def wrong_dtype(d):
    edit_header(d, lambda h: h[Q_PROJ].update(dtype="I16"))


def unknown_dtype(d):
    edit_header(d, lambda h: h[Q_PROJ].update(dtype="Z9"))


def wrong_shape(d):
    edit_header(d, lambda h: h[Q_PROJ]["shape"].reverse())


def negative_shape(d):
    edit_header(d, lambda h: h[Q_PROJ].update(shape=[-64, -128]))


def missing_keys(d):
    def change(h):
        for key in (Q_PROJ, K_PROJ, "model.norm.weight"):
            h["other." + key] = h.pop(key)
    edit_header(d, change)


def missing_shard(d):
    os.remove(os.path.join(d, "model-00002-of-00002.safetensors"))


def foreign_shard(d):
    def change(index):
        index["weight_map"]["model.norm.weight"] = "../model-00002-of-00002.safetensors"
    edit_json(os.path.join(d, "model.safetensors.index.json"), change)


def wrong_shard(d):
    def change(index):
        index["weight_map"]["lm_head.weight"] = "model-00002-of-00002.safetensors"
    edit_json(os.path.join(d, "model.safetensors.index.json"), change)


def no_weights(d):
    os.remove(os.path.join(d, WEIGHTS))


def no_config(d):
    os.remove(os.path.join(d, "config.json"))


def config_no_json(d):
    write(os.path.join(d, "config.json"), b'{"architectures": [')


def config_no_object(d):
    write(os.path.join(d, "config.json"), b"[1, 2]")


def unknown_architecture(d):
    edit_config(d, architectures=["FrobnicateForCausalLM"], model_type="qwen3")


def wrong_type_in_config(d):
    edit_config(d, hidden_size="64")


def wrong_number_in_config(d):
    edit_config(d, num_attention_heads=0)


def wrong_layers_in_config(d):
    edit_config(d, num_hidden_layers=3)


def wrong_stop_ids(d):
    write(os.path.join(d, "generation_config.json"), b'{"eos_token_id": "two"}')


def no_merges(d):
    edit_tokenizer(d, lambda t: t["model"].pop("merges"))


def tokenizer_no_json(d):
    write(os.path.join(d, "tokenizer.json"), read(os.path.join(d, "tokenizer.json"))[:1000])


def tokenizer_other_model(d):
    edit_tokenizer(d, lambda t: t["model"].update(type="Unigram"))


def vocabulary_too_large(d):
    def change(t):
        t["added_tokens"] += [dict(t["added_tokens"][0], id=512 + i, content=f"<|extra_{i}|>") for i in range(3)]
    edit_tokenizer(d, change)


def main():
    case, source, out = sys.argv[1:]
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(source, out)
    globals()[case.replace("-", "_")](out)


main()
