# SPDX-License-Identifier: Apache-2.0
"""The program of sessions.c from Python: one model, many plans and sessions, logits as flat float32 arrays."""
import array
import os
import select
import subprocess
import tempfile


class SessionError(Exception):
    """What the program answered, or that it answered nothing in time."""


def shared_memory():
    """A folder that costs no disk where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Sessions:
    def __init__(self, program, source, device="cpu", seed=0, layers=None, timeout_s=300, weights=True):
        """source: ["--synth", G] or ["--model", DIR]. Returns at once: the weights are made while the caller works."""
        self.arch = {"cpu": "cpu", "cuda": "sm_90a"}[device]
        self.timeout_s = timeout_s
        self.folder = tempfile.TemporaryDirectory(dir=shared_memory())
        command = [program, *source, "--seed", str(seed), *(["--layers", *map(str, layers)] if layers else []),
                   *([] if weights else ["--no-weights"])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pending = b""
        self.facts = None
        self.vocab = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()

    def line(self):
        while b"\n" not in self.pending:
            if not select.select([self.process.stdout], [], [], self.timeout_s)[0]:
                self.process.kill()
                raise SessionError(f"no answer in {self.timeout_s} s")
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise SessionError(f"ended with status {self.process.wait()}")
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode(errors="replace")

    def answer(self):
        words = self.line().split()
        if not words or words[0] != "ok":
            raise SessionError(" ".join(words))
        return dict(w.split("=", 1) for w in words[1:])

    def ready(self):
        """Waits until the weights are there."""
        if self.facts is None:
            self.facts = self.answer()
            self.vocab = int(self.facts["vocab"])
        return self.facts

    def ask(self, *words):
        self.ready()
        try:
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError as e:
            raise SessionError(f"ended with status {self.process.wait()}") from e
        return self.answer()

    def plan(self, batch=0, max_seq=0, workers=0, kv_splits=0, page_tokens=0):
        return self.ask("plan", self.arch, batch, max_seq, workers, kv_splits, page_tokens)

    def open(self, page_seed=0, watchdog_s=0, cubin=None):
        return self.ask("open", page_seed, watchdog_s, cubin or "-")

    def run(self, prompt, steps, forced=None, logits=True):
        """(tokens, bytes of [steps][vocab] float32 or None, facts). forced: steps − 1 ids."""
        ids_path, out_path = (os.path.join(self.folder.name, n) for n in ("ids", "logits"))
        with open(ids_path, "wb") as f:
            array.array("i", [*prompt, *(forced or [])]).tofile(f)
        assert forced is None or len(forced) == steps - 1, (len(forced), steps)
        facts = self.ask("run", len(prompt), steps, int(forced is not None), ids_path, out_path if logits else "-")
        tokens = [int(t) for t in facts.pop("tokens").split(",")]
        if len(tokens) != steps:
            raise SessionError(f"{len(tokens)} tokens of {steps}")
        if not logits:
            return tokens, None, facts
        with open(out_path, "rb") as f:
            data = f.read()
        assert len(data) == 4 * steps * self.vocab, len(data)
        return tokens, data, facts
