# timeout: 400
# SPDX-License-Identifier: Apache-2.0
# Greedy tokens equal the reference's (tests/golden, made with transformers) for any number of workers and lanes.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1

golden() { python3 "$cli/golden.py" "$KEEL" "$@"; }

for model in tiny-qwen3 tiny-llama tiny-yarn; do
    for workers in 1 2 3 7; do
        for lanes in 1 2; do
            golden "$golden/$model" "$golden/$model/golden.json" --workers $workers --lanes $lanes ||
                wrong "$model, $workers workers, $lanes lanes"
        done
    done
    # the shape of the run does not change what comes out
    golden "$golden/$model" "$golden/$model/golden.json" --workers 2 --batch 1 --page-tokens 16 --kv-splits 3 ||
        wrong "$model, other shape"
done

# The comparison itself sees a wrong token, and a wrong checkpoint.
python3 - "$golden/tiny-qwen3/golden.json" <<'END'
import json, sys
records = json.load(open(sys.argv[1]))
records[1]["greedy_ids"][20] ^= 1
json.dump(records, open("changed.json", "w"))
END
! golden "$golden/tiny-qwen3" changed.json --workers 2 >changed.log || wrong "a changed golden token was not seen"
grep -q '3 of 4 prompts' changed.log || wrong "a changed golden token: $(cat changed.log)"
! golden "$golden/tiny-yarn" "$golden/tiny-llama/golden.json" --workers 2 >/dev/null || wrong "another checkpoint was not seen"

if [ -d "${KEEL_TEST_MODELS:-}/qwen3-py-12m" ]; then
    golden "$KEEL_TEST_MODELS/qwen3-py-12m" "$KEEL_TEST_MODELS/qwen3-py-12m/golden.json" || wrong qwen3-py-12m
    golden "$KEEL_TEST_MODELS/qwen3-py-12m" "$KEEL_TEST_MODELS/qwen3-py-12m/golden.json" --workers 1 || wrong "qwen3-py-12m, 1 worker"
else
    echo "qwen3-py-12m left out: KEEL_TEST_MODELS does not lead to it"
fi
finish
