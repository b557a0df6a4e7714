# SPDX-License-Identifier: Apache-2.0
"""Device code of many plans, compiled side by side while something else is going on: one compilation takes one core for 10 to 20
seconds, and a session that had to wait for it would hold the GPU idle."""
import concurrent.futures
import os
import subprocess
import tempfile


class Cubins:
    def __init__(self, keel, jobs=0, seconds=300):
        """keel: the program, or None: nothing is compiled ahead."""
        self.keel, self.seconds, self.waiting = keel, seconds, {}
        self.folder = tempfile.TemporaryDirectory()
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs or max(1, (os.cpu_count() or 1) - 2))

    def close(self):
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.folder.cleanup()

    def compile(self, words, path):
        """None, or what went wrong."""
        command = ["nice", self.keel, "plan", *words, "--arch", "sm_90a", "--cubin", path]
        try:
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, timeout=self.seconds)
        except subprocess.TimeoutExpired:
            return f"no end within {self.seconds} s"
        return done.stderr.decode(errors="replace").strip()[-300:] if done.returncode else None

    def begin(self, *words):
        """words: the model and the plan's options, as keel plan takes them."""
        if self.keel and words not in self.waiting:
            path = os.path.join(self.folder.name, f"{len(self.waiting)}.cubin")
            self.waiting[words] = path, self.pool.submit(self.compile, words, path)

    def get(self, *words):
        """The file; None when it was not begun or did not compile: then the session compiles for itself, and says what is wrong."""
        path, job = self.waiting.get(words, (None, None))
        return path if job and job.result() is None else None
