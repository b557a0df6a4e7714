# SPDX-License-Identifier: Apache-2.0
"""Writes gguf_blocks.json: quantised blocks and the f32 values that the gguf package gives for them.

{"Q4_0": {"block_elements": 32, "block_bytes": 18, "blocks": base64, "values": base64 of little-endian f32}, ...}
Block bytes are random; the f16 scales among them are set to finite values of both signs, some of them
zero or subnormal. F32, F16 and BF16 are plain values, special ones included.

Usage: python make_gguf_blocks.py
"""
import base64
import json
import os

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

HERE = os.path.dirname(os.path.abspath(__file__))
# Byte offsets of the f16 scales in a block (ggml-common.h).
SCALES = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 65504.0, 6e-8, -6e-8, 6.1e-5, 0.333251953125, np.inf, -np.inf, 3.140625], dtype=np.float32)


def blocks_of(kind, rng):
    elements, size = GGML_QUANT_SIZES[kind]
    if kind == T.F32:
        return np.concatenate([SPECIAL, rng.normal(size=20).astype(np.float32)]).view(np.uint8).copy()
    if kind == T.F16:
        with np.errstate(over="ignore"):
            return np.concatenate([SPECIAL, rng.normal(size=20).astype(np.float32)]).astype(np.float16).view(np.uint8).copy()
    if kind == T.BF16:
        return (np.concatenate([SPECIAL, rng.normal(size=20).astype(np.float32)]).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).copy()
    count = 8 if elements == 32 else 4
    raw = rng.integers(0, 256, size=(count, size), dtype=np.uint8)
    for offset in SCALES[kind]:
        scale = rng.normal(scale=0.05, size=count).astype(np.float16)
        scale[0] = np.float16(0)
        scale[1] = np.array([0x83a5], dtype=np.uint16).view(np.float16)[0]  # a negative subnormal
        raw[:, offset:offset + 2] = scale.view(np.uint8).reshape(count, 2)
    return raw.reshape(-1)


def main():
    rng = np.random.default_rng(20240607)
    out = {}
    for kind in (T.F32, T.F16, T.BF16, *SCALES):
        raw = blocks_of(kind, rng)
        values = dequantize(raw.view({T.F32: np.float32, T.F16: np.float16}.get(kind, np.uint8)), kind).astype("<f4").reshape(-1)
        assert not np.isnan(values).any()
        elements, size = GGML_QUANT_SIZES[kind]
        assert values.size == raw.size // size * elements
        out[kind.name] = {"block_elements": elements, "block_bytes": size, "blocks": base64.b64encode(raw.tobytes()).decode(),
                          "values": base64.b64encode(values.tobytes()).decode()}
        print(kind.name, raw.size // size, "blocks,", values.size, "values, max", np.abs(values[np.isfinite(values)]).max())
    with open(os.path.join(HERE, "gguf_blocks.json"), "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
