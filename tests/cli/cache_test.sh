# timeout: 240
# SPDX-License-Identifier: Apache-2.0
# keel convert --build-cache-only and --list; and conversions that are killed at random moments, alone and beside others:
# what comes after always succeeds, gives the bytes of an undisturbed conversion, and finds no lock.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1

# a checkpoint of 40 MB, nearly half of it in weights whose columns are cut
python3 - "$golden/tiny-llama/config.json" big <<'END'
import json, os, random, struct, sys
config = json.load(open(sys.argv[1]))
hidden, inner, layers, vocab = 512, 2048, 4, 512
config.update(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, vocab_size=vocab,
              num_attention_heads=8, num_key_value_heads=4, head_dim=64, attention_bias=False, tie_word_embeddings=True)
os.mkdir(sys.argv[2])
json.dump(config, open(sys.argv[2] + "/config.json", "w"))
shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
for i in range(layers):
    at = f"model.layers.{i}."
    for name, shape in {"self_attn.q_proj": [512, hidden], "self_attn.k_proj": [256, hidden],
                        "self_attn.v_proj": [256, hidden], "self_attn.o_proj": [hidden, 512],
                        "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden],
                        "mlp.down_proj": [hidden, inner], "input_layernorm": [hidden],
                        "post_attention_layernorm": [hidden]}.items():
        shapes[at + name + ".weight"] = shape
header, end, rng = {}, 0, random.Random(1)
for name, shape in shapes.items():
    size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
    end += size
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[2] + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + rng.randbytes(end))
END

# what it says, and what it makes
convert=(convert big --build-cache-only --cache-dir cache)
expect 0 "${convert[@]}" --tp 2
[ "$(grep -cE '^rank [01] of 2: converted, 8 tensors, [0-9.]+ MB in [0-9.]+ s, cache/[0-9a-f]{64}/rank[01].safetensors$' out)" -eq 2 ] || wrong "tp 2: $(cat out)"
[ ! -s err ] || wrong "progress where there is no terminal: $(cat err)"
expect 0 "${convert[@]}" --tp 2
[ "$(grep -c ': was there, verified, ' out)" -eq 2 ] || wrong "a second time: $(cat out)"
expect 0 "${convert[@]}" --tp 2 --rank 1 --json
holds "--rank 1 --json" out 'v["tp"] == 2 and len(v["ranks"]) == 1 and v["ranks"][0]["rank"] == 1 and not v["ranks"][0]["built"]'
expect 0 "${convert[@]}" --tp 4 --rank 2 --head vocab-parallel --jobs 1 --json
holds "another cut" out 'v["ranks"][0]["built"] and v["ranks"][0]["path"].endswith("/rank2.safetensors")'
expect 0 "${convert[@]}"
grep -q 'rank 0 of 1: nothing to convert' out || wrong "tp 1: $(cat out)"
expect 0 convert --list --cache-dir cache --verify --json
holds "--list" out '(sorted((e["tp"], e["rank"], e["state"], e["head"], e["recipe"]) for e in v["entries"]) ==
    [(2, 0, "ready", "replicated", "cpu-1"), (2, 1, "ready", "replicated", "cpu-1"), (4, 2, "ready", "vocab-parallel", "cpu-1")]
    and all(e["architecture"] == "LlamaForCausalLM" and e["model"].endswith("/big") and e["bytes"] > 1e6 for e in v["entries"]))'
expect 0 convert --list --cache-dir cache
grep -qE '/big: LlamaForCausalLM, rank 1 of 2, head replicated, cpu-1, 8 tensors, [0-9.]+ MB, [0-9]+ (s|min) old: ready$' out || wrong "--list: $(cat out)"
expect 0 convert --list --cache-dir none
grep -q '^none: empty$' out || wrong "an empty cache: $(cat out)"
absent none

