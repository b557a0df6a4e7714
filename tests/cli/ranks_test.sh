# timeout: 120
# SPDX-License-Identifier: Apache-2.0
# keel run --tp: processes that share memory give what one gives, and end together whatever happens to one of them.
. "$KEEL_SOURCE_DIR/tests/cli/lib.sh" || exit 1
export XDG_CACHE_HOME=$work/cache

# goldens made by transformers, biases and a scaled rope among them
for model in tiny-llama tiny-qwen3; do
    python3 "$cli/golden.py" "$KEEL" "$golden/$model" "$golden/$model/golden.json" --tp 2 >golden.out 2>&1 ||
        wrong "$model at tp 2: $(tail -n 3 golden.out)"
done

# synthetic Llama shapes: 8 KV heads, cut 2, 4 and 8 times
python3 - "$golden/tiny-llama/config.json" <<'EOF'
import json, sys
c = json.load(open(sys.argv[1], encoding="utf-8"))
c.update(hidden_size=256, intermediate_size=512, num_attention_heads=16, num_key_value_heads=8, head_dim=16,
         num_hidden_layers=3, vocab_size=640, attention_bias=False)
json.dump(c, open("wide.json", "w", encoding="utf-8"))
EOF
wide=(run --synth wide.json:3 --tokens 5,6,7,8 --max-new-tokens 24 --ignore-eos)
expect 0 "${wide[@]}" --workers 2 --save-tokens tp1.json --save-logits tp1.safetensors
for tp in 2 4 8; do
    expect 0 "${wide[@]}" --workers 2 --tp $tp --save-tokens tp$tp.json --save-logits tp$tp.safetensors
    holds "tp $tp" tp$tp.json "v['token_ids'] == json.load(open('tp1.json'))['token_ids']"
    python3 "$cli/logits.py" tp$tp.safetensors tp1.safetensors || wrong "logits at tp $tp"
done
# a rank adds in rank order: the same bits every time, whatever the processes do
expect 0 "${wide[@]}" --tp 4 --lanes 2 --workers 3 --kv-splits 1 --save-logits a.safetensors
expect 0 "${wide[@]}" --tp 4 --workers 1 --kv-splits 1 --save-logits b.safetensors
cmp -s a.safetensors b.safetensors || wrong "two runs at tp 4 differ"
expect 0 "${wide[@]}" --tp 2 --temperature 0.8 --seed 7 --save-tokens s1.json
expect 0 "${wide[@]}" --temperature 0.8 --seed 7 --save-tokens s2.json
holds "sampling at tp 2" s1.json "v['token_ids'] == json.load(open('s2.json'))['token_ids']"

# what does not divide, and bad input, is told once
refused 2 'tp|ranks' run --synth wide.json --tp 65 --tokens 1
refused 1 'divide' run --synth wide.json --tp 3 --tokens 1
refused 2 'no such|No such|cannot' run nowhere --tp 2 --tokens 1
[ "$(grep -c nowhere err)" -eq 1 ] || wrong "said more than once: $(cat err)"
refused 2 'vocabulary' run --synth wide.json --tp 4 --tokens 100000
[ "$(grep -c vocabulary err)" -eq 1 ] || wrong "said more than once: $(cat err)"

# a rank that dies takes the job with it, and is named; nothing is left behind
sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 1000000/' wide.json >long.json
long=(run --synth long.json --tokens 1,2,3 --max-new-tokens 200000 --max-seq 250000 --workers 1 --ignore-eos --tp 3)
sed -i 's/"num_attention_heads": 16/"num_attention_heads": 24/; s/"num_key_value_heads": 8/"num_key_value_heads": 12/; s/"intermediate_size": 512/"intermediate_size": 768/' long.json
for victim in 0 1 2; do
    "$KEEL" "${long[@]}" >out 2>err </dev/null &
    job=$!
    sleep 1.5
    child=$(pgrep -P $job | sort -n | sed -n "$((victim + 1))p")
    kill -9 "$child" || wrong "no process of rank $victim"
    status=0
    wait $job || status=$?
    [ $status -eq 3 ] || wrong "rank $victim killed: exit status $status: $(cat err)"
    ! ls "/dev/shm/keel.$job."* 2>/dev/null || wrong "rank $victim killed: shared memory is left"
    grep -q "rank $victim" err || wrong "rank $victim killed, not named: $(cat err)"
    ! pgrep -P $job >/dev/null || wrong "processes are left"
done

# a rank that ends before all have come, and a signal at the very start, leave nothing either
expect 0 plan "$golden/tiny-qwen3" --tp 2 -o w.plan
cp w.plan.rank0 keep && cp keep w.plan.rank1
"$KEEL" run "$golden/tiny-qwen3" --tp 2 --plan w.plan --tokens 67 >out 2>err </dev/null &
job=$!
status=0
wait $job || status=$?
[ $status -ne 0 ] || wrong "two plans of rank 0 ran"
! ls "/dev/shm/keel.$job."* 2>/dev/null || wrong "shared memory is left behind a refused plan"
for wait_s in 0.02 0.04 0.1; do
    "$KEEL" "${long[@]}" >out 2>err </dev/null &
    job=$!
    sleep $wait_s
    kill -TERM $job 2>/dev/null || true
    wait $job || true
    ! ls "/dev/shm/keel.$job."* 2>/dev/null || wrong "a signal after $wait_s s leaves shared memory"
    ! pgrep -P $job >/dev/null || wrong "a signal after $wait_s s leaves processes"
done

# an interrupt ends all ranks after the same token; what was generated is kept
status=0
python3 "$cli/interrupt.py" 2 "$KEEL" "${long[@]}" --save-tokens out.json 2>err || status=$?
[ $status -eq 3 ] || wrong "interrupt: exit status $status: $(cat err)"
holds "interrupt" out.json '0 < len(v["token_ids"]) < 200000'
finish
