# timeout: 240
# SPDX-License-Identifier: Apache-2.0
# How a run on the GPU ends when it does not end by itself: a stop, an abort, workers that do not start; and that the
# emulator names what is wrong with broken device text.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1
synth=(run --synth tiny-qwen3 --device cuda --workers 3 --tokens 1,2,3 --max-new-tokens 4)

# the host's stop: within a step, and what was generated is kept
sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 1000000/' "$golden/tiny-qwen3/config.json" >long.json
status=0
python3 "$cli/interrupt.py" 2 "$KEEL" run --synth long.json --device cuda --workers 3 --tokens 1,2,3 \
    --max-new-tokens 3000 --max-seq 4000 --ignore-eos --save-tokens out.json 2>err || status=$?
[ $status -eq 3 ] || wrong "a stop: exit status $status"
grep -qE '^keel run: interrupted after [0-9]+ tokens; what was generated is kept$' err || wrong "a stop: $(cat err)"
holds "a stop" out.json '0 < len(v["token_ids"]) < 3000'

# another program holds a multiprocessor
KEEL_EMU_HELD=1 refused 3 'only 2 of 3 workers could start' "${synth[@]}"
# more workers than multiprocessors
KEEL_EMU_SMS=2 refused 2 'the plan has 3 workers; this GPU has 2 multiprocessors' "${synth[@]}"

# consumers that keep their pages (fault 13): the watchdog aborts, every lane leaves and says what it waited for
export KEEL_EMU_CXXFLAGS=-DKP_FAULT=13
KEEL_EMU_WAIT=1 expect 3 "${synth[@]}" --watchdog 1
grep -q 'no progress for 1 s; the run was aborted' err || wrong "an abort: $(cat err)"
grep -qE 'worker [0-9] launcher, iteration 0, l0\.[a-z_.]+: waits for page [0-9]+' err || wrong "an abort: $(cat err)"
for worker in 0 1 2; do
    grep -qE "worker $worker launcher, .*: waits for page" err || wrong "an abort: worker $worker's page is not named: $(cat err)"
    [ "$(grep -cE "worker $worker consumer, .*waits for its inputs" err)" = 1 ] || wrong "an abort: lanes that say the same: $(cat err)"
done
# without a watchdog's help the emulator sees that nothing can go on
expect 2 "${synth[@]}"
grep -q 'keel emulator: keel_run, stuck' err || wrong "stuck: $(cat err)"
grep -qE 'block [0-9] warp [2-5] threads 0xffffffff: wait for parity [01] of mbarrier in block [0-9] shared page_free' err ||
    wrong "stuck: no page is named: $(cat err)"
grep -q 'kp_claim at protocol.h:' err || ! command -v addr2line >/dev/null || wrong "stuck: no line of the device text"

# a lost arrival (fault 11: a barrier counts one lane more than there is)
KEEL_EMU_CXXFLAGS=-DKP_FAULT=11 expect 2 "${synth[@]}"
grep -qE 'mbarrier in block [0-9] shared worker\+0x[0-9a-f]+: 1 of 5 arrivals and 0 bytes are missing' err ||
    wrong "a lost arrival: $(cat err)"
finish
