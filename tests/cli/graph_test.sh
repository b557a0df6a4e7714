# timeout: 120
# SPDX-License-Identifier: Apache-2.0
# keel graph: drawings, pictures and JSON of models; what is drawn is what is read; differences and their exit status.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
model=$golden/tiny-qwen3

# model → drawing → graph → JSON, folded or not
expect 0 graph export "$model" -o whole.drawio
grep -q '^whole.drawio: Qwen3ForCausalLM, ' out || wrong "export: no report: $(cat out)"
expect 0 graph export "$model" --fold -o folded.drawio
[ "$(stat -c %s folded.drawio)" -lt "$(stat -c %s whole.drawio)" ] || wrong "--fold did not make the drawing smaller"
expect 0 graph export "$model" -o model.json
for drawing in whole folded; do
    expect 0 graph import $drawing.drawio -o $drawing.json
    cmp $drawing.json model.json || wrong "$drawing.drawio is not the model's graph"
    expect 0 graph diff "$model" $drawing.drawio
    [ ! -s out ] || wrong "graph diff of equal graphs says something"
done
expect 0 graph export model.json -o again.json
cmp again.json model.json || wrong "a graph file written again differs"
expect 0 graph export folded.drawio -o again.drawio
cmp again.drawio whole.drawio || wrong "a drawing read and drawn again differs"
holds "graph JSON" model.json 'v["architecture"] == "Qwen3ForCausalLM" and v["n_layers"] == 2'
holds "graph JSON" model.json '[o["name"] for o in v["ops"]][:3] == ["embed", "rope", "l0.attn.norm"]'

# told by content, not by name
cp folded.drawio drawing.txt
cp model.json graph.txt
expect 0 graph diff drawing.txt graph.txt

# the picture is XML
expect 0 graph export --synth tiny-llama --layers 0-1 -o picture.svg
python3 -c 'import sys, xml.etree.ElementTree as t; sys.exit(0 if t.parse("picture.svg").getroot().tag.endswith("svg") else 1)' ||
    wrong "the picture is no SVG"
grep -q 'l1.mlp.down_proj' picture.svg || wrong "the picture shows no op"
# a drawing as a reader of XML sees it: an op's label, and lines between cells that are there
python3 - whole.drawio <<'END' || wrong "whole.drawio: not the cells that it should have"
import sys, xml.etree.ElementTree as t
cells = list(t.parse(sys.argv[1]).getroot().iter("mxCell"))
ids = {c.get("id") for c in cells}
assert len(ids) == len(cells)
assert all(c.get("source") in ids and c.get("target") in ids for c in cells if c.get("edge") == "1")
assert any((c.get("value") or "").startswith("<b>l1.mlp.up_proj</b><br>kind=linear<br>in=[M,") for c in cells)
END

# --layers, --sample, --json
expect 0 graph export --synth qwen3-0.6b --layers 2-3 --sample --json -o slice.json
holds "export --json" out 'v["file"] == "slice.json" and v["layers"] == 2 and v["layer_first"] == 2 and v["ops"] > 20'
holds "slice" slice.json 'v["sampling"] is True and v["ops"][-1]["kind"] == "sample" and v["layer_first"] == 2'
expect 0 graph export --synth qwen3-0.6b:7 -o seeded.json
expect 0 graph import whole.drawio --sample -o sampled.json
expect 0 graph export "$model" --sample -o sampling.json
cmp sampled.json sampling.json || wrong "import --sample is not the model's graph with --sample"

# show
expect 0 graph show --synth qwen3-8b
grep -q '^l{0-35}.attn.q_proj  *linear  .*\[4096,4096\]bf16  *col' out || wrong "show: no folded q_proj"
grep -q '^l{0-35}.attn.o_proj .* row  *AR$' out || wrong "show: no collective"
[ "$(wc -l <out)" -le 30 ] || wrong "show: equal layers are not folded"
expect 0 graph show folded.drawio
cp out drawn.txt
expect 0 graph show "$model"
cmp out drawn.txt || wrong "show of the drawing differs from show of the model"
expect 0 graph show "$model" --json
cmp out model.json || wrong "show --json is not the graph's JSON"

# diff
sed 's/&lt;br&gt;eps=1e-06/\&lt;br\&gt;eps=2e-06/' whole.drawio >edited.drawio
expect 1 graph diff whole.drawio edited.drawio
grep -qx '~ op l0.attn.norm: eps 1e-06 -> 2e-06' out || wrong "diff: eps: $(head -n 3 out)"
[ ! -s err ] || wrong "diff: wrote to stderr"
expect 1 graph diff whole.drawio edited.drawio --json
holds "diff --json" out 'v["n_differences"] == len(v["differences"]) > 0 and v["differences"][0].startswith("~ op ")'
expect 1 graph diff "$model" "$golden/tiny-llama"

# ops
expect 0 graph ops
for word in linear_residual 'inputs      x, residual' 'required' 'default 1e-06'; do grep -q "$word" out || wrong "ops: no $word"; done
expect 0 graph ops --json
holds "ops --json" out '{o["kind"] for o in v} >= {"linear", "attention", "argmax"} and all("summary" in o and "inputs" in o for o in v)'

# bad input: nothing is written
refused 2 'the file to write is missing' graph export "$model"
refused 2 'must end in .drawio or .xml or .svg or .json' graph export "$model" -o graph.png
refused 2 'must end in .json' graph import whole.drawio -o x.drawio
mkdir folder.json
refused 2 'is a folder' graph export "$model" -o folder.json
refused 2 'cannot be written' graph export "$model" -o none/x.drawio
refused 2 'every layer; leave it out' graph export "$model" --fold -o folded.json
refused 2 'no graph: give' graph show
refused 2 'not both' graph show "$model" --synth tiny-llama
refused 2 'give two graphs' graph diff "$model"
refused 2 'none.drawio' graph import none.drawio -o x.json
refused 2 'leave out --layers' graph export whole.drawio --layers 0-0 -o x.json
refused 2 'known geometries' graph show --synth nothing
printf 'no graph at all' >text.drawio
refused 2 'text.drawio: neither a draw.io drawing' graph import text.drawio -o x.json
head -c 3000 whole.drawio >short.drawio
refused 2 'short.drawio' graph import short.drawio -o x.json
printf '{"a": 1}' >a.json
refused 2 'a.json: is no graph' graph show a.json
sed 's/kind=silu_mul/kind=silu_mull/' whole.drawio >unknown.drawio
refused 2 'unknown.drawio' graph import unknown.drawio -o x.json
grep -q 'silu_mull' err || wrong "an unknown kind is not named"
absent x.json none graph.png
finish
