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

# proved: as text and for a program; of a slice also what is left out
expect 0 plan "$model" --workers 3 --prove --json
holds "plan --prove --json" out 'v["proof"]["ok"] is True and "proved free" in v["proof"]["report"] and v["proof"]["slice"] is None'
holds "plan --prove --json" out '{k: x for k, x in v.items() if k != "proof"} == json.load(open("plan.json"))'
expect 0 plan --synth qwen3-0.6b --workers 2 --layers 3-5 --prove
grep -q '^layers left out: 0-2, 6-27$' out || wrong "plan --layers --prove: what is left out: $(cat out)"
grep -q '^ops left out: .*none of the head or the tail' out || wrong "plan --layers --prove: head and tail: $(cat out)"
expect 0 plan --synth qwen3-0.6b --workers 2 --layers 3-5 --tp 2 --rank 1 --prove --json
holds "plan --layers --prove --json" out '"layers left out: 0-2, 6-27" in v["proof"]["slice"]'
! grep -q 'left out' <(keel plan "$model" --prove; cat out) || wrong "plan --prove speaks of a slice that is none"

# slices, synthetic models, another arch
expect 0 plan "$model" --layers 1-1 --json
holds "plan --layers" out 'not any(str(b.get("name", "")).startswith("l0.") for b in v["buffers"])'
expect 0 plan "$model" --sample -o s.plan
! cmp -s s.plan c.plan || wrong "--sample changed nothing"
for geometry in tiny-llama qwen3-0.6b "$golden/tiny-yarn/config.json" "$golden/tiny-yarn/config.json:7"; do
    expect 0 plan --synth "$geometry" --workers 2 --json
    holds "plan --synth $geometry" out 'len(v["tasks"]) > 0'
done
expect 0 plan --synth qwen3-8b --arch sm_90a
expect 0 plan --synth qwen3-32b --arch sm_90a # 16 rows of 8 heads a KV head: more pages, a shorter ring
grep -q '^complete  yes' out || wrong "a plan whose ops all have CUDA bodies is not called complete"
expect 0 plan --synth qwen3-8b --arch sm_90a --tp 2 --allow-absent
grep -q '^complete  no' out || wrong "--allow-absent does not say that the plan is not complete"
expect 1 plan --synth qwen3-8b --arch sm_90a --tp 2 -o absent.plan
absent absent.plan

# a plan of any origin
head -c 100 a.plan >short.plan
refused 2 'short.plan' plan show short.plan
refused 2 'truncated' plan check short.plan
printf 'no plan at all' >text.plan
refused 2 'not a plan file' plan check text.plan
refused 2 'none.plan' plan check none.plan
python3 - <<'EOF'
b = bytearray(open("a.plan", "rb").read())
b[8] += 1
open("later.plan", "wb").write(b)
b[8] -= 1
at = int.from_bytes(b[24 + 8:24 + 16], "little")  # the header's section
b[at + 40] += 1  # n_layers
open("layers.plan", "wb").write(b)
EOF
refused 2 'version 5' plan check later.plan
refused 1 '3 layers from 0 on; the ops are in layers 0 to 1' plan check layers.plan
refused 1 '3 layers from 0 on; the ops are in layers 0 to 1' plan show layers.plan
refused 2 'text.plan' plan show text.plan
refused 2 'none.plan' plan show none.plan
refused 2 'cannot be written' plan "$model" -o none/x.plan
refused 2 'is a folder' plan "$model" -o "$work"
finish
