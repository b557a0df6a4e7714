# timeout: 240
# SPDX-License-Identifier: Apache-2.0
# No access of the GPU backend's device text races with another, under several plans and schedules; where a wait is left
# out, the emulator says so.
. "$KEEL_SOURCE_DIR/tests/emu/lib.sh" || exit 1
export KEEL_EMU_RACES=1
ids=3,4,5,6,7
many=$ids,8,9,10,11,12,13,14,15,16,17,18,19,20
clean() { expect 0 run --device cuda --max-new-tokens 2 "$@"; }

for seed in 1 2; do
    export KEEL_EMU_SEED=$seed
    clean --synth tiny-qwen3 --workers 4 --tokens $many
    clean --synth tiny-llama --workers 3 --tokens $ids --batch 1 --kv-splits 3 --page-tokens 16
done

# raced FAULT WHERE: device text with that fault races there
raced() {
    KEEL_EMU_CXXFLAGS=-DKP_FAULT=$1 expect 2 run --device cuda --tokens $many --max-new-tokens 2 \
        --synth tiny-qwen3 --workers 4
    grep -qE "race: a (read|write) by block [0-9] thread [0-9]+ in .*$2" err || wrong "fault $1: $(head -n 20 err)"
}
raced 15 'allocation'           # the event is triggered before the results are there
raced 16 'shared worker\+'      # a slot is filled again before its last task is over
finish
