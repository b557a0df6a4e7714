# SPDX-License-Identifier: Apache-2.0
# Wrong use: exit status 2, a message that says what and where to read on, nothing written.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
model=$golden/tiny-qwen3
synth=(--synth tiny-qwen3 --tokens 1)

refused 2 'no verb; see keel --help'
refused 2 'rum: unknown verb \(did you mean run\?\)' rum
refused 2 'frobnicate: unknown verb; see keel --help' frobnicate
refused 2 'unknown option' --frobnicate
for verb in run "graph show" "graph export" "graph import" plan "plan show" convert bench; do
    read -ra words <<<"$verb"
    refused 2 "^keel $verb: --frobnicate: unknown option; see keel $verb --help$" "${words[@]}" --frobnicate
    refused 2 "^keel $verb: -x: unknown option; see keel $verb --help$" "${words[@]}" -x
    refused 2 "--jsn: unknown option \(did you mean --json\?\)" "${words[@]}" --jsn
    operands=(one)
    [ "$verb" != convert ] || operands+=(two) # MODEL OUT_DIR
    refused 2 "three: one operand too many" "${words[@]}" "${operands[@]}" three
    refused 2 "--json: takes no value" "${words[@]}" --json=yes
done

# options and their values
refused 2 "--workers: the value N is missing" run "$model" --workers
refused 2 "--prompt: the value TEXT is missing \(--chat follows" run "$model" --prompt --chat
refused 2 "--workers: given twice" run "$model" --workers 1 --workers 2
for bad in 0 -1 1x '' ' 1' 0x10 1.5 99999999999999999999999; do
    refused 2 "--workers: '$bad' is not a whole number from 1 to" run "${synth[@]}" --workers "$bad"
done
refused 2 "--lanes: '3' is not a whole number from 1 to 2" run "${synth[@]}" --lanes 3
for bad in x -1 inf nan 0x1 '' 1e; do
    refused 2 "--temperature: '$bad' is not a number from 0 to" run "${synth[@]}" --temperature "$bad"
done
refused 2 "--top-p: '1.5' is not a number from 0 to 1" run "${synth[@]}" --temperature 1 --top-p 1.5
for bad in 1-0 -1 x 1-x 0-1-2 ''; do
    refused 2 "--layers: '$bad' is no range" run "${synth[@]}" --layers "$bad"
done
for bad in '' 1, ,1 1,,2 a 1,b 4294967296 -5; do
    refused 2 "--tokens: '.*' \(entry [0-9]\) is not a whole number" run --synth tiny-qwen3 --tokens "$bad"
done
refused 2 "--dtype: 'f16' is none of f32\|bf16" convert --from-gguf x y --dtype f16
refused 2 "--device: 'gpu' is none of cpu\|cuda" run "${synth[@]}" --device gpu

# what goes together
refused 2 "no model: give a checkpoint folder or --synth" run --prompt x
refused 2 "give MODEL or --synth, not both" run "$model" "${synth[@]}"
refused 2 "no prompt: give --prompt, --prompt-file or --tokens" run "$model"
refused 2 "give one of --prompt, --prompt-file and --tokens" run "$model" --prompt x --tokens 1
refused 2 "--chat: wraps text, not --tokens" run "$model" --chat --tokens 1
refused 2 "--system: belongs to --chat" run "$model" --prompt x --system y
refused 2 "--top-k: needs a --temperature" run "${synth[@]}" --top-k 3
refused 2 "--workers: the plan of --plan says so" run "${synth[@]}" --plan x.plan --workers 2
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    refused 2 "no CUDA driver: libcuda.so.1 is not on this machine.*--device cpu" run "${synth[@]}" --device cuda
    refused 2 "no CUDA driver: libcuda.so.1 is not on this machine.*--device cpu" bench --synth tiny-qwen3 --device cuda
fi
refused 2 "--cubin: the value FILE is missing" plan "$model" --cubin
expect 2 plan "$model" --cubin x.cubin
grep -q "a plan for the CPU has no device code; plan with --arch sm_90a" err || wrong "plan --cubin for the CPU: $(cat err)"
absent x.cubin
refused 2 "--from-gguf: what to convert is missing" convert out
refused 2 "no OUT_DIR" convert --from-gguf x.gguf
refused 2 "no plan file" plan show
refused 2 "no such lever" plan --synth tiny-qwen3 --lever frobnicate
refused 2 "no such arch" plan --synth tiny-qwen3 --arch frobnicate
refused 2 "neither a geometry nor a file.*" plan --synth frobnicate
grep -q tiny-qwen3 err || wrong "an unknown geometry does not list the known ones"
refused 2 "the seed 'x' is not a whole number" plan --synth tiny-qwen3:x
refused 1 "missing role bodies.*" plan --synth tiny-qwen3 --arch sm_90a --tp 2
grep -q "op allreduce: " err || wrong "the missing bodies are not named: $(cat err)"

# with --json the error stands on stdout too, also when --json comes last or the fault is in another option
for arguments in "run --json --workers 0 --synth tiny-qwen3" "run --frobnicate --json" "plan /no/such/folder --json"; do
    read -ra words <<<"$arguments"
    expect 2 "${words[@]}"
    [ -s err ] || wrong "keel $arguments: nothing on stderr"
    holds "keel $arguments" out 'set(v) == {"error"} and v["error"]["status"] in ("USAGE", "MISSING") and v["error"]["detail"]'
done
expect 2 plan $'/no/such/\xff' --json
holds "a path that is not UTF-8" out '"\ufffd" in v["error"]["detail"]'
# behind -- everything is an operand
refused 2 "^keel plan: --json/config.json: " plan -- --json
# sizes
for size in 1 12GiB 1.5GB 80MiB 7kB; do refused 2 'bound of GPU memory .*the plan is for the CPU' run --synth tiny-qwen3 --tokens 1 --gpu-memory "$size"; done
for size in 0 GiB 1XB 1.2.3GB -1 1e5 '' 5gib; do refused 2 "^keel bench: --gpu-memory: '$size' is no size" bench --synth tiny-qwen3 --gpu-memory "$size"; done
refused 2 'device code .*the plan is for the CPU' run --synth tiny-qwen3 --tokens 1 --cubin none.cubin
finish