# the columns of the whole, cut in two, against the checkpoint
python3 - big cache <<'END' || wrong "the cached bytes are not the columns of the checkpoint"
import glob, json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    (n,) = struct.unpack_from("<Q", data)
    return {k: (v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
whole, seen = tensors(sys.argv[1] + "/model.safetensors"), 0
for path in glob.glob(sys.argv[2] + "/*/rank*.safetensors"):
    inputs = json.load(open(path.replace(".safetensors", ".json")))["inputs"]
    for name, (shape, data) in tensors(path).items():
        (rows, columns), all_data = whole[name]
        part = columns // inputs["world"]
        assert shape == [rows, part], (name, shape)
        want = b"".join(all_data[2 * (r * columns + inputs["rank"] * part):][:2 * part] for r in range(rows))
        assert data == want, name
        seen += 1
assert seen == 24, seen
END

# where the cache is
(unset XDG_CACHE_HOME; HOME=$work/home keel convert big --build-cache-only --tp 2 --rank 0; [ "$status" -eq 0 ]) || wrong "HOME: $(cat err)"
(XDG_CACHE_HOME=$work/xdg HOME=/nonexistent keel convert big --build-cache-only --tp 2 --rank 0; [ "$status" -eq 0 ]) || wrong "XDG_CACHE_HOME: $(cat err)"
[ -n "$(ls home/.cache/keel/*/rank0.safetensors xdg/keel/*/rank0.safetensors)" ] || wrong "the default folder"
(unset XDG_CACHE_HOME HOME; keel convert --list; [ "$status" -eq 2 ] && grep -q -- 'give --cache-dir' err) || wrong "neither HOME nor XDG_CACHE_HOME: $(cat err)"

# damage and change
first=$(ls cache/*/rank1.safetensors | head -n 1)
sum=$(sha256sum <"$first")
printf x | dd of="$first" bs=1 seek=100000 conv=notrunc status=none
refused_list() { keel convert --list --cache-dir cache --verify; [ "$status" -eq 1 ] && grep -q 'damaged, ' out && grep -q '1 of 3 entries are damaged' err || wrong "--list --verify: $status $(cat out err)"; }
refused_list
expect 0 "${convert[@]}" --tp 2
grep -q '^rank 1 of 2: .*SHA-256' out && grep -q '^rank 1 of 2: converted' out && grep -q '^rank 0 of 2: was there' out || wrong "after damage: $(cat out)"
[ "$(sha256sum <"$first")" = "$sum" ] || wrong "rebuilt to other bytes"
touch big/model.safetensors
expect 0 convert --list --cache-dir cache
[ "$(grep -c "old: stale, the checkpoint's model.safetensors has changed" out)" -eq 3 ] || wrong "a touched checkpoint: $(cat out)"
expect 0 "${convert[@]}" --tp 2
[ "$(grep -c ': converted, ' out)" -eq 2 ] || wrong "after a touch: $(cat out)"

# wrong use
refused 2 '--rank 2: the ranks of --tp 2 are 0 to 1' "${convert[@]}" --tp 2 --rank 2
refused 2 "--head: 'half' is none of" "${convert[@]}" --head half
refused 2 '--jobs: .0. is not' "${convert[@]}" --jobs 0
refused 2 'give one MODEL' convert --build-cache-only --cache-dir cache
refused 2 '--list: takes no MODEL' convert --list big
refused 2 '--tp: does not go with --from-gguf' convert --from-gguf x out --tp 2
refused 2 '--from-gguf: what to convert is missing' convert big --tp 2
refused 2 'big/config.json: is a file' convert big/config.json --build-cache-only --cache-dir cache
refused 2 'none/config.json' convert none --build-cache-only --cache-dir cache
refused 1 'divide' "${convert[@]}" --tp 3
echo file >plain
refused 2 'plain: is in the way of a folder' convert big --build-cache-only --tp 2 --cache-dir plain
refused 2 '--cache-dir: names no folder' convert big --build-cache-only --tp 2 --cache-dir ''

# no space
status=0
(ulimit -f 100; exec "$KEEL" convert big --build-cache-only --tp 2 --cache-dir full >out 2>err) || status=$?
[ $status -eq 2 ] && grep -q 'File too large' err || wrong "file size limit: exit status $status: $(cat err)"
[ -z "$(find full -name 'rank*')" ] || wrong "file size limit: left $(find full -name 'rank*')"

# killed at random moments
python3 - "$KEEL" 50 <<'END' || wrong "kills"
import fcntl, glob, hashlib, os, random, shutil, signal, subprocess, sys, time
keel, kills = sys.argv[1], int(sys.argv[2])
seed = int.from_bytes(os.urandom(4), "little")
rng = random.Random(seed)
print("seed", seed, file=sys.stderr)
command = [keel, "convert", "big", "--build-cache-only", "--tp", "2", "--jobs", "2", "--cache-dir", "killed"]
start = lambda: subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

def sums():
    return {path: hashlib.sha256(open(path, "rb").read()).hexdigest() for path in glob.glob("killed/*/rank*.safetensors")}

def done(child, what):
    try:
        errors = child.communicate(timeout=30)[1]
    except subprocess.TimeoutExpired:
        child.kill()
        sys.exit(f"{what}: waits for ever")
    if child.returncode:
        sys.exit(f"{what}: exit status {child.returncode}: {errors.decode()}")

def locks_free():
    for path in glob.glob("killed/*/lock") + glob.glob("killed/jobs/*"):
        with open(path) as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)

took = []
for _ in range(3):
    shutil.rmtree("killed", ignore_errors=True)
    began = time.monotonic()
    done(start(), "undisturbed")
    took.append(time.monotonic() - began)
clean, span = sums(), sorted(took)[1]
assert len(clean) == 2
half = early = 0
for i in range(kills):
    # a cold cache, one with damage, or one that holds one rank of two; alone, or beside a second process
    if i % 3 != 1:
        shutil.rmtree("killed", ignore_errors=True)
    for path in list(clean)[:1] if i % 3 == 2 else clean if i % 3 == 1 else []:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "r+b" if os.path.exists(path) else "wb") as f:
            f.seek(rng.randrange(1000))
            f.write(rng.randbytes(8))
    victim = start()
    other = start() if i % 2 else None
    time.sleep(rng.uniform(0, 1.1 * span * (2 if other else 1)))
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    early += victim.returncode == -signal.SIGKILL
    half += bool(glob.glob("killed/*/*.tmp.*"))
    if other:
        done(other, f"kill {i}: the other process")
    done(start(), f"kill {i}: the next process")
    if sums() != clean:
        sys.exit(f"kill {i}: other bytes than of an undisturbed conversion")
    left = glob.glob("killed/*/*.tmp.*")
    if left:
        sys.exit(f"kill {i}: left {left}")
    locks_free()
    done(subprocess.Popen([keel, "convert", "--list", "--verify", "--cache-dir", "killed"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE), f"kill {i}: --list --verify")
print(f"{kills} kills within {1.1 * span:.3f} s: {early} before the end, {half} with a half-written file left", file=sys.stderr)
if early < kills // 4 or not half:
    sys.exit("the kills came too late to show anything")
END
finish
