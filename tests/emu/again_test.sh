# timeout: 200
# SPDX-License-Identifier: Apache-2.0
# A second launch on one handle gives its own prompt's answer. What the last iteration of a launch left is of the epoch of
# the next one's first iteration where it was the only one: so passes of one token.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1
sessions=$(dirname "$KEEL")/keel_sessions
[ -x "$sessions" ] || { echo "left out: no $sessions in this build"; exit 77; }

python3 - <<'END'
import struct
for name, ids in (("a", (1,)), ("b", (7,))):
    open(name, "wb").write(struct.pack(f"{len(ids)}i", *ids))
END
# runs on one handle: ask PLAN_REST RUN...
ask() {
    local plan=$1 run
    shift
    { echo "plan sm_90a $plan"; echo "open 0 60 -"; for run; do echo "run $run"; done; } |
        "$sessions" --model "$golden/tiny-qwen3" >answers
    if grep '^error' answers; then wrong "$plan: $*"; fi
}
# one split of attention, and several that merge; logits to the bit
for plan in "1 64 4 1 16" "1 64 4 2 16"; do
    ask "$plan" "1 1 0 a a.alone"
    ask "$plan" "1 1 0 b b.alone"
    ask "$plan" "1 1 0 a a.first" "1 1 0 b b.second" "1 1 0 a a.third"
    if cmp -s a.alone b.alone; then wrong "$plan: two prompts with one answer show nothing"; fi
    for run in a.first b.second a.third; do
        cmp "${run%%.*}.alone" $run || wrong "$plan: $run on one handle is not what it is alone"
    done
done
finish
