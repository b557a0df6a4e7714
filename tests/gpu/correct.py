# SPDX-License-Identifier: Apache-2.0
"""Logits of keel against transformers in float32, with transformers in bf16 as the yardstick, on synthetic weights.

A case is a prompt and 32 teacher-forced steps behind it. Of all its logits two errors are taken, both as shares of the root mean
square of the float32 logits: that of the differences (rms) and the largest difference (max). A case passes when each of keel's is at
most 1.3 times that of transformers in bf16 (eager attention, bf16 products with float32 sums) on the same case.

  correct.py --sessions PROGRAM [--device cpu|cuda] [--tiny] [--only REGEX] [--seconds N] ...
--tiny shrinks every shape so that the whole list runs in a minute without a GPU; on the CPU keel computes in float32.
Groups of cases, in this order: see GROUPS. What does not fit --seconds is reported as not run."""
import argparse
import gc
import hashlib
import json
import os
import random
import re
import sys
import tempfile
import time

from cubins import Cubins
from evidence import Report
from sessions import SessionError, Sessions, shared_memory

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 1.3
DEPTH_PROMPT = 37  # two full passes of 16 rows and one of 5; the steps cross the border of KV page 0
# Around rows of a pass, KV pages and powers of two; the last one ends at the last position of 32,768.
SHORT = [1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 1024, 2049, 4096]
LONG = SHORT + [4097, 16384, 32768 - 31]
TINY = [1, 2, 15, 16, 17, 63, 64, 65, 129]


class Group:
    """Cases that share weights and references. plans: (batch, page seed, prompt lengths); repeats: of each case, with other input
    between; about: seconds on one H200, a guess until the first run has corrected it; sharp: see torch_model.sharpen()."""

    def __init__(self, kind, geometry, plans, about, layers=None, changes=None, name=None, repeats=0, sharp=False):
        self.kind, self.geometry, self.plans, self.about, self.layers = kind, geometry, plans, about, layers
        self.changes, self.repeats, self.sharp = changes or {}, repeats, sharp
        self.name = f"{kind}/{name or geometry}" + (f"-l{layers}" if layers else "")

    def slice(self):
        return (0, self.layers - 1) if self.layers else None


def depth(geometry, batches, about, repeats, layers=None):
    return Group("depth", geometry, [(b, 0, [DEPTH_PROMPT]) for b in batches], about, layers, repeats=repeats)


def shape(name, geometry, **changes):
    return Group("shape", geometry, [(1, 3, [1, DEPTH_PROMPT]), (16, 4, [16, DEPTH_PROMPT])], 6, 2, changes, name)


def context(geometry, plans, about):
    """Attention looks at few positions, so that each of them counts; the vocabulary is small, for the sake of time."""
    return Group("context", geometry, plans, about, 2, {"vocab_size": 4099}, sharp=True)


# What says most for its time comes first; whole models of the larger kind come last, their first layers before.
GROUPS = [
    depth("qwen3-0.6b", [1, 2, 3, 8, 16], 50, 20),
    depth("llama-3.2-1b", [1, 16], 25, 20),
    shape("hidden-2560", "qwen3-4b"),
    shape("hidden-5120-heads-40-8", "qwen3-14b"),
    shape("vocab-50257-untied", "qwen3-4b", vocab_size=50257, tie_word_embeddings=False),
    shape("vocab-32003", "qwen3-0.6b", vocab_size=32003),
    shape("gqa-1", "qwen3-0.6b", num_key_value_heads=16),
    shape("gqa-16", "qwen3-8b", num_key_value_heads=2, vocab_size=32003),
    shape("gqa-8-head-64", "llama-3.2-1b", num_key_value_heads=4, vocab_size=32003),
    depth("qwen3-8b", [1, 16], 15, 3, 4),
    depth("qwen3-14b", [1, 16], 20, 3, 4),
    context("qwen3-8b", [(16, 7, LONG), (1, 8, SHORT)], 40),
    context("llama-3.2-1b", [(16, 9, LONG), (3, 10, SHORT)], 40),
    depth("qwen3-1.7b", [1, 16], 20, 3),
    depth("qwen3-8b", [1, 16], 60, 3),
    depth("qwen3-14b", [1, 16], 90, 2),
    context("qwen3-14b", [(16, 11, SHORT), (2, 12, SHORT)], 30),
]


def shrunk(c, layers):
    """The same proportions in little: `layers` layers, 1/16 of the width, an eighth of the heads, an odd vocabulary."""
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    c.update(hidden_size=c["hidden_size"] // 16, intermediate_size=c["intermediate_size"] // 32 // 16 * 16 + 16,
             num_hidden_layers=layers, vocab_size=c["vocab_size"] % 300 + 301)
    c.pop("bos_token_id", None), c.pop("eos_token_id", None)
    while kv % 2 == 0 and heads % 2 == 0 and heads > 4:
        heads, kv = heads // 2, kv // 2
    c.update(num_attention_heads=heads, num_key_value_heads=kv)
    return c


