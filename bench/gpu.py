# SPDX-License-Identifier: Apache-2.0
"""Decode on a GPU: shares of the read ceiling measured in the same run, and the peers beside it, as rows of evidence.

  gpu.py bench --keel K [--only REGEX] [--runs 5] [--seconds N]      every row of ROWS
  gpu.py peers --keel K --torch-decode torch_decode.py [...]         keel beside PyTorch in the same call, batch 1
  gpu.py start --keel K                                              compile and start-up times

A row passes when its share reaches the first bar. The share is taken of the highest ceiling that any row of the call measured:
a read over a small model shows its start and tail and would flatter that model."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "gpu"))
from cubins import Cubins  # noqa: E402
from evidence import Report  # noqa: E402

# geometry, weights, context, rows a pass, first bar %, goal %, seconds that it may take on one H200 (a guess). One row a pass
# decodes fastest but prefills token by token: the longest context is filled 16 rows at a time.
ROWS = [
    ("qwen3-8b", "bf16", 64, 1, 90, 95, 25), ("llama-3.2-1b", "bf16", 64, 1, 78, 88, 10), ("qwen3-1.7b", "bf16", 64, 1, 76, 86, 12),
    ("qwen3-0.6b", "bf16", 64, 1, 43, 60, 10), ("llama-3.2-1b", "bf16", 1024, 1, 76, 86, 12), ("qwen3-8b", "bf16", 4096, 1, 88, 94, 50),
    ("qwen3-8b", "fp8", 64, 1, 82, 92, 25), ("qwen3-8b", "bf16", 32768, 16, 80, 90, 120),
]
PREFILL = ("qwen3-8b", 2048, 16, 135, 130, 40)  # geometry, tokens, rows a pass, first bar and goal in batch-1 steps, seconds
# What was measured of peers before, ms/token on one H200 (another card of the kind: about 2 % either way).
RECORDED = {("qwen3-8b", 64): "llama.cpp 4.99", ("qwen3-8b", 4096): "llama.cpp 5.29",
            ("llama-3.2-1b", 64): "Hazy megakernel 0.924 (whole loop), llama.cpp 1.28", ("llama-3.2-1b", 1024): "Hazy megakernel 1.320",
            ("qwen3-0.6b", 64): "llama.cpp 1.55"}
# geometry, context, seconds for keel, seconds for PyTorch (most of them its own compiler's)
PEERS = [("qwen3-8b", 64, 25, 130), ("llama-3.2-1b", 64, 10, 80), ("qwen3-8b", 4096, 50, 140), ("llama-3.2-1b", 1024, 12, 80),
         ("qwen3-1.7b", 64, 12, 110), ("qwen3-0.6b", 64, 10, 110)]


class Failed(Exception):
    pass


def command(words, seconds, environment=None):
    """(stdout, wall seconds)"""
    start = time.monotonic()
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=seconds,
                              env={**os.environ, **(environment or {})})
    except subprocess.TimeoutExpired as e:
        raise Failed(f"no end within {seconds} s") from e
    if done.returncode:
        raise Failed(f"exit status {done.returncode}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return done.stdout.decode(errors="replace"), time.monotonic() - start


class Bench:
    def __init__(self, a):
        self.a, self.report, self.began = a, Report(), time.monotonic()
        self.cubins = Cubins(a.sessions if a.device == "cuda" else None)

    def left(self):
        return self.a.seconds - (time.monotonic() - self.began)

    def source(self, geometry, weights):
        return ["--synth", geometry, *([] if weights == "bf16" else ["--quant", weights])]

    def compile_ahead(self, what):
        """what: (geometry, weights, ctx, batch, runs, steps) of the rows to come."""
        for geometry, weights, *row in what:
            self.cubins.begin(self.source(geometry, weights), **self.plan(*row))

    def plan(self, ctx, batch, runs, steps):
        """The plan that keel bench makes, as Sessions.plan() takes it."""
        return {"batch": batch, "max_seq": ctx + runs * steps, "workers": self.a.workers}

    def measure(self, geometry, weights, ctx, batch, runs, steps, limit):
        """{ms, min, max, gb, ceiling, achieved, prefill_ms}; times in ms, bytes in GB, rates in GB/s. The runs follow one another
        behind one prefill: each is `steps` consecutive steps with growing KV pages."""
        words = [self.a.keel, "bench", *self.source(geometry, weights), "--device", self.a.device, "--batch", str(batch), "--ctx", str(ctx),
                 "--runs", str(runs), "--steps", str(steps), "--one-prefill", "--json", *(["--workers", str(self.a.workers)] if self.a.workers else [])]
        cubin = self.cubins.get(self.source(geometry, weights), **self.plan(ctx, batch, runs, steps))
        out, wall = command(words + (["--cubin", cubin] if cubin else []), min(limit, max(self.left(), 1)))
        c = json.loads(out)["contexts"][0]
        d = c["decode_ms_a_token"]
        return {"ms": d["median"], "min": d["min"], "max": d["max"], "gb": c["bytes_a_token"] / 1e9,
                "ceiling": max(c["bandwidth_before_bytes_per_s"], c["bandwidth_after_bytes_per_s"]) / 1e9,
                "achieved": c["achieved_bytes_per_s"] / 1e9, "prefill_ms": c["prefill_ms"]["median"], "wall_s": wall}

    def tried(self, name, about, *what):
        """The measurement, or None and a row that says why."""
        if self.left() < about:
            self.report.row("NOT-RUN", name, f"takes about {about} s, {max(self.left(), 0):.0f} s were left")
            return None
        try:
            m = self.measure(*what, limit=4 * about + 30)
            self.report.note(f"{name}: {m['ms']:.4f} ms, ceiling {m['ceiling']:.0f} GB/s; {m['wall_s']:.0f} s in all, about {about} were expected")
            return m
        except Failed as e:
            missing = re.search(r"missing role bodies|reads BF16 weights", str(e))
            late = "no end within" in str(e) and self.left() < 2
            self.report.row("NOT-RUN" if missing or late else "FAIL", name, str(e))
            return None

    def rows(self):
        chosen = [(f"bench/{r[0]}/{r[1]}/ctx-{r[2]}", r) for r in ROWS]
        chosen = [(name, r) for name, r in chosen if re.search(self.a.only, name)]
        self.compile_ahead([(*r[:4], self.a.runs, self.a.steps) for _, r in chosen] + [(*p[:4], *p[4]) for p in self.prefills()])
        found = {}
        for name, (geometry, weights, ctx, batch, *_, about) in chosen:
            m = self.tried(name, about, geometry, weights, ctx, batch, self.a.runs, self.a.steps)
            if m:
                found[name] = m
        top = max([self.a.ceiling, *(m["ceiling"] for m in found.values())])
        for name, (*_, batch, bar, goal, _) in chosen:
            if name not in found:
                continue
            m = found[name]
            share = 100 * m["achieved"] / top
            self.report.row("PASS" if share >= bar else "FAIL", name, share=share, bar=bar, goal=goal, own_share=100 * m["achieved"] / m["ceiling"],
                            ms=m["ms"], min=m["min"], max=m["max"], gb=m["gb"], ceiling=m["ceiling"], top=top, batch=batch, runs=self.a.runs,
                            steps=self.a.steps, prefill_ms=m["prefill_ms"])
        self.prefill(found)
        return self.report.end()

    def prefills(self):
        geometry, tokens, batch, *_ = PREFILL
        return [(geometry, "bf16", tokens, batch, (1, 16))] if re.search(self.a.only, f"bench/{geometry}/prefill-{tokens}") else []

    def prefill(self, found):
        for geometry, weights, tokens, batch, few in self.prefills():
            *_, bar, goal, about = PREFILL
            name, step = f"bench/{geometry}/prefill-{tokens}", found.get(f"bench/{geometry}/bf16/ctx-64")
            if not step:
                self.report.row("NOT-RUN", name, f"the batch-1 step of {geometry} at context 64 was not measured in this call")
                continue
            m = self.tried(name, about, geometry, weights, tokens, batch, *few)
            if m:
                steps = m["prefill_ms"] / step["ms"]
                self.report.row("PASS" if steps <= bar else "FAIL", name, steps=steps, bar=bar, goal=goal, prefill_ms=m["prefill_ms"],
                                step_ms=step["ms"], batch=batch)

    def torch(self, geometry, ctx, about):
        """{mode: ms}"""
        words = [sys.executable, self.a.torch_decode, geometry, "--ctx", str(ctx), "--modes", self.a.modes]
        out, _ = command(words, min(2 * about, max(self.left(), 1)))
        return {m[1]: float(m[2]) for m in re.finditer(r"torch-(\w+): ([0-9.]+) ms/step", out)}

    def peers(self):
        chosen = [(f"peers/{p[0]}/ctx-{p[1]}", *p) for p in PEERS]
        chosen = [p for p in chosen if re.search(self.a.only, p[0])]
        runs = min(self.a.runs, 3)
        self.compile_ahead([(geometry, "bf16", ctx, 1, runs, self.a.steps) for _, geometry, ctx, *_ in chosen])
        for name, geometry, ctx, about, theirs in chosen:
            if self.left() < about + theirs:
                self.report.row("NOT-RUN", name, f"takes about {about + theirs} s, {max(self.left(), 0):.0f} s were left")
                continue
            mine = self.tried(name, about, geometry, "bf16", ctx, 1, runs, self.a.steps)
            if mine:
                self.peer(name, geometry, ctx, mine, theirs)
        return self.report.end()

    def peer(self, name, geometry, ctx, mine, about):
        try:
            theirs = self.torch(geometry, ctx, about)
        except Failed as e:
            self.report.row("FAIL", name, f"PyTorch: {e}", keel=mine["ms"])
            return
        recorded, top = RECORDED.get((geometry, ctx), "none"), max(self.a.ceiling, mine["ceiling"])
        best = min([*theirs.values(), *(float(x) for x in re.findall(r" ([0-9]+\.[0-9]+)", recorded))])
        shares = {f"share_{m}": 100 * mine["gb"] / ms * 1e3 / top for m, ms in theirs.items()}
        self.report.row("PASS" if mine["ms"] < best else "FAIL", name, f"recorded on another card: {recorded}", keel=mine["ms"],
                        **{f"torch_{m}": ms for m, ms in theirs.items()}, best_peer=best, ratio=best / mine["ms"],
                        share_keel=100 * mine["achieved"] / top, **shares, ceiling=top)

    def timed(self, name, limit, words, environment=None):
        try:
            seconds = command(words, 120, environment)[1]
        except Failed as e:
            self.report.row("FAIL", name, str(e))
            return None
        if limit:
            self.report.row("PASS" if seconds <= limit else "FAIL", name, seconds=seconds, limit=limit)
        return seconds

    def start(self):
        """Cold: an empty cache. Warm: what stands between the command and the first token besides weights, as the sum of two whole
        commands: plan and proof of the big model (no GPU), and a run of a model whose weights are nothing."""
        k, device = self.a.keel, ["--device", self.a.device]
        tiny = [k, "run", "--synth", "tiny-qwen3", "--tokens", "1,2,3", "--max-new-tokens", "2", "--batch", "1", *device]
        with tempfile.TemporaryDirectory() as folder:
            cache = {"XDG_CACHE_HOME": folder}
            self.timed("start/compile-qwen3-8b", 25, [k, "plan", "--synth", "qwen3-8b", "--arch", "sm_90a", "--batch", "1", "--cubin",
                                                      os.path.join(folder, "x.cubin")], cache)
            cold = self.timed("start/tiny-cold", 0, tiny, cache)
            warm = self.timed("start/tiny-warm", 0, tiny, cache)
            plan = self.timed("start/plan", 0, [k, "plan", "--synth", "qwen3-8b", "--arch", "sm_90a", "--batch", "1", "--prove"], cache)
        if cold and warm and plan:
            total = warm + plan
            self.report.row("PASS" if total <= 0.5 else "FAIL", "start/warm", seconds=total, limit=0.5, tiny_cold=cold, tiny_warm=warm,
                            plan_and_proof=plan)
        return self.report.end()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("bench", "peers", "start"))
    p.add_argument("--keel", required=True)
    p.add_argument("--sessions", help="the program of tests/gpu/sessions.c: device code is compiled ahead, side by side")
    p.add_argument("--device", default="cuda")
    p.add_argument("--only", default="", help="rows whose name matches")
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--steps", type=int, default=256)
    p.add_argument("--seconds", type=float, default=1e9, help="begin no row after so long")
    p.add_argument("--ceiling", type=float, default=0, help="GB/s that another program read in the same call, if any: the highest ceiling counts")
    p.add_argument("--torch-decode", help="the PyTorch peer: prints 'torch-MODE: N ms/step'")
    p.add_argument("--modes", default="graph,compile")
    p.add_argument("--workers", type=int, default=0)
    a = p.parse_args()
    if a.what == "peers" and not a.torch_decode:
        p.error("peers needs --torch-decode")
    b = Bench(a)
    try:
        return {"bench": b.rows, "peers": b.peers, "start": b.start}[a.what]()
    finally:
        b.cubins.close()


if __name__ == "__main__":
    sys.exit(main())
