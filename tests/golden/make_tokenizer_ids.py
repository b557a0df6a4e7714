# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizer_ids.json: the ids that `tokenizers` gives for each corpus string.

{"name": [[ids of corpus string 0], ...]}, encode(s, add_special_tokens=False). Names: the
files under tokenizers/, "qwen3-py-12m" (a given tokenizer.json, as it is) and "smollm2-gguf"
(SmolLM2-135M-Instruct, rebuilt from the GGUF's tokens, token types and merges with the
pre-tokeniser of its published tokenizer.json: Digits, then ByteLevel with its own regex).

The GGUF vocabulary lacks 21 of the 256 bytes (0x04 0x06 0x13 0x14 0x16 0x1d 0xc0 0xc1 0xf1 0xf2
0xf5-0xff). The model has no unk token: such a byte is dropped before merging.

Usage: python make_tokenizer_ids.py GGUF QWEN3_TOKENIZER_JSON [SMOLLM2_TOKENIZER_OUT]
"""
import base64
import glob
import json
import os
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL


def smollm2_from_gguf(path):
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False)
                            for t, kind in zip(tokens, types) if kind == CONTROL_TOKEN])
    return tok


def main():
    gguf_path, qwen_path = sys.argv[1:3]
    smollm2 = smollm2_from_gguf(gguf_path)
    if len(sys.argv) > 3:
        smollm2.save(sys.argv[3])
    toks = {"smollm2-gguf": smollm2, "qwen3-py-12m": Tokenizer.from_file(qwen_path)}
    for path in sorted(glob.glob(os.path.join(HERE, "tokenizers", "*.json"))):
        toks[os.path.basename(path)[:-5]] = Tokenizer.from_file(path)
    with open(os.path.join(HERE, "tokenizer_corpus.json")) as f:
        corpus = [base64.b64decode(e["b64"]).decode("utf-8", errors="replace") for e in json.load(f)]
    out = []
    for name, tok in toks.items():
        ids = [tok.encode(s, add_special_tokens=False).ids for s in corpus]
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in ids)
        out.append(f"{json.dumps(name)}: [\n{rows}\n]")
        exact = sum(tok.decode(row, skip_special_tokens=False) == s for row, s in zip(ids, corpus))
        print(name, sum(map(len, ids)), "ids;", exact, "of", len(corpus), "strings come back from decode unchanged")
    with open(os.path.join(HERE, "tokenizer_ids.json"), "w") as f:
        f.write("{\n" + ",\n".join(out) + "\n}\n")


if __name__ == "__main__":
    main()
