# timeout: 180
# SPDX-License-Identifier: Apache-2.0
# FP8 weights: a quantised copy is what the definition says, to the bit, and runs like the same weights dequantised.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
fp8() { python3 "$cli/fp8.py" "$@"; }

fp8 make wide
expect 0 convert wide copy --quant fp8
grep -qE '^copy: [0-9.]+ [kM]B became [0-9.]+ [kM]B with fp8 weights in [0-9.]+ s$' out || wrong "the last line: $(cat out)"
fp8 check wide copy || wrong "the copy is not what the definition says"
expect 0 convert wide/ copy2/ --quant fp8 --json
holds "convert --json" out 'v["quant"] == "fp8" and 0 < v["folder_bytes"] < v["model_bytes"]'
cmp copy/model.safetensors copy2/model.safetensors || wrong "the same input gave other bytes"

# runs like the dequantised one: one row and several a pass, several workers and lanes
fp8 dequantise copy whole
prompt=$(seq -s, 3 29)
for options in "--workers 1" "--workers 3 --lanes 2" "--workers 2 --batch 5"; do
    for folder in copy whole; do
        # shellcheck disable=SC2086
        expect 0 run "$folder" --tokens "$prompt" --max-new-tokens 6 --ignore-eos --save-logits $folder.st --save-tokens $folder.json $options
    done
    python3 "$cli/logits.py" copy.st whole.st || wrong "logits with $options"
done

# fused ops take the scales along, and the bits are those of the chain
expect 0 plan copy --lever fused -o fused.plan
expect 0 plan show fused.plan
grep -q 'norm\.qkv' out && grep -q 'norm\.swiglu' out || wrong "no fused op"
for lever in chain fused; do
    expect 0 run copy --tokens "$prompt" --max-new-tokens 3 --ignore-eos --lever $lever --save-logits $lever.st
done
cmp chain.st fused.st || wrong "fused ops give other bits"

# ranks cut on borders of scale blocks
python3 - <<'END'
import json
config = json.load(open("wide/config.json"))
config.update(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=4)
json.dump(config, open("even.json", "w"))
config.update(intermediate_size=384)
json.dump(config, open("odd.json", "w"))
END
even=(run --synth even.json:5 --quant fp8 --tokens "$prompt" --max-new-tokens 4 --workers 2)
expect 0 "${even[@]}" --save-logits tp1.st
expect 0 "${even[@]}" --save-logits tp2.st --tp 2
python3 "$cli/logits.py" tp2.st tp1.st || wrong "logits of two ranks"
refused 1 'intermediate|mlp.*384.*borders of its scale blocks' plan --synth odd.json --quant fp8 --tp 2
expect 0 plan --synth odd.json --quant fp8
expect 0 plan --synth odd.json --tp 2

# drawn, and read again
expect 0 graph export copy -o copy.drawio
expect 0 graph diff copy copy.drawio
expect 0 graph export copy -o copy.json
expect 0 graph diff copy copy.json
expect 1 graph diff copy wide
expect 0 run copy.drawio --weights copy --tokens 1,2,3 --max-new-tokens 3 --ignore-eos --save-tokens a.json
expect 0 run copy --tokens 1,2,3 --max-new-tokens 3 --ignore-eos --save-tokens b.json
python3 -c 'import json; a, b = (json.load(open(f)) for f in ("a.json", "b.json")); assert a["token_ids"] == b["token_ids"]' ||
    wrong "the drawing gives other tokens"

# the plan document names what the scales are for, and its commands make the same model
expect 0 plan --synth even.json --quant fp8 --doc doc
grep -q 'F8_E4M3, a scale for each 128 × 128' doc/plan.md || wrong "the plan document says nothing of scales"
grep -q -- '--synth even.json --quant fp8' doc/plan.md || wrong "the plan document's commands leave --quant out"

