#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drawings of models/geometries/tiny-*.json as a person might draw them (tests/draw/drawings), from docs/drawing.md and
the configs alone: python3 make_drawings.py. drawing_test.c holds them against the graphs that the builders make."""
import base64
import html
import json
import math
import pathlib
import urllib.parse
import zlib
from xml.sax.saxutils import quoteattr

HERE = pathlib.Path(__file__).parent
GEOMETRIES = HERE / "../../models/geometries"


class Model:
    """Ops of a dense decoder: (name, words, inputs as (source, slot))."""

    def __init__(self, name):
        c = json.loads((GEOMETRIES / f"{name}.json").read_text())
        self.c, self.h, self.n = c, c["hidden_size"], c["intermediate_size"]
        self.heads, self.kv = c["num_attention_heads"], c["num_key_value_heads"]
        self.dim = c.get("head_dim", self.h // self.heads)
        self.qwen3 = c["model_type"] == "qwen3"
        self.bias = c.get("attention_bias", False)

    def linear(self, name, module, n, k, rule, inputs, layer, bias):
        kind = "linear" if len(inputs) == 1 else "linear_residual"
        key = f"model.layers.{layer}.{module}"
        words = [f"kind={kind}", f"in={', '.join(f'[M,{self.h if slot == 1 else k}]act' for slot in range(len(inputs)))}",
                 f"out=[M,{n}]act", f"w={key}.weight[{n},{k}]bf16 shard={rule}"]
        if bias:
            words.append(f"w:bias={key}.bias[{n}]bf16" + (" shard=col" if rule == "col" else ""))
        if rule == "row":
            words.append("collective=AR")
        return name, words, inputs

    def head(self):
        c = self.c
        yield "embed", ["kind=embedding", f"w=model.embed_tokens.weight[{c['vocab_size']},{self.h}]bf16"], []
        yield "rope", ["kind=rope_table", "attention_factor=1"], [("rope.inv_freq", "inv_freq")]

    def layer(self, layer, before):
        h, q, kv = self.h, self.heads * self.dim, self.kv * self.dim
        eps, key = self.c["rms_norm_eps"], f"model.layers.{layer}"
        yield "attn.norm", ["kind=rmsnorm", f"w={key}.input_layernorm.weight[{h}]bf16", f"eps={eps!r}"], [(before, "x")]
        for p, n in (("q", q), ("k", kv), ("v", kv)):
            yield self.linear(f"attn.{p}_proj", f"self_attn.{p}_proj", n, h, "col", [("attn.norm", "x")], layer, self.bias)
        words = ["kind=attention", f"q_heads={self.heads} kv_heads={self.kv} head_dim={self.dim}",
                 f"scale={1 / math.sqrt(self.dim)!r}"]
        if self.qwen3:
            words += [f"w={key}.self_attn.{p}_norm.weight[{self.dim}]bf16" for p in "qk"] + [f"eps={eps!r}"]
        yield "attn", words, [("attn.q_proj", "q"), ("attn.k_proj", "k"), ("attn.v_proj", "v"), ("rope", "rope"),
                              ("attn.cache_k", "cache_k"), ("attn.cache_v", "cache_v")]
        yield self.linear("attn.o_proj", "self_attn.o_proj", h, q, "row", [("attn", "x"), (before, "residual")], layer,
                          self.bias)
        yield ("mlp.norm", ["kind=rmsnorm", f"w={key}.post_attention_layernorm.weight[{h}]bf16", f"eps={eps!r}"],
               [("attn.o_proj", "x")])
        for p in ("gate", "up"):
            yield self.linear(f"mlp.{p}_proj", f"mlp.{p}_proj", self.n, h, "col", [("mlp.norm", "x")], layer, False)
        yield "mlp.act", ["kind=silu_mul"], [("mlp.gate_proj", "gate"), ("mlp.up_proj", "up")]
        yield self.linear("mlp.down_proj", "mlp.down_proj", h, self.n, "row", [("mlp.act", "x"), ("attn.o_proj", "residual")],
                          layer, False)

    def tail(self, before):
        v, tied = self.c["vocab_size"], self.c["tie_word_embeddings"]
        yield ("final.norm", ["kind=rmsnorm", f"w=model.norm.weight[{self.h}]bf16", f"eps={self.c['rms_norm_eps']!r}",
                              "logit_rows=1"], [(before, "x")])
        key, rule = ("model.embed_tokens.weight", "rep") if tied else ("lm_head.weight", "col")
        yield ("lm_head", ["kind=linear", f"in=[M_logit,{self.h}]act", f"out=[M_logit,{v}]act",
                           f"w={key}[{v},{self.h}]bf16 shard={rule}"], [("final.norm", "x")])
        yield "argmax", ["kind=argmax"], [("lm_head", "logits")]

    def const(self):
        return "rope.inv_freq", ["kind=const", f"out=[{self.dim // 2}]f32",
                                 f"values=rope(theta={self.c['rope_theta']!r})"]

    def caches(self):
        return [(f"attn.cache_{p}", ["kind=cache", f"out=[{self.kv},{self.dim}]act"]) for p in "kv"]

    def card(self):
        return "model", ["kind=model", f"architecture={self.c['architectures'][0]}",
                         f"max_position={self.c['max_position_embeddings']}"]


def deflated(data):
    z = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(z.compress(data) + z.flush()).decode()


class Page:
    def __init__(self, name):
        self.name, self.cells, self.ids, self.n = name, ['<mxCell id="0"/>', '<mxCell id="1" parent="0"/>'], {}, 1

    def next(self):
        self.n += 1
        return f"c{self.n}"

    def vertex(self, name, label, parent="1", style="rounded=1;whiteSpace=wrap;html=1;", wrap=None, key=None):
        i = self.ids[key or name] = self.next()
        geometry = '<mxGeometry x="20" y="40" width="220" height="80" as="geometry"/>'
        if wrap:
            self.cells.append(f'<{wrap} label={quoteattr(label)} id="{i}" note="custom data"><mxCell style="{style}" '
                              f'vertex="1" parent="{parent}">{geometry}</mxCell></{wrap}>')
        else:
            self.cells.append(f'<mxCell id="{i}" value={quoteattr(label)} style="{style}" vertex="1" '
                              f'parent="{parent}">{geometry}</mxCell>')
        return i

    def edge(self, source, target, label="", child=False):
        i = self.next()
        value = "" if child else f" value={quoteattr(label)}"
        self.cells.append(f'<mxCell id="{i}"{value} style="edgeStyle=orthogonalEdgeStyle;html=1;" edge="1" parent="1" '
                          f'source="{self.ids[source]}" target="{self.ids[target]}">'
                          '<mxGeometry relative="1" as="geometry"/></mxCell>')
        if child and label:
            self.cells.append(f'<mxCell id="{self.next()}" value={quoteattr(label)} style="edgeLabel;html=1;" vertex="1" '
                              f'connectable="0" parent="{i}"><mxGeometry relative="1" as="geometry"/></mxCell>')

    def model(self):
        return "<mxGraphModel dx=\"800\" dy=\"600\"><root>" + "".join(self.cells) + "</root></mxGraphModel>"

    def diagram(self, compress=False):
        text = deflated(urllib.parse.quote(self.model(), safe="~()*!.'").encode()) if compress else self.model()
        return f"<diagram id=\"{self.name}\" name={quoteattr(self.name)}>{text}</diagram>"


def save(name, text):
    (HERE / "drawings" / name).write_text(text + "\n")


def label(name, words, line="<br>"):
    return line.join(html.escape(x, quote=False) for x in [name] + words)


def unfolded(m, layers, file):
    """One page, each layer a group, names without the prefix, a title and a line of help beside it."""
    page = Page("main")
    page.vertex("title", "<b>A tiny model</b>", style="text;html=1;")
    page.vertex("model", label(*m.card()))
    inputs = []

    def op(name, words, sources, prefix="", parent="1"):
        full = prefix + name
        page.vertex(full, label(name, words), parent)
        for source, slot in sources:
            local = prefix + source
            inputs.append((local if local in page.ids else source, full, slot))

    page.vertex("rope.inv_freq", label(*m.const()))
    for x in m.head():
        op(*x)
    before = "embed"
    for i in range(layers):
        group = page.vertex(f"group {i}", f"layer {i}" if i % 2 else f"l{i}", style="swimlane;container=1;html=1;")
        for name, words in m.caches():
            page.vertex(f"l{i}.{name}", label(name, words), group)
        for x in m.layer(i, before):
            op(*x, prefix=f"l{i}.", parent=group)
        before = f"l{i}.mlp.down_proj"
    for x in m.tail(before):
        op(*x)
    for source, target, slot in inputs:
        page.edge(source, target, f"{source} \u2192 {slot}")
    save(file, f'<mxfile host="app.diagrams.net">{page.diagram()}</mxfile>')


def template(m, layers, file, compress):
    """Two pages, the second one for all layers, refs between them; labels edited by hand."""
    main, page = Page("main"), Page(f"layer*{layers}")
    main.vertex("model", label(*m.card(), line="</div><div>"))
    main.vertex("rope.inv_freq", label(*m.const()))
    last = f"l{{0-{layers - 1}}}.mlp.down_proj"
    main.vertex(last, label(last, ["kind=ref"]))
    ops = list(m.head()) + list(m.tail(last))
    for name, words, _ in ops:
        main.vertex(name, f"<div style=\"font-size: 10px\"><b>{name}</b></div><div>" +
                    "</div><div>".join(html.escape(w.replace("=", " = ", 1).replace(",", " x ")) for w in words) + "</div>",
                    wrap="object")
    for name, _, sources in ops:
        for source, _ in sources:
            main.edge(source, name, child=True)
    for name in ("embed", "rope"):
        page.vertex(name, label(name, ["KIND=Ref"]))
    for name, words in m.caches():
        page.vertex(name, label(name, words))
    ops = list(m.layer("{i}", "embed"))
    for name, words, _ in ops:
        page.vertex(name, "<p>" + label(name, words, "</p>\n<p>&nbsp; ").replace("kind=", "Kind=").replace(",", "\u00d7", 1) +
                    "</p>", wrap="UserObject")
    for name, _, sources in ops:
        for source, slot in sources:
            page.edge(source, name, f"{source} -> {slot.upper()}", child=True)
            if source == "embed":
                page.edge("mlp.down_proj", name, f": {slot}")
    save(file, "<mxfile>" + main.diagram(compress) + "\n" + page.diagram(compress) + "</mxfile>")


def ranges(m, layers, file):
    """A bare model: one page, a range in every name, nothing that can be left out but what the slots need."""
    page, p = Page("x"), f"l{{0-{layers - 1}}}."
    page.vertex("model", label(*m.card()))
    page.vertex("rope.inv_freq", label(*m.const()))
    for name, words in m.caches():
        page.vertex(p + name, label(p + name, words))
    ops = list(m.head()) + [(p + n, w, s) for n, w, s in m.layer("{i}", "embed")] + list(m.tail(p + "mlp.down_proj"))
    for name, words, _ in ops:
        words = [w for w in words if not w.startswith("in=") and not w.startswith("collective=")]
        if name.split(".")[-1] not in ("embed", "lm_head"):
            words = [w.split("[")[0] + w.split("]bf16")[1] if w.startswith("w=") else w for w in words]
        page.vertex(name, "\n".join([name] + words), style="rounded=1;")
    for name, _, sources in ops:
        for source, slot in sources:
            local = p + source if p + source in page.ids and name.startswith(p) else source
            page.edge(local, name, "" if len(sources) == 1 else slot)
            if source == "embed":
                page.edge(p + "mlp.down_proj", name, slot)
    save(file, page.model())


def main():
    (HERE / "drawings").mkdir(exist_ok=True)
    qwen3, llama = Model("tiny-qwen3"), Model("tiny-llama")
    unfolded(qwen3, 2, "qwen3-layers.drawio")
    template(qwen3, 2, "qwen3-page.drawio", False)
    template(qwen3, 2, "qwen3-page-compressed.drawio", True)
    ranges(qwen3, 2, "qwen3-range.drawio")
    unfolded(llama, 3, "llama-layers.drawio")
    ranges(llama, 3, "llama-range.drawio")
    save("bomb.drawio", f'<mxfile><diagram name="bomb">{deflated(b"<mxGraphModel>" + bytes(65 << 20))}</diagram></mxfile>')


main()
