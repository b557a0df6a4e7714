# SPDX-License-Identifier: Apache-2.0
"""Decode of llama.cpp and of keel in turns, A B A B, on one geometry with bf16 weights; the last line is the ratio.

Each side's figure is the median over rounds of its best repetition; the ratio is the median of the rounds' ratios, so
that a slow minute of the machine hits both.

usage: compare.py --keel K --llama-bench L --gguf G --synth NAME [--threads 2] [--rounds 5] [--tokens 64]
Exit status 0 when the ratio is at least 1.
"""
import argparse
import json
import statistics
import subprocess
import sys


def run(command):
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--keel", required=True)
    p.add_argument("--llama-bench", required=True)
    p.add_argument("--gguf", required=True)
    p.add_argument("--synth", required=True)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=64)
    a = p.parse_args()
    ratios, mine, theirs, ceilings = [], [], [], []
    for i in range(a.rounds):
        l = run([a.llama_bench, "-m", a.gguf, "-t", str(a.threads), "-p", "0", "-n", str(a.tokens), "-r", "3", "-o", "json"])
        best_l = max(l[0]["samples_ts"])
        k = run([a.keel, "bench", "--synth", a.synth, "--device", "cpu", "--workers", str(a.threads), "--ctx", "1", "--steps",
                 str(a.tokens), "--runs", "3", "--json"])
        c = k["contexts"][0]
        best_k = 1000.0 / c["decode_ms_a_token"]["min"]
        ceiling = max(c["bandwidth_before_bytes_per_s"], c["bandwidth_after_bytes_per_s"]) / 1e9
        share = best_k * c["bytes_a_token"] / 1e9 / ceiling
        ratios.append(best_k / best_l)
        mine.append(best_k)
        theirs.append(best_l)
        ceilings.append(ceiling)
        print(f"round {i + 1}: llama.cpp {best_l:.2f} tokens/s, keel {best_k:.2f} tokens/s, ratio {best_k / best_l:.3f}, "
              f"read bandwidth {ceiling:.1f} GB/s, keel at {100 * share:.0f} % of it")
    ratio = statistics.median(ratios)
    print(f"ratio {ratio:.3f} (min {min(ratios):.3f}, max {max(ratios):.3f}); keel {statistics.median(mine):.2f}, llama.cpp "
          f"{statistics.median(theirs):.2f} tokens/s, read bandwidth {statistics.median(ceilings):.1f} GB/s, medians of {a.rounds} rounds")
    sys.exit(0 if ratio >= 1 else 1)


main()
