# SPDX-License-Identifier: Apache-2.0
"""Device code of many plans, compiled side by side while something else is going on: one compilation takes one core for 10 to 20
seconds, and a session that had to wait for it would hold the GPU idle."""
import concurrent.futures
import os
import tempfile

from sessions import SessionError, Sessions


class Cubins:
    def __init__(self, program, jobs=0, seconds=300):
        """program: that of sessions.c, or None: nothing is compiled ahead."""
        self.program, self.seconds, self.waiting = program, seconds, {}
        self.folder = tempfile.TemporaryDirectory()
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs or max(1, (os.cpu_count() or 1) - 2))

    def close(self):
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.folder.cleanup()

    def compile(self, source, layers, plan, path):
        """None, or what went wrong."""
        try:
            with Sessions(self.program, source, "cuda", layers=layers, timeout_s=self.seconds, weights=False) as s:
                s.plan(**dict(plan))
                s.ask("cubin", path)
        except SessionError as e:
            return str(e)
        return None

    def begin(self, source, layers=None, **plan):
        """source, layers: as Sessions takes them; plan: as Sessions.plan() does."""
        key = (tuple(source), layers, tuple(sorted(plan.items())))
        if self.program and key not in self.waiting:
            path = os.path.join(self.folder.name, f"{len(self.waiting)}.cubin")
            self.waiting[key] = path, self.pool.submit(self.compile, *key, path)

    def get(self, source, layers=None, **plan):
        """The file; None when it was not begun or did not compile: then the session compiles for itself, and says what is wrong."""
        path, job = self.waiting.get((tuple(source), layers, tuple(sorted(plan.items()))), (None, None))
        wrong = job.result() if job else None
        if wrong:
            print(f"  not compiled ahead: {' '.join(wrong.split())[:300]}", flush=True)
        return None if wrong else path