# what cannot be quantised
refused 2 'copy: already exists' convert wide copy --quant fp8
refused 2 'quantised already' convert copy new --quant fp8
refused 2 'name MODEL' convert wide --quant fp8
refused 2 'fp8' convert wide new --quant int4
refused 2 'keel convert MODEL OUT_DIR --quant fp8' run wide --quant fp8 --tokens 1
refused 2 'keel convert MODEL OUT_DIR --quant fp8' graph show wide --quant fp8
change() { # FOLDER PYTHON: a changed copy of `copy` or `wide`
    rm -rf changed
    cp -r "$1" changed
    python3 - "$2" <<'END'
import json, struct, sys
blob = open("changed/model.safetensors", "rb").read()
(n,) = struct.unpack_from("<Q", blob)
head, data, config = json.loads(blob[8:8 + n]), bytearray(blob[8 + n:]), json.load(open("changed/config.json"))
w = "model.layers.1.mlp.up_proj.weight"
q = config.get("quantization_config")
head.pop("__metadata__", None)
exec(sys.argv[1])
text = json.dumps(head).encode()
open("changed/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
json.dump(config, open("changed/config.json", "w"))
END
}
change wide 'at = head[w]["data_offsets"][0]; data[at + 2000:at + 2002] = b"\x80\x7f"'
refused 2 'model.safetensors: tensor model.layers.1.mlp.up_proj.weight: rows 0 to 287 hold a value that is not finite' convert changed new --quant fp8
[ ! -e new ] && [ -z "$(find . -maxdepth 1 -name 'new*')" ] || wrong "a failed conversion left something"

# what cannot be read: file, tensor and remedy
bad() { # PATTERN PYTHON
    change copy "$2"
    refused 2 "$1" run changed --tokens 1 --max-new-tokens 1
    grep -qE 'changed/(config.json|model.safetensors)|changed: tensors that' err || wrong "no file is named: $(cat err)"
}
bad 'model.layers.1.mlp.up_proj.weight_scale_inv' 'head["x"] = head.pop(w + "_scale_inv")'
bad 'up_proj.weight_scale_inv: shape \[2,3\], expected \[3,2\]' 'head[w + "_scale_inv"]["shape"] = [2, 3]'
bad 'up_proj.weight_scale_inv: type I32, expected F32, BF16 or F16' 'head[w + "_scale_inv"]["dtype"] = "I32"'
bad 'up_proj.weight: type I8, expected F8_E4M3.*modules_to_not_convert' 'head[w]["dtype"] = "I8"'
bad 'type F8_E4M3, expected F32, BF16 or F16; FP8 is read where "quantization_config" in config.json' 'del config["quantization_config"]'
bad 'config.json: "quantization_config": "weight_block_size" must be \[128, 128\]' 'q["weight_block_size"] = [64, 128]'
bad '"weight_block_size" must be' 'del q["weight_block_size"]'
bad '"fmt" is "e5m2"; only e4m3' 'q["fmt"] = "e5m2"'
bad 'awq.*only fp8' 'q["quant_method"] = "awq"'
bad '"modules_to_not_convert" must be a list' 'q["modules_to_not_convert"] = "lm_head"'

# a module that is not quantised stays as it is, named in any of the three ways
for entry in model.layers.1.mlp.up_proj up_proj model.layers.1.mlp; do
    change copy "
import struct
entry = '$entry'
q['modules_to_not_convert'] = [entry]
for k in [k for k in head if k.endswith('_proj.weight')]:
    module = k[:-len('.weight')]
    if not (module == entry or module.endswith('.' + entry) or module.startswith(entry + '.')): continue
    n, m = head[k]['shape']
    del head[k + '_scale_inv']
    head[k] = {'dtype': 'F32', 'shape': [n, m], 'data_offsets': [0, 0]}
    values = struct.pack(f'<{n * m}f', *([0.01] * (n * m)))
    head[k]['data'] = values
out, at = bytearray(), 0
for k, t in head.items():
    part = t.pop('data', None) or data[t['data_offsets'][0]:t['data_offsets'][1]]
    t['data_offsets'] = [at, at + len(part)]
    at += len(part)
    out += part
data = out"
    expect 0 run changed --tokens 1,2 --max-new-tokens 2 --ignore-eos
done

# the trained checkpoint, where it is: tokens of the copy by the margin rule
if [ -n "${KEEL_TEST_MODELS:-}" ] && [ -d "$KEEL_TEST_MODELS/qwen3-py-12m" ]; then
    expect 0 convert "$KEEL_TEST_MODELS/qwen3-py-12m" trained --quant fp8
    fp8 dequantise trained reference
    fp8 golden "$KEEL" reference "$KEEL_TEST_MODELS/qwen3-py-12m/golden.json" golden.json 32
    python3 "$cli/golden.py" "$KEEL" trained golden.json || wrong "tokens of the quantised trained checkpoint"
fi
finish
