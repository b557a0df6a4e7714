# timeout: 300
# SPDX-License-Identifier: Apache-2.0
# The GPU backend's device text on the CPU: logits of small models against the reference's.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1

for name in tiny-qwen3 tiny-llama tiny-yarn; do
    forced $name
    near $name --workers 3
done
# without fused ops, as on the CPU
near tiny-yarn --workers 3 --lever chain
# one row a pass; splits of attention over several workers; another seed is another schedule and the same numbers
forced tiny-qwen3
near tiny-qwen3 --workers 4 --batch 1 --kv-splits 3 --page-tokens 16
cp tiny-qwen3.st first.st
KEEL_EMU_SEED=7 near tiny-qwen3 --workers 4 --batch 1 --kv-splits 3 --page-tokens 16
cmp first.st tiny-qwen3.st || wrong "another seed gave other logits"

# 16 rows of 16 heads of 128: more than SMEM has room for, so tasks take a share of a KV head's heads; the CPU's do not
cat >cut.json <<'END'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 32,
 "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 64,
 "rms_norm_eps": 1e-6, "rope_theta": 10000, "max_position_embeddings": 1024, "tie_word_embeddings": false,
 "attention_bias": false, "hidden_act": "silu", "torch_dtype": "bfloat16"}
END
ids=3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22
# cut ARGUMENTS...: twenty rows in two passes, and two steps
cut() {
    expect 0 run --synth cut.json --device cuda --tokens $ids --teacher-force steps.json --watchdog 60 --save-logits cut.st "$@"
    python3 "$cli/logits.py" cut.st cut.cpu 0.03 || wrong "cut $*: logits"
}
echo '[23, 24, 0]' >steps.json
expect 0 run --synth cut.json --tokens $ids --teacher-force steps.json --save-logits cut.cpu
cut --workers 4
KEEL_EMU_RACES=1 cut --workers 3 --kv-splits 3 --page-tokens 16
finish
