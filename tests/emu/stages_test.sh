# timeout: 300
# SPDX-License-Identifier: Apache-2.0
# The GPU backend's device text on the CPU: weights of several stages a band, groups of tiles that end within one, odd widths; one
# row a pass and several. The logits are the CPU's, as far as activations of 8 bits allow.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1

# shape NAME HIDDEN INTERMEDIATE HEADS KV DIM: its config.json, and the CPU's logits
shape() {
    python3 - "$KEEL_SOURCE_DIR/models/geometries/tiny-qwen3.json" "$@" <<'END'
import json, sys
c, name, n = json.load(open(sys.argv[1])), sys.argv[2], [int(x) for x in sys.argv[3:]]
c.update(hidden_size=n[0], intermediate_size=n[1], num_attention_heads=n[2], num_key_value_heads=n[3], head_dim=n[4], num_hidden_layers=2,
         vocab_size=301)
json.dump(c, open(name + ".json", "w"))
END
    expect 0 run --synth "$1.json" --tokens 5,6,7,8,9 --max-new-tokens 3 --ignore-eos --save-logits "$1.cpu.st"
}
# like NAME ARGUMENTS...
like() {
    local name=$1
    shift
    expect 0 run --synth "$name.json" --device cuda --tokens 5,6,7,8,9 --max-new-tokens 3 --ignore-eos --save-logits "$name.st" "$@"
    python3 - "$name.cpu.st" "$name.st" <<'END' || wrong "$name $*: logits"
import array, json, struct, sys
def read(path):
    b = open(path, "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    at = next(v for k, v in json.loads(b[8:8 + n]).items() if k != "__metadata__")["data_offsets"]
    return array.array("f", b[8 + n + at[0]:8 + n + at[1]])
want, got = read(sys.argv[1]), read(sys.argv[2])
error = (sum((a - b) ** 2 for a, b in zip(want, got)) / sum(a * a for a in want)) ** 0.5
print(f"{error:.4f} of the logits' root mean square")
sys.exit(not error < 0.01)
END
}

shape wide 1536 2048 8 2 128
shape odd 1040 1616 6 3 64
shape ends 1160 1208 5 5 64
for name in wide odd ends; do
    like $name --workers 1 --batch 1
    like $name --workers 3 --batch 1
    like $name --workers 3 --batch 16
done
like wide --workers 3 --batch 4
finish