def sequence(seed, n, vocab):
    r = random.Random(seed)
    return [r.randrange(vocab) for _ in range(n)]


def errors(got, want):
    """(rms, max) as shares of the reference's own root mean square."""
    d, scale = (got - want).double(), want.double().pow(2).mean().sqrt()
    return float(d.pow(2).mean().sqrt() / scale), float(d.abs().max() / scale)


class Runner:
    def __init__(self, a):
        self.a, self.report, self.began = a, Report(), time.monotonic()
        self.cubins = Cubins(a.sessions if a.device == "cuda" else None)
        self.guessed = self.spent = 0.0

    def left(self):
        return self.a.seconds - (time.monotonic() - self.began)

    def about(self, group):
        """Seconds that the group will take, by what the guesses about those before it were worth."""
        return group.about * min(max(self.spent / self.guessed, 0.2), 5) if self.guessed else group.about

    def config(self, group, folder):
        """Path of its config.json, and its vocabulary."""
        with open(os.path.join(self.a.geometries, group.geometry + ".json"), encoding="utf-8") as f:
            c = {**json.load(f), **group.changes}
        c = shrunk(c, group.layers or 2) if self.a.tiny else c
        path = os.path.join(folder, group.name.replace("/", "-") + ".json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(c, f)
        return path, c["vocab_size"]

    def plan(self, group, batch):
        """As Sessions.plan() takes it."""
        return {"batch": batch, "max_seq": self.positions(group), "workers": self.a.workers}

    def positions(self, group):
        """Of a group's KV pages; enough that there are some to permute."""
        return max([512, *(p + self.a.steps - 1 for _, _, ps in self.plans(group) for p in ps)])

    def plans(self, group):
        """Prompts cut to what --tiny and --longest allow."""
        for batch, page_seed, prompts in group.plans:
            if self.a.tiny and len(prompts) > 2:
                prompts = TINY
            prompts = [p for p in prompts if p + self.a.steps - 1 <= self.a.longest]
            if prompts:
                yield batch, page_seed, prompts

    def reference(self, config, group, sequences, positions, dtype, folder=None):
        """Logits at the positions of each sequence; the weights go to the folder, if one is given. On a GPU its memory is given back:
        keel needs it next."""
        import torch

        from torch_model import build, logits_at, read_config, save, sharpen
        model = build(read_config(config, group.layers), dtype, self.a.torch_device, self.a.seed)
        if group.sharp:
            sharpen(model)
        if folder:
            save(model, folder)
        out = [logits_at(model, ids, positions) for ids in sequences]
        del model
        gc.collect()
        if self.a.torch_device == "cuda":
            torch.cuda.empty_cache()
        return out

    def references(self, config, group, vocab, folder=None):
        import torch  # here, so that compilers and weights are under way before

        from torch_model import strict_arithmetic
        strict_arithmetic()
        steps, prompts = self.a.steps, [p for _, _, ps in self.plans(group) for p in ps]
        positions = sorted({q for p in prompts for q in range(p - 1, p - 1 + steps)})
        ids = [sequence(s, positions[-1] + 1, vocab) for s in ((1, 2) if group.repeats else (1,))]
        start = time.monotonic()
        bf16 = self.reference(config, group, ids, positions, torch.bfloat16, folder)
        f32 = self.reference(config, group, ids, positions, torch.float32)
        self.report.note(f"{group.name}: references of {len(positions)} positions up to {positions[-1]} in {time.monotonic() - start:.1f} s")
        return ids, f32, bf16, {p: i for i, p in enumerate(positions)}

    def compare(self, name, data, rows, f32, bf16):
        """One row of the report."""
        import torch
        got = torch.frombuffer(bytearray(data), dtype=torch.float32).view(len(rows), -1)
        want, yard = f32[rows], bf16[rows]
        if not torch.isfinite(got).all():
            self.report.row("FAIL", name, "logits that are no finite number, or that were not written")
            return
        (rms, most), (yard_rms, yard_most) = errors(got, want), errors(yard, want)
        good = rms <= LIMIT * yard_rms and most <= LIMIT * yard_most
        same = (got.argmax(-1) == want.argmax(-1)).sum().item()
        self.report.row("PASS" if good else "FAIL", name, rms_ratio=rms / yard_rms, max_ratio=most / yard_most, rms=rms, max=most,
                        yard_rms=yard_rms, yard_max=yard_most, top1=f"{same}/{len(rows)}")

    def repeat(self, name, s, runs, repeats, opened_seed, cubin):
        """The same bits in many runs with another input between; in a new session with other pages too."""
        first, other = (run() for run in runs)
        bits = {hashlib.sha256(runs[0]()[1]).hexdigest() for _ in range(repeats - 1)} | {hashlib.sha256(first[1]).hexdigest()}
        self.report.row("PASS" if len(bits) == 1 else "FAIL", name.replace("depth/", "repeat/"), runs=repeats, distinct=len(bits))
        s.open(opened_seed + 5, self.a.watchdog, cubin)
        moved = runs[0]()[1] == first[1]
        self.report.row("PASS" if moved else "FAIL", name.replace("depth/", "pages-moved/"), "a new session, KV pages in another order")
        return other

    def cases(self, group, config, s, refs):
        ids, f32, bf16, at = refs
        steps, repeats = self.a.steps, min(group.repeats, self.a.repeats)
        for batch, page_seed, prompts in self.plans(group):
            start = time.monotonic()
            facts = s.plan(**self.plan(group, batch))
            cubin = self.cubins.get(["--synth", config], group.slice(), **self.plan(group, batch))
            waited = time.monotonic() - start
            opened = s.open(page_seed, self.a.watchdog, cubin)
            self.report.note(f"{group.name}/batch-{batch}: {facts['workers']} workers, KV pages in order {page_seed or 'as they lie'}, "
                             f"{waited:.1f} s for plan and device code, session opened in {opened['seconds']} s")
            for p in prompts:
                name = f"{group.name}/batch-{batch}/ctx-{p}"
                rows = [at[q] for q in range(p - 1, p - 1 + steps)]
                run = lambda i, p=p: s.run(ids[i][:p], steps, ids[i][p:p + steps - 1])
                if self.left() < 0:
                    self.report.row("NOT-RUN", name, f"{self.a.seconds} s were over")
                    continue
                try:
                    self.compare(name, run(0)[1], rows, f32[0], bf16[0])
                    if repeats:
                        other = self.repeat(name, s, [lambda: run(0), lambda: run(1)], repeats, page_seed, cubin)
                        self.compare(name.replace("depth/", "second-input/"), other[1], rows, f32[1], bf16[1])
                except SessionError as e:
                    self.report.row("FAIL", name, str(e))
                    if s.process.poll() is not None:
                        raise
                    s.open(page_seed, self.a.watchdog, cubin)

    def sessions(self, source, group):
        return Sessions(self.a.sessions, source, self.a.device, self.a.seed + self.a.break_seed, group.slice(), self.a.timeout)

    def checkpoint(self, config, group, folder):
        """config.json of a folder that the weights will be in."""
        with open(config, encoding="utf-8") as f:
            c = json.load(f)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump({**c, "num_hidden_layers": group.layers}, f)

    def group(self, group, config, vocab):
        start = time.monotonic()
        if group.sharp:  # weights that no formula gives: from the reference through a file
            with tempfile.TemporaryDirectory(dir=shared_memory()) as folder:
                self.checkpoint(config, group, folder)
                refs = self.references(config, group, vocab, folder)
                with self.sessions(["--model", folder], group) as s:
                    self.cases(group, config, s, refs)
        else:
            with self.sessions(["--synth", config], group) as s:  # makes its weights meanwhile
                self.cases(group, config, s, self.references(config, group, vocab))
        took = time.monotonic() - start
        self.guessed, self.spent = self.guessed + group.about, self.spent + took
        self.report.note(f"{group.name}: {took:.0f} s in all, about {group.about} were expected")

    def all(self):
        with tempfile.TemporaryDirectory() as folder:
            chosen = [(g, *self.config(g, folder)) for g in GROUPS if re.search(self.a.only, g.name)]
            for group, config, _ in chosen:
                for batch, *_ in self.plans(group):
                    self.cubins.begin(["--synth", config], group.slice(), **self.plan(group, batch))
            for group, config, vocab in chosen:
                if self.left() < self.about(group):
                    self.report.row("NOT-RUN", group.name, f"takes about {self.about(group):.0f} s, {max(self.left(), 0):.0f} s were left")
                    continue
                try:
                    self.group(group, config, vocab)
                except Exception as e:  # one group's failure must not hide what the others have to say
                    self.report.row("FAIL", group.name, f"{type(e).__name__}: {e}")
            self.cubins.close()
        return self.report.end()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sessions", help="the program of sessions.c")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of keel")
    p.add_argument("--torch-device", help="of the reference; default that of keel")
    p.add_argument("--geometries", default=os.path.join(HERE, "..", "..", "models", "geometries"))
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--only", default="", help="groups whose name matches")
    p.add_argument("--list", action="store_true", help="the groups and what they may take, and no more")
    p.add_argument("--seconds", type=float, default=1e9, help="begin no group that is not expected to end within them, no case after them")
    p.add_argument("--timeout", type=float, default=400, help="of one answer, seconds")
    p.add_argument("--watchdog", type=int, default=30)
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--repeats", type=int, default=20)
    p.add_argument("--longest", type=int, default=32768, help="leave out prompts that end behind this position")
    p.add_argument("--seed", type=int, default=11, help="of the weights")
    p.add_argument("--break-seed", type=int, default=0, help="keel gets other weights: every case must fail")
    a = p.parse_args()
    if a.list:
        for g in GROUPS:
            print(f"{g.about:4} s  {g.name}: " + "; ".join(f"batch {b}, {len(ps)} contexts up to {max(ps)}" for b, _, ps in g.plans))
        return 0
    if not a.sessions:
        p.error("--sessions is needed")
    a.torch_device = a.torch_device or a.device
    return Runner(a).all()


if __name__ == "__main__":
    sys.exit(main())
