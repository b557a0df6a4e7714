# timeout: 300
# SPDX-License-Identifier: Apache-2.0
# docs/first-drawing.md as written: its tables are what drawings/first.drawio holds, every edit applies, every command
# says what the page says. Then what the page claims and does not show.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
page=$KEEL_SOURCE_DIR/docs/first-drawing.md
drawing=$cli/drawings/first.drawio
mkdir bin tests
ln -s "$KEEL" bin/keel
ln -s "$golden" tests/golden
[ ! -d "$KEEL_SOURCE_DIR/models-cache" ] || ln -s "$KEEL_SOURCE_DIR/models-cache" models-cache
export PATH=$work/bin:$PATH

python3 "$cli/first_drawing.py" "$page" "$drawing" || wrong "the page and the program differ"

# The test of the page can fail: a token, a label, an arrow, an edit.
changed() {
    local what=$1
    mkdir "no-$what" && (cd "no-$what" && ln -s ../tests tests && sed "$2" "$page" >page.md) || exit 1
    ! cmp -s "$page" "no-$what/page.md" || wrong "no $what to change in the page"
    ! (cd "no-$what" && python3 "$cli/first_drawing.py" page.md "$drawing" >/dev/null 2>&1) || wrong "a changed $what passes"
}
changed token 's/^"token_ids":\[509,214,/"token_ids":[509,215,/'
changed label 's/^| `attn.norm`<br>`kind=rmsnorm`/| `attn.norm`<br>`kind=linear`/'
changed arrow '/^| `attn.norm` | `attn.k_proj` | |$/d'
changed edit 's/^| tab | `layer\*2` | `layer\*1` |$/| tab | `layer*5` | `layer*1` |/'

# Tokens of all prompts that transformers computed.
holds "the golden file" tests/golden/tiny-qwen3/golden.json 'len(v) == 4'
for prompt in 0 1 2 3; do
    tokens=$(python3 -c 'import json, sys
print(",".join(map(str, json.load(open(sys.argv[1]))[int(sys.argv[2])]["prompt_ids"])))' tests/golden/tiny-qwen3/golden.json $prompt)
    expect 0 run first.drawio --weights tests/golden/tiny-qwen3 --tokens "$tokens" --max-new-tokens 48 --ignore-eos --save-tokens drawn.json
    holds "prompt $prompt" drawn.json \
        "v['token_ids'] == json.load(open('tests/golden/tiny-qwen3/golden.json'))[$prompt]['greedy_ids']"
done

# As draw.io saves it compressed, it is the same drawing.
python3 "$cli/first_drawing.py" --compress "$drawing" compressed.drawio
! grep -q mxCell compressed.drawio || wrong "compressed.drawio is plain"
expect 0 graph diff first.drawio compressed.drawio
[ ! -s out ] || wrong "the compressed drawing differs"

# Exit statuses, which the page does not show.
expect 0 graph diff first.drawio tests/golden/tiny-qwen3
expect 1 graph diff flat.drawio tests/golden/tiny-qwen3
for drawing in oops no-slot; do expect 2 graph import $drawing.drawio -o x.json; done
expect 2 run no-key.drawio --weights tests/golden/tiny-qwen3 --tokens 67
absent x.json

# The messages of the last table are messages.
messages=0
while IFS= read -r message; do
    messages=$((messages + 1))
    grep -qF -- "$message" "$KEEL_SOURCE_DIR"/src/draw/drawing*.c || wrong "$page: no message says \"$message\""
done < <(sed -n '/^| you see |/,$ s/^| `\([^`…]*[^`… ]\).*/\1/p' "$page")
[ $messages -ge 4 ] || wrong "$page lists $messages messages"
finish
