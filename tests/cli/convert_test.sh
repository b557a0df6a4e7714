# timeout: 120
# SPDX-License-Identifier: Apache-2.0
# keel convert: a GGUF of the tiny checkpoint becomes a folder that gives the reference's tokens; what cannot be converted
# leaves nothing behind.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
python3 "$cli/make_gguf.py" "$golden/tiny-qwen3" tiny.gguf

expect 0 convert --from-gguf tiny.gguf made
grep -qE '^made: [0-9.]+ kB of GGUF became [0-9.]+ kB of bf16 in [0-9.]+ s$' out || wrong "the last line: $(cat out)"
[ ! -s err ] || wrong "progress where there is no terminal: $(cat err)"
expect 0 convert --from-gguf tiny.gguf made32 --dtype f32 --json
holds "convert --json" out 'v["folder"] == "made32" and v["dtype"] == "f32" and v["folder_bytes"] > v["gguf_bytes"] > 0'
for folder in made made32; do
    python3 "$cli/golden.py" "$KEEL" "$folder" "$golden/tiny-qwen3/golden.json" --workers 2 || wrong "$folder: tokens"
done
expect 0 run made --prompt 'def f(a): # x' --max-new-tokens 1 --json
cp out a
expect 0 run "$golden/tiny-qwen3" --prompt 'def f(a): # x' --max-new-tokens 1 --json
python3 -c 'import json; assert json.load(open("a"))["prompt_ids"] == json.load(open("out"))["prompt_ids"]' || wrong "other prompt ids"
if script -qec true typescript </dev/null >/dev/null 2>&1; then # there may be no pseudo-terminals
    script -qec "'$KEEL' convert --from-gguf tiny.gguf shown" typescript </dev/null >/dev/null
    grep -q '###.* %' typescript || wrong "no progress on a terminal: $(cat typescript)"
fi

# refused DIRECTORY-wise: nothing appears, what is there stays
nothing_left() { [ -z "$(find . -maxdepth 1 -name 'new*')" ] || { wrong "$1: left $(echo new*)"; rm -rf new*; }; }
sum=$(cat made/* | sha256sum)
refused 2 'made: already exists' convert --from-gguf tiny.gguf made
[ "$(cat made/* | sha256sum)" = "$sum" ] || wrong "an existing folder was touched"
refused 2 'none.gguf' convert --from-gguf none.gguf new
refused 2 'none' convert --from-gguf tiny.gguf none/new
bytes=$(stat -c %s tiny.gguf)
for n in 0 3 20 100 3000 $((bytes / 2)) $((bytes - 1)); do
    head -c "$n" tiny.gguf >short.gguf
    refused 2 'short.gguf' convert --from-gguf short.gguf new
    nothing_left "cut to $n bytes"
done
damage() { python3 - "$@" <<'END'
import sys
old, new = (s.encode() for s in sys.argv[1:])
data = open("tiny.gguf", "rb").read()
assert len(old) == len(new) and old in data
open("bad.gguf", "wb").write(data.replace(old, new))
END
}
damage GGUF GGML; refused 2 'bad.gguf' convert --from-gguf bad.gguf new; nothing_left magic
damage blk.1.attn_q.weight blk.1.attn_z.weight; refused 2 'blk.1.attn_q.weight is missing' convert --from-gguf bad.gguf new; nothing_left tensor
damage qwen2 qwen9; refused 2 'qwen9.*can be converted' convert --from-gguf bad.gguf new; nothing_left pre-tokenizer
damage qwen3 qwen9; refused 2 'qwen9.*can be converted' convert --from-gguf bad.gguf new; nothing_left architecture

# a full disk: a limit on the size of files, and a small file system where we may mount one
status=0
(ulimit -f 100; exec "$KEEL" convert --from-gguf tiny.gguf new >out 2>err) || status=$?
[ $status -eq 2 ] && grep -q 'File too large' err || wrong "file size limit: exit status $status: $(cat err)"
nothing_left "file size limit"
mkdir small
if unshare -m true 2>/dev/null; then
    unshare -m bash -c 'mount -t tmpfs -o size=128k none small || exit 77
        status=0; "$KEEL" convert --from-gguf tiny.gguf small/new >out 2>err || status=$?
        [ $status -eq 2 ] && grep -q "No space left on device" err && [ -z "$(ls -A small)" ]' || {
        status=$?
        [ $status -eq 77 ] && echo "full disk left out: cannot mount" || { wrong "full disk"; show_output; }
    }
else
    echo "full disk left out: cannot mount"
fi
finish
