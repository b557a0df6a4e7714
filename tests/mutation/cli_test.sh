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
# every kind writes a file or says that there is no place for it; what is refused in reading is refused like the rest
while read -r kind _; do
    for seed in 5 6 7; do
        keel plan mutate good.plan --kind "$kind" --seed $seed -o one.plan
        [ "$status" -eq 0 ] || { [ "$status" -eq 2 ] && grep -q 'no place' err; } || wrong "--kind $kind: exit status $status"
        [ "$status" -eq 0 ] || continue
        keel plan check one.plan
        [ "$status" -le 1 ] || wrong "plan check of --kind $kind --seed $seed: exit status $status: $(cat err)"
        case $kind in drop-body | shrink-span | alias-page) [ "$status" -eq 1 ] || wrong "--kind $kind --seed $seed: accepted" ;; esac
    done
done <kinds
# a collective that one rank leaves out is the one that is named
expect 0 plan --synth tiny-qwen3 --workers 2 --tp 2 -o two.plan
expect 0 plan mutate two.plan.rank0 --kind skip-collective --seed 3 -o broken.rank0
left=$(sed -n 's/.*rank 0: \([^ ]*\) left out.*/\1/p' out)
[ -n "$left" ] || wrong "skip-collective does not say what it left out: $(cat out)"
cp two.plan.rank1 broken.rank1
refused 1 "rank 0 has no $left, which rank 1 runs as its [0-9]+(st|nd|rd|th) collective .task [0-9]+, worker [0-9]+, place [0-9]+" plan check broken

refused 2 'drop-wait' plan mutate good.plan --kind nonsense -o x.plan
refused 2 'no place' plan mutate good.plan --kind skip-collective -o x.plan
refused 2 'no --kind' plan mutate good.plan -o x.plan
refused 2 'no -o' plan mutate good.plan --kind drop-wait
refused 2 'no plan file' plan mutate --kind drop-wait -o x.plan
refused 2 'none.plan' plan mutate none.plan --kind drop-wait -o x.plan
absent x.plan
finish
