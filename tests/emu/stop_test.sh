# timeout: 240
# SPDX-License-Identifier: Apache-2.0
# How a generation on the GPU ends by itself, inside the one launch: so many tokens, an end token that was chosen or
# drawn; also behind a prompt of several passes. The tokens before are the same.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1

# run_to FILE MODEL ARGUMENTS...
run_to() {
    local file=$1 model=$2
    shift 2
    expect 0 run "$model" --device cuda --workers 3 --save-tokens "$file" "$@"
}
# ending SOURCE MODEL: tiny-qwen3 in the folder MODEL, whose end token is one that SOURCE chose after its first
ending() {
    rm -rf "$2"
    cp -r "$golden/tiny-qwen3" "$2"
    python3 - "$1" "$2" <<'END'
import json, os, sys
ids = json.load(open(sys.argv[1]))["token_ids"]
end = next(t for i, t in enumerate(ids) if i >= 3 and t not in ids[:i])
for name in ("config.json", "generation_config.json"):
    path = os.path.join(sys.argv[2], name)
    if os.path.exists(path) or name == "generation_config.json":
        v = json.load(open(path)) if os.path.exists(path) else {}
        v["eos_token_id"] = [end, 511] if name == "generation_config.json" else end
        json.dump(v, open(path, "w"))
json.dump({"token_ids": ids[:ids.index(end) + 1]}, open("want.json", "w"))
END
}
# same FILE: its tokens are want.json's
same() {
    python3 -c 'import json,sys; a, b = (json.load(open(f))["token_ids"] for f in ("want.json", sys.argv[1])); sys.exit(a != b and f"{b}, expected {a}")' \
        "$1" 2>why || wrong "$2: $(cat why)"
}

short=1,2,3
long=$(seq -s, 3 39) # 37 tokens: three passes of 16 rows, the last with 5
for prompt in $short $long; do
    run_to all.json "$golden/tiny-qwen3" --tokens "$prompt" --max-new-tokens 12 --ignore-eos
    holds "12 tokens" all.json 'len(v["token_ids"]) == 12'
    ending all.json model
    run_to end.json model --tokens "$prompt" --max-new-tokens 12
    same end.json "an end token"
    run_to on.json model --tokens "$prompt" --max-new-tokens 12 --ignore-eos
    cp all.json want.json
    same on.json "--ignore-eos"
    run_to one.json "$golden/tiny-qwen3" --tokens "$prompt" --max-new-tokens 1
    holds "one token" one.json 'len(v["token_ids"]) == 1'
done

# the end token is drawn
run_to all.json "$golden/tiny-qwen3" --tokens $short --max-new-tokens 12 --ignore-eos --temperature 1.5 --seed 3
ending all.json model
run_to end.json model --tokens $short --max-new-tokens 12 --temperature 1.5 --seed 3
same end.json "an end token that is drawn"
finish
