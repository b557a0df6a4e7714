# timeout: 240
# SPDX-License-Identifier: Apache-2.0
# keel run: what goes in, what comes out, and that it comes out the same again.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
model=$golden/tiny-qwen3
run() { expect 0 run "$model" --workers 2 --ignore-eos "$@"; }
record() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[int(sys.argv[2])][sys.argv[3]], end="")' "$model/golden.json" "$@"; }
without_times() { sed -E 's/"t(tft|pot)_ms": ?[0-9.e+-]+/"t"/g' "$1"; }

# text in, text out: streamed bytes, saved object and --json say the same, and the text is the reference's
record 1 prompt >prompt.txt
run --prompt-file prompt.txt --max-new-tokens 48 --save-tokens a.json
holds "run" a.json 'list(v) == ["prompt_ids", "token_ids", "text", "ttft_ms", "tpot_ms"] and v["ttft_ms"] > 0 and v["tpot_ms"] > 0'
python3 - "$model/golden.json" <<'END' || wrong "text, prompt or stream differ from the reference"
import json, sys
want = json.load(open(sys.argv[1]))[1]
got = json.load(open("a.json", encoding="utf-8"))
assert got["prompt_ids"] == want["prompt_ids"], "prompt_ids"
if got["token_ids"] == want["greedy_ids"]:
    assert got["text"] == want["text"], (got["text"], want["text"])
assert open("out", "rb").read() == got["text"].encode() + b"\n", "stdout"
END
grep -qE '^prompt 13 tokens, prefill [0-9.]+ ms \(TTFT\), [0-9.]+ tokens/s; generated 48 tokens, decode [0-9.]+ ms/token \(TPOT\), [0-9.]+ tokens/s$' err ||
    wrong "the line of times: $(cat err)"
run --prompt-file prompt.txt --max-new-tokens 48 --json
[ ! -s err ] || wrong "--json writes to stderr"
holds "--json" out '{"prompt_ids", "token_ids", "text", "ttft_ms", "tpot_ms", "ended"} <= set(v) and v["ended"] == "length"'
python3 -c 'import json; a, b = json.load(open("a.json")), json.load(open("out")); assert all(a[k] == b[k] for k in ("prompt_ids", "token_ids", "text"))' ||
    wrong "--json and --save-tokens differ"

prompt=$(cat prompt.txt; echo x)
run --prompt "${prompt%x}" --max-new-tokens 48 --save-tokens b.json
cmp <(without_times a.json) <(without_times b.json) || wrong "--prompt and --prompt-file differ"

# the same again is the same, byte for byte but for the times
run --prompt-file prompt.txt --max-new-tokens 48 --save-tokens b.json
cmp <(without_times a.json) <(without_times b.json) || wrong "two runs differ"

# bytes as they are: line ends, NUL and bytes that are not UTF-8 count; a pipe will do
printf 'a' >a.txt; printf 'a\n' >b.txt; printf 'a\0b' >nul.txt; printf 'a\xffb' >bad.txt; : >empty.txt
for name in a b nul bad; do
    run --prompt-file $name.txt --max-new-tokens 1 --save-tokens $name.ids
done
run --prompt a --max-new-tokens 1 --save-tokens text.ids
cmp <(without_times a.ids) <(without_times text.ids) || wrong "--prompt-file and --prompt differ"
holds "a line's end" b.ids 'len(v["prompt_ids"]) == 2'
holds "NUL" nul.ids 'len(v["prompt_ids"]) == 3'
holds "not UTF-8" bad.ids 'len(v["prompt_ids"]) >= 3'
run --prompt-file <(printf a) --max-new-tokens 1 --json
holds "a pipe" out 'v["prompt_ids"] == [67]'
refused 2 'the prompt is empty' run "$model" --prompt-file empty.txt
refused 2 'none.txt: No such file' run "$model" --prompt-file none.txt

# logits under teacher forcing, against the reference's; the three spellings of a list of ids
for name in tiny-qwen3 tiny-llama tiny-yarn; do
    python3 - "$golden/$name/logits_first.json" <<'END'
import json, sys
v = json.load(open(sys.argv[1]))
open("prompt.ids", "w").write(",".join(map(str, v["prompt_ids"])))
ids = v["forced_ids"] + [0]  # one more step than forced ids: the last is never fed
json.dump(ids, open("list.json", "w"))
json.dump({"token_ids": ids}, open("object.json", "w"))
json.dump({"greedy_ids": ids, "text": "x"}, open("greedy.json", "w"))
open("words.txt", "w").write("\n".join(map(str, ids)) + "\n")
END
    for form in list.json object.json greedy.json words.txt; do
        expect 0 run "$golden/$name" --tokens "$(cat prompt.ids)" --teacher-force $form --save-logits $form.st
        cmp list.json.st $form.st || wrong "$form: other logits"
    done
    python3 "$cli/logits.py" list.json.st "$golden/$name/logits_first.json" || wrong "$name: logits"
