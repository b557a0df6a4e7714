# timeout: 240
# SPDX-License-Identifier: Apache-2.0
# Attention that streams its pages, under the emulator against the CPU backend: contexts of 1 to 150 over page borders,
# one split and several, heads of 128 and of 64, groups of 5 and of 10, with and without norms. Pages of 16 positions, so
# that 130 positions are more than one split has; of 64 once.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1

# geometry FILE ARCHITECTURE HEADS KV_HEADS DIM
geometry() {
    cat >"$1" <<END
{"architectures": ["$2"], "model_type": "x", "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1,
 "num_attention_heads": $3, "num_key_value_heads": $4, "head_dim": $5, "vocab_size": 64, "rms_norm_eps": 1e-6,
 "rope_theta": 10000, "max_position_embeddings": 1024, "tie_word_embeddings": true, "attention_bias": false,
 "hidden_act": "silu", "torch_dtype": "bfloat16"}
END
}
geometry wide.json Qwen3ForCausalLM 10 2 128
geometry high.json LlamaForCausalLM 20 2 64
python3 -c 'import json, random; r = random.Random(3); json.dump([r.randrange(64) for _ in range(150)], open("long.json", "w"))'

cat >rows.py <<'END'
"""Every row of two --save-logits files: the largest difference, its row, the average of rows."""
import sys
sys.argv, mine = [sys.argv[0]], sys.argv[1:]
exec(open(mine[0]).read().rsplit("\nmain()", 1)[0])
got, want = read(mine[1]), read(mine[2])
assert len(got) == len(want) == 150, (len(got), len(want))
off = [max(abs(a - b) for a, b in zip(g, w)) for g, w in zip(got, want)]
print(f"{mine[1]}: largest difference {max(off):.3g} in row {off.index(max(off))}, average {sum(off) / len(off):.3g}")
sys.exit(max(off) > float(mine[3]))
END

# like NAME LIMIT ARGUMENTS...: 150 steps, each of one row
like() {
    local name=$1 limit=$2
    shift 2
    local common=(--synth "$name.json" --tokens 1 --teacher-force long.json --max-new-tokens 150 --ignore-eos --batch 1)
    [ -e "$name.cpu" ] || expect 0 run "${common[@]}" --save-logits "$name.cpu"
    expect 0 run "${common[@]}" --device cuda --watchdog 60 --save-logits "$name.st" "$@"
    python3 rows.py "$cli/logits.py" "$name.st" "$name.cpu" "$limit" || wrong "$name $*: logits"
}

like wide 0.25 --workers 4 --page-tokens 16 --kv-splits 3
cp wide.st first.st
KEEL_EMU_SEED=5 like wide 0.25 --workers 3 --page-tokens 16 --kv-splits 3
cmp first.st wide.st || wrong "other workers and another schedule gave other logits"
KEEL_EMU_RACES=1 like wide 0.25 --workers 2 --max-seq 256
like high 0.25 --workers 4 --page-tokens 16 --kv-splits 5
finish
