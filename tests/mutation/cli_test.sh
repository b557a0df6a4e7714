# SPDX-License-Identifier: Apache-2.0
# keel plan mutate: breaks a plan file, says how, and keel plan check refuses it.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1

expect 0 plan mutate
[ "$(wc -l <out)" -ge 12 ] || wrong "fewer than 12 kinds"
cp out kinds
expect 0 plan mutate --json
holds "plan mutate --json" out 'len(v) >= 12 and all(set(k) == {"kind", "doc"} for k in v)'

expect 0 plan --synth tiny-qwen3 --workers 2 -o good.plan
cp good.plan kept.plan
expect 0 plan check good.plan
expect 0 plan mutate good.plan --kind drop-trigger --seed 3 -o broken.plan
grep -q 'no longer triggers event' out || wrong "plan mutate does not say what it did"
cmp good.plan kept.plan || wrong "plan mutate changed its input"
! cmp -s good.plan broken.plan || wrong "the mutant is the plan"
expect 0 plan show broken.plan
expect 1 plan check broken.plan
expect 0 plan mutate good.plan --kind drop-trigger --seed 3 -o again.plan --json
holds "plan mutate --json" out 'v["kind"] == "drop-trigger" and v["seed"] == 3 and "event" in v["what"] and v["written"] == "again.plan"'
cmp broken.plan again.plan || wrong "the same seed gave another mutant"
expect 0 plan mutate good.plan --kind duplicate-wait -o harmless.plan
expect 0 plan check harmless.plan
# every kind writes a file or says that there is no place for it
while read -r kind _; do
    keel plan mutate good.plan --kind "$kind" --seed 5 -o one.plan
    [ "$status" -eq 0 ] || { [ "$status" -eq 2 ] && grep -q 'no place' err; } || wrong "--kind $kind: exit status $status"
done <kinds

refused 2 'drop-wait' plan mutate good.plan --kind nonsense -o x.plan
refused 2 'no place' plan mutate good.plan --kind skip-collective -o x.plan
refused 2 'no --kind' plan mutate good.plan -o x.plan
refused 2 'no -o' plan mutate good.plan --kind drop-wait
refused 2 'no plan file' plan mutate --kind drop-wait -o x.plan
refused 2 'none.plan' plan mutate none.plan --kind drop-wait -o x.plan
absent x.plan
finish
