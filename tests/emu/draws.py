# SPDX-License-Identifier: Apache-2.0
"""The tokens that ops/sample/sample.h promises for saved logits, by a full sort and in double precision, against those
of the run.

Usage: draws.py LOGITS_SAFETENSORS TOKENS_JSON TEMPERATURE TOP_K TOP_P SEED
"""
import json
import math
import struct
import sys

MASK = 2**64 - 1


def read(path):
    with open(path, "rb") as f:
        blob = f.read()
    (n,) = struct.unpack_from("<Q", blob)
    t = json.loads(blob[8:8 + n])["logits"]
    rows, columns = t["shape"]
    flat = struct.unpack_from(f"<{rows * columns}f", blob, 8 + n + t["data_offsets"][0])
    return [flat[i * columns:(i + 1) * columns] for i in range(rows)]


def f32(v):
    return struct.unpack("f", struct.pack("f", v))[0]


def mix(z):
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & MASK
    z = (z ^ z >> 27) * 0x94d049bb133111eb & MASK
    return z ^ z >> 31


def number(seed, n):
    return mix((mix(seed + 0x9e3779b97f4a7c15 & MASK) + (n + 1) * 0x9e3779b97f4a7c15) & MASK) / 2**64


def weights(x, t):
    top = max(x)
    if top / t > 3.4028235e38:
        return [1.0 if v / t > 3.4028235e38 else 0.0 for v in x]
    return [math.exp(v / t - top / t) if v / t - top / t > -28 else 0.0 for v in x]


def draw(x, t, top_k, top_p, u):
    w = weights(x, t)
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    if 0 < top_k < len(x):
        cut = x[order[top_k - 1]]
        order = [i for i in order if x[i] >= cut]
    if 0 < top_p < 1:
        total, before, kept = math.fsum(w[i] for i in order), 0.0, []
        for i in order:
            if before >= top_p * total:
                break
            kept.append(i)
            before += w[i]
        order = kept
    total, upto = math.fsum(w[i] for i in order), 0.0
    for i in sorted(order):
        upto += w[i]
        if upto > u * total:
            return i
    return None


def main():
    logits, seed = read(sys.argv[1]), int(sys.argv[6])
    with open(sys.argv[2], encoding="utf-8") as f:
        got = json.load(f)["token_ids"]
    t, top_k, top_p = f32(float(sys.argv[3])), int(sys.argv[4]), f32(float(sys.argv[5]))
    assert len(logits) == len(got) > 3, (len(logits), len(got))
    want = [draw(x, t, top_k, top_p, number(seed, i)) for i, x in enumerate(logits)]
    print(got)
    if got != want:
        sys.exit(f"expected {want}")


main()
