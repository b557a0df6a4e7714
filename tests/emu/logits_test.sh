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
finish
