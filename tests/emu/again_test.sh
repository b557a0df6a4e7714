# timeout: 200
# SPDX-License-Identifier: Apache-2.0
# A second launch on one handle gives its own prompt's answer: nothing of the first passes for it, neither tagged data nor
# counts that an op keeps.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1
sessions=$(dirname "$KEEL")/keel_sessions
[ -x "$sessions" ] || { echo "left out: no $sessions in this build"; exit 77; }

python3 - <<'END'
import struct
for name, ids in (("a", (1, 2, 3)), ("b", (7, 5, 9, 11))):
    open(name, "wb").write(struct.pack(f"{len(ids)}i", *ids))
END
# tokens of runs on one handle, one line a run: ask PLAN_REST RUN...
ask() {
    local plan=$1 run
    shift
    { echo "plan sm_90a $plan"; echo "open 0 60 -"; for run; do echo "run $run"; done; } |
        "$sessions" --model "$golden/tiny-qwen3" | sed -n 's/^ok.*tokens=//p'
}
# one split of attention, and two that merge
for plan in "1 64 4 1 16" "1 64 4 2 16"; do
    ask "$plan" "3 8 0 a -" >first
    ask "$plan" "4 8 0 b -" >second
    ask "$plan" "3 8 0 a -" "4 8 0 b -" "3 8 0 a -" >all
    [ "$(wc -l <all)" = 3 ] || wrong "$plan: not three answers"
    cmp -s first second && wrong "$plan: two prompts with one answer show nothing"
    cat first second first | cmp -s - all || wrong "$plan: on one handle $(tr '\n' ' ' <all), alone $(cat first second | tr '\n' ' ')"
done
finish
