# timeout: 120
# SPDX-License-Identifier: Apache-2.0
# keel plan --doc: whole files, the same bytes each time, and every command of the ladder that is not marked as planned
# runs as it stands.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
model=$golden/tiny-qwen3

expect 0 plan "$model" --workers 2 --doc docs/new
grep -q '^document  docs/new/plan.md, docs/new/plan.json$' out || wrong "plan --doc does not say what it wrote"
grep -qx -- '- complete: yes' docs/new/plan.md || wrong "the document of a complete plan says something else"
holds "plan.json" docs/new/plan.json 'v["complete"] is True and v["floor"]["ms"] is None and len(v["ops"]) == 28'
expect 0 plan "$model" --workers 2 --doc again --json
holds "plan --doc --json" out 'len(v["tasks"]) > 0'
cmp docs/new/plan.md again/plan.md || wrong "the same input gave another plan.md"
cmp docs/new/plan.json again/plan.json || wrong "the same input gave another plan.json"
expect 0 plan "$model" --workers 2 -o a.plan
grep -q "$(sha256sum a.plan | cut -d' ' -f1)" again/plan.md || wrong "the document names another plan"

# the ladder's commands
mkdir bin
ln -s "$KEEL" bin/keel
ran=0
for doc in "again" "ranks"; do
    [ -e $doc/plan.md ] || expect 0 plan --synth tiny-qwen3 --tp 2 --workers 2 --doc $doc
    while IFS= read -r line; do
        ran=$((ran + 1))
        PATH=$work/bin:$PATH bash -c "$line" >out 2>err </dev/null || { wrong "$line: exit status $?"; show_output; }
    done < <(sed -nE 's/^- `(keel .*)`$/\1/p' $doc/plan.md)
done
[ $ran -ge 10 ] || wrong "$ran commands in the ladders"
[ "$(sha256sum m4.plan.rank0 | cut -d' ' -f1)" = "$(sed -nE 's/^- plan: sha256 `(.*)`$/\1/p' ranks/plan.md)" ] ||
    wrong "M4 makes another plan than the document's"
holds "M1's tokens" tp1.json 'len(v["token_ids"]) == 8'
python3 -c 'import json; assert json.load(open("tp1.json"))["token_ids"] == json.load(open("tp2.json"))["token_ids"]' ||
    wrong "M1's exit criterion does not hold"
grep -q '^- `ctest .*\^ops' again/plan.md || wrong "no test of the ops in the ladder"

# what a drawing and what other options come to
expect 0 graph export "$model" -o tiny.drawio
expect 0 plan tiny.drawio --workers 2 --doc drawn
while IFS= read -r line; do
    line=${line/DIR/$model}
    PATH=$work/bin:$PATH bash -c "$line" >out 2>err </dev/null || { wrong "$line: exit status $?"; show_output; }
done < <(sed -nE 's/^- `(keel .*)`$/\1/p' drawn/plan.md)
expect 0 plan "$model" --workers 3 --batch 4 --max-seq 100 --page-tokens 32 --kv-splits 2 --sample -o odd.plan --doc odd
line=$(sed -nE 's/^- `(keel plan .* -o m4.plan)`$/\1/p' odd/plan.md)
PATH=$work/bin:$PATH bash -c "$line" >out 2>err || { wrong "$line"; show_output; }
cmp odd.plan m4.plan || wrong "M4's command does not make the same plan: $line"

# another arch, another bandwidth
expect 0 plan --synth qwen3-8b --arch sm_90a --sample --doc big
holds "the floor" big/plan.json '3.21 < v["floor"]["ms"] < 3.23'
expect 0 plan --synth qwen3-8b --arch sm_90a --doc big --bandwidth 2.35
grep -qx -- '- complete: yes' big/plan.md || wrong "a plan with all bodies is not called complete"
holds "the floor at half the bandwidth" big/plan.json '6.43 < v["floor"]["ms"] < 6.45 and v["floor"]["source"] == "as given"'
expect 0 plan --synth llama-3.1-8b --tp 8 --rank 5 --arch sm_90a --allow-absent --doc big
grep -qx -- '- complete: no' big/plan.md || wrong "a plan without bodies is called complete"
holds "rank 5" big/plan.json 'v["risks"][0]["blocks"] is True and v["plan"]["rank"] == 5 and v["floor"]["collectives"] == 64'

refused 2 'bandwidth goes with --doc' plan "$model" --bandwidth 1
refused 2 'bandwidth' plan "$model" --doc x --bandwidth -1
printf x >file
expect 2 plan "$model" --doc file/x
grep -q '^keel plan: file' err || wrong "plan --doc does not say what is in the way"
refused 1 'missing role bodies' plan --synth tiny-qwen3 --arch sm_90a --tp 2 --doc none
absent none x
finish
