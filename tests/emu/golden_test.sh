# timeout: 400
# SPDX-License-Identifier: Apache-2.0
# The GPU backend's device text on the CPU: greedy tokens of a trained model, by the margin rule.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1
model=${KEEL_TEST_MODELS:-}/qwen3-py-12m
[ -e "$model/golden.json" ] || { echo "left out: KEEL_TEST_MODELS does not name a folder with qwen3-py-12m"; exit 77; }

export GOLDEN_MARGIN=0.1 GOLDEN_PROMPTS=3 GOLDEN_STEPS=10
python3 "$cli/golden.py" "$KEEL" "$model" "$model/golden.json" --device cuda --workers 3 --cache-dir "$work/cache" ||
    wrong "the tokens"
finish
