# timeout: 120
# SPDX-License-Identifier: Apache-2.0
# A run that is cut short: by a signal, by a reader that goes away, by a full disk. What was there before stays.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 1000000/' "$golden/tiny-qwen3/config.json" >long.json
grep -q 1000000 long.json || wrong "long.json"
long=(run --synth long.json --tokens 1,2,3 --max-new-tokens 200000 --max-seq 250000 --workers 2 --ignore-eos)

for number in 2 15; do
    rm -f out.json
    status=0
    python3 "$cli/interrupt.py" $number "$KEEL" "${long[@]}" --save-tokens out.json 2>err || status=$?
    [ $status -eq 3 ] || wrong "signal $number: exit status $status"
    grep -qE '^keel run: interrupted after [0-9]+ tokens; what was generated is kept$' err || wrong "signal $number: $(cat err)"
    holds "signal $number" out.json '0 < len(v["token_ids"]) < 200000 and v["prompt_ids"] == [1, 2, 3]'
done

# a reader that goes away ends the run, without a word
status=0
("$KEEL" "${long[@]}" 2>err || echo $? >status) | head -c 20 >/dev/null
[ "$(cat status)" -eq 3 ] || wrong "closed pipe: exit status $(cat status)"
own_words err
[ ! -s err ] || wrong "closed pipe: $(cat err)"

# a full disk at stdout
if [ -c /dev/full ]; then
    for arguments in "--help" "plan --synth tiny-qwen3 --json" "run --synth tiny-qwen3 --tokens 1 --max-new-tokens 20 --save-tokens full.json"; do
        read -ra words <<<"$arguments"
        status=0
        "$KEEL" "${words[@]}" >/dev/full 2>err || status=$?
        [ $status -eq 2 ] || wrong "keel $arguments, disk full: exit status $status"
        grep -q 'No space left on device' err || wrong "keel $arguments, disk full: $(cat err)"
    done
    absent full.json
fi

# output files: told before the work starts, and kept where the run fails
refused 2 'none/x.json: cannot be written' run --synth tiny-qwen3 --tokens 1 --save-tokens none/x.json
refused 2 'is a folder' run --synth tiny-qwen3 --tokens 1 --save-logits "$work"
mkfifo pipe
refused 2 'pipe: is a device or pipe' run --synth tiny-qwen3 --tokens 1 --save-tokens pipe
refused 2 '/dev/null: is a device or pipe' plan --synth tiny-qwen3 -o /dev/null
[ -p pipe ] && [ -c /dev/null ] || wrong "a device was replaced by a file"
refused 2 'name the same file' run --synth tiny-qwen3 --tokens 1 --save-tokens x --save-logits x
echo old >kept.json; echo old >kept.st; echo old >kept.plan
refused 2 'outside the vocabulary' run --synth tiny-qwen3 --tokens 1,99999 --save-tokens kept.json --save-logits kept.st
refused 2 'layers' plan --synth tiny-qwen3 --layers 7 -o kept.plan
expect 2 run --synth tiny-qwen3 --tokens 1 --max-new-tokens 600 --save-tokens kept.json --max-seq 100
[ "$(cat kept.json kept.st kept.plan | uniq)" = old ] || wrong "a failed run touched its output files"
expect 0 run --synth tiny-qwen3 --tokens 1 --max-new-tokens 3 --save-tokens kept.json
holds "replaced" kept.json 'len(v["token_ids"]) == 3'
[ -z "$(find . -name '*.tmp*')" ] || wrong "temporary files stay: $(find . -name '*.tmp*')"
finish