done
! python3 "$cli/logits.py" list.json.st "$model/logits_first.json" >/dev/null || wrong "wrong logits were not seen"

# What is forced is what is fed: the same as having it in the prompt. Neither id is the model's own choice.
echo '400 9 3' >forced.txt
run --tokens 1,2,3 --teacher-force forced.txt --save-logits fed.st --save-tokens fed.json --max-new-tokens 3
run --tokens 1,2,3,400,9 --max-new-tokens 1 --save-logits prompted.st
python3 "$cli/logits.py" fed.st prompted.st || wrong "forced ids are not what is fed"
holds "forced ids differ from the choice" fed.json 'v["token_ids"][0] != 400 and v["token_ids"][1] != 9'

# slices of layers
run --tokens 1,2,3 --max-new-tokens 8 --save-logits all.st
run --tokens 1,2,3 --max-new-tokens 8 --save-logits same.st --layers 0-1
cmp all.st same.st || wrong "--layers 0-1 of two is not the whole"
run --tokens 1,2,3 --max-new-tokens 8 --save-logits same.st --layers 0-
cmp all.st same.st || wrong "--layers 0- is not the whole"
for slice in 0 1-1; do
    run --tokens 1,2,3 --max-new-tokens 8 --save-logits slice.st --layers $slice
    ! cmp -s all.st slice.st || wrong "--layers $slice changed nothing"
done
refused 2 'the model has the layers 0-1' run "$model" --tokens 1 --layers 0-2

# sampling: by the seed; cut to one token it is greedy
sample() { run --tokens 67 --max-new-tokens 40 --temperature 2 --save-tokens "$@"; }
sample s1.json --seed 1; sample s1again.json --seed 1; sample s2.json --seed 2; sample greedy.json --seed 3 --top-k 1
cmp <(without_times s1.json) <(without_times s1again.json) || wrong "the same seed gave other tokens"
! cmp -s <(without_times s1.json) <(without_times s2.json) || wrong "another seed gave the same tokens"
run --tokens 67 --max-new-tokens 40 --save-tokens plain.json
cmp <(without_times greedy.json) <(without_times plain.json) || wrong "--top-k 1 is not greedy"

# end tokens: of generation_config.json, included in the output, passed over with --ignore-eos
cp -r "$model" stops
stop=$(record 1 greedy_ids | tr -d '[],' | cut -d' ' -f6)
printf '{"eos_token_id": [2, %s]}' "$stop" >stops/generation_config.json
expect 0 run stops --prompt-file prompt.txt --max-new-tokens 48 --json
holds "end token" out "v['ended'] == 'stop_id' and v['token_ids'][-1] == $stop and $stop not in v['token_ids'][:-1] and len(v['token_ids']) <= 6"
expect 0 run stops --prompt-file prompt.txt --max-new-tokens 48 --json --ignore-eos
holds "--ignore-eos" out 'len(v["token_ids"]) == 48'

# how much: nothing; and as much as fits where nobody asked
run --tokens 1,2 --max-new-tokens 0 --json
holds "--max-new-tokens 0" out 'v["token_ids"] == [] and v["text"] == ""'
run --tokens 1,2 --max-seq 64 --json
holds "--max-seq 64" out 'len(v["token_ids"]) == 63'

# chat
expect 0 run "$model" --chat --prompt hi --max-new-tokens 1 --json
cp out chat.json
holds "--chat" chat.json 'v["prompt_ids"][0] == 1 and 2 in v["prompt_ids"]'
expect 0 run "$model" --chat --system 'be brief' --prompt hi --max-new-tokens 1 --json
holds "--system" out 'v["prompt_ids"] != json.load(open("chat.json"))["prompt_ids"]'
cp -r "$model" plain
sed -i 's/im_start/im_other/g' plain/tokenizer.json
refused 2 'im_start' run plain --chat --prompt hi

# a plan from a file gives the same tokens; one for another model, or none at all, is refused
expect 0 plan "$model" --workers 2 -o x.plan
expect 0 run "$model" --plan x.plan --ignore-eos --tokens 67 --max-new-tokens 40 --save-tokens planned.json
cmp <(without_times planned.json) <(without_times plain.json) || wrong "--plan gave other tokens"
expect 0 plan --synth qwen3-0.6b --workers 2 -o other.plan
refused 2 . run "$model" --plan other.plan --tokens 67

# synthetic weights: by the seed
synth() { expect 0 run --synth "$1" --tokens 1,2 --max-new-tokens 4 --save-logits "$2"; }
synth tiny-llama:5 s5.st; synth tiny-llama:5 s5again.st; synth tiny-llama s0.st; synth tiny-llama:0 s0again.st
cmp s5.st s5again.st && cmp s0.st s0again.st || wrong "the same seed gave other weights"
! cmp -s s5.st s0.st || wrong "another seed gave the same weights"
finish
