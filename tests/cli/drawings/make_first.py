#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""first.drawio: the boxes and arrows of docs/first-drawing.md in the form in which draw.io saves what a person clicks and
types: python3 make_first.py. Labels stand in the forms that typing, pasting and line breaks leave; slots are typed on
an arrow in one of the two ways there are (the edge's own value, or a label cell below it)."""
import html
import pathlib
import sys
from xml.sax.saxutils import quoteattr

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE / ".."))
from first_drawing import Page, arrow_rows, box_rows, page_of  # noqa: E402

BOX = "rounded=0;whiteSpace=wrap;html=1;"
EDGE = "edgeStyle=orthogonalEdgeStyle;rounded=0;orthogonalLoop=1;jettySize=auto;html=1;"
FIXED = "exitX=0.5;exitY=1;exitDx=0;exitDy=0;entryX=0.5;entryY=0;entryDx=0;entryDy=0;"
ON_EDGE = "edgeLabel;html=1;align=center;verticalAlign=middle;resizable=0;points=[];"
PLACE = {
    "main": {"model": (40, 40), "embed": (320, 40), "rope.inv_freq": (640, 40), "rope": (640, 160),
             "l{0-1}.mlp.down_proj": (320, 200), "final.norm": (320, 300), "lm_head": (320, 430), "argmax": (320, 540)},
    "layer*2": {"embed": (480, 40), "rope": (900, 200), "attn.norm": (480, 140), "attn.q_proj": (40, 270), "attn.k_proj": (420, 270),
                "attn.v_proj": (800, 270), "attn.cache_k": (1180, 270), "attn.cache_v": (1360, 270), "attn": (440, 400),
                "attn.o_proj": (440, 560), "mlp.norm": (440, 680), "mlp.gate_proj": (200, 800), "mlp.up_proj": (640, 800),
                "mlp.act": (460, 910), "mlp.down_proj": (440, 1020)},
}


def as_typed(lines, form):
    """The value of a label: Enter makes a div in one browser and a br in another; a paste may bring spans and hard spaces."""
    e = [html.escape(x, quote=False) for x in lines]
    if form == 0:
        return e[0] + "".join(f"<div>{x}</div>" for x in e[1:])
    if form == 1:
        return "<br>".join(e)
    if form == 2:
        return "".join(f"<div>{x.replace(' ', '&nbsp; ')}</div>" for x in e)
    spans = "".join(f'<div><span style="background-color: transparent; color: light-dark(rgb(0, 0, 0), rgb(255, 255, 255));">{x}</span></div>'
                    for x in e[1:])
    return f"<b>{e[0]}</b>{spans}<div><br></div>"


class Writer:
    def __init__(self, prefix):
        self.prefix, self.n, self.out = prefix, 0, []

    def id(self):
        self.n += 1
        return f"{self.prefix}-{self.n}"

    def box(self, lines, place, form):
        x, y = place
        self.out.append(f'        <mxCell id="{(cell := self.id())}" value={quoteattr(as_typed(lines, form))} style="{BOX}" vertex="1" parent="1">\n'
                        f'          <mxGeometry x="{x}" y="{y}" width="{max(120, 10 + 7 * max(map(len, lines)))}" height="{max(60, 20 + 15 * len(lines))}" as="geometry" />\n'
                        f'        </mxCell>')
        return cell

    def arrow(self, source, target, slot, form):
        cell, own = self.id(), slot if form % 3 == 0 else ""
        value = f' value={quoteattr(own)}' if own else ""
        style = EDGE + (FIXED if form % 2 else "")
        geometry = '<mxGeometry relative="1" as="geometry" />'
        if form % 4 == 1:
            geometry = ('<mxGeometry relative="1" as="geometry">\n            <Array as="points">\n              <mxPoint x="400" y="380" />\n'
                        '            </Array>\n          </mxGeometry>')
        self.out.append(f'        <mxCell id="{cell}"{value} style="{style}" edge="1" parent="1" source="{source}" target="{target}">\n'
                        f'          {geometry}\n        </mxCell>')
        if slot and not own:
            label = slot if form % 2 else f"<div>{slot}</div>"
            self.out.append(f'        <mxCell id="{self.id()}" value={quoteattr(label)} style="{ON_EDGE}" vertex="1" connectable="0" parent="{cell}">\n'
                            f'          <mxGeometry x="-0.1{form}" y="2" relative="1" as="geometry">\n            <mxPoint as="offset" />\n'
                            f'          </mxGeometry>\n        </mxCell>')


def diagram(name, prefix, boxes, arrows):
    w, cells = Writer(prefix), {}
    for i, lines in enumerate(boxes):
        cells[lines[0]] = w.box(lines, PLACE[name][lines[0]], i % 4)
    for i, (source, target, slot) in enumerate(arrows):
        w.arrow(cells[source], cells[target], slot, i)
    body = "\n".join(w.out)
    return (f'  <diagram id="{prefix}" name="{name}">\n'
            '    <mxGraphModel dx="1422" dy="794" grid="1" gridSize="10" guides="1" tooltips="1" connect="1" arrows="1" fold="1" page="1" '
            'pageScale="1" pageWidth="827" pageHeight="1169" math="0" shadow="0">\n'
            f'      <root>\n        <mxCell id="0" />\n        <mxCell id="1" parent="0" />\n{body}\n      </root>\n    </mxGraphModel>\n  </diagram>\n')


def main():
    boxes, arrows = {}, {}
    for kind, what, rows, _, _ in Page(HERE / "../../../docs/first-drawing.md").parts():
        if kind == "table" and what[1][0] == "label":
            boxes[page_of(what[0])] = box_rows(rows)
        elif kind == "table" and what[1][0] == "from":
            arrows[page_of(what[0])] = arrow_rows(rows)
    pages = "".join(diagram(name, f"kQ3vT8wLx{i}aFeZ_m2cRd", boxes[name], arrows[name]) for i, name in enumerate(boxes))
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36"
    (HERE / "first.drawio").write_text(f'<mxfile host="app.diagrams.net" agent="{agent}" version="28.0.6" pages="{len(boxes)}">\n{pages}</mxfile>\n',
                                       encoding="utf-8")


if __name__ == "__main__":
    main()
