# timeout: 300
# SPDX-License-Identifier: Apache-2.0
# FP8 weights with block scales on the GPU backend: logits of teacher-forced steps against the CPU's, whose F32 activations
# make all the difference; blocks of all kinds, one row and several a pass.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1

python3 "$cli/fp8.py" make wide
expect 0 convert wide copy --quant fp8
prompt=$(seq -s, 3 29)
expect 0 run copy --tokens "$prompt" --max-new-tokens 4 --ignore-eos --save-logits cpu.st --save-tokens forced.json
for batch in 1 16; do
    expect 0 run copy --device cuda --workers 3 --batch $batch --tokens "$prompt" --teacher-force forced.json --max-new-tokens 4 \
        --ignore-eos --save-logits cuda.st
    python3 "$cli/logits.py" cuda.st cpu.st 0.04 || wrong "logits at batch $batch"
done

# a NaN among the codes is not a number on the GPU either
python3 - <<'END'
import json, os, shutil, struct
shutil.copytree("copy", "broken")
with open("broken/model.safetensors", "r+b") as f:
    (n,) = struct.unpack("<Q", f.read(8))
    at = json.loads(f.read(n))["model.layers.0.mlp.down_proj.weight"]["data_offsets"][0]
    f.seek(8 + n + at + 131 * 288 + 200)
    f.write(b"\xff")
END
expect 0 run broken --device cuda --workers 3 --batch 1 --tokens 1 --max-new-tokens 1 --ignore-eos --save-logits nan.st
python3 - <<'END' || wrong "the NaN went unseen"
import json, struct
blob = open("nan.st", "rb").read()
(n,) = struct.unpack_from("<Q", blob)
assert b"\x7f" in blob[8 + n:] and any(v != v for v in struct.unpack(f"<{(len(blob) - 8 - n) // 4}f", blob[8 + n:]))
END
finish
