# SPDX-License-Identifier: Apache-2.0
"""The reference: a transformers model with keel's synthetic weights, made on the device itself by the formula at the head
of src/load/synth.h (no file, no copy from the host), and its logits at chosen positions of one long sequence.

As a program it compares the generator with tests/synth.py, value by value: torch_model.py [cpu|cuda]"""
import json
import os
import sys
import tempfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, logging

HERE = os.path.dirname(os.path.abspath(__file__))
logging.set_verbosity_error()
BLOCK = 1 << 24  # elements at a time: what one costs is a few temporaries of 64 MiB


def strict_arithmetic():
    """float32 is float32, and bf16 products add up in float32: neither the reference nor the yardstick gets a discount."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.set_float32_matmul_precision("highest")


def signed(x):
    """A 32-bit constant as torch's int32 takes it; products and sums wrap."""
    return x - 2**32 if x >= 2**31 else x


def shift(x, bits):
    """Logical shift to the right; torch's is arithmetic."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)


def mix(x):
    x = (x ^ shift(x, 16)) * signed(0x85EBCA6B)
    x = (x ^ shift(x, 13)) * signed(0xC2B2AE35)
    return x ^ shift(x, 16)


def recipe(key, dims):
    """(offset, exponent): value = offset + u × 2^(exponent − 23)"""
    if "embed_tokens" in key:
        return 0.0, 0
    if len(dims) == 1:
        return (1.0, -4) if key.endswith("norm.weight") else (0.0, -5)
    return 0.0, -((dims[-1].bit_length() - 1) // 2)


def synth_fill(out, key, seed=0):
    """Fills a contiguous tensor of any float type; bf16 values, whatever type holds them."""
    name = 2166136261
    for c in key.encode():
        name = (name ^ c) * 16777619 % 2**32
    name ^= seed * 0x9E3779B1 % 2**32
    offset, exponent = recipe(key, list(out.shape))
    flat = out.view(-1)
    for first in range(0, flat.numel(), BLOCK):
        n, high = min(BLOCK, flat.numel() - first), first >> 32
        low = torch.arange(n, dtype=torch.int32, device=out.device) + signed(first % 2**32)
        tail = (high * 0x85EBCA6B + name) % 2**32
        u = shift(mix(mix(low ^ signed(name)) + signed(tail)), 8) - (1 << 23)
        flat[first:first + n] = (u.float() * 2.0 ** (exponent - 23) + offset).bfloat16()
    return out


def read_config(path, layers=None, drop=()):
    """A config.json as transformers reads it, with the first `layers` layers, without the keys in `drop`."""
    with open(path, encoding="utf-8") as f:
        raw = {k: v for k, v in json.load(f).items() if k not in drop}
    if layers:
        raw["num_hidden_layers"] = layers
        raw.pop("layer_types", None)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump(raw, f)
        return AutoConfig.from_pretrained(folder)


def build(config, dtype, device, seed=0):
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            assert p.dtype == dtype and p.is_contiguous(), key
            synth_fill(p.data, key, seed)
    assert all(b.dtype == torch.float32 for n, b in model.named_buffers() if "inv_freq" in n), "rotary frequencies rounded"
    return model


def sharpen(model):
    """Attention of random weights is nearly even over a long context: which page holds what would be lost in the rounding of the
    yardstick. Larger queries make each head look at a few positions only."""
    for key, p in model.named_parameters():
        if key.endswith("q_norm.weight"):
            p.data.copy_((3 * p.data).bfloat16())
        if key.endswith("q_proj.weight") and not any("q_norm" in k for k, _ in model.named_parameters()):
            p.data.mul_(8)
    return model


def save(model, folder):
    """The weights of a bf16 model as a checkpoint, beside its config.json."""
    from safetensors.torch import save_file
    save_file({k: p.data.cpu() for k, p in model.named_parameters()}, os.path.join(folder, "model.safetensors"))


def logits_at(model, ids, positions, chunk=512):
    """float32 [positions][vocab] on the host: the logits behind ids[p] for each p, one pass over ids in chunks. positions ascends."""
    device, cache, out = model.device, DynamicCache(config=model.config), []
    last = positions[-1] + 1
    with torch.no_grad():
        for start in range(0, last, chunk):
            end = min(start + chunk, last)
            here = [p - start for p in positions if start <= p < end]
            keep = torch.tensor(here or [end - start - 1], device=device)
            logits = model(input_ids=torch.tensor([ids[start:end]], device=device), past_key_values=cache, use_cache=True,
                           logits_to_keep=keep).logits[0]
            if here:
                out.append(logits.float().cpu())
    return torch.cat(out)


def check_generator(device):
    sys.path.insert(0, os.path.join(HERE, ".."))
    from synth import synth
    cases = [("model.embed_tokens.weight", 0, [331, 192]), ("model.layers.3.input_layernorm.weight", 7, [4099]),
             ("model.layers.0.self_attn.q_proj.bias", 3, [257]), ("lm_head.weight", 4294967295, [77, 129]),
             ("model.layers.35.mlp.down_proj.weight", 12345, [96, 12288])]
    for key, seed, dims in cases:
        got = synth_fill(torch.empty(dims, dtype=torch.bfloat16, device=device), key, seed).cpu()
        want = torch.from_numpy(synth(key, seed, dims).view("int16").copy()).view(torch.bfloat16).view(dims)
        if not torch.equal(got.view(torch.int16), want.view(torch.int16)):
            sys.exit(f"{key}: differs from tests/synth.py")
        wide = synth_fill(torch.empty(dims, dtype=torch.float32, device=device), key, seed).cpu()
        assert torch.equal(wide, want.float()), key
    # a block's border, and elements past it
    key, dims = "model.layers.1.mlp.up_proj.weight", [BLOCK // 64 + 3, 64]
    got = synth_fill(torch.empty(dims, dtype=torch.bfloat16, device=device), key, 1).cpu().view(-1)[BLOCK - 100:]
    want = torch.from_numpy(synth(key, 1, dims, first=BLOCK - 100).view("int16").copy()).view(torch.bfloat16)
    if not torch.equal(got, want):
        sys.exit(f"{key}: differs from tests/synth.py behind element {BLOCK - 100}")
    print(f"generator on {device}: equal to tests/synth.py in {len(cases) + 1} tensors")


if __name__ == "__main__":
    check_generator(sys.argv[1] if len(sys.argv) > 1 else "cpu")
