# SPDX-License-Identifier: Apache-2.0
"""Evidence files: what was measured on a machine with a GPU, in a form that scripts can read again. The format, and how such
a file is taken, stand in docs/perf/README.md.

  evidence.py header PART --commit C --keel K --command TEXT     the head of a file, on stdout
  evidence.py newest DIR PART                                    path and commit of the newest committed file of that part
  evidence.py judge DIR PART REGEX [KEY>=N|KEY<=N]...            one line: PASS, FAIL or NOT-RUN, figure, commit
"""
import argparse
import datetime
import hashlib
import os
import platform
import re
import subprocess
import sys

VERDICTS = ("PASS", "FAIL", "NOT-RUN")


def said(*command):
    """First line of what a program says, or nothing."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip().split("\n")[0] if done.returncode == 0 else ""


class Report:
    """Rows as they come, on stdout."""

    def __init__(self):
        self.count = dict.fromkeys(VERDICTS, 0)

    def row(self, verdict, name, why="", **figures):
        assert verdict in VERDICTS and " " not in name
        self.count[verdict] += 1
        words = [f"{k}={v:.5g}" if isinstance(v, float) else f"{k}={v}" for k, v in figures.items()]
        print(" ".join([verdict, name, *words]) + (f" | {' '.join(why.split())}" if why else ""), flush=True)

    def note(self, text):
        print(f"  {text}", flush=True)

    def end(self):
        """The last line; the exit status."""
        c = self.count
        print(f"end: {c['PASS']} pass, {c['FAIL']} fail, {c['NOT-RUN']} not run", flush=True)
        return 1 if c["FAIL"] or not c["PASS"] else 0


def machine():
    gpu = said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader") or "no GPU"
    versions = said(sys.executable, "-c", "import torch, transformers as t; print('torch', torch.__version__ + ',', 'transformers', "
                    "t.__version__ + ',', torch.cuda.get_device_properties(0).multi_processor_count if torch.cuda.is_available() "
                    "else 0, 'multiprocessors')")
    return f"{gpu}; {os.cpu_count()} CPU cores, {platform.machine()}; Python {platform.python_version()}, {versions or 'no torch'}"


def header(a):
    with open(a.keel, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    print(f"evidence: {a.part}\ncommit: {a.commit}\ndate: {now}\nmachine: {machine()}\nprogram: sha256 {digest}\ncommand: {a.command}\n",
          flush=True)


def parse(path):
    """{head}, [(verdict, name, {figures}, why)]; None when it is no evidence file."""
    with open(path, encoding="utf-8", errors="replace") as f:
        lines = f.read().split("\n")
    if not lines[0].startswith("evidence: "):
        return None
    head, rows = {}, []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word.endswith(":") and word[:-1] in ("evidence", "commit", "date", "machine", "program", "command", "took", "end"):
            head[word[:-1]] = rest
        elif word in VERDICTS:
            text, _, why = rest.partition(" | ")
            name, *figures = text.split()
            rows.append((word, name, dict(w.split("=", 1) for w in figures), why))
    return head, rows


def committed(folder):
    done = subprocess.run(["git", "ls-files", "-z", "--", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return [p for p in done.stdout.decode().split("\0") if p.endswith(".txt") and os.path.exists(p)]


def newest(folder, part, regex=None):
    """(path, head, rows) of the newest committed file of a part, that has a row of that name where one is asked for."""
    found = []
    for path in committed(folder):
        parsed = parse(path)
        if parsed and parsed[0].get("evidence") == part and (regex is None or any(re.search(regex, r[1]) for r in parsed[1])):
            found.append((parsed[0].get("date", ""), path, *parsed))
    return max(found)[1:] if found else None


def since(commit):
    """Whether what runs on the GPU changed after that commit."""
    if subprocess.run(["git", "cat-file", "-e", commit + "^{commit}"], stderr=subprocess.DEVNULL, check=False).returncode:
        return ", a commit that is not in this repository"
    changed = subprocess.run(["git", "diff", "--quiet", commit, "HEAD", "--", "src", "ops", "models"], check=False).returncode
    return ", src, ops or models changed since" if changed else ""


def met(figures, condition):
    key, sign, limit = re.fullmatch(r"(\w+)(>=|<=)([-0-9.]+)", condition).groups()
    if key not in figures:
        return False
    value = float(figures[key])
    return value >= float(limit) if sign == ">=" else value <= float(limit)


def judge(a):
    found = newest(a.folder, a.part, a.regex)
    if not found:
        print(f"NOT-RUN no committed evidence of part {a.part} has a row {a.regex}")
        return 2
    path, head, rows = found
    rows = [r for r in rows if re.search(a.regex, r[1])]
    bad = [r for r in rows if r[0] == "FAIL" or (r[0] == "PASS" and not all(met(r[2], c) for c in a.conditions))]
    idle = [r for r in rows if r[0] == "NOT-RUN"]
    show = lambda r: " ".join([r[1], *(f"{k}={v}" for k, v in r[2].items()), r[3]]).strip()
    origin = f"({os.path.basename(path)}, commit {head.get('commit', '?')[:12]}{since(head.get('commit', '?').split()[0])})"
    if bad:
        print(f"FAIL {len(bad)} of {len(rows)} rows: {show(bad[0])} {origin}")
        return 1
    if idle:
        print(f"NOT-RUN {len(idle)} of {len(rows)} rows: {show(idle[0])} {origin}")
        return 2
    print(f"PASS {show(rows[0]) if len(rows) == 1 else f'{len(rows)} rows'} {origin}")
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = p.add_subparsers(dest="verb", required=True)
    h = verbs.add_parser("header")
    h.add_argument("part")
    for name in ("--commit", "--keel", "--command"):
        h.add_argument(name, required=True)
    n = verbs.add_parser("newest")
    j = verbs.add_parser("judge")
    for v in (n, j):
        v.add_argument("folder")
        v.add_argument("part")
    j.add_argument("regex")
    j.add_argument("conditions", nargs="*")
    a = p.parse_args()
    if a.verb == "header":
        return header(a)
    if a.verb == "judge":
        return judge(a)
    found = newest(a.folder, a.part)
    if found:
        print(found[0], found[1].get("commit", "?"))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
