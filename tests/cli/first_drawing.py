#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/first-drawing.md as a program.

first_drawing.py PAGE DRAWING    in an empty folder with tests/golden (and models-cache, if there is one): the page's tables
                                 are what DRAWING holds; then all that the page does, top to bottom
first_drawing.py --write PAGE DRAWING     puts the outputs of today into the page
first_drawing.py --compress IN OUT        the drawing as draw.io saves it with File, Properties, Compressed

What the page may hold, beside text:
  | label | why |                        boxes of the page of the drawing that the heading names
  | from | to | on the arrow |           arrows of that page
  | in `X.drawio` | instead of | write | a copy X of DRAWING (made at its first table) and an edit for each row
  ```console                             $ command, then its output and errors; a line … stands for any lines, a row of times for any times
"""
import base64
import html
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree as ET
import zlib

TIMES = re.compile(r"^prompt \d+ tokens, prefill .*TPOT.*$")
ASAN = "WARNING: ASan doesn't fully support makecontext"  # on its own account
DELETE, DETACH, NOTHING = "(delete it)", "(detach its end)", "(nothing)"


def text_of(label):
    """The words of an HTML label: lines, without empty ones."""
    label = re.sub(r"(?i)<br[^>]*>|</?(div|p)\b[^>]*>", "\n", label or "")
    text = html.unescape(re.sub(r"<[^>]*>", "", label)).replace("\xa0", " ")
    return [" ".join(line.split()) for line in text.split("\n") if line.strip()]


class Drawing:
    """A plain .drawio file, as a person sees it: pages, boxes by name, arrows."""

    def __init__(self, path):
        self.path, self.tree, self.fresh = path, ET.parse(path), 0

    def save(self):
        self.tree.write(self.path, encoding="utf-8")

    def page(self, name):
        return next(d for d in self.tree.iter("diagram") if d.get("name") == name)

    def pages(self):
        return [d.get("name") for d in self.tree.iter("diagram")]

    def cells(self, page):
        return list(self.page(page).iter("mxCell"))

    def boxes(self, page):
        edges = {c.get("id") for c in self.cells(page) if c.get("edge")}
        return [c for c in self.cells(page) if c.get("vertex") and c.get("parent") not in edges]

    def arrows(self, page):
        """(from, to, label cell) of each; the label is the edge's own or that of its child."""
        cells = self.cells(page)
        name = {c.get("id"): text_of(c.get("value"))[0] for c in self.boxes(page)}
        for e in cells:
            if e.get("edge"):
                label = next((c for c in cells if c.get("parent") == e.get("id")), e)
                yield name.get(e.get("source")), name.get(e.get("target")), label, e

    def edit(self, what, before, after):
        """One row of an edit table; how often it applied."""
        done = 0
        what, _, where = what.partition(" on the page ")
        for page in self.pages():
            if where and page != where:
                continue
            if what == "new arrow":
                done += self.connect(page, *after.split(" to "))
            elif what == "every box":
                for c in self.boxes(page):
                    done += before in c.get("value", "")
                    c.set("value", c.get("value", "").replace(before, after))
            elif m := re.fullmatch(r"arrow (\S+) to (\S+)", what):
                for source, target, label, e in list(self.arrows(page)):
                    if (source, target) == m.groups():
                        done += self.edit_arrow(page, e, label, before, after)
            elif what == "tab" and page == before:
                self.page(page).set("name", after)
                return 1
            else:
                for c in self.boxes(page):
                    if text_of(c.get("value"))[0] == what:
                        done += self.edit_box(page, c, before, after)
        return done

    def connect(self, page, source, target):
        id_of = {text_of(c.get("value"))[0]: c.get("id") for c in self.boxes(page)}
        if source not in id_of or target not in id_of:
            return 0
        self.fresh += 1
        e = ET.SubElement(self.page(page).find(".//root"), "mxCell", {
            "id": f"new-{self.fresh}", "style": "html=1;", "edge": "1", "parent": "1", "source": id_of[source], "target": id_of[target]})
        ET.SubElement(e, "mxGeometry", {"relative": "1", "as": "geometry"})
        return 1

    def edit_arrow(self, page, e, label, before, after):
        if after == DETACH:
            del e.attrib["target"]
            geometry = e.find("mxGeometry")
            ET.SubElement(geometry, "mxPoint", {"x": "480", "y": "700", "as": "targetPoint"})
        else:
            assert text_of(label.get("value")) == ([before] if before else []), label.get("value")
            label.set("value", after)
        return 1

    def edit_box(self, page, c, before, after):
        """draw.io deletes the arrows of a box with it."""
        if after == DELETE:
            root = self.page(page).find(".//root")
            gone = {c.get("id")}
            for e in list(root):
                if gone & {e.get("id"), e.get("source"), e.get("target"), e.get("parent")}:
                    gone.add(e.get("id"))
                    root.remove(e)
            return 1
        value = c.get("value")
        if before not in value:
            return 0
        c.set("value", value.replace(before, after))
        return 1


def compress(source, target):
    tree = ET.parse(source)
    for d in tree.iter("diagram"):
        model = d.find("mxGraphModel")
        data = urllib.parse.quote(ET.tostring(model, encoding="unicode"), safe="~()*!.'").encode()
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        d.remove(model)
        d.text = base64.b64encode(packer.compress(data) + packer.flush()).decode()
    tree.write(target, encoding="utf-8")


# ---- the page -------------------------------------------------------------------------------------------------------

def words(cell):
    return re.findall(r"`([^`]*)`", cell)


class Page:
    def __init__(self, path):
        self.path, self.lines = path, path.read_text(encoding="utf-8").split("\n")

    def parts(self):
        """(kind, what, rows, first line, last line) of tables and consoles, in order."""
        i, heading = 0, ""
        while i < len(self.lines):
            line = self.lines[i]
            if line.startswith("## "):
                heading = line
            begin = i
            if line.startswith("|"):
                while self.lines[i].startswith("|"):
                    i += 1
                rows = [[c.strip() for c in r[1:-1].split("|")] for r in self.lines[begin:i]]
                yield "table", (heading, rows[0]), rows[2:], begin, i
            elif line == "```console":
                while self.lines[i] != "```":
                    i += 1
                yield "console", heading, self.lines[begin + 1:i], begin + 1, i
            i += 1


def box_rows(rows):
    return [words(r[0]) for r in rows]


def arrow_rows(rows):
    return [tuple((words(c) or [""])[0] for c in r) for r in rows]


def page_of(heading):
    return words(heading)[0]


class Run:
    def __init__(self, page, drawing, write):
        self.page, self.drawing, self.write = page, pathlib.Path(drawing), write
        self.failures, self.commands, self.tables, self.new = 0, 0, 0, {}

    def wrong(self, text):
        self.failures += 1
        print("FAILED:", text, file=sys.stderr)

    def same(self, what, want, got):
        if want != got:
            self.wrong(f"{what}\n  page:  {want}\n  there: {got}")

    def table(self, heading, head, rows):
        self.tables += 1
        if head[0] == "label":
            got = [text_of(c.get("value")) for c in Drawing(self.drawing).boxes(page_of(heading))]
            self.same(f"boxes of {page_of(heading)}", sorted(box_rows(rows)), sorted(got))
        elif head[0] == "from":
            got = [(a, b, (text_of(label.get("value")) or [""])[0])
                   for a, b, label, _ in Drawing(self.drawing).arrows(page_of(heading))]
            self.same(f"arrows of {page_of(heading)}", sorted(arrow_rows(rows)), sorted(got))
        elif head[0].startswith("in `"):
            self.edits(words(head[0])[0], rows)
        else:
            self.tables -= 1

    def edits(self, name, rows):
        shutil.copy(self.drawing, name)
        d = Drawing(name)
        for what, before, after in rows:
            plain = lambda cell: cell.replace("`", "") if cell != NOTHING else ""
            if not d.edit(plain(what), plain(before), plain(after)):
                self.wrong(f"{name}: the edit does not apply: {what} | {before} | {after}")
        d.save()

    def console(self, lines, first):
        at, out = 0, []
        while at < len(lines):
            command, want = lines[at], []
            assert command.startswith("$ "), f"line {first + at + 1} of the page"
            at += 1
            while at < len(lines) and not lines[at].startswith("$ "):
                want.append(lines[at])
                at += 1
            got = self.command(command[2:], want)
            out += [command] + got
        return out

    def command(self, command, want):
        """Runs it; the lines for the page."""
        if "models-cache" in command and not pathlib.Path("models-cache/smollm2-135m-instruct").exists():
            print(f"skipped: {command}")
            return want
        self.commands += 1
        run = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             stdin=subprocess.DEVNULL, timeout=100)
        got = [x.rstrip() for x in run.stdout.decode(errors="replace").split("\n") if ASAN not in x]
        while got and not got[-1]:
            got.pop()
        if not self.match(want, got):
            if not self.write:
                self.wrong("\n    ".join([f"{command} says", *got, "and the page", *want]))
            return got
        return want

    def match(self, want, got):
        mask = lambda x: ["TIMES" if TIMES.match(line) else line for line in x]
        want, got = mask(want), mask(got)
        pattern = "".join("(?:.*\n)*?" if line == "…" else re.escape(line) + "\n" for line in want)
        return re.fullmatch(pattern, "".join(line + "\n" for line in got)) is not None

    def run(self):
        parts = list(self.page.parts())
        for kind, what, rows, first, last in parts:
            if kind == "table":
                self.table(*what, rows)
            else:
                self.new[first, last] = self.console(rows, first)
        if self.write:
            for (first, last), lines in sorted(self.new.items(), reverse=True):
                self.page.lines[first:last] = lines
            self.page.path.write_text("\n".join(self.page.lines), encoding="utf-8")
        print(f"{self.tables} tables, {self.commands} commands, {self.failures} wrong")
        return self.failures


def main(arguments):
    if arguments[:1] == ["--compress"]:
        return compress(*arguments[1:])
    write = arguments[:1] == ["--write"]
    page, drawing = arguments[write:]
    if not os.path.exists("first.drawio"):
        shutil.copy(drawing, "first.drawio")
    return 1 if Run(Page(pathlib.Path(page)), drawing, write).run() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
