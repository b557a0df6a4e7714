# SPDX-License-Identifier: Apache-2.0
"""Golden prompts of a trained checkpoint by the margin rule of tests/cli/golden.py, all in one session a batch size, and one prompt by
`keel run` as a user gives it: rows of evidence.

  goldens.py --keel K --sessions PROGRAM MODEL_DIR [--golden FILE] [--margin 0.1] [--device cuda] [--batch 1,16] [--quant fp8]
--quant fp8: of a quantised copy, against transformers in float32 on the copy's weights, codes times scales"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

for area in ("cli", "golden"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", area))
from cubins import Cubins  # noqa: E402
from evidence import Report  # noqa: E402
from golden import difference, generate  # noqa: E402
from sessions import SessionError, Sessions  # noqa: E402


def quantised(a, folder):
    """A copy of the model with weights of that kind; its name is the model's and the kind."""
    out = os.path.join(folder, f"{os.path.basename(os.path.normpath(a.model))}-{a.quant}")
    subprocess.run([a.keel, "convert", a.model, out, "--quant", a.quant], stdout=subprocess.DEVNULL, check=True)
    return out


def reference(folder, records, device):
    """The records with greedy tokens and margins of transformers on what the quantised weights stand for."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    from reference import greedy
    from torch_model import read_config, strict_arithmetic
    strict_arithmetic()
    tensors, block = {}, 128
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(load_file(os.path.join(folder, name)))
    config = read_config(os.path.join(folder, "config.json"), drop=("quantization_config",))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    for key, p in model.named_parameters():
        w, scale = tensors[key].float(), tensors.get(key + "_scale_inv")
        if scale is not None:
            wide = scale.repeat_interleave(block, 0).repeat_interleave(block, 1)
            w = w * wide[:w.shape[0], :w.shape[1]]
        p.data.copy_(w)
    torch.set_default_device(device)
    model = model.to(device)
    out = []
    for r in records:
        ids, margins, _ = greedy(model, r["prompt_ids"], len(r["greedy_ids"]))
        out.append({"prompt_ids": r["prompt_ids"], "greedy_ids": ids, "top1_minus_top2_logit": margins})
    torch.set_default_device("cpu")
    return out


class Runner:
    def __init__(self, a):
        self.a, self.report = a, Report()
        with open(a.golden or os.path.join(a.model, "golden.json"), encoding="utf-8") as f:
            self.records = json.load(f)[:a.prompts]
        for record in self.records:
            record["greedy_ids"] = record["greedy_ids"][:a.steps]
        if a.quant:
            self.folder = tempfile.TemporaryDirectory()
            a.model = quantised(a, self.folder.name)
            self.records = reference(a.model, self.records, a.torch_device or a.device)
        self.max_seq = max(len(r["prompt_ids"]) + len(r["greedy_ids"]) for r in self.records)
        self.cubins = Cubins(a.sessions if a.device == "cuda" else None)
        self.name = os.path.basename(os.path.normpath(a.model))

    def plan(self, batch):
        """As Sessions.plan() takes it."""
        return {"batch": batch, "max_seq": self.max_seq, "workers": self.a.workers}

    def judge(self, name, tokens, records, start):
        """tokens: a list of ids for each record."""
        wrong = [difference(r, {"prompt_ids": r["prompt_ids"], "token_ids": t}, self.a.margin) for r, t in zip(records, tokens)]
        exact = sum(t == r["greedy_ids"] for r, t in zip(records, tokens))
        good = sum(w is None for w in wrong)
        why = next((f"prompt {i}: {w}" for i, w in enumerate(wrong) if w), "")
        self.report.row("PASS" if good == len(records) else "FAIL", name, why, good=f"{good}/{len(records)}", equal_throughout=exact,
                        margin=self.a.margin, seconds=time.monotonic() - start)

    def batch(self, batch):
        name, start = f"goldens/{self.name}/batch-{batch}", time.monotonic()
        try:
            with Sessions(self.a.sessions, ["--model", self.a.model], self.a.device, timeout_s=self.a.timeout) as s:
                s.plan(**self.plan(batch))
                s.open(0, 30, self.cubins.get(["--model", self.a.model], **self.plan(batch)))
                self.judge(name, [s.run(r["prompt_ids"], len(r["greedy_ids"]), logits=False)[0] for r in self.records], self.records, start)
        except SessionError as e:
            self.report.row("NOT-RUN" if re.search(r"missing role bodies|reads BF16 weights", str(e)) else "FAIL", name, str(e))

    def program(self):
        """The same through the program that users have."""
        name, start = f"goldens/{self.name}/keel-run", time.monotonic()
        workers = ["--workers", str(self.a.workers)] if self.a.workers else []
        with tempfile.TemporaryDirectory() as folder:
            try:
                got = generate(self.a.keel, self.a.model, self.records[0], ["--device", self.a.device, *workers], folder)
            except (SystemExit, OSError, ValueError) as e:
                self.report.row("FAIL", name, str(e))
                return
        if got["prompt_ids"] != self.records[0]["prompt_ids"]:
            self.report.row("FAIL", name, "the prompt has other ids than the reference's")
        else:
            self.judge(name, [got["token_ids"]], self.records[:1], start)

    def all(self):
        for batch in self.a.batch:
            self.cubins.begin(["--model", self.a.model], **self.plan(batch))
        for batch in self.a.batch:
            self.batch(batch)
        if not self.a.quant:
            self.program()
        self.cubins.close()
        return self.report.end()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--keel", required=True)
    p.add_argument("--sessions", required=True)
    p.add_argument("--quant", choices=("fp8",))
    p.add_argument("--torch-device", help="of the reference of --quant; default that of keel")
    p.add_argument("--golden", help="default: golden.json of the model")
    p.add_argument("--margin", type=float, default=0.1)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--batch", type=lambda t: [int(b) for b in t.split(",")], default=[1, 16])
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--prompts", type=int, help="the first so many; default all")
    p.add_argument("--steps", type=int, help="of each; default all")
    p.add_argument("--timeout", type=float, default=120)
    return Runner(p.parse_args()).all()


if __name__ == "__main__":
    sys.exit(main())
