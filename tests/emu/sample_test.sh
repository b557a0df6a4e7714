# timeout: 300
# SPDX-License-Identifier: Apache-2.0
# Sampling in the kernel: what is drawn from the logits of each step is what a full sort in double precision draws, by the
# short way over candidates, by the search over all logits (a top-k beyond them, a flat top-p), and on the CPU.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1

# draws DEVICE TEMPERATURE TOP_K TOP_P SEED ARGUMENTS...
draws() {
    local device=$1 t=$2 k=$3 p=$4 seed=$5
    shift 5
    expect 0 run "$golden/tiny-qwen3" --device "$device" --tokens 1,2,3,4,5 --max-new-tokens 12 --ignore-eos \
        --temperature "$t" --top-k "$k" --top-p "$p" --seed "$seed" --save-logits l.st --save-tokens t.json "$@"
    python3 "$KEEL_SOURCE_DIR/tests/emu/draws.py" l.st t.json "$t" "$k" "$p" "$seed" >drawn 2>&1 ||
        wrong "--device $device temperature $t top-k $k top-p $p seed $seed: $(cat drawn)"
}
gpu() { draws cuda "$@" --workers 3; }
gpu 1 0 1 1
gpu 3 0 1 2
gpu 2 5 1 3
gpu 3 12 0.7 4
gpu 4 40 0.9 5
gpu 0.5 0 0.5 6
gpu 4 0 0.95 7
gpu 3 300 0.8 8
gpu 2 511 1 9
gpu 2e-38 0 1 10
gpu 2e-38 3 0.4 11
draws cuda 4 0 0.9 7 --workers 4 --batch 1 # other parts, one row a pass
draws cpu 4 0 0.9 7 --workers 2
draws cpu 3 12 0.7 4 --workers 2
draws cpu 2e-38 3 0.4 11 --workers 2
finish
