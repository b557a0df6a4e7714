#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Synthetic weights, read independently of the C code: the formula at the head of src/load/synth.h and nothing else.
As a program: synth.py KEY SEED DTYPE FIRST N DIM... prints elements as hexadecimal words."""
import sys
import numpy as np


def mix(x):
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x85EBCA6B)
    x = x ^ (x >> np.uint32(13))
    x = x * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def synth(key, seed, dims, dtype="BF16", first=0, n=None):
    """float32 values, uint16 words for BF16 or codes for F8_E4M3, of elements [first, first + n)."""
    n = int(np.prod(dims)) - first if n is None else n
    fnv = 2166136261
    for c in key.encode():
        fnv = (fnv ^ c) * 16777619 % 2**32
    name = np.uint32(fnv ^ seed * 0x9E3779B1 % 2**32)
    i = np.arange(n, dtype=np.uint64) + np.uint64(first)
    lo, hi = i.astype(np.uint32), (i >> np.uint64(32)).astype(np.uint32)
    u = (mix(mix(lo ^ name) + hi * np.uint32(0x85EBCA6B) + name) >> np.uint32(8)).astype(np.int64) - 2**23
    norm = len(dims) == 1 and key.endswith("norm.weight")
    e = 0 if "embed_tokens" in key else 4 if norm else 5 if len(dims) == 1 else (dims[-1].bit_length() - 1) // 2
    offset = float(norm and "embed_tokens" not in key)
    if len(dims) == 2 and key.endswith("weight_scale_inv"):
        e = 10 + ((128 * dims[-1]).bit_length() - 1) // 2
        offset = 4 * 2.0**-e
    if dtype == "F8_E4M3":
        e, offset = -8, 0.0
    # exact in float64 for every offset and scale, so this is the one rounding to f32
    f = (offset + u * 2.0 ** (-23 - e)).astype(np.float32)
    if dtype == "F32":
        return f
    if dtype == "F8_E4M3":
        import ml_dtypes
        return f.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    w = f.view(np.uint32)
    return ((w + np.uint32(0x7FFF) + ((w >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


if __name__ == "__main__":
    out = synth(sys.argv[1], int(sys.argv[2]), [int(d) for d in sys.argv[6:]], sys.argv[3], *map(int, sys.argv[4:6]))
    print(", ".join(f"0x{v:x}" for v in out.view({4: np.uint32, 2: np.uint16, 1: np.uint8}[out.itemsize])))
