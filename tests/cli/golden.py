# SPDX-License-Identifier: Apache-2.0
"""Compares greedy tokens of `keel run` with a golden.json, by the margin rule of the checkpoints' README.

The first difference of a prompt counts only where the reference's own margin between its first and second choice is
above MARGIN; from there on nothing of that prompt is compared.

Usage: golden.py KEEL MODEL_DIR GOLDEN_JSON [option of keel run]...
Environment: GOLDEN_MARGIN (0.02), GOLDEN_PROMPTS (the first so many), GOLDEN_STEPS (the first so many of each).
"""
import json
import os
import subprocess
import sys
import tempfile

MARGIN = float(os.environ.get("GOLDEN_MARGIN", "0.02"))


def generate(keel, model, record, options, folder):
    out = os.path.join(folder, "out.json")
    command = [keel, "run", model, "--tokens", ",".join(map(str, record["prompt_ids"])), "--max-new-tokens",
               str(len(record["greedy_ids"])), "--ignore-eos", "--save-tokens", out, *options]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.decode(errors='replace')}")
    with open(out, encoding="utf-8") as f:
        return json.load(f)


def difference(record, got, allowed=MARGIN):
    """None, or what is wrong."""
    want, ids = record["greedy_ids"], got["token_ids"]
    if got["prompt_ids"] != record["prompt_ids"]:
        return "prompt_ids differ from what was given"
    if len(ids) != len(want):
        return f"{len(ids)} tokens, expected {len(want)}"
    for step, (a, b) in enumerate(zip(ids, want)):
        if a == b:
            continue
        margin = record["top1_minus_top2_logit"][step]
        return None if margin <= allowed else f"step {step}: token {a}, the reference has {b} with margin {margin}"
    return None


def main():
    keel, model, golden, *options = sys.argv[1:]
    with open(golden, encoding="utf-8") as f:
        records = json.load(f)[:int(os.environ.get("GOLDEN_PROMPTS", "1000"))]
    for record in records:
        record["greedy_ids"] = record["greedy_ids"][:int(os.environ.get("GOLDEN_STEPS", "100000"))]
    failed = exact = 0
    with tempfile.TemporaryDirectory() as folder:
        for i, record in enumerate(records):
            got = generate(keel, model, record, options, folder)
            wrong = difference(record, got)
            exact += got["token_ids"] == record["greedy_ids"]
            failed += wrong is not None
            if wrong:
                print(f"prompt {i} ({len(record['prompt_ids'])} tokens): {wrong}")
    print(f"{os.path.basename(model)} {' '.join(options)}: {len(records) - failed} of {len(records)} prompts, {exact} exact")
    sys.exit(1 if failed or not records else 0)


if __name__ == "__main__":
    main()
