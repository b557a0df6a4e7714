# SPDX-License-Identifier: Apache-2.0
"""Compares a file of --save-logits with a logits_first.json, or the last rows of two such files: the largest difference of
any logit must be small.

Usage: logits.py LOGITS_SAFETENSORS LOGITS_FIRST_JSON|LOGITS_SAFETENSORS [LIMIT]
"""
import json
import struct
import sys

LIMIT = 5e-4  # float32 on both sides; the reference has 6 digits, its logits go up to about 10


def read(path):
    with open(path, "rb") as f:
        blob = f.read()
    (n,) = struct.unpack_from("<Q", blob)
    t = json.loads(blob[8:8 + n])["logits"]
    assert t["dtype"] == "F32" and len(t["shape"]) == 2, t
    rows, columns = t["shape"]
    flat = struct.unpack_from(f"<{rows * columns}f", blob, 8 + n + t["data_offsets"][0])
    return [flat[i * columns:(i + 1) * columns] for i in range(rows)]


def main():
    got = read(sys.argv[1])
    if sys.argv[2].endswith(".json"):
        with open(sys.argv[2], encoding="utf-8") as f:
            want = json.load(f)["logits"]
    else:
        got, want = got[-1:], read(sys.argv[2])[-1:]
    if len(got) != len(want) or any(len(a) != len(b) for a, b in zip(got, want)):
        sys.exit(f"{len(got)} rows of {len(got[0]) if got else 0}, expected {len(want)} of {len(want[0])}")
    worst = max(abs(a - b) for g, w in zip(got, want) for a, b in zip(g, w))
    print(f"largest difference {worst:.2g} over {len(want)} rows")
    sys.exit(0 if worst <= (float(sys.argv[3]) if len(sys.argv) > 3 else LIMIT) else 1)


main()
