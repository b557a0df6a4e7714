# SPDX-License-Identifier: Apache-2.0
"""Evidence files: what was measured on a machine with a GPU, in a form that scripts can read again. The format, and how such
a file is taken, stand in docs/perf/README.md.

  evidence.py header PART --commit C --keel K --command TEXT     the head of a file, on stdout
  evidence.py newest DIR PART                                    path and commit of the newest committed file of that part
  evidence.py table FILE...                                      a short table: rows that did not pass, one line for each group of others
  evidence.py judge DIR PART REGEX [KEY>=N|KEY<=N]... [--rows N] [--goal KEY>=N]...
                 one line: PASS, FAIL or NOT-RUN, figure, whether the goal is reached, files and commits; of at least N rows
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
        if word.endswith(":") and word[:-1] in ("evidence", "commit", "date", "machine", "program", "command", "took"):
            head[word[:-1]] = rest
        elif word in VERDICTS:
            text, _, why = rest.partition(" | ")
            name, *figures = text.split()
            rows.append((word, name, dict(w.split("=", 1) for w in figures), why))
    return head, rows


def shown(row):
    return " ".join([row[1], *(f"{k}={v}" for k, v in row[2].items()), row[3]]).strip()


def worst(rows):
    """Of rows that passed: the figures that matter, over all of them."""
    figures = []
    for key, pick in (("rms_ratio", max), ("max_ratio", max), ("share", None), ("ms", None), ("ratio", None), ("steps", None), ("seconds", None)):
        values = [float(r[2][key]) for r in rows if key in r[2]]
        if values and (pick or len(rows) == 1):
            figures.append(f"{key} {'up to ' if len(rows) > 1 else ''}{(pick or max)(values):.4g}")
    return ", ".join(figures)


def table(a):
    for path in a.files:
        parsed = parse(path)
        if not parsed:
            print(f"{path}: no evidence file")
            continue
        groups = {}
        for r in parsed[1]:
            if r[0] == "PASS":
                alone = parsed[0]["evidence"] in ("bench", "peers", "start")
                groups.setdefault(r[1] if alone else "/".join(r[1].split("/")[:2]), []).append(r)
            else:
                print(f"{r[0]:8}{shown(r)[:300]}")
        for name, rows in groups.items():
            print(f"{'PASS':8}{name}: {len(rows)} rows {worst(rows)}".rstrip())
    return 0


def committed(folder):
    done = subprocess.run(["git", "ls-files", "-z", "--", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return [p for p in done.stdout.decode().split("\0") if p.endswith(".txt") and os.path.exists(p)]


def of_a_gpu(head):
    """A try on the CPU or in little is no evidence."""
    return not head.get("machine", "no GPU").startswith("no GPU") and not re.search(r"--tiny|--device cpu", head.get("command", ""))


def evidence(folder, part):
    """[(head, path, rows)] of the committed files of a part, oldest first."""
    found = [(path, parse(path)) for path in committed(folder)]
    found = [(f[0], path, f[1]) for path, f in found if f and f[0].get("evidence") == part and of_a_gpu(f[0])]
    return sorted(found, key=lambda f: (f[0].get("date", ""), f[1]))


def newest_rows(folder, part, regex):
    """{name: (row, head, path)}: of each row the newest; a part may have been taken in several calls. A row that was not run does
    not hide an older one that was."""
    rows = {}
    for head, path, found in evidence(folder, part):
        for r in found:
            if re.search(regex, r[1]) and (r[0] != "NOT-RUN" or r[1] not in rows):
                rows[r[1]] = (r, head, path)
    return rows


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


def origin(found):
    """Which files and commits."""
    files = {path: head.get("commit", "?") for _, head, path in found}
    return "; ".join(f"{os.path.basename(p)}, commit {c[:12]}{since(c.split()[0])}" for p, c in sorted(files.items()))


def reached(rows, goals):
    """A sentence on goals beyond the bar, or nothing."""
    if not goals:
        return ""
    missed = [g for g in goals if not all(met(r[2], g) for r in rows)]
    return f"; goal {' '.join(missed or goals)} {'not reached' if missed else 'reached'}"


def judge(a):
    found = list(newest_rows(a.folder, a.part, a.regex).values())
    rows = [r for r, _, _ in found]
    if not rows:
        print(f"NOT-RUN no committed evidence of part {a.part} has a row {a.regex}")
        return 2
    bad = [r for r in rows if r[0] == "FAIL" or (r[0] == "PASS" and not all(met(r[2], c) for c in a.conditions))]
    idle = [r for r in rows if r[0] == "NOT-RUN"]
    if bad:
        print(f"FAIL {len(bad)} of {len(rows)} rows: {shown(bad[0])}{reached(rows, a.goal)} ({origin(found)})")
        return 1
    if len(rows) - len(idle) < a.rows or idle:
        print(f"NOT-RUN {len(rows) - len(idle)} of {max(a.rows, len(rows))} rows {a.regex}{': ' + shown(idle[0]) if idle else ''} ({origin(found)})")
        return 2
    print(f"PASS {shown(rows[0]) if len(rows) == 1 else f'{len(rows)} rows {worst(rows)}'.strip()}{reached(rows, a.goal)} ({origin(found)})")
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
    t = verbs.add_parser("table")
    t.add_argument("files", nargs="*")
    for v in (n, j):
        v.add_argument("folder")
        v.add_argument("part")
    j.add_argument("regex")
    j.add_argument("--rows", type=int, default=1)
    j.add_argument("--goal", action="append", default=[])
    j.add_argument("conditions", nargs="*")
    a = p.parse_args()
    if a.verb == "header":
        return header(a)
    if a.verb in ("judge", "table"):
        return {"judge": judge, "table": table}[a.verb](a)
    found = evidence(a.folder, a.part)
    if found:
        print(found[-1][1], found[-1][0].get("commit", "?"))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
