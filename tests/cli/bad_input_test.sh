# timeout: 120
# SPDX-License-Identifier: Apache-2.0
# Damaged and unfitting checkpoints: exit status 2, a message that names the file and the place, nothing written.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1

# bad CASE CHECKPOINT PATTERN...: each pattern must be in the message
bad() {
    local case=$1 checkpoint=$2 pattern
    shift 2
    python3 "$cli/make_bad.py" "$case" "$golden/$checkpoint" "$case"
    expect 2 run "$case" --tokens 1,2 --max-new-tokens 2 --workers 2 --save-tokens out.json --save-logits out.st
    for pattern; do
        grep -qE -- "$pattern" err || { wrong "$case: the message does not match $pattern"; show_output; }
    done
    grep -q "^keel run: " err || { wrong "$case: no verb in front"; show_output; }
    [ ! -s out ] || wrong "$case: wrote to stdout"
    absent out.json out.st
    rm -rf "$case"
}

q='model\.layers\.0\.self_attn\.q_proj\.weight'
k='model\.layers\.0\.self_attn\.k_proj\.weight'
bad truncated tiny-qwen3 truncated/model.safetensors
bad truncated-header tiny-qwen3 truncated-header/model.safetensors
bad tiny-file tiny-qwen3 tiny-file/model.safetensors '5 bytes'
bad empty-file tiny-qwen3 empty-file/model.safetensors
bad header-past-file tiny-qwen3 header-past-file/model.safetensors
bad header-huge tiny-qwen3 header-huge/model.safetensors
bad header-no-json tiny-qwen3 header-no-json/model.safetensors
bad overlapping tiny-qwen3 overlapping/model.safetensors "$q" overlap
bad range-past-file tiny-qwen3 range-past-file/model.safetensors "$q"
bad range-not-shape tiny-qwen3 range-not-shape/model.safetensors "$q"
bad wrong-dtype tiny-qwen3 wrong-dtype "$q" 'expected F32, BF16 or F16'
bad unknown-dtype tiny-qwen3 unknown-dtype/model.safetensors "$q" 'expected F32, BF16 or F16'
bad wrong-shape tiny-qwen3 wrong-shape "$q" '64.*128'
bad negative-shape tiny-qwen3 negative-shape/model.safetensors "$q"
bad missing-keys tiny-qwen3 missing-keys "$q" "$k" 'model\.norm\.weight'
bad missing-shard tiny-llama missing-shard model-00002-of-00002.safetensors
bad foreign-shard tiny-llama foreign-shard/model.safetensors.index.json 'model\.norm\.weight'
bad wrong-shard tiny-llama wrong-shard 'lm_head\.weight' model-00002-of-00002.safetensors
bad no-weights tiny-qwen3 no-weights model.safetensors
bad no-config tiny-qwen3 no-config/config.json
bad config-no-json tiny-qwen3 config-no-json/config.json:1:19
bad config-no-object tiny-qwen3 config-no-object/config.json
bad unknown-architecture tiny-qwen3 unknown-architecture/config.json FrobnicateForCausalLM LlamaForCausalLM Qwen3ForCausalLM
bad wrong-type-in-config tiny-qwen3 wrong-type-in-config/config.json hidden_size
bad wrong-number-in-config tiny-qwen3 wrong-number-in-config/config.json num_attention_heads
bad wrong-layers-in-config tiny-qwen3 wrong-layers-in-config 'model\.layers\.2\.'
bad wrong-stop-ids tiny-qwen3 wrong-stop-ids/generation_config.json eos_token_id
bad no-merges tiny-qwen3 no-merges/tokenizer.json merges
bad tokenizer-no-json tiny-qwen3 tokenizer-no-json/tokenizer.json
bad tokenizer-other-model tiny-qwen3 tokenizer-other-model/tokenizer.json Unigram
bad vocabulary-too-large tiny-qwen3 vocabulary-too-large/tokenizer.json 515 512

# what the command line asks for and the model cannot give
model=$golden/tiny-qwen3
no_output=(--save-tokens out.json --save-logits out.st)
refused 2 'prompt has 4 tokens.*hold 3' run "$model" --tokens 1,2,3,4 --max-seq 3 "${no_output[@]}"
refused 2 '99 new ones need .*hold 100' run "$model" --tokens 1,2,3 --max-seq 100 --max-new-tokens 99 "${no_output[@]}"
refused 2 '600.*512 positions|512.*600' run "$model" --tokens 1 --max-seq 600 "${no_output[@]}"
refused 2 'token 1 .*512.*vocabulary of 512' run "$model" --tokens 1,512 "${no_output[@]}"
echo '[1, 512]' >forced.json
refused 2 'token 1 .*512.*vocabulary of 512' run "$model" --tokens 1 --teacher-force forced.json "${no_output[@]}"
refused 2 'none.json: No such file' run "$model" --tokens 1 --teacher-force none.json "${no_output[@]}"
for text in '[1, "x"]' '{"ids": [1]}' '[1,' '[]' '' '[-1]' '1 2 x' '1,2' '[{"greedy_ids": [1]}]' '99999999999'; do
    printf '%s' "$text" >forced.json
    refused 2 'forced.json: ' run "$model" --tokens 1 --teacher-force forced.json "${no_output[@]}"
done
refused 2 'is a file; give the' run "$model/config.json" --tokens 1
refused 2 'none/config.json' run none --tokens 1
absent out.json out.st

# a folder without permission; as root in the shoes of nobody
as=()
if [ "$(id -u)" -eq 0 ]; then
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    place=$(mktemp -d /tmp/keel-cli.XXXXXX)
    trap 'rm -rf "$place"; chmod -R u+rwx "$work"; rm -rf "$work"' EXIT
    cp "$KEEL" "$place/keel"
    chmod 755 "$place" "$place/keel"
else
    place=$work
    cp "$KEEL" "$place/keel"
fi
if "${as[@]}" "$place/keel" --version >/dev/null 2>&1; then
    cp -r "$model" "$place/locked"
    cp -r "$model" "$place/half"
    chmod -R a+rX "$place/locked" "$place/half"
    chmod 000 "$place/locked" "$place/half/model.safetensors"
    for folder in locked half; do
        status=0
        "${as[@]}" "$place/keel" run "$place/$folder" --tokens 1 >out 2>err || status=$?
        [ $status -eq 2 ] || wrong "$folder: exit status $status"
        grep -qE "^keel run: $place/$folder.*Permission denied" err || wrong "$folder: $(cat err)"
    done
    chmod 755 "$place/locked"
    mkdir "$place/readonly"
    chmod 555 "$place/readonly"
    status=0
    "${as[@]}" "$place/keel" plan --synth tiny-qwen3 -o "$place/readonly/x.plan" >out 2>err || status=$?
    [ $status -eq 2 ] && grep -q 'cannot be written: Permission denied' err || wrong "readonly: $status $(cat err)"
    absent "$place/readonly/x.plan"
    chmod 755 "$place/readonly"
else
    echo "permissions left out: cannot become another user"
fi
finish
