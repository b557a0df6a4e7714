# SPDX-License-Identifier: Apache-2.0
# keel plan: the same input gives the same bytes; the JSON is whole; a plan file can be shown and run.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
model=$golden/tiny-qwen3

expect 0 plan "$model" --workers 3 -o a.plan
for word in Qwen3ForCausalLM '3 workers' tasks events sha256 a.plan; do grep -q "$word" out || wrong "plan: no $word in the summary"; done
[ "$(wc -l <out)" -le 24 ] || wrong "plan: the summary is longer than a screen"
expect 0 plan "$model" --workers 3 --output=b.plan
cmp a.plan b.plan || wrong "the same input gave other bytes"
grep -q "$(sha256sum a.plan | cut -d' ' -f1)" out || wrong "the identity is not the file's sha256"
expect 0 plan "$model" --workers 2 -o c.plan
! cmp -s a.plan c.plan || wrong "another worker count gave the same bytes"

expect 0 plan "$model" --workers 3 --json
holds "plan --json" out 'set(v) >= {"tasks", "queues", "events", "pages", "buffers"}'
holds "plan --json" out 'len(v["queues"]) == 3 and sum(map(len, v["queues"])) == len(v["tasks"]) > 0'
holds "plan --json" out 'all("id" in e and e["triggers"] > 0 for e in v["events"]) and len(v["buffers"]) > 0'
cp out plan.json
expect 0 plan show a.plan --json
cmp out plan.json || wrong "plan show --json differs from plan --json"
expect 0 plan show a.plan
grep -q 'l0.attn.q_proj' out || wrong "plan show does not name an op"

# slices, synthetic models, another arch
expect 0 plan "$model" --layers 1-1 --json
holds "plan --layers" out 'not any(str(b.get("name", "")).startswith("l0.") for b in v["buffers"])'
expect 0 plan "$model" --sample -o s.plan
! cmp -s s.plan c.plan || wrong "--sample changed nothing"
for geometry in tiny-llama qwen3-0.6b "$golden/tiny-yarn/config.json" "$golden/tiny-yarn/config.json:7"; do
    expect 0 plan --synth "$geometry" --workers 2 --json
    holds "plan --synth $geometry" out 'len(v["tasks"]) > 0'
done
expect 0 plan --synth qwen3-8b --arch sm_90a --allow-absent
grep -q '^complete  no' out || wrong "--allow-absent does not say that the plan is not complete"
expect 1 plan --synth qwen3-8b --arch sm_90a -o absent.plan
absent absent.plan

# a plan of any origin
head -c 100 a.plan >short.plan
refused 2 'short.plan' plan show short.plan
printf 'no plan at all' >text.plan
refused 2 'text.plan' plan show text.plan
refused 2 'none.plan' plan show none.plan
refused 2 'cannot be written' plan "$model" -o none/x.plan
refused 2 'is a folder' plan "$model" -o "$work"
finish
